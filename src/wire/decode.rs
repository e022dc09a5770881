//! Incremental decoding: any chunking of the stream gives the same frames.

use super::frame::{Block, ClientFrame, MAX_FRAME, SERVER_READ_LIMIT, ServerFrame};
use super::scan;
use std::marker::PhantomData;

/// Why a stream can no longer be trusted. The connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// The op is not one of this direction's.
    #[error("unknown op {0:#04x}")]
    UnknownOp(u8),
    /// As many bytes as the reader's limit, and no frame end among them.
    #[error("frame longer than the limit")]
    Oversized,
    /// Text in a frame that carries none.
    #[error("text in a frame that carries none")]
    UnexpectedText,
    /// An acquire with lease 0.
    #[error("lease 0")]
    ZeroLease,
    /// A request with owner 0.
    #[error("owner 0")]
    ZeroOwner,
    /// A grant with token 0.
    #[error("token 0 in a grant")]
    ZeroToken,
    /// The stream ended inside a frame.
    #[error("stream ended inside a frame")]
    Truncated,
}

/// One direction of the protocol, seen by its reader.
pub trait Direction {
    /// A decoded frame, borrowing from the bytes it was read from.
    type Frame<'a>;
    /// The longest frame that this reader accepts, at most [`SERVER_READ_LIMIT`].
    const LIMIT: usize;

    /// The length of `op`'s fixed header, without the op; `None` for an unknown op.
    fn header(op: u8) -> Option<usize>;

    /// Makes a frame of its parts. `header` has the length that [`Direction::header`] gave.
    ///
    /// # Errors
    /// A field or a text that the frame may not have.
    fn parse<'a>(op: u8, header: &'a [u8], text: &'a [u8]) -> Result<Self::Frame<'a>, Malformed>;
}

/// Reads [`ClientFrame`]s, as a server does.
#[derive(Debug, Clone, Copy)]
pub enum FromClient {}

/// Reads [`ServerFrame`]s, as a client does.
#[derive(Debug, Clone, Copy)]
pub enum FromServer {}

impl Direction for FromClient {
    type Frame<'a> = ClientFrame<'a>;
    const LIMIT: usize = SERVER_READ_LIMIT;

    fn header(op: u8) -> Option<usize> {
        match op {
            b'A' => Some(10),
            b'R' => Some(16),
            b'H' => Some(64),
            _ => None,
        }
    }

    fn parse<'a>(op: u8, header: &'a [u8], text: &'a [u8]) -> Result<ClientFrame<'a>, Malformed> {
        // A line-minded client may end its frames with CR LF.
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        let mut fields = Fields(header);
        match op {
            b'A' => {
                let [wait, lease] = fields.take();
                let owner = nonzero(u64::from_be_bytes(fields.take()), Malformed::ZeroOwner)?;
                if lease == 0 {
                    return Err(Malformed::ZeroLease);
                }
                Ok(ClientFrame::Acquire { wait, lease, owner, key: text })
            }
            b'R' => {
                let owner = nonzero(u64::from_be_bytes(fields.take()), Malformed::ZeroOwner)?;
                let token = u64::from_be_bytes(fields.take());
                Ok(ClientFrame::Release { owner, token, key: text })
            }
            b'H' => {
                no_text(text)?;
                Ok(ClientFrame::Proof { nonce: fields.block(), proof: fields.block() })
            }
            _ => Err(Malformed::UnknownOp(op)),
        }
    }
}

impl Direction for FromServer {
    type Frame<'a> = ServerFrame<'a>;
    const LIMIT: usize = MAX_FRAME;

    fn header(op: u8) -> Option<usize> {
        match op {
            b'A' => Some(16),
            b'T' | b'B' | b'R' | b'N' => Some(8),
            b'M' | b'L' | b'E' => Some(0),
            b'C' | b'H' => Some(32),
            _ => None,
        }
    }

    fn parse<'a>(op: u8, header: &'a [u8], text: &'a [u8]) -> Result<ServerFrame<'a>, Malformed> {
        let mut fields = Fields(header);
        match op {
            b'M' => return Ok(ServerFrame::Moved { leader: text }),
            b'L' => return Ok(ServerFrame::Leader { leader: text }),
            b'E' => return Ok(ServerFrame::Error { code: text }),
            b'C' => {
                no_text(text)?;
                return Ok(ServerFrame::Challenge { nonce: fields.block() });
            }
            b'H' => {
                no_text(text)?;
                return Ok(ServerFrame::Accepted { proof: fields.block() });
            }
            _ => {}
        }
        // Owner 0 is let through: it matches no request, which closes the connection as well, but
        // the token of such a grant is genuine and its reader must be able to release it.
        let owner = u64::from_be_bytes(fields.take());
        let key = text;
        match op {
            b'A' => {
                let token = nonzero(u64::from_be_bytes(fields.take()), Malformed::ZeroToken)?;
                Ok(ServerFrame::Acquired { owner, token, key })
            }
            b'T' => Ok(ServerFrame::TimedOut { owner, key }),
            b'B' => Ok(ServerFrame::Busy { owner, key }),
            b'R' => Ok(ServerFrame::Released { owner, key }),
            b'N' => Ok(ServerFrame::NotHeld { owner, key }),
            _ => Err(Malformed::UnknownOp(op)),
        }
    }
}

