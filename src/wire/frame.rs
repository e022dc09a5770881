//! The frames of both directions, and their encoding.

/// The largest frame that either side sends.
pub const MAX_FRAME: usize = 146;

/// The largest frame that a server reads before it gives the connection up.
pub const SERVER_READ_LIMIT: usize = 192;

/// The bytes of a nonce or a proof.
pub type Block = [u8; 32];

/// What a client sends. Text is raw bytes: whoever makes or reads a frame checks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientFrame<'a> {
    /// `A`: take the lock, waiting up to `wait` seconds.
    Acquire {
        /// Whole seconds; 0 is one immediate attempt.
        wait: u8,
        /// Whole seconds, at least 1.
        lease: u8,
        /// Correlates the answer; never 0.
        owner: u64,
        /// The lock's name.
        key: &'a [u8],
    },
    /// `R`: give the lock back. With token 0, a probe.
    Release {
        /// Correlates the answer; never 0.
        owner: u64,
        /// The grant's token.
        token: u64,
        /// The lock's name.
        key: &'a [u8],
    },
    /// `H`: the answer to a challenge.
    Proof {
        /// The client's nonce.
        nonce: &'a Block,
        /// The client's proof.
        proof: &'a Block,
    },
}

/// What a server sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerFrame<'a> {
    /// `A`: the lock is held, under `token`.
    Acquired {
        /// Echo of the request's owner.
        owner: u64,
        /// The fencing token; never 0.
        token: u64,
        /// Echo of the request's key.
        key: &'a [u8],
    },
    /// `T`: the wait ended without a grant.
    TimedOut {
        /// Echo of the request's owner.
        owner: u64,
        /// Echo of the request's key.
        key: &'a [u8],
    },
    /// `B`: the server is at capacity.
    Busy {
        /// Echo of the request's owner.
        owner: u64,
        /// Echo of the request's key.
        key: &'a [u8],
    },
    /// `R`: released.
    Released {
        /// Echo of the request's owner.
        owner: u64,
        /// Echo of the request's key.
        key: &'a [u8],
    },
    /// `N`: the token holds nothing (any more).
    NotHeld {
        /// Echo of the request's owner.
        owner: u64,
        /// Echo of the request's key.
        key: &'a [u8],
    },
    /// `M`: another node leads.
    Moved {
        /// `host:port` or `unix:/path`.
        leader: &'a [u8],
    },
    /// `L`: unsolicited news of who leads.
    Leader {
        /// `host:port` or `unix:/path`.
        leader: &'a [u8],
    },
    /// `E`: an error of the connection.
    Error {
        /// Lower-case letters and `_`.
        code: &'a [u8],
    },
    /// `C`: prove that you know the secret.
    Challenge {
        /// The server's nonce.
        nonce: &'a Block,
    },
    /// `H`: the handshake is accepted.
    Accepted {
        /// The server's proof.
        proof: &'a Block,
    },
}

impl ClientFrame<'_> {
    /// Appends the frame's bytes to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            ClientFrame::Acquire { wait, lease, owner, key } => {
                let mut head = [b'A', wait, lease, 0, 0, 0, 0, 0, 0, 0, 0];
                head[3..].copy_from_slice(&owner.to_be_bytes());
                out.extend_from_slice(&head);
                out.extend_from_slice(key);
            }
            ClientFrame::Release { owner, token, key } => pair(out, b'R', owner, token, key),
            ClientFrame::Proof { nonce, proof } => {
                out.push(b'H');
                out.extend_from_slice(nonce);
                out.extend_from_slice(proof);
            }
        }
        out.push(b'\n');
    }
}

impl ServerFrame<'_> {
    /// Appends the frame's bytes to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            ServerFrame::Acquired { owner, token, key } => pair(out, b'A', owner, token, key),
            ServerFrame::TimedOut { owner, key } => echo(out, b'T', owner, key),
            ServerFrame::Busy { owner, key } => echo(out, b'B', owner, key),
            ServerFrame::Released { owner, key } => echo(out, b'R', owner, key),
            ServerFrame::NotHeld { owner, key } => echo(out, b'N', owner, key),
            ServerFrame::Moved { leader } => text(out, b'M', leader),
            ServerFrame::Leader { leader } => text(out, b'L', leader),
            ServerFrame::Error { code } => text(out, b'E', code),
            ServerFrame::Challenge { nonce } => text(out, b'C', nonce),
            ServerFrame::Accepted { proof } => text(out, b'H', proof),
        }
        out.push(b'\n');
    }
}

// What comes before the text is appended at once: each appending looks for room.

fn pair(out: &mut Vec<u8>, op: u8, owner: u64, token: u64, key: &[u8]) {
    let mut head = [op; 17];
    head[1..9].copy_from_slice(&owner.to_be_bytes());
    head[9..].copy_from_slice(&token.to_be_bytes());
    out.extend_from_slice(&head);
    out.extend_from_slice(key);
}

fn echo(out: &mut Vec<u8>, op: u8, owner: u64, key: &[u8]) {
    let mut head = [op; 9];
    head[1..].copy_from_slice(&owner.to_be_bytes());
    out.extend_from_slice(&head);
    out.extend_from_slice(key);
}

fn text(out: &mut Vec<u8>, op: u8, bytes: &[u8]) {
    out.push(op);
    out.extend_from_slice(bytes);
}
