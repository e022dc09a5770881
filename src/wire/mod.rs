//! The lock protocol, version 1: a pure codec. It does no I/O and decoding allocates nothing.

mod auth;
mod decode;
mod frame;
mod key;
mod scan;

pub use auth::{client_proof, same_proof, server_proof};
pub use decode::{Decoder, Direction, FromClient, FromServer, Malformed};
pub use frame::{Block, ClientFrame, MAX_FRAME, SERVER_READ_LIMIT, ServerFrame};
pub use key::{Key, KeyError, MAX_KEY};

/// The key of a probe: a release of token 0, which can release nothing.
pub const PROBE_KEY: &[u8] = b"_probe";
