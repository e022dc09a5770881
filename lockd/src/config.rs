//! What a server is told at its start.

use crate::core;
use crate::secrets::Secret;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// A server's configuration. [`Config::default`] needs no change to be used.
#[derive(Debug, Clone)]
pub struct Config {
    /// Addresses to listen on: `HOST:PORT`, port 0 for any free one, or `unix:PATH`.
    pub listen: Vec<String>,
    /// Keys held, at most. Acquires are refused from 90 % of it on.
    pub max_locks: usize,
    /// Waiters in all, at most. Acquires are refused from 90 % of it on.
    pub max_waiters: usize,
    /// Waiters for one key, at most; a tenth of `max_waiters` if it is not given.
    pub max_waiters_per_key: Option<usize>,
    /// Waiters of one connection, at most. Also bounds what the server keeps for a connection
    /// that does not read: this number times the largest frame.
    pub max_waiters_per_connection: usize,
    /// Connections, at most. One more is closed as soon as it is accepted.
    pub max_connections: usize,
    /// How long a connection may send nothing, while nothing waits on it, before it is closed; for
    /// ever if it is not given.
    pub idle_timeout: Option<Duration>,
    /// Files with secrets. With at least one secret, clients must prove that they know one.
    pub secret_files: Vec<PathBuf>,
    /// Secrets that are in no file.
    pub secrets: Vec<Secret>,
    /// Where tokens are kept from one run to the next. Without it they begin at `first_token` at
    /// every start.
    pub state_dir: Option<PathBuf>,
    /// No token below this is issued; from 1 to 2^64 - 2. With a state directory it counts only if
    /// it is above what comes next by the state: then nothing is granted for the longest lease
    /// there is, 255 s, since what was granted before is not known.
    pub first_token: u64,
    /// How long nothing is granted after a start, at least.
    pub quarantine: Duration,
    /// Where `/metrics` and `/healthz` are served over HTTP: `HOST:PORT`.
    pub metrics_listen: Option<String>,
    /// Path of a socket for [`crate::inspect`], which also serves `/metrics` and `/healthz`.
    pub admin_socket: Option<PathBuf>,
}

/// The address that a server listens on unless told otherwise.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:7420";
/// Keys held, unless told otherwise: a million below the refusal at 90 %.
pub const DEFAULT_MAX_LOCKS: usize = 1_250_000;
/// Waiters in all, unless told otherwise: a hundred thousand below the refusal at 90 %.
pub const DEFAULT_MAX_WAITERS: usize = 125_000;
/// Waiters of one connection, unless told otherwise.
pub const DEFAULT_MAX_WAITERS_PER_CONNECTION: usize = 10_000;
/// Connections, unless told otherwise.
pub const DEFAULT_MAX_CONNECTIONS: usize = 10_000;

/// The last token there is: the counter stops before it would overflow.
const LAST_TOKEN: u64 = u64::MAX - 1;

impl Default for Config {
    fn default() -> Config {
        Config {
            listen: vec![DEFAULT_LISTEN.into()],
            max_locks: DEFAULT_MAX_LOCKS,
            max_waiters: DEFAULT_MAX_WAITERS,
            max_waiters_per_key: None,
            max_waiters_per_connection: DEFAULT_MAX_WAITERS_PER_CONNECTION,
            max_connections: DEFAULT_MAX_CONNECTIONS,
            idle_timeout: None,
            secret_files: Vec::new(),
            secrets: Vec::new(),
            state_dir: None,
            first_token: 1,
            quarantine: Duration::ZERO,
            metrics_listen: None,
            admin_socket: None,
        }
    }
}

impl Config {
    /// The default, on a free port of the loopback interface.
    pub fn on_free_port() -> Config {
        Config { listen: vec!["127.0.0.1:0".into()], ..Config::default() }
    }

    /// The core's part of the limits.
    ///
    /// # Errors
    /// `InvalidInput` if a limit is 0 or more than the tables can number.
    pub(crate) fn limits(&self) -> io::Result<core::Limits> {
        let per_key = self.max_waiters_per_key.unwrap_or((self.max_waiters / 10).max(1));
        for (name, limit) in [
            ("max-locks", self.max_locks),
            ("max-waiters", self.max_waiters),
            ("max-waiters-per-key", per_key),
            ("max-waiters-per-connection", self.max_waiters_per_connection),
            ("max-connections", self.max_connections),
        ] {
            if limit == 0 || limit >= u32::MAX as usize {
                let what = format!("{name} must be from 1 to {}", u32::MAX - 1);
                return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
            }
        }
        if !(1..=LAST_TOKEN).contains(&self.first_token) {
            let what = format!("first-token must be from 1 to {LAST_TOKEN}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        Ok(core::Limits {
            locks: self.max_locks,
            waiters: self.max_waiters,
            waiters_per_key: per_key,
            waiters_per_connection: self.max_waiters_per_connection,
        })
    }

    /// Every secret, those of the files read now.
    ///
    /// # Errors
    /// A file that cannot be read or does not hold a secret.
    pub(crate) fn all_secrets(&self) -> io::Result<Vec<Secret>> {
        let mut secrets = self.secrets.clone();
        for path in &self.secret_files {
            secrets.push(Secret::read(path)?);
        }
        Ok(secrets)
    }
}