fn nonzero(value: u64, error: Malformed) -> Result<u64, Malformed> {
    if value == 0 { Err(error) } else { Ok(value) }
}

fn no_text(text: &[u8]) -> Result<(), Malformed> {
    if text.is_empty() { Ok(()) } else { Err(Malformed::UnexpectedText) }
}

/// A fixed header, taken field by field. Its length was fixed by the op, so a field that is not
/// there is a mistake of this file.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        *self.array()
    }

    fn block(&mut self) -> &'a Block {
        self.array()
    }

    fn array<const N: usize>(&mut self) -> &'a [u8; N] {
        let (field, rest) = self.0.split_first_chunk().expect("the op fixes the header's length");
        self.0 = rest;
        field
    }
}

/// The length of the frame at the start of `bytes`; `None` while its end is not there.
///
/// The fixed header is passed over by count first: it may hold 0x0A itself.
fn frame_len<D: Direction>(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    let Some(&op) = bytes.first() else { return Ok(None) };
    let text = 1 + D::header(op).ok_or(Malformed::UnknownOp(op))?;
    let window = &bytes[..bytes.len().min(D::LIMIT)];
    let end = window.get(text..).and_then(|rest| scan::position(rest, b'\n'));
    match end {
        Some(at) => Ok(Some(text + at + 1)),
        None if bytes.len() >= D::LIMIT => Err(Malformed::Oversized),
        None => Ok(None),
    }
}

fn parse<D: Direction>(frame: &[u8]) -> Result<D::Frame<'_>, Malformed> {
    let header = D::header(frame[0]).ok_or(Malformed::UnknownOp(frame[0]))?;
    D::parse(frame[0], &frame[1..1 + header], &frame[1 + header..frame.len() - 1])
}

/// Cuts a byte stream into frames. Keeps the start of an unfinished one; allocates nothing.
///
/// An error is final: every later call gives it again.
#[derive(Debug, Clone)]
pub struct Decoder<D> {
    unfinished: Unfinished,
    failed: Option<Malformed>,
    direction: PhantomData<D>,
}

impl<D: Direction> Default for Decoder<D> {
    fn default() -> Decoder<D> {
        const { assert!(D::LIMIT <= SERVER_READ_LIMIT) };
        Decoder { unfinished: Unfinished::default(), failed: None, direction: PhantomData }
    }
}

impl<D: Direction> Decoder<D> {
    /// Takes the next frame off `input`, which is left at the byte after it. `None` once all of
    /// `input` is consumed; an unfinished frame's start is kept for the next call.
    ///
    /// The frame borrows from `input` or from the decoder, so it must be done with before the next
    /// call.
    ///
    /// # Errors
    /// The stream is malformed; nothing more can be read from it.
    pub fn next<'a, 'input: 'a>(
        &'a mut self,
        input: &mut &'input [u8],
    ) -> Result<Option<D::Frame<'a>>, Malformed> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let next = self.unfinished.next::<D>(input);
        if let Err(error) = &next {
            self.failed = Some(*error);
        }
        next
    }

    /// Whether a frame has begun and not ended. Says nothing once the stream is malformed.
    pub fn is_mid_frame(&self) -> bool {
        self.unfinished.len > 0
    }

    /// The stream has ended.
    ///
    /// # Errors
    /// [`Malformed::Truncated`] if it ended inside a frame, or the error that it had before.
    pub fn finish(&self) -> Result<(), Malformed> {
        match self.failed {
            Some(error) => Err(error),
            None if self.is_mid_frame() => Err(Malformed::Truncated),
            None => Ok(()),
        }
    }
}

/// The start of a frame whose end has not come yet; empty between frames.
#[derive(Debug, Clone)]
struct Unfinished {
    bytes: [u8; SERVER_READ_LIMIT],
    len: usize,
}

impl Default for Unfinished {
    fn default() -> Unfinished {
        Unfinished { bytes: [0; SERVER_READ_LIMIT], len: 0 }
    }
}

impl Unfinished {
    fn next<'a, 'input: 'a, D: Direction>(
        &'a mut self,
        input: &mut &'input [u8],
    ) -> Result<Option<D::Frame<'a>>, Malformed> {
        // A frame that arrived whole is read where it lies.
        if self.len == 0 {
            let Some(len) = frame_len::<D>(input)? else {
                self.keep(input);
                *input = &[];
                return Ok(None);
            };
            let (frame, rest) = input.split_at(len);
            *input = rest;
            return parse::<D>(frame).map(Some);
        }
        let had = self.len;
        // Bytes beyond this frame may be copied too: they are not taken off `input`.
        self.keep(&input[..input.len().min(D::LIMIT - had)]);
        let Some(len) = frame_len::<D>(&self.bytes[..self.len])? else {
            *input = &[];
            return Ok(None);
        };
        *input = &input[len - had..];
        self.len = 0;
        parse::<D>(&self.bytes[..len]).map(Some)
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}
