//! Keys as C gives them.

use super::status::{Ended, LOCKCLIENT_E_BAD_KEY};
use crate::wire::MAX_KEY;
use std::ffi::c_char;
use std::slice;

/// `LOCKCLIENT_NUL_TERMINATED`: the key's length is up to its NUL.
pub(super) const NUL_TERMINATED: usize = usize::MAX;

/// The key's bytes. Their rules are checked by whoever uses them; only what is too long in any
/// case is refused here, so that no more than 129 bytes are ever looked at.
///
/// # Safety
/// `key` is NULL, or points to `key_len` readable bytes that nobody changes during `'a`, or, with
/// [`NUL_TERMINATED`], to such bytes up to a NUL.
pub(super) unsafe fn bytes<'a>(key: *const c_char, key_len: usize) -> Result<&'a [u8], Ended> {
    if key.is_null() {
        return Err(Ended::null("key"));
    }
    let length = match key_len {
        // SAFETY: up to the NUL, or up to the limit, the bytes are readable.
        NUL_TERMINATED => unsafe { libc::strnlen(key, MAX_KEY + 1) },
        length => length,
    };
    if length > MAX_KEY {
        let length = if key_len == NUL_TERMINATED { "more than 128" } else { &length.to_string() };
        let why = format!("the key has {length} bytes; at most 128 are allowed");
        return Err(Ended::because(LOCKCLIENT_E_BAD_KEY, why));
    }
    // SAFETY: `length` bytes are readable and stay as they are.
    Ok(unsafe { slice::from_raw_parts(key.cast(), length) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_may_end_with_a_nul_or_be_counted() {
        let text = c"orders/1";
        // SAFETY: the text is readable for as long as the test.
        unsafe {
            assert_eq!(bytes(text.as_ptr(), NUL_TERMINATED).unwrap(), b"orders/1");
            assert_eq!(bytes(text.as_ptr(), 6).unwrap(), b"orders");
            assert_eq!(bytes(text.as_ptr(), 0).unwrap(), b"");
        }
    }

    /// The bytes behind the limit do not exist: reading them would be found out by a checker.
    #[test]
    fn in_4_no_byte_behind_the_limit_is_read() {
        let unterminated = vec![b'k'; MAX_KEY + 1].into_boxed_slice();
        let start = unterminated.as_ptr().cast();
        for length in [NUL_TERMINATED, NUL_TERMINATED - 1, isize::MAX as usize, MAX_KEY + 1] {
            // SAFETY: at most 129 bytes are read, and those exist.
            let ended = unsafe { bytes(start, length) }.unwrap_err();
            assert_eq!(ended.status, LOCKCLIENT_E_BAD_KEY);
        }
        // SAFETY: 128 bytes exist.
        assert_eq!(unsafe { bytes(start, MAX_KEY) }.unwrap().len(), MAX_KEY);
    }
}
