//! Which library this is.

use super::boundary::boundary;
use std::ffi::{CStr, c_char};

/// The version of the C ABI that this header describes. It changes only when a program that was
/// compiled against an older header could no longer work, and then the shared library's name
/// changes with it (`liblockclient.so.1`).
pub const LOCKCLIENT_ABI_VERSION: u32 = 1;

const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a version has no NUL"),
    };

/// The version of the ABI of the library that is loaded. Programs that load it with dlopen compare
/// it with LOCKCLIENT_ABI_VERSION before they call anything else.
///
/// Threads: any.
///
/// @return 1.
#[unsafe(no_mangle)]
pub extern "C" fn lockclient_abi_version() -> u32 {
    boundary(LOCKCLIENT_ABI_VERSION, || LOCKCLIENT_ABI_VERSION)
}

/// The version of the library that is loaded, for logs.
///
/// Threads: any.
///
/// @return a text like "0.1.0", never NULL; static, not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn lockclient_version() -> *const c_char {
    boundary(VERSION.as_ptr(), || VERSION.as_ptr())
}
