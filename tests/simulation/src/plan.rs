//! The shape of a run: how many of what, how fast, with which settings.

use crate::rng::Rng;
use crate::time::{MICRO, MILLI, SECOND, Time};
use lockd::core::Limits;

/// What a seed draws before the run begins.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Client processes.
    pub clients: usize,
    /// Calling threads of each.
    pub callers: usize,
    /// Server nodes; one of them leads.
    pub nodes: usize,
    /// Keys in use.
    pub keys: usize,
    /// Acquires before the faults end.
    pub acquires: u32,
    /// A caller's pause between two calls, at most.
    pub think: Time,
    /// How long a lock is held, at most.
    pub hold: Time,
    /// The longest wait, in seconds.
    pub wait: u64,
    /// The longest lease, in seconds.
    pub lease: u64,
    /// Of 16 calls, those with wait 0.
    pub tries: u64,
    /// Of 16 calls, those that are tickets.
    pub tickets: u64,
    /// A packet's time on its way, at least and at most.
    pub latency: (Time, Time),
    /// The time from a result to its caller, or from a command to the client's thread.
    pub wake: Time,
    /// Bytes that a socket holds.
    pub buffer: usize,
    /// The server's limits.
    pub limits: Limits,
    /// Servers want a secret.
    pub secret: bool,
    /// One client has a wrong one.
    pub wrong_secret: bool,
    /// One client has few owners.
    pub few_owners: bool,
    /// Clients' settings.
    pub strict_deadline: bool,
    /// Clients' settings.
    pub enforce_budget: bool,
    /// Clients' settings.
    pub busy_retry: bool,
    /// Clients' settings.
    pub ordered_answers: bool,
    /// DL-6's grace, in nanoseconds.
    pub grace: Time,
    /// Connections of each client.
    pub connections: usize,
    /// Clock drift, in parts per million, either way.
    pub ppm: i64,
    /// The server, if it is one, keeps its state on a disk, and reserves so many tokens at once.
    pub journal: Option<u64>,
    /// How long a server takes for one read.
    pub read: Time,
}

impl Plan {
    /// The plan of a seed.
    pub(crate) fn new(seed: u64, acquires: u32) -> Plan {
        let rng = &mut Rng::new(seed, 2);
        let latency = rng.spread(5 * MICRO, 20 * MILLI);
        let think = rng.spread(10 * MICRO, SECOND);
        let tight = rng.one_in(4);
        let mut plan = Plan {
            clients: rng.between(1, 4) as usize,
            callers: rng.spread(1, 12) as usize,
            nodes: [1, 1, 2, 3][rng.below(4) as usize],
            keys: rng.spread(1, 64) as usize,
            acquires,
            think,
            hold: rng.spread(think / 10 + 1, think * 4),
            wait: rng.spread(1, 20),
            lease: rng.spread(1, 20),
            tries: rng.below(12),
            tickets: rng.below(8),
            latency: (latency, latency + rng.spread(1, latency)),
            wake: if rng.one_in(2) { 0 } else { rng.spread(1, 200 * MICRO) },
            buffer: if rng.one_in(6) { rng.spread(64, 600) as usize } else { 64 * 1024 },
            limits: if tight {
                Limits {
                    locks: rng.between(2, 20) as usize,
                    waiters: rng.between(2, 12) as usize,
                    waiters_per_key: rng.between(1, 6) as usize,
                    waiters_per_connection: rng.between(1, 8) as usize,
                }
            } else {
                Limits {
                    locks: 100_000,
                    waiters: 100_000,
                    waiters_per_key: 10_000,
                    waiters_per_connection: 10_000,
                }
            },
            secret: rng.one_in(8),
            wrong_secret: rng.one_in(3),
            few_owners: rng.one_in(40),
            strict_deadline: rng.one_in(6),
            enforce_budget: rng.one_in(4),
            busy_retry: rng.one_in(4),
            ordered_answers: !rng.one_in(4),
            grace: if rng.one_in(2) { 500 * MILLI } else { rng.spread(50 * MILLI, 2 * SECOND) },
            connections: [1, 2, 3, 4, 4, 4, 8][rng.below(7) as usize],
            ppm: if rng.one_in(3) { 0 } else { rng.spread(1, 499) as i64 },
            journal: None,
            read: 0,
        };
        if plan.nodes == 1 && rng.one_in(2) {
            plan.journal = Some(rng.spread(1, 2_000));
        }
        if !rng.one_in(3) {
            plan.read = rng.spread(50, 20 * MICRO);
        }
        plan
    }
}
