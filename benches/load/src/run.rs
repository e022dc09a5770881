//! Runs of a load generator.

use crate::server::Server;
use serde_json::Value;
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
        /// This is repeated, at most so many times, until nothing was allocated meanwhile.
        windows: u64,
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

/// Declares what a load generator found, and reads it from what one prints.
macro_rules! found {
    ($($(#[$attribute:meta])* $name:ident: $type:ty,)*) => {
        /// What a load generator found. Processor time and context switches are of the measured
        /// part; threads of the client that do not take locks are in it, and so is the measuring.
        #[derive(Debug, Clone, Copy)]
        pub struct Found {
            $($(#[$attribute])* pub $name: $type,)*
        }

        impl Found {
            fn parse(json: &[u8]) -> Option<Found> {
                let json: Value = serde_json::from_slice(json).ok()?;
                Some(Found {
                    $($name: <$type as Number>::of(json.get(stringify!($name))?)?,)*
                })
            }

            /// All of it, by name.
            #[must_use]
            pub fn json(&self) -> Value {
                let mut map = serde_json::Map::new();
                $(map.insert(stringify!($name).to_owned(), self.$name.into());)*
                map.into()
            }
        }
    };
}

trait Number: Sized {
    fn of(value: &Value) -> Option<Self>;
}

impl Number for u64 {
    fn of(value: &Value) -> Option<u64> {
        value.as_u64()
    }
}

impl Number for f64 {
    fn of(value: &Value) -> Option<f64> {
        value.as_f64()
    }
}

found! {
    /// Acquires and releases that were measured.
    pairs: u64,
    /// For so long.
    seconds: f64,
    /// The median time of a pair, without the time that the lock was held.
    p50_ns: u64,
    /// What 99 % do not exceed.
    p99_ns: u64,
    /// What 99.9 % do not exceed.
    p999_ns: u64,
    /// Grants to a thread that waited when the lock was released.
    hand_overs: u64,
    /// From the call of release to the other thread's return: the median.
    hand_over_p50_ns: u64,
    /// The same: what 99 % do not exceed.
    hand_over_p99_ns: u64,
    /// Processor time, user and system, of the client's process.
    client_cpu_ns: u64,
    /// And of the server's.
    server_cpu_ns: u64,
    /// Context switches of the client's process, voluntary and not.
    client_switches: u64,
    /// And of the server's.
    server_switches: u64,
    /// How often the client's process asked for memory.
    allocations: u64,
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
            Extent::Pairs { warm_up, measured, windows } => {
                argument("--warm-pairs", &warm_up);
                argument("--pairs", &measured);
                argument("--windows", &windows);
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
        Found::parse(&output.stdout)
            .ok_or_else(|| io::Error::other(format!("{command:?} printed something else")))
    }
}
