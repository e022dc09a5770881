//! What survives a restart: which tokens may have been issued, and for how long leases that were
//! granted before may still be running.

mod disk;
mod record;
#[cfg(test)]
mod tests;

use crate::core::Journal;
pub use disk::Disk;

use disk::Directory;
use record::Record;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Tokens that are reserved at once. Those that a crash leaves unused are never issued.
const BLOCK: u64 = 1 << 20;
/// No lease is longer.
const LONGEST_LEASE: Duration = Duration::from_secs(u8::MAX as u64);

/// The durable state, and this process's claim to it.
#[derive(Debug)]
pub struct State {
    disk: Box<dyn Disk>,
    /// How many tokens are reserved at once.
    block: u64,
    /// The last token that the record allows.
    reserved: u64,
}

/// What a start has to respect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Past {
    /// The first token that was certainly never issued.
    pub first_token: u64,
    /// How long leases of before may still be running, counted from now.
    pub quarantine: Duration,
    /// Whether the last server that used the state stopped cleanly; `None` if there was none.
    pub stopped: Option<bool>,
}

impl State {
    /// Takes the directory and reads what it holds. Marks it as in use, so that a start which
    /// could not write later fails now. No token below `first_token` (1 or more) is issued.
    ///
    /// # Errors
    /// Another server uses it, or it cannot be read or written, or it is damaged. The message
    /// names it.
    pub(crate) fn open(path: &Path, first_token: u64) -> io::Result<(State, Past)> {
        let open = || State::from_token(Box::new(Directory::open(path)?), BLOCK, first_token);
        open().map_err(|error| {
            let what = format!("state directory {}: {error}", path.display());
            io::Error::new(error.kind(), what)
        })
    }

    /// Reads what `disk` holds and marks it as in use. `block` tokens are reserved at once.
    ///
    /// # Errors
    /// As [`State::open`], without the directory's name.
    pub fn on(disk: Box<dyn Disk>, block: u64) -> io::Result<(State, Past)> {
        State::from_token(disk, block, 1)
    }

    /// As [`State::on`]. If tokens below `first_token` were to come, they are passed over, and
    /// the longest lease there is may still be running: what was granted before is not known.
    fn from_token(
        mut disk: Box<dyn Disk>,
        block: u64,
        first_token: u64,
    ) -> io::Result<(State, Past)> {
        let record = match disk.read()? {
            None => None,
            Some(bytes) => Some(Record::decode(&bytes).map_err(|damaged| {
                let what = format!(
                    "the state file is damaged: {damaged}. It keeps fencing tokens from being \
                     issued twice: a copy may take its place only if nothing was granted after \
                     the copy was made; otherwise remove it and start with --first-token above \
                     every token ever granted"
                );
                io::Error::new(io::ErrorKind::InvalidData, what)
            })?),
        };
        let mut tokens = record.map_or(0, |record| record.tokens);
        let mut quarantine = record.map_or(Duration::ZERO, |record| record.quarantine);
        if tokens < first_token.saturating_sub(1) {
            tokens = first_token - 1;
            quarantine = quarantine.max(LONGEST_LEASE);
            tracing::warn!(first_token, "tokens were set forward: leases of before are not known");
        }
        let past = Past {
            first_token: tokens.saturating_add(1),
            quarantine,
            stopped: record.map(|record| record.stopped),
        };
        #[cfg(canary)]
        let past = Past {
            first_token: match lockclient::canary!(tokens_survive_restarts) {
                true => past.first_token.saturating_sub(block).max(1),
                false => past.first_token,
            },
            quarantine: match lockclient::canary!(leases_outlive_restarts) {
                true => past.quarantine / 4,
                false => past.quarantine,
            },
            ..past
        };
        let mut state = State { disk, block, reserved: tokens };
        state.replace(Record { stopped: false, tokens, quarantine: past.quarantine })?;
        Ok((state, past))
    }

    fn replace(&mut self, record: Record) -> io::Result<()> {
        self.disk.write(&record.encode())?;
        self.disk.sync_file()?;
        self.disk.rename()?;
        self.disk.sync_directory()
    }
}

impl Journal for State {
    fn reserve(&mut self, issued: u64, lease: u8) -> io::Result<u64> {
        let tokens =
            if issued < self.reserved { self.reserved } else { issued.saturating_add(self.block) };
        let quarantine = Duration::from_secs(u64::from(lease));
        self.replace(Record { stopped: false, tokens, quarantine })?;
        self.reserved = tokens;
        Ok(tokens)
    }

    fn stop(&mut self, issued: u64, remaining: Duration) -> io::Result<()> {
        self.replace(Record { stopped: true, tokens: issued, quarantine: remaining })
    }
}
