//! Runs of a load generator.

use crate::server::Server;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// How long a run measures.
#[derive(Debug, Clone, Copy)]
pub enum Extent {
    /// So many seconds, after so many of warm-up.
    Seconds {
        /// Not measured.
        warm_up: f64,
        /// Measured.
        measured: f64,
    },
    /// So many pairs in all, after so many on each thread.
    Pairs {
        /// Not measured.
        warm_up: u64,
        /// Measured.
        measured: u64,
    },
}

/// What a load generator does.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Threads that acquire and release.
    pub threads: usize,
    /// Keys that they share; 0: each has its own.
    pub keys: usize,
    /// How long a lock is held, in microseconds. On keys of their own threads pause as long between
    /// two pairs.
    pub hold_us: u64,
    /// How long.
    pub extent: Extent,
}

/// What a load generator found. Processor time and context switches are of the measured part;
/// threads of the client that do not take locks are in it, and so is the measuring.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Found {
    pub pairs: u64,
    pub seconds: f64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub hand_overs: u64,
    pub hand_over_p50_ns: u64,
    pub hand_over_p99_ns: u64,
    pub client_cpu_ns: u64,
    pub server_cpu_ns: u64,
    pub client_switches: u64,
    pub server_switches: u64,
    pub allocations: u64,
}

impl Load {
    /// The command that puts this load on `server`, run under `wrapper` (a program and its
    /// arguments; may be empty).
    #[must_use]
    pub fn command(&self, wrapper: &[&str], program: &Path, server: &Server) -> Command {
        let mut command = match wrapper {
            [] => Command::new(program),
            [first, rest @ ..] => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
        };
        let mut argument = |name: &str, value: &dyn ToString| {
            command.arg(name).arg(value.to_string());
        };
        argument("--server", &server.address());
        argument("--server-pid", &server.pid());
        argument("--threads", &self.threads);
        argument("--keys", &self.keys);
        argument("--hold-us", &self.hold_us);
        match self.extent {
            Extent::Seconds { warm_up, measured } => {
                argument("--warm-up", &warm_up);
                argument("--seconds", &measured);
            }
            Extent::Pairs { warm_up, measured } => {
                argument("--warm-pairs", &warm_up);
                argument("--pairs", &measured);
            }
        }
        command.stdin(Stdio::null());
        command
    }

    /// Runs the load generator.
    ///
    /// # Errors
    /// It cannot be run or fails; its messages go to standard error.
    pub fn run(&self, program: &Path, server: &Server) -> io::Result<Found> {
        let mut command = self.command(&[], program, server);
        let output = command.stderr(Stdio::inherit()).output()?;
        if !output.status.success() {
            return Err(io::Error::other(format!("{command:?}: {}", output.status)));
        }
        serde_json::from_slice(&output.stdout).map_err(io::Error::other)
    }
}
