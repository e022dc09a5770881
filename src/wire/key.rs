//! Lock keys: 1 to 128 bytes, kept inline so that copying one never allocates.

use std::fmt;
use std::hash::{Hash, Hasher};

/// The longest key, in bytes (not characters).
pub const MAX_KEY: usize = 128;

/// Why a key was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The key has no bytes.
    #[error("the key is empty")]
    Empty,
    /// The key has more than 128 bytes; the field is its length in bytes.
    #[error("the key has {0} bytes, more than 128")]
    TooLong(usize),
    /// The key is not valid UTF-8.
    #[error("the key is not valid UTF-8")]
    NotUtf8,
    /// The key contains a space (U+0020).
    #[error("the key contains a space")]
    Space,
    /// The key contains a newline (U+000A).
    #[error("the key contains a newline")]
    Newline,
    /// The key contains a carriage return (U+000D): a server drops one before the newline that
    /// ends a frame, so the key would silently become another.
    #[error("the key contains a carriage return")]
    CarriageReturn,
}

/// A valid lock key.
#[derive(Clone, Copy)]
pub struct Key {
    len: u8,
    bytes: [u8; MAX_KEY],
}

impl Key {
    /// Checks `bytes` by the client's rule.
    ///
    /// # Errors
    /// The first rule that `bytes` breaks, in the order in which [`KeyError`] lists them.
    pub fn new(bytes: &[u8]) -> Result<Key, KeyError> {
        let key = Key::from_wire(bytes)?;
        if bytes.contains(&b'\r') {
            return Err(KeyError::CarriageReturn);
        }
        Ok(key)
    }

    /// Checks `bytes` by the server's rule, which lets a carriage return through.
    ///
    /// # Errors
    /// As [`Key::new`], without [`KeyError::CarriageReturn`].
    pub fn from_wire(bytes: &[u8]) -> Result<Key, KeyError> {
        if bytes.is_empty() {
            return Err(KeyError::Empty);
        }
        if bytes.len() > MAX_KEY {
            return Err(KeyError::TooLong(bytes.len()));
        }
        if std::str::from_utf8(bytes).is_err() {
            return Err(KeyError::NotUtf8);
        }
        for byte in bytes {
            match byte {
                b' ' => return Err(KeyError::Space),
                b'\n' => return Err(KeyError::Newline),
                _ => {}
            }
        }
        let mut key = Key { len: bytes.len() as u8, bytes: [0; MAX_KEY] };
        key.bytes[..bytes.len()].copy_from_slice(bytes);
        Ok(key)
    }

    /// The key's bytes, valid UTF-8.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl std::borrow::Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?})", self.as_str())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
