//! Pointers that C holds: who owns what they point to, and how they become references.

use super::status::{Ended, LOCKCLIENT_E_INVALID_ARGUMENT, LOCKCLIENT_E_SYSTEM};
use std::alloc::{Layout, alloc};
use std::ffi::CStr;
use std::ptr;

/// Not made for the occasion: there is no memory for that either.
const NO_MEMORY: &CStr = c"There is no memory.";

/// Whether there is memory for something of about this size. What the standard library allocates
/// inside ends the process when there is none, so whoever starts something large asks first.
pub(super) fn room_for(bytes: usize) -> Result<(), Ended> {
    Vec::<u8>::new()
        .try_reserve_exact(bytes)
        .map_err(|_| Ended::because(LOCKCLIENT_E_SYSTEM, NO_MEMORY))
}

/// A type that C sees as an opaque pointer. There is one ownership: the pointer that was given
/// out owns the value, alone, until the one function that frees it takes it back. Everything
/// else borrows it, shared, so that calls from many threads never need exclusive access.
pub(super) trait Handle: Sized + Send + Sync {
    /// What messages call it.
    const NAME: &'static str;

    /// Hands the value to C. Unlike `Box::new` this returns when there is no memory.
    fn give(self) -> Result<*mut Self, Ended> {
        const { assert!(size_of::<Self>() > 0) };
        // SAFETY: the size is not zero.
        let place = unsafe { alloc(Layout::new::<Self>()) }.cast::<Self>();
        if place.is_null() {
            return Err(Ended::because(LOCKCLIENT_E_SYSTEM, NO_MEMORY));
        }
        // SAFETY: `place` is fresh, of the right size and alignment, and nobody else's.
        unsafe { place.write(self) };
        Ok(place)
    }

    /// The value that C lends for the time of a call.
    ///
    /// # Safety
    /// `pointer` is NULL, or came from [`Handle::give`] and is not taken back during `'a`.
    unsafe fn borrow<'a>(pointer: *const Self) -> Result<&'a Self, Ended> {
        // SAFETY: the caller's promise.
        unsafe { pointer.as_ref() }.ok_or_else(|| Ended::null(Self::NAME))
    }

    /// Takes the value back from C: it is freed when the box is dropped. None for NULL.
    ///
    /// # Safety
    /// `pointer` is NULL, or came from [`Handle::give`], was not taken back before, and no other
    /// call uses it now or later.
    unsafe fn take(pointer: *mut Self) -> Option<Box<Self>> {
        // SAFETY: `give` allocated it as `Box` would have, with the global allocator and the
        // layout of `Self`; the caller promises that it is the last use.
        (!pointer.is_null()).then(|| unsafe { Box::from_raw(pointer) })
    }
}

/// Where a result goes. Zeroed at once, so that it is zero however the call ends.
///
/// # Safety
/// `pointer` is NULL, or may be written to during `'a`, and nobody else uses it meanwhile. It need
/// not be initialized. All bytes zero are a value of `T`.
pub(super) unsafe fn out<'a, T: Zeroed>(pointer: *mut T) -> Result<&'a mut T, Ended> {
    if pointer.is_null() {
        return Err(Ended::null("out"));
    }
    // SAFETY: the caller's promise; `T: Zeroed` says that zeros are a value.
    unsafe {
        ptr::write_bytes(pointer, 0, 1);
        Ok(&mut *pointer)
    }
}

/// A type of which all bytes zero are a value.
///
/// # Safety
/// They must be.
pub(super) unsafe trait Zeroed {}

// SAFETY: the null pointer is a value, and all bits zero on every platform that Rust supports.
unsafe impl<T> Zeroed for *mut T {}

impl Ended {
    /// A pointer that must not be NULL was.
    pub(super) fn null(what: &'static str) -> Ended {
        Ended::because(LOCKCLIENT_E_INVALID_ARGUMENT, format!("{what} is NULL"))
    }
}
