//! What a connection's bytes mean, without I/O: frames, the handshake, and their time limits.

use crate::core::{Acquire, Answers, ConnectionId, Core, Time};
use crate::outbox::BATCH;
use crate::secrets::{self, Secret};
use lockclient::wire::{Block, ClientFrame, Decoder, FromClient, Key, ServerFrame};
use std::time::Duration;

/// How long a started frame may take, and the handshake, and a write to a peer that does not read.
pub const PROGRESS: Duration = Duration::from_secs(5);

const BAD_KEY: ServerFrame<'static> = ServerFrame::Error { code: b"bad_key" };

/// What became of received bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Bytes that were consumed: all of them, unless the batch is full or the session is over.
    pub consumed: usize,
    /// The session is over and the connection must be closed. The error that says why has been
    /// given as the last answer.
    pub over: Option<Fault>,
}

/// What a peer did that ends its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A malformed frame, or one that has no place here.
    BadRequest,
    /// A wrong proof, or a request before the proof.
    AuthFailed,
}

impl Fault {
    fn code(self) -> &'static [u8] {
        match self {
            Fault::BadRequest => b"bad_request",
            Fault::AuthFailed => b"auth_failed",
        }
    }
}

/// Why a session that was served so far must end now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overdue {
    /// The handshake was not complete within [`PROGRESS`].
    Handshake,
    /// A started frame was not complete within [`PROGRESS`].
    Frame,
}

#[derive(Debug)]
enum Phase {
    Handshake { nonce: Block, until: Time },
    Open,
}

#[derive(Debug, Clone, Copy)]
enum FrameTimer {
    Off,
    Until(Time),
    /// The server does not read from the peer, so the peer's time stands still.
    Paused(Duration),
}

/// One connection's side of the protocol.
#[derive(Debug)]
pub struct Session {
    id: ConnectionId,
    decoder: Decoder<FromClient>,
    phase: Phase,
    frame_timer: FrameTimer,
}

impl Session {
    /// A session of a connection that just began. With a `nonce` it has to prove that it knows a
    /// secret; the challenge is given to `out`.
    pub fn new(
        id: ConnectionId,
        nonce: Option<Block>,
        now: Time,
        out: &mut impl Answers,
    ) -> Session {
        let phase = match nonce {
            Some(nonce) => {
                out.answer(id, ServerFrame::Challenge { nonce: &nonce });
                Phase::Handshake { nonce, until: now.after(PROGRESS) }
            }
            None => Phase::Open,
        };
        Session { id, decoder: Decoder::default(), phase, frame_timer: FrameTimer::Off }
    }

    /// Takes bytes, in any chunking, and at most a batch of requests of them.
    pub fn receive(
        &mut self,
        input: &[u8],
        now: Time,
        secrets: &[Secret],
        core: &mut Core,
        out: &mut impl Answers,
    ) -> Received {
        if core.is_large() {
            self.look_ahead(input, core);
        }
        let mut consumed = 0;
        let mut frames = 0;
        while frames < BATCH && consumed < input.len() {
            let mut rest = &input[consumed..];
            let served = match self.decoder.next(&mut rest) {
                Ok(Some(frame)) => serve(self.id, &mut self.phase, frame, now, secrets, core, out),
                Ok(None) => {
                    consumed = input.len();
                    break;
                }
                Err(_) => Err(Fault::BadRequest),
            };
            if let Err(fault) = served {
                out.answer(self.id, ServerFrame::Error { code: fault.code() });
                return Received { consumed, over: Some(fault) };
            }
            consumed = input.len() - rest.len();
            frames += 1;
        }
        self.note_progress(frames > 0, now);
        Received { consumed, over: None }
    }

