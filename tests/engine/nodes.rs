//! The other side of the fake sockets.

use lockclient::Reason;
use lockclient::clock::Mono;
use lockclient::engine::ConnId;
use lockclient::wire::{ClientFrame, Decoder, FromClient, PROBE_KEY};

/// How an endpoint takes a dial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Node {
    /// Accepts at once, and answers probes at once: it serves.
    Serves,
    /// Accepts at once, and answers nothing.
    Accepts,
    /// Refuses dials at once; connections that there are go on.
    Refuses,
    /// Does not answer dials; connections that there are go on.
    Swallows,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Dialing,
    Open,
    HalfClosed,
    Closed,
}

/// A frame of the client's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Frame {
    Acquire { wait: u8, lease: u8, owner: u64, key: String },
    Release { owner: u64, token: u64, key: String },
    Probe { owner: u64 },
    Proof { nonce: [u8; 32], proof: [u8; 32] },
}

impl Frame {
    /// The owner of an acquire.
    pub(crate) fn acquire_owner(&self) -> Option<u64> {
        match self {
            Frame::Acquire { owner, .. } => Some(*owner),
            _ => None,
        }
    }

    fn of(frame: ClientFrame<'_>) -> Frame {
        let text = |key: &[u8]| String::from_utf8(key.to_vec()).unwrap();
        match frame {
            ClientFrame::Acquire { wait, lease, owner, key } => {
                Frame::Acquire { wait, lease, owner, key: text(key) }
            }
            ClientFrame::Release { owner, token: 0, key } => {
                assert_eq!(key, PROBE_KEY);
                Frame::Probe { owner }
            }
            ClientFrame::Release { owner, token, key } => {
                Frame::Release { owner, token, key: text(key) }
            }
            ClientFrame::Proof { nonce, proof } => Frame::Proof { nonce: *nonce, proof: *proof },
        }
    }
}

/// An acquire frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Acquire {
    pub(crate) conn: ConnId,
    pub(crate) at: Mono,
    pub(crate) wait: u8,
    pub(crate) lease: u8,
    pub(crate) owner: u64,
}

/// A frame that went out whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) conn: ConnId,
    pub(crate) at: Mono,
    pub(crate) frame: Frame,
}

impl Sent {
    /// The acquire that it is, if it is one of `key`.
    pub(crate) fn acquire(&self, key: &str) -> Option<Acquire> {
        match &self.frame {
            Frame::Acquire { wait, lease, owner, key: of } if of == key => Some(Acquire {
                conn: self.conn,
                at: self.at,
                wait: *wait,
                lease: *lease,
                owner: *owner,
            }),
            _ => None,
        }
    }
}

/// The bytes of a probe.
pub(crate) const PROBE: usize = 1 + 16 + 6 + 1;

/// One fake socket, as the client's side sees it.
pub(crate) struct Socket {
    pub(crate) endpoint: u16,
    pub(crate) state: State,
    /// How many bytes it takes before it is full.
    pub(crate) room: usize,
    /// The next send fails with this.
    pub(crate) fails: Option<Reason>,
    /// Arrived and not read.
    pub(crate) inbox: Vec<u8>,
    /// How the stream ends behind the inbox.
    pub(crate) ending: Option<Reason>,
    /// The owners of probes that got no answer.
    pub(crate) probes: Vec<u64>,
    /// Every byte that it took.
    pub(crate) taken: Vec<u8>,
    decoder: Decoder<FromClient>,
}

impl Socket {
    pub(crate) fn new(endpoint: u16, room: usize) -> Socket {
        Socket {
            endpoint,
            state: State::Dialing,
            room,
            fails: None,
            inbox: Vec::new(),
            ending: None,
            probes: Vec::new(),
            taken: Vec::new(),
            decoder: Decoder::default(),
        }
    }

    /// The frames that `bytes` would complete.
    pub(crate) fn peek(&self, bytes: &[u8]) -> Vec<Frame> {
        frames(&mut self.decoder.clone(), bytes)
    }

    /// Takes `bytes`. Returns the frames that they complete.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Vec<Frame> {
        self.taken.extend_from_slice(bytes);
        let frames = frames(&mut self.decoder, bytes);
        for frame in &frames {
            if let Frame::Probe { owner } = frame {
                self.probes.push(*owner);
            }
        }
        frames
    }

    /// Whether a frame has begun that has not ended.
    pub(crate) fn is_mid_frame(&self) -> bool {
        self.decoder.is_mid_frame()
    }
}

fn frames(decoder: &mut Decoder<FromClient>, mut bytes: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    while let Some(frame) = decoder.next(&mut bytes).expect("the client broke the protocol") {
        frames.push(Frame::of(frame));
    }
    frames
}
