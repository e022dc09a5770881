//! Lock keys: 1 to 128 bytes, kept inline so that copying one never allocates.

use super::scan;
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
        if bytes.contains(&b'\r') {
            // The other rules come first.
            return Err(Key::from_wire(bytes).err().unwrap_or(KeyError::CarriageReturn));
        }
        Key::from_wire(bytes)
    }

    /// Checks `bytes` by the server's rule, which lets a carriage return through.
    ///
    /// # Errors
    /// As [`Key::new`], without [`KeyError::CarriageReturn`].
    pub fn from_wire(bytes: &[u8]) -> Result<Key, KeyError> {
        Key::check_wire(bytes)?;
        let mut key = Key { len: bytes.len() as u8, bytes: [0; MAX_KEY] };
        key.bytes[..bytes.len()].copy_from_slice(bytes);
        Ok(key)
    }

    /// Checks `bytes` as [`Key::from_wire`] does, and copies nothing.
    ///
    /// # Errors
    /// As [`Key::from_wire`].
    pub fn check_wire(bytes: &[u8]) -> Result<(), KeyError> {
        if bytes.is_empty() {
            return Err(KeyError::Empty);
        }
        if bytes.len() > MAX_KEY {
            return Err(KeyError::TooLong(bytes.len()));
        }
        if scan::is_plain(bytes) {
            return Ok(());
        }
        if std::str::from_utf8(bytes).is_err() {
            return Err(KeyError::NotUtf8);
        }
        if bytes.contains(&b' ') {
            return Err(KeyError::Space);
        }
        if bytes.contains(&b'\n') {
            return Err(KeyError::Newline);
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn refused(bytes: &[u8]) -> KeyError {
        Key::new(bytes).expect_err("a key that is not allowed")
    }

    #[test]
    fn in_4_a_key_has_1_to_128_bytes() {
        assert_eq!(refused(b""), KeyError::Empty);
        for len in 1..=128 {
            let bytes = vec![b'k'; len];
            assert_eq!(Key::new(&bytes).unwrap().as_bytes(), bytes);
        }
        for len in [129, 255, 256, 257, 384, 65_537] {
            // 256 + 128 would fit again in a length that is one byte.
            assert_eq!(refused(&vec![b'k'; len]), KeyError::TooLong(len));
        }
    }

    #[test]
    fn in_4_bytes_are_counted_not_characters() {
        let syllables = |count| "락".repeat(count).into_bytes();
        assert_eq!(Key::new(&syllables(42)).unwrap().as_bytes().len(), 126);
        assert_eq!(refused(&syllables(43)), KeyError::TooLong(129));
        assert!(Key::new("🔒".repeat(32).as_bytes()).is_ok());
        assert_eq!(refused("é".repeat(65).as_bytes()), KeyError::TooLong(130));
    }

    #[test]
    fn in_4_a_key_is_valid_utf_8() {
        let faults: [&[u8]; 6] =
            [b"\xff", b"\x80", b"caf\xe9", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"];
        for bytes in faults {
            assert_eq!(refused(bytes), KeyError::NotUtf8, "{bytes:?}");
        }
        let syllable = "락".as_bytes();
        assert_eq!(refused(&syllable[..2]), KeyError::NotUtf8);
    }

    #[test]
    fn in_4_no_space_newline_or_carriage_return_anywhere() {
        for (byte, error) in
            [(' ', KeyError::Space), ('\n', KeyError::Newline), ('\r', KeyError::CarriageReturn)]
        {
            for key in
                [format!("{byte}"), format!("{byte}k"), format!("k{byte}k"), format!("k{byte}")]
            {
                assert_eq!(refused(key.as_bytes()), error, "{key:?}");
            }
        }
    }

    #[test]
    fn in_4_every_other_character_is_allowed() {
        for character in (0..=0x10_ffff).filter_map(char::from_u32) {
            let allowed = !matches!(character, ' ' | '\n' | '\r');
            let mut buffer = [0; 4];
            let bytes = character.encode_utf8(&mut buffer).as_bytes();
            assert_eq!(Key::new(bytes).is_ok(), allowed, "{character:?}");
        }
    }

    /// Of several faults the one that is reported does not depend on where each stands.
    #[test]
    fn in_4_the_first_rule_broken_is_the_one_reported() {
        assert_eq!(refused(&[b' '; 129]), KeyError::TooLong(129));
        assert_eq!(refused(b" \xff"), KeyError::NotUtf8);
        assert_eq!(refused(b"a\nb c"), KeyError::Space);
        assert_eq!(refused(b"a b\nc"), KeyError::Space);
        assert_eq!(refused(b"a\r\n"), KeyError::Newline);
    }

    #[test]
    fn in_4_a_server_lets_a_carriage_return_through() {
        assert_eq!(Key::from_wire(b"a\rb\r").unwrap().as_bytes(), b"a\rb\r");
        assert_eq!(Key::from_wire(b"a\n"), Err(KeyError::Newline));
        assert_eq!(Key::from_wire(b"a b"), Err(KeyError::Space));
        assert_eq!(Key::from_wire(b""), Err(KeyError::Empty));
        assert_eq!(Key::from_wire(b"\xff"), Err(KeyError::NotUtf8));
        assert_eq!(Key::from_wire(&[b'k'; 129]), Err(KeyError::TooLong(129)));
    }

    #[test]
    fn a_key_is_equal_to_its_copy_and_found_by_its_bytes() {
        let key = Key::new(b"orders/42").unwrap();
        let longer = Key::new(b"orders/42\0").unwrap();
        assert_eq!(key, Key::new(b"orders/42").unwrap());
        assert_ne!(key, longer, "the bytes after a key's end are not part of it");
        let keys = HashSet::from([key]);
        assert!(keys.contains(b"orders/42".as_slice()));
        assert!(!keys.contains(b"orders/42\0".as_slice()));
        assert_eq!(key.as_str(), "orders/42");
        assert_eq!(format!("{key} {key:?}"), "orders/42 Key(\"orders/42\")");
    }
}