    /// Has what the next batch of requests needs fetched, if there is more than one.
    fn look_ahead(&self, mut input: &[u8], core: &Core) {
        let mut hashes = [0; BATCH];
        let mut count = 0;
        let mut decoder = self.decoder.clone();
        while count < BATCH {
            let (ClientFrame::Acquire { key, .. } | ClientFrame::Release { key, .. }) =
                (match decoder.next(&mut input) {
                    Ok(Some(frame)) => frame,
                    Ok(None) | Err(_) => break,
                })
            else {
                continue;
            };
            hashes[count] = core.hash(key);
            count += 1;
        }
        if count > 1 {
            core.fetch(&hashes[..count]);
        }
    }

    /// The peer sends no more.
    pub fn end_of_stream(&mut self, out: &mut impl Answers) {
        if self.decoder.finish().is_err() {
            out.answer(self.id, ServerFrame::Error { code: Fault::BadRequest.code() });
        }
    }

    /// The server stops reading from the peer.
    pub fn pause(&mut self, now: Time) {
        if let FrameTimer::Until(until) = self.frame_timer {
            self.frame_timer = FrameTimer::Paused(until.since(now));
        }
    }

    /// The server reads from the peer again.
    pub fn resume(&mut self, now: Time) {
        if let FrameTimer::Paused(left) = self.frame_timer {
            self.frame_timer = FrameTimer::Until(now.after(left));
        }
    }

    /// When [`Session::overdue`] may say something.
    pub fn next_deadline(&self) -> Option<Time> {
        let frame = match self.frame_timer {
            FrameTimer::Until(until) => Some(until),
            FrameTimer::Off | FrameTimer::Paused(_) => None,
        };
        match self.phase {
            Phase::Handshake { until, .. } => Some(frame.map_or(until, |frame| frame.min(until))),
            Phase::Open => frame,
        }
    }

    /// Whether the peer's time is up.
    pub fn overdue(&self, now: Time) -> Option<Overdue> {
        match (&self.phase, self.frame_timer) {
            (Phase::Handshake { until, .. }, _) if *until <= now => Some(Overdue::Handshake),
            (_, FrameTimer::Until(until)) if until <= now => Some(Overdue::Frame),
            _ => None,
        }
    }

    /// Whether the handshake is still to be done.
    pub fn is_handshaking(&self) -> bool {
        matches!(self.phase, Phase::Handshake { .. })
    }

    fn note_progress(&mut self, completed: bool, now: Time) {
        if !self.decoder.is_mid_frame() {
            self.frame_timer = FrameTimer::Off;
        } else if completed || matches!(self.frame_timer, FrameTimer::Off) {
            self.frame_timer = FrameTimer::Until(now.after(PROGRESS));
        }
    }
}

/// Serves one frame.
fn serve(
    id: ConnectionId,
    phase: &mut Phase,
    frame: ClientFrame<'_>,
    now: Time,
    secrets: &[Secret],
    core: &mut Core,
    out: &mut impl Answers,
) -> Result<(), Fault> {
    match (frame, &*phase) {
        (ClientFrame::Proof { nonce, proof }, Phase::Handshake { nonce: ours, .. }) => {
            let answer = secrets::check(secrets, ours, nonce, proof).ok_or(Fault::AuthFailed)?;
            out.answer(id, ServerFrame::Accepted { proof: &answer });
            *phase = Phase::Open;
        }
        (ClientFrame::Proof { .. }, Phase::Open) => return Err(Fault::BadRequest),
        (_, Phase::Handshake { .. }) => return Err(Fault::AuthFailed),
        (ClientFrame::Acquire { wait, lease, owner, key }, Phase::Open) => {
            match Key::check_wire(key) {
                Ok(()) => core.acquire(id, Acquire { wait, lease, owner, key }, now, out),
                Err(_) => out.answer(id, BAD_KEY),
            }
        }
        (ClientFrame::Release { owner, token, key }, Phase::Open) => match Key::check_wire(key) {
            Ok(()) => core.release(id, owner, token, key, now, out),
            Err(_) => out.answer(id, BAD_KEY),
        },
    }
    Ok(())
}

#[cfg(test)]
mod tests;
