//! The command line.

use clap::{Parser, ValueEnum};
use lockd::Config;
use std::path::PathBuf;
use std::time::Duration;
use tracing::level_filters::LevelFilter;

/// A lease-based lock server.
#[derive(Debug, Parser)]
#[command(name = "lockd", version, max_term_width = 100)]
pub(crate) struct Cli {
    /// Address to listen on, HOST:PORT or unix:PATH; may be given several times. Port 0 takes any
    /// free one.
    #[arg(long, value_name = "ADDRESS", default_value = lockd::DEFAULT_LISTEN)]
    listen: Vec<String>,

    /// Keys that may be held; acquires are refused from 90 % of it until below 75 %.
    #[arg(long, value_name = "N", default_value_t = lockd::DEFAULT_MAX_LOCKS)]
    max_locks: usize,

    /// Acquires that may wait, in all; acquires are refused from 90 % of it until below 75 %.
    #[arg(long, value_name = "N", default_value_t = lockd::DEFAULT_MAX_WAITERS)]
    max_waiters: usize,

    /// Acquires that may wait for one key [default: a tenth of --max-waiters].
    #[arg(long, value_name = "N")]
    max_waiters_per_key: Option<usize>,

    /// Acquires that may wait on one connection; also bounds what is kept for one that does not
    /// read.
    #[arg(long, value_name = "N",
          default_value_t = lockd::DEFAULT_MAX_WAITERS_PER_CONNECTION)]
    max_waiters_per_connection: usize,

    /// Connections; one more is closed as soon as it is accepted.
    #[arg(long, value_name = "N", default_value_t = lockd::DEFAULT_MAX_CONNECTIONS)]
    max_connections: usize,

    /// File with a secret of 16 to 256 bytes (a final line feed does not count); may be given
    /// several times. With one, clients must prove that they know one.
    #[arg(long, value_name = "FILE")]
    secret_file: Vec<PathBuf>,

    /// Directory that keeps tokens growing from one run to the next, whatever ends a run. One
    /// server at a time can use it. Without it tokens begin at 1 at every start.
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,

    /// Grant nothing for this long after the start: until leases of before have certainly ended.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    quarantine: u32,

    /// Least severe messages to log, on standard error.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(crate) log: Level,

    /// How log messages are written.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Level {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl From<Level> for LevelFilter {
    fn from(level: Level) -> LevelFilter {
        match level {
            Level::Off => LevelFilter::OFF,
            Level::Error => LevelFilter::ERROR,
            Level::Warn => LevelFilter::WARN,
            Level::Info => LevelFilter::INFO,
            Level::Debug => LevelFilter::DEBUG,
            Level::Trace => LevelFilter::TRACE,
        }
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum LogFormat {
    /// A line for people.
    Text,
    /// A JSON object a line.
    Json,
}

impl Cli {
    pub(crate) fn config(self) -> Config {
        Config {
            listen: self.listen,
            max_locks: self.max_locks,
            max_waiters: self.max_waiters,
            max_waiters_per_key: self.max_waiters_per_key,
            max_waiters_per_connection: self.max_waiters_per_connection,
            max_connections: self.max_connections,
            secret_files: self.secret_file,
            secrets: Vec::new(),
            state_dir: self.state_dir,
            quarantine: Duration::from_secs(self.quarantine.into()),
        }
    }
}
