//! Why a request ended as it did, small enough to travel in one machine word.

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum ReasonKind {
    /// Nothing went wrong that the client knows of: there was no time, or no connection yet.
    None = 0,
    /// The endpoint's name could not be resolved.
    Resolve,
    /// The connection could not be made; `os_error` says why, where the system said.
    Connect,
    /// The connection was not made in its time limit.
    ConnectTimeout,
    /// The server did not finish the handshake, or did not answer the first probe, in time.
    HandshakeTimeout,
    /// The server refused the secret, did not prove that it knows it, or wants one that the client
    /// has not got.
    Auth,
    /// The server named another leader.
    Moved,
    /// The cluster has no leader.
    NoLeader,
    /// The node may not serve now.
    NotActive,
    /// The server sent an error that names no request.
    ServerError,
    /// The server sent what the protocol does not allow.
    Malformed,
    /// The server answered a request that nobody made.
    Mismatch,
    /// The server closed the connection.
    Eof,
    /// The connection broke; `os_error` says how.
    Io,
    /// The server stopped answering.
    Silent,
    /// The deadline came without an answer.
    Deadline,
    /// The caller cancelled.
    Cancelled,
    /// The client was closed.
    Closed,
    /// Another request's end closed the connection that this one shared.
    SharedConnection,
    /// A grant came, but too late to be handed over; it was released.
    LateGrant,
    /// A grant came with less of its lease left than the caller asked for; it was released.
    ShortLease,
    /// The background thread ended; this is a bug or a host that closed its descriptors.
    ThreadEnded,
}

impl ReasonKind {
    const ALL: [ReasonKind; 22] = [
        ReasonKind::None,
        ReasonKind::Resolve,
        ReasonKind::Connect,
        ReasonKind::ConnectTimeout,
        ReasonKind::HandshakeTimeout,
        ReasonKind::Auth,
        ReasonKind::Moved,
        ReasonKind::NoLeader,
        ReasonKind::NotActive,
        ReasonKind::ServerError,
        ReasonKind::Malformed,
        ReasonKind::Mismatch,
        ReasonKind::Eof,
        ReasonKind::Io,
        ReasonKind::Silent,
        ReasonKind::Deadline,
        ReasonKind::Cancelled,
        ReasonKind::Closed,
        ReasonKind::SharedConnection,
        ReasonKind::LateGrant,
        ReasonKind::ShortLease,
        ReasonKind::ThreadEnded,
    ];

    /// One English clause.
    pub fn text(self) -> &'static str {
        match self {
            ReasonKind::None => "no connection was ready in time",
            ReasonKind::Resolve => "the endpoint's name could not be resolved",
            ReasonKind::Connect => "could not connect",
            ReasonKind::ConnectTimeout => "connecting took too long",
            ReasonKind::HandshakeTimeout => "the server did not answer the first exchange in time",
            ReasonKind::Auth => "authentication failed",
            ReasonKind::Moved => "the server said that another node leads",
            ReasonKind::NoLeader => "the cluster has no leader",
            ReasonKind::NotActive => "the node may not serve now",
            ReasonKind::ServerError => "the server reported an error",
            ReasonKind::Malformed => "the server broke the protocol",
            ReasonKind::Mismatch => "the server answered a request that was not made",
            ReasonKind::Eof => "the server closed the connection",
            ReasonKind::Io => "the connection broke",
            ReasonKind::Silent => "the server stopped answering",
            ReasonKind::Deadline => "no answer came by the deadline",
            ReasonKind::Cancelled => "the caller cancelled",
            ReasonKind::Closed => "the client was closed",
            ReasonKind::SharedConnection => "the connection was closed for another request's sake",
            ReasonKind::LateGrant => "the grant came too late and was released",
            ReasonKind::ShortLease => "too little of the lease was left and the grant was released",
            ReasonKind::ThreadEnded => "the client's background thread has ended",
        }
    }
}

/// What happened, where, and what the system called it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reason {
    /// What happened.
    pub kind: ReasonKind,
    /// The endpoint, by its place in the configuration, where there was one.
    pub endpoint: Option<u16>,
    /// The system's error number, where there was one.
    pub os_error: Option<i32>,
}

impl Reason {
    /// A reason with neither endpoint nor system error.
    pub const fn new(kind: ReasonKind) -> Reason {
        Reason { kind, endpoint: None, os_error: None }
    }

    /// The same reason, at an endpoint.
    #[must_use]
    pub const fn at(self, endpoint: u16) -> Reason {
        Reason { endpoint: Some(endpoint), ..self }
    }

    /// The same reason, with the system's error number.
    #[must_use]
    pub const fn with_os_error(self, os_error: Option<i32>) -> Reason {
        Reason { os_error, ..self }
    }

    /// As one word: kind, endpoint plus one, error number.
    pub fn pack(self) -> u64 {
        let endpoint = self.endpoint.map_or(0, |at| u64::from(at) + 1);
        let os_error = self.os_error.map_or(0, |number| u64::from(number.cast_unsigned()));
        u64::from(self.kind as u8) | endpoint << 8 | os_error << 32
    }

    /// The reverse of [`Reason::pack`].
    pub fn unpack(word: u64) -> Reason {
        let kind = ReasonKind::ALL.get(usize::from(word as u8)).copied();
        let endpoint = (word >> 8) as u32 & 0x00ff_ffff;
        let os_error = (word >> 32) as u32;
        Reason {
            kind: kind.unwrap_or(ReasonKind::None),
            endpoint: endpoint.checked_sub(1).and_then(|at| u16::try_from(at).ok()),
            os_error: (os_error != 0).then_some(os_error.cast_signed()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_survives_packing() {
        for (at, kind) in ReasonKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, at);
            for endpoint in [None, Some(0), Some(u16::MAX)] {
                for os_error in [None, Some(111), Some(-1)] {
                    let reason = Reason { kind, endpoint, os_error };
                    assert_eq!(Reason::unpack(reason.pack()), reason);
                }
            }
        }
    }
}
