//! One connection's socket and where it stands in its life.

use crate::core::Time;
use crate::session::{PROGRESS, Session};
use socket2::Socket;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

/// How long a connection that the server ended may take to be closed by its peer: closing it at
/// once, with bytes of the peer unread, could destroy the last answers on their way.
const LINGER: Duration = Duration::from_secs(1);

/// How long the answer to a failed authentication is held back from an address that fails often.
const HOLD: Duration = Duration::from_secs(1);

/// Where a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// Requests are read and answered.
    Open,
    /// Over, and the answers that were decided are held back for a while; nothing is read either.
    Held { until: Time },
    /// Over; the answers that were decided are still written. `linger` says that the peer may
    /// still send, so that the connection is not closed as soon as they are.
    Draining { linger: bool },
    /// Everything is written; whatever the peer still sends is thrown away.
    Lingering { until: Time },
}

/// Who is at the other end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) Option<SocketAddr>);

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(address) => address.fmt(f),
            None => f.write_str("local"),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) socket: Socket,
    pub(crate) peer: Peer,
    pub(crate) session: Session,
    /// Tells connections apart that had the same number one after the other.
    pub(crate) serial: u64,
    pub(crate) life: Life,
    /// Bytes that were read and not yet looked at: the batch was full.
    pub(crate) unread: Vec<u8>,
    /// Whether the socket may have more to read.
    pub(crate) readable: bool,
    /// Whether the kernel said that the peer has ended its side.
    pub(crate) ending: bool,
    /// Whether the socket may take more.
    pub(crate) writable: bool,
    /// Whether it is in the list of connections to read from.
    pub(crate) queued: bool,
    /// Whether reading is paused, because the peer does not read.
    pub(crate) paused: bool,
    /// When the socket last took bytes, or when it began to matter.
    pub(crate) progress: Time,
    /// When the peer last sent something, or when it began to matter.
    pub(crate) heard: Time,
    /// How long the peer may send nothing and be sent nothing, if there is a limit.
    idle: Option<Duration>,
}

impl Connection {
    pub(crate) fn new(
        socket: Socket,
        peer: Peer,
        session: Session,
        serial: u64,
        idle: Option<Duration>,
        now: Time,
    ) -> Connection {
        Connection {
            socket,
            peer,
            session,
            serial,
            life: Life::Open,
            unread: Vec::new(),
            readable: true,
            ending: false,
            writable: true,
            queued: false,
            paused: false,
            progress: now,
            heard: now,
            idle,
        }
    }

    /// Whether there may be something to read, or something read to look at.
    pub(crate) fn wants_read(&self) -> bool {
        !self.paused && (self.readable || !self.unread.is_empty())
    }

    /// Sends, and says how many bytes the kernel took; `None` when it takes none now.
    ///
    /// # Errors
    /// The connection is broken.
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<Option<usize>> {
        loop {
            // Not `write`: on some kinds of socket that raises SIGPIPE, which is the host's.
            match self.socket.send_with_flags(bytes, libc::MSG_NOSIGNAL) {
                Ok(count) => return Ok(Some(count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Holds the last answers back for a while, within the time that a handshake has.
    pub(crate) fn hold(&mut self, now: Time) {
        let until = now.after(HOLD);
        let until = self.session.next_deadline().map_or(until, |end| end.min(until));
        self.life = Life::Held { until };
        self.unread = Vec::new();
    }

    pub(crate) fn linger(&mut self, now: Time) {
        self.life = Life::Lingering { until: now.after(LINGER) };
    }

    /// When [`Connection::is_overdue`] may say yes.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        match self.life {
            Life::Open if self.paused => Some(self.progress.after(PROGRESS)),
            Life::Open => {
                // Bytes that it took count as well: it may have been waiting for them.
                let idle = self.idle.map(|idle| self.heard.max(self.progress).after(idle));
                [self.session.next_deadline(), idle].into_iter().flatten().min()
            }
            Life::Held { until } => Some(until),
            Life::Draining { .. } => Some(self.progress.after(PROGRESS)),
            Life::Lingering { until } => Some(until),
        }
    }

    /// What it is that took too long.
    pub(crate) fn overdue_for(&self) -> &'static str {
        match self.life {
            Life::Open if self.paused => "reading answers",
            Life::Open if self.session.is_handshaking() => "handshake",
            Life::Open if self.session.next_deadline().is_some() => "frame",
            Life::Open => "sending anything",
            Life::Held { .. } => "being kept waiting",
            Life::Draining { .. } => "reading the last answers",
            Life::Lingering { .. } => "closing",
        }
    }

    /// Whether answers wait for the peer, which has just made room for some. Only after the next
    /// attempt to send can be said that it takes none: this process may have stood still.
    pub(crate) fn is_about_to_send(&self) -> bool {
        let waits = self.paused || matches!(self.life, Life::Draining { .. });
        waits && self.writable
    }

    /// Whether only a limit on sending nothing is in question.
    pub(crate) fn is_idle(&self) -> bool {
        self.life == Life::Open && !self.paused && self.session.next_deadline().is_none()
    }

    /// Whether the peer's time is up.
    pub(crate) fn is_overdue(&self, now: Time) -> bool {
        self.next_deadline().is_some_and(|deadline| deadline <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::super::outputs::Outputs;
    use super::*;
    use crate::core::ConnectionId;
    use socket2::{Domain, Type};

    #[test]
    fn an_answer_is_held_back_for_a_second_but_not_beyond_the_handshakes_end() {
        let begun = Time::default().after_seconds(50);
        for (failed_ms, told_ms) in [(0, 1000), (3000, 4000), (4000, 5000), (4700, 5000)] {
            let (socket, _peer) = Socket::pair(Domain::UNIX, Type::STREAM, None).unwrap();
            let mut outputs = Outputs::default();
            outputs.open(0);
            let session = Session::new(ConnectionId(0), Some([7; 32]), begun, &mut outputs);
            let mut connection = Connection::new(socket, Peer(None), session, 1, None, begun);
            connection.hold(begun.after(Duration::from_millis(failed_ms)));
            let told = begun.after(Duration::from_millis(told_ms));
            assert_eq!(connection.next_deadline(), Some(told));
        }
    }
}
