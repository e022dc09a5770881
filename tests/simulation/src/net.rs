//! The network: connections as two streams of bytes, each with a buffer, and packets on their way.

use crate::time::Time;
use lockclient::engine::ConnId;
use std::collections::VecDeque;

/// The end of a stream on its way.
const FIN: u32 = u32::MAX;

/// One direction of a connection.
#[derive(Debug)]
pub(crate) struct Pipe {
    bytes: Vec<u8>,
    head: usize,
    arrived: usize,
    flights: VecDeque<(Time, u32)>,
    last: Time,
    capacity: usize,
    /// Bytes that have arrived in all, and how many may before the connection breaks.
    passed: u64,
    cut: u64,
    fin_sent: bool,
    fin_arrived: bool,
}

impl Pipe {
    fn new(capacity: usize, cut: u64) -> Pipe {
        Pipe {
            bytes: Vec::new(),
            head: 0,
            arrived: 0,
            flights: VecDeque::new(),
            last: 0,
            capacity,
            passed: 0,
            cut,
            fin_sent: false,
            fin_arrived: false,
        }
    }

    /// Bytes that the socket would take now.
    pub(crate) fn room(&self) -> usize {
        self.capacity.saturating_sub(self.bytes.len() - self.head)
    }

    /// Takes bytes that arrive at `at`, or after what was sent before. Returns when.
    pub(crate) fn send(&mut self, bytes: &[u8], at: Time) -> Time {
        self.bytes.extend_from_slice(bytes);
        self.put(bytes.len() as u32, at)
    }

    /// The writing side is shut down.
    pub(crate) fn finish(&mut self, at: Time) -> Option<Time> {
        if std::mem::replace(&mut self.fin_sent, true) {
            return None;
        }
        Some(self.put(FIN, at))
    }

    fn put(&mut self, what: u32, at: Time) -> Time {
        self.last = self.last.max(at);
        self.flights.push_back((self.last, what));
        self.last
    }

    /// What has had its time arrives. Returns whether the connection breaks by it.
    pub(crate) fn arrive(&mut self, now: Time) -> bool {
        while let Some(&(at, what)) = self.flights.front() {
            if at > now {
                break;
            }
            self.flights.pop_front();
            if what == FIN {
                self.fin_arrived = true;
                continue;
            }
            let passes = u64::from(what).min(self.cut - self.passed);
            self.passed += passes;
            self.arrived += passes as usize;
            if self.passed == self.cut {
                self.drop_flights();
                return true;
            }
        }
        false
    }

    /// It breaks no more by itself.
    pub(crate) fn mend(&mut self) {
        self.cut = u64::MAX;
    }

    /// What is on its way is held up until `until`.
    pub(crate) fn hold(&mut self, until: Time) {
        for flight in &mut self.flights {
            flight.0 = flight.0.max(until);
        }
        self.last = self.last.max(until);
    }

    /// What is on its way is lost.
    pub(crate) fn drop_flights(&mut self) {
        self.flights.clear();
        self.bytes.truncate(self.arrived);
    }

    /// What can be read now.
    pub(crate) fn readable(&self) -> &[u8] {
        &self.bytes[self.head..self.arrived]
    }

    /// Takes `count` bytes off what can be read.
    pub(crate) fn consume(&mut self, count: usize) {
        self.head += count;
        if self.head == self.bytes.len() {
            self.bytes.clear();
            (self.head, self.arrived) = (0, 0);
        } else if self.head > 64 * 1024 {
            self.bytes.drain(..self.head);
            self.arrived -= self.head;
            self.head = 0;
        }
    }

    /// Everything was read, and there will be no more.
    pub(crate) fn is_at_end(&self) -> bool {
        self.fin_arrived && self.head == self.arrived
    }

    /// Whether the writing side was shut down.
    pub(crate) fn is_finished(&self) -> bool {
        self.fin_sent
    }

    fn release(&mut self) {
        self.bytes = Vec::new();
        self.flights = VecDeque::new();
        (self.head, self.arrived) = (0, 0);
    }
}

/// Where a dial stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dial {
    /// On its way.
    Pending,
    /// Ended, and not reported to the client yet.
    Done(bool),
    /// The client knows.
    Reported,
}

/// A frame of which a part was accepted.
#[derive(Debug)]
pub(crate) struct Begun {
    /// What it is.
    pub what: Sent,
    /// Bytes accepted.
    pub done: u16,
    /// Of so many.
    pub len: u16,
    /// Those that must come next.
    pub rest: Vec<u8>,
}

/// A frame of the client's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// An acquire of a call.
    Acquire {
        /// The call; none if nobody claimed it.
        call: Option<u32>,
        /// Its owner.
        owner: u64,
    },
    /// A release or a probe.
    Release {
        /// Its owner.
        owner: u64,
        /// Its token.
        token: u64,
    },
    /// The handshake.
    Proof,
}

/// A connection, seen from above.
#[derive(Debug)]
pub(crate) struct Link {
    /// Whose it is.
    pub client: u16,
    /// Its name there.
    pub conn: ConnId,
    /// Where it leads.
    pub node: usize,
    /// Client to server.
    pub up: Pipe,
    /// Server to client.
    pub down: Pipe,
    /// How far the dial has come.
    pub dial: Dial,
    /// The client has not closed it.
    pub client_open: bool,
    /// The server has not closed it.
    pub server_open: bool,
    /// The client's next call finds it broken.
    pub client_reset: bool,
    /// The server's next call finds it broken.
    pub server_reset: bool,
    /// The client has it in its list of readable connections.
    pub client_ready: bool,
    /// The server has it in its list.
    pub server_ready: bool,
    /// The client waits for room.
    pub client_blocked: bool,
    /// The server waits for room.
    pub server_blocked: bool,
    /// Of the client's stream: the frame that was begun.
    pub begun: Option<Begun>,
    /// Of the server's stream: the start of a frame that the client has read.
    pub partial: Vec<u8>,
}

impl Link {
    /// A connection that is being dialled. It breaks after `cut.0` bytes up or `cut.1` down.
    pub(crate) fn new(
        client: u16,
        conn: ConnId,
        node: usize,
        capacity: usize,
        cut: (u64, u64),
    ) -> Link {
        Link {
            client,
            conn,
            node,
            up: Pipe::new(capacity, cut.0),
            down: Pipe::new(capacity, cut.1),
            dial: Dial::Pending,
            client_open: true,
            server_open: false,
            client_reset: false,
            server_reset: false,
            client_ready: false,
            server_ready: false,
            client_blocked: false,
            server_blocked: false,
            begun: None,
            partial: Vec::new(),
        }
    }

    /// Gives back the memory of a connection that neither side has open.
    pub(crate) fn release_if_dead(&mut self) {
        if !self.client_open && !self.server_open {
            self.up.release();
            self.down.release();
        }
    }
}
