//! The secrets that clients may prove to know.

use lockclient::wire::{self, Block};
use std::fmt;
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// The shortest secret, in bytes.
pub const MIN_SECRET: usize = 16;
/// The longest secret, in bytes.
pub const MAX_SECRET: usize = 256;

/// A shared secret of 16 to 256 bytes. Its `Debug` form does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Secret {
    /// Checks the length.
    ///
    /// # Errors
    /// `InvalidData` unless there are 16 to 256 bytes.
    pub fn new(bytes: &[u8]) -> io::Result<Secret> {
        if (MIN_SECRET..=MAX_SECRET).contains(&bytes.len()) {
            return Ok(Secret(bytes.to_vec()));
        }
        let what = format!("a secret has {MIN_SECRET} to {MAX_SECRET} bytes");
        Err(io::Error::new(io::ErrorKind::InvalidData, what))
    }

    /// Reads a secret from a file: its bytes, less one final line feed. Logs a warning if every
    /// user can read the file.
    ///
    /// # Errors
    /// As [`Secret::new`], whatever reading the file gives, `InvalidInput` if it is no regular file,
    /// and `PermissionDenied` if every user can write to it. The message names the file.
    pub fn read(path: &Path) -> io::Result<Secret> {
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("secret file {}: {error}", path.display()))
        };
        let mut bytes = Vec::new();
        let mut options = std::fs::OpenOptions::new();
        // Whoever reads it must not come to wait for one who would write into a FIFO.
        options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
        let file = options.open(path).map_err(named)?;
        let metadata = file.metadata().map_err(named)?;
        if !metadata.is_file() {
            let what = "it is not a regular file";
            return Err(named(io::Error::new(io::ErrorKind::InvalidInput, what)));
        }
        let mode = metadata.permissions().mode();
        if mode & 0o002 != 0 {
            let what = "every user can write to it";
            return Err(named(io::Error::new(io::ErrorKind::PermissionDenied, what)));
        }
        if mode & 0o004 != 0 {
            tracing::warn!(file = %path.display(), "every user can read this secret file");
        }
        // One more than the longest secret with its line feed: enough to see that it is too long.
        file.take(MAX_SECRET as u64 + 2).read_to_end(&mut bytes).map_err(named)?;
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
        }
        Secret::new(&bytes).map_err(named)
    }
}

/// The server's answer to a client's proof: a proof of its own, by the secret that matched.
pub(crate) fn check(
    secrets: &[Secret],
    server_nonce: &Block,
    client_nonce: &Block,
    proof: &Block,
) -> Option<Block> {
    let mut answer = None;
    // Every secret is tried, so that the time does not tell which one matched.
    for Secret(secret) in secrets {
        if wire::same_proof(&wire::client_proof(secret, server_nonce, client_nonce), proof) {
            answer = Some(wire::server_proof(secret, server_nonce, client_nonce));
        }
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(byte: u8) -> Secret {
        Secret::new(&[byte; 32]).unwrap()
    }

    #[test]
    fn any_of_the_secrets_is_accepted_and_answered_with_itself() {
        let secrets = [secret(1), secret(2), secret(3)];
        for known in 1..=3 {
            let proof = wire::client_proof(&[known; 32], &[8; 32], &[9; 32]);
            let answer = check(&secrets, &[8; 32], &[9; 32], &proof);
            assert_eq!(answer, Some(wire::server_proof(&[known; 32], &[8; 32], &[9; 32])));
        }
    }

    #[test]
    fn a_proof_by_another_secret_or_for_another_nonce_is_refused() {
        let secrets = [secret(1), secret(2)];
        let proof = wire::client_proof(&[4; 32], &[8; 32], &[9; 32]);
        assert_eq!(check(&secrets, &[8; 32], &[9; 32], &proof), None);
        let proof = wire::client_proof(&[1; 32], &[8; 32], &[9; 32]);
        assert_eq!(check(&secrets, &[7; 32], &[9; 32], &proof), None);
        assert_eq!(check(&[], &[8; 32], &[9; 32], &proof), None);
    }

    #[test]
    fn a_secret_has_16_to_256_bytes() {
        for (len, good) in [(0, false), (15, false), (16, true), (256, true), (257, false)] {
            assert_eq!(Secret::new(&vec![1; len]).is_ok(), good, "{len} bytes");
        }
    }

    #[test]
    fn what_is_no_regular_file_is_refused_and_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, 0o600.into()).unwrap();
        // With more in it than is read of a secret, and one who may write more.
        let mut options = std::fs::OpenOptions::new();
        let mut full = options.read(true).write(true).open(&fifo).unwrap();
        assert_eq!(io::Write::write(&mut full, &[1; 300]).unwrap(), 300);
        for path in [&fifo, dir.path()] {
            let error = Secret::read(path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains("not a regular file"), "{error}");
        }
    }

    #[test]
    fn its_debug_form_does_not_show_it() {
        assert_eq!(format!("{:?}", secret(b's')), "Secret(..)");
    }
}
