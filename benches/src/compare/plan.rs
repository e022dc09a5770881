//! Who is compared, and at what.

use clap::ValueEnum;
use lockclient_load::{Extent, Found, Load, Pinned, Server};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Not measured, before each measurement.
const WARM_UP: f64 = 0.15;

/// How long a lock is held where hand-over is measured: long enough for the other to wait for it.
const HOLD_US: u64 = 500;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Contender {
    /// Frames of the same sizes to an echo server.
    Raw,
    /// Hiredis on Redis.
    Redis,
    /// The Rust interface, on lockd.
    Rust,
    /// The C interface, on lockd.
    C,
}

impl Contender {
    pub(crate) const ALL: [Contender; 4] =
        [Contender::Raw, Contender::Redis, Contender::Rust, Contender::C];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Contender::Raw => "raw",
            Contender::Redis => "hiredis on Redis",
            Contender::Rust => "lockclient, Rust",
            Contender::C => "lockclient, C",
        }
    }

    /// Redis has no waiting for a lock.
    pub(crate) fn takes_part(self, scenario: &Scenario) -> bool {
        scenario.keys == 0 || self != Contender::Redis
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Placement {
    /// Client and server on one processor.
    Pinned,
    /// Where the scheduler puts them.
    Free,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scenario {
    pub(crate) placement: Placement,
    pub(crate) threads: usize,
    /// That all threads share; 0: each has its own.
    pub(crate) keys: usize,
    pub(crate) hold_us: u64,
}

impl Scenario {
    pub(crate) fn own(placement: Placement, threads: usize) -> Scenario {
        Scenario { placement, threads, keys: 0, hold_us: 0 }
    }

    pub(crate) fn shared(placement: Placement, threads: usize, keys: usize) -> Scenario {
        Scenario { placement, threads, keys, hold_us: 0 }
    }

    /// Two threads that take turns.
    pub(crate) fn hand_over(placement: Placement) -> Scenario {
        Scenario { placement, threads: 2, keys: 1, hold_us: HOLD_US }
    }

    /// Keeps what is started meanwhile where this scenario has it.
    pub(crate) fn pinned(&self) -> io::Result<Option<Pinned>> {
        match self.placement {
            Placement::Pinned => Pinned::new().map(Some),
            Placement::Free => Ok(None),
        }
    }

    /// Whether every thread has a key of its own, free at all times.
    pub(crate) fn is_own(&self) -> bool {
        self.keys == 0 && self.hold_us == 0
    }

    /// What a contender does in it. Raw locks nothing: it is the same traffic without waiting.
    pub(crate) fn load(&self, contender: Contender, extent: Extent) -> Load {
        let Scenario { threads, keys, hold_us, .. } = *self;
        match contender {
            Contender::Raw if hold_us > 0 => Load { threads: 1, keys: 0, hold_us, extent },
            Contender::Raw => Load { threads, keys: 0, hold_us, extent },
            _ => Load { threads, keys, hold_us, extent },
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threads = match self.threads {
            1 => "1 thread".to_owned(),
            more => format!("{more} threads"),
        };
        let placement = match self.placement {
            Placement::Pinned => "one processor",
            Placement::Free => "all processors",
        };
        match (self.hold_us, self.keys) {
            (0, 0) => write!(f, "{threads}, {placement}"),
            (0, 1) => write!(f, "{threads} on one key, {placement}"),
            (0, keys) => write!(f, "{threads} on {keys} keys, {placement}"),
            _ => write!(f, "hand-over between {threads}, {placement}"),
        }
    }
}

/// Where the programs are.
pub(crate) struct Programs {
    directory: PathBuf,
    lockd: PathBuf,
}

impl Programs {
    pub(crate) fn new(directory: &Path, lockd: &Path) -> Programs {
        Programs { directory: directory.to_owned(), lockd: lockd.to_owned() }
    }

    pub(crate) fn load(&self, contender: Contender) -> PathBuf {
        self.directory.join(match contender {
            Contender::Raw => "load-raw",
            Contender::Redis => "load-redis",
            Contender::Rust => "load-rust",
            Contender::C => "load-c",
        })
    }

    /// A fresh server for a contender.
    pub(crate) fn server(&self, contender: Contender, load: &Load) -> io::Result<Server> {
        match contender {
            Contender::Raw => Server::echo(&self.directory.join("echo"), load.threads),
            Contender::Redis => Server::redis(Path::new("redis-server")),
            Contender::Rust | Contender::C => Server::lockd(&self.lockd, &[]),
        }
    }

    pub(crate) fn measure(
        &self,
        contender: Contender,
        scenario: &Scenario,
        seconds: f64,
    ) -> io::Result<Found> {
        let _pinned = scenario.pinned()?;
        let extent = Extent::Seconds { warm_up: WARM_UP, measured: seconds };
        let load = scenario.load(contender, extent);
        for _ in 0..3 {
            let server = self.server(contender, &load)?;
            let found = load.run(&self.load(contender), &server)?;
            if found.pairs > 0 {
                return Ok(found);
            }
        }
        Err(io::Error::other("this machine is too busy: not a single pair within three tries"))
    }
}
