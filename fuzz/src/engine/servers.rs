//! The servers' side: what they were asked, and good or almost good answers to it.

use super::{KEYS, SECRET};
use crate::harness::{Happening, NONCE};
use crate::input::Input;
use crate::nodes::Frame;
use lockclient::engine::{ConnId, Effect};
use lockclient::wire::{PROBE_KEY, ServerFrame, server_proof};
use std::collections::BTreeSet;

/// The nonce of every challenge.
const CHALLENGE: [u8; 32] = [3; 32];

struct Asked {
    conn: ConnId,
    owner: u64,
    key: String,
    acquire: bool,
}

#[derive(Default)]
pub(super) struct Servers {
    asked: Vec<Asked>,
    /// A byte of their frames was sent.
    seen: BTreeSet<u64>,
    /// Connections without a greeting.
    fresh: Vec<ConnId>,
    /// Connections whose client has proved itself.
    proved: Vec<ConnId>,
    token: u64,
}

impl Servers {
    pub(super) fn note(&mut self, happening: &Happening) {
        match happening {
            Happening::Sent(conn, frames) => {
                for frame in frames {
                    self.ask(*conn, frame);
                }
            }
            Happening::Effect(Effect::Dial { conn, .. }) => self.fresh.push(*conn),
            _ => {}
        }
    }

    /// Of a frame that was cut a server may already see all that it needs for a wrong answer.
    fn ask(&mut self, conn: ConnId, frame: &Frame) {
        let (owner, key, acquire) = match frame {
            Frame::Acquire { owner, key, .. } => (*owner, key.clone(), true),
            Frame::Release { owner, key, .. } => (*owner, key.clone(), false),
            Frame::Probe { owner } => {
                (*owner, String::from_utf8_lossy(PROBE_KEY).into_owned(), false)
            }
            Frame::Proof { .. } => {
                if !self.proved.contains(&conn) {
                    self.proved.push(conn);
                }
                return;
            }
        };
        if self.seen.insert(owner) {
            self.asked.push(Asked { conn, owner, key, acquire });
        }
    }

    pub(super) fn forget(&mut self, conn: ConnId) {
        self.asked.retain(|asked| asked.conn != conn);
        self.fresh.retain(|fresh| *fresh != conn);
        self.proved.retain(|proved| *proved != conn);
    }

    fn fresh_token(&mut self) -> u64 {
        self.token += 1;
        self.token << 8 | 0x0A
    }

    /// An answer to one of the requests: mostly a good one.
    pub(super) fn answer(&mut self, input: &mut Input<'_>) -> Option<(ConnId, Vec<u8>)> {
        if self.asked.is_empty() {
            return None;
        }
        let at = input.below(self.asked.len());
        let choice = input.byte();
        let Asked { conn, owner, key, acquire } = self.asked.swap_remove(at);
        let (mut owner, mut key) = (owner, key.as_bytes());
        match choice / 8 {
            29 => owner = owner.wrapping_add(1),
            30 => owner = 0,
            31 => key = b"other",
            _ => {}
        }
        let token = self.fresh_token();
        let frame = match (acquire, choice % 8) {
            (true, 0) => ServerFrame::TimedOut { owner, key },
            (true, 1) => ServerFrame::Busy { owner, key },
            (true, 7) | (false, 0..2) => ServerFrame::Released { owner, key },
            (false, 7) | (true, _) => ServerFrame::Acquired { owner, token, key },
            (false, _) => ServerFrame::NotHeld { owner, key },
        };
        Some((conn, encoded(frame)))
    }

    /// What a server says by itself.
    pub(super) fn say(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        let leader: &[u8] = [&b"a:1"[..], b"b:1", b"c:1", b"x:9"][input.below(4)];
        let key = KEYS[input.below(3)].as_bytes();
        let proof = [input.byte(); 32];
        let codes: [&[u8]; 5] =
            [b"no_leader", b"not_active", b"auth_failed", b"bad_key", b"anything"];
        let token = self.fresh_token();
        encoded(match input.below(8) {
            0 => ServerFrame::Moved { leader },
            1..4 => ServerFrame::Leader { leader },
            4 => ServerFrame::Error { code: codes[input.below(5)] },
            5 => ServerFrame::Challenge { nonce: &proof },
            6 => ServerFrame::Accepted { proof: &proof },
            _ => ServerFrame::Acquired { owner: input.byte().into(), token, key },
        })
    }

    /// The next step of a handshake: the challenge, or the server's own proof.
    pub(super) fn handshake(&mut self, input: &mut Input<'_>) -> Option<(ConnId, Vec<u8>)> {
        if !self.proved.is_empty() {
            let conn = self.proved.swap_remove(input.below(self.proved.len()));
            let proof = server_proof(&SECRET, &CHALLENGE, &NONCE);
            return Some((conn, encoded(ServerFrame::Accepted { proof: &proof })));
        }
        if self.fresh.is_empty() {
            return None;
        }
        let conn = self.fresh.remove(input.below(self.fresh.len()));
        Some((conn, encoded(ServerFrame::Challenge { nonce: &CHALLENGE })))
    }
}

fn encoded(frame: ServerFrame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    bytes
}
