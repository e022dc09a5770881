//! The proofs of the handshake: HMAC-SHA256 over a label and both nonces.

use super::frame::Block;

const CLIENT: &[u8] = b"lock-v1 client";
const SERVER: &[u8] = b"lock-v1 server";

/// The proof that a client sends.
pub fn client_proof(secret: &[u8], server_nonce: &Block, client_nonce: &Block) -> Block {
    proof(CLIENT, secret, server_nonce, client_nonce)
}

/// The proof that a server sends back.
pub fn server_proof(secret: &[u8], server_nonce: &Block, client_nonce: &Block) -> Block {
    proof(SERVER, secret, server_nonce, client_nonce)
}

/// Compares two proofs in a time that does not depend on where they differ.
#[must_use]
pub fn same_proof(a: &Block, b: &Block) -> bool {
    let difference = a.iter().zip(b).fold(0, |sum, (x, y)| sum | (x ^ y));
    // Without this the compiler may return at the first difference.
    std::hint::black_box(difference) == 0
}

fn proof(label: &[u8], secret: &[u8], server_nonce: &Block, client_nonce: &Block) -> Block {
    let mut mac = hmac_sha256::HMAC::new(secret);
    mac.update(label);
    mac.update(server_nonce);
    mac.update(client_nonce);
    mac.finalize()
}
