//! The handshake's proofs against `tests/wire/proofs.txt`, which another HMAC made.

#[path = "common/vectors.rs"]
mod vectors;

use lockclient::wire::{Block, client_proof, same_proof, server_proof};
use vectors::{data_lines, documented_lines, unhex};

#[test]
fn proofs_are_what_another_hmac_gives() {
    let block = |text: &str| Block::try_from(unhex(text)).expect("32 bytes");
    let mut secret_lengths = Vec::new();
    for line in data_lines(include_str!("wire/proofs.txt")) {
        let [name, secret, server_nonce, client_nonce, by_client, by_server] =
            line.split(' ').collect::<Vec<_>>()[..]
        else {
            panic!("not six columns: {line}");
        };
        let secret = unhex(secret);
        let (server_nonce, client_nonce) = (block(server_nonce), block(client_nonce));
        let (by_client, by_server) = (block(by_client), block(by_server));
        assert_eq!(client_proof(&secret, &server_nonce, &client_nonce), by_client, "{name}");
        assert_eq!(server_proof(&secret, &server_nonce, &client_nonce), by_server, "{name}");
        secret_lengths.push(secret.len());
    }
    // The shortest and the longest secret, and both sides of HMAC's block.
    for length in [16, 64, 65, 256] {
        assert!(secret_lengths.contains(&length), "no vector with a secret of {length} bytes");
    }
}

#[test]
fn the_document_shows_proofs_of_the_file() {
    let shown = documented_lines("proofs");
    assert_eq!(shown.len(), 1);
    assert!(data_lines(include_str!("wire/proofs.txt")).any(|line| line == shown[0]));
}

/// A proof that is good for another role, nonce or secret could be replayed there.
#[test]
fn a_proof_depends_on_everything_it_is_made_from() {
    let (secret, server_nonce, client_nonce) = ([7; 32], [1; 32], [2; 32]);
    let proof = client_proof(&secret, &server_nonce, &client_nonce);
    assert_ne!(server_proof(&secret, &server_nonce, &client_nonce), proof, "the role");
    assert_ne!(client_proof(&secret, &client_nonce, &server_nonce), proof, "the nonces' order");
    assert_ne!(client_proof(&secret[..31], &server_nonce, &client_nonce), proof, "the length");
    for bit in 0..256 {
        let mut other = [0; 32];
        other[bit / 8] = 1 << (bit % 8);
        let flip = |block: &Block| std::array::from_fn(|at| block[at] ^ other[at]);
        assert_ne!(client_proof(&flip(&secret), &server_nonce, &client_nonce), proof, "{bit}");
        assert_ne!(client_proof(&secret, &flip(&server_nonce), &client_nonce), proof, "{bit}");
        assert_ne!(client_proof(&secret, &server_nonce, &flip(&client_nonce)), proof, "{bit}");
    }
}

#[test]
fn proofs_are_the_same_only_if_every_bit_is() {
    let proof: Block = std::array::from_fn(|at| at as u8);
    assert!(same_proof(&proof, &proof.clone()));
    for bit in 0..256 {
        let mut other = proof;
        other[bit / 8] ^= 1 << (bit % 8);
        assert!(!same_proof(&proof, &other), "bit {bit}");
        assert!(!same_proof(&other, &proof), "bit {bit}");
    }
    // Differences that would cancel out in a sum or in an exclusive or.
    let mut other = proof;
    other[0] ^= 0x80;
    other[31] ^= 0x80;
    assert!(!same_proof(&proof, &other));
}
