//! `lockd inspect`.

use clap::Args;
use lockd::LockLine;
use std::io::{self, Write};
use std::path::PathBuf;

/// List the locks that a running server holds.
#[derive(Debug, Args)]
pub(crate) struct Inspect {
    /// The server's admin socket
    #[arg(long, value_name = "PATH", env = "LOCKD_ADMIN_SOCKET")]
    admin_socket: PathBuf,

    /// Only locks whose name begins with this
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,

    /// How many to list, at most
    #[arg(long, value_name = "N", default_value_t = 1000,
          value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,

    /// One JSON object a line instead of a table
    #[arg(long)]
    json: bool,
}

impl Inspect {
    /// Prints the list. That a reader of it has enough is no error.
    pub(crate) fn run(&self) -> io::Result<()> {
        let mut out = io::BufWriter::new(io::stdout().lock());
        let listed = self.list(&mut out).and_then(|()| out.flush());
        match listed {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            result => result,
        }
    }

    fn list(&self, out: &mut impl Write) -> io::Result<()> {
        if !self.json {
            writeln!(out, "{:>20} {:>12} {:>8}  KEY", "TOKEN", "REMAINING", "WAITERS")?;
        }
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        lockd::inspect(&self.admin_socket, &self.prefix, limit, |lock| {
            if self.json {
                return writeln!(out, "{}", serde_json::json!(lock));
            }
            let LockLine { key, token, remaining_ms, waiters } = lock;
            let seconds = remaining_ms as f64 / 1000.0;
            // A name may hold what would change the terminal.
            writeln!(out, "{token:>20} {seconds:>11.3}s {waiters:>8}  {}", key.escape_debug())
        })
    }
}
