//! The text of a thread's last failed call.

use super::boundary::boundary;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};

/// A sentence for C.
#[derive(Debug)]
pub(super) enum Message {
    /// Of the library's own data: nothing is allocated for the common outcomes.
    Static(&'static CStr),
    /// Made for the occasion.
    Owned(CString),
}

impl Message {
    fn as_ptr(&self) -> *const c_char {
        match self {
            Message::Static(text) => text.as_ptr(),
            Message::Owned(text) => text.as_ptr(),
        }
    }
}

impl From<&'static CStr> for Message {
    fn from(text: &'static CStr) -> Message {
        Message::Static(text)
    }
}

impl From<String> for Message {
    fn from(mut text: String) -> Message {
        // C would see the text end there.
        text.retain(|character| character != '\0');
        Message::Owned(CString::new(text).unwrap_or_default())
    }
}

impl From<&str> for Message {
    fn from(text: &str) -> Message {
        text.to_owned().into()
    }
}

thread_local! {
    // A few words: thread-local storage of a shared library comes out of the stack of every thread
    // that the host starts, and some hosts have very small stacks.
    static LAST: RefCell<Message> = const { RefCell::new(Message::Static(c"")) };
}

/// Keeps the text until this thread's next failure. Does nothing while the thread is ending.
pub(super) fn set(message: Message) {
    let _ = LAST.try_with(|last| {
        if let Ok(mut last) = last.try_borrow_mut() {
            *last = message;
        }
    });
}

/// The text, valid until this thread's next failure or its end.
pub(super) fn get() -> *const c_char {
    LAST.try_with(|last| last.try_borrow().map_or(c"".as_ptr(), |last| last.as_ptr()))
        .unwrap_or(c"".as_ptr())
}

/// Says what went wrong in the calling thread's last failed call, in one English sentence: more
/// than the status alone, for example which rule a key breaks, or which endpoint refused the
/// connection and what the system called it.
///
/// Every call that returns something else than LOCKCLIENT_OK or LOCKCLIENT_PENDING sets it, and
/// so do the functions that return NULL or -1 on a failure; successful calls leave it as it is, so
/// look at it only after a failure. The text is for people: do not parse it.
///
/// Threads: each has its own text. In a destructor that runs at a thread's end it may be empty.
///
/// @return the sentence, UTF-8, never NULL, empty if nothing failed yet. It belongs to the library
///         and is valid until the next failing call of the same thread, or that thread's end: copy
///         what is to be kept.
#[unsafe(no_mangle)]
pub extern "C" fn lockclient_last_error() -> *const c_char {
    boundary(c"".as_ptr(), get)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> String {
        // SAFETY: the text is this thread's and no call follows while it is read.
        unsafe { CStr::from_ptr(lockclient_last_error()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn each_thread_has_its_own_text_and_it_starts_empty() {
        assert_eq!(text(), "");
        set("one".into());
        std::thread::spawn(|| {
            assert_eq!(text(), "");
            set("two".into());
            assert_eq!(text(), "two");
        })
        .join()
        .unwrap();
        assert_eq!(text(), "one");
        set(c"three".into());
        assert_eq!(text(), "three");
    }

    #[test]
    fn a_text_never_ends_early() {
        set("a\0b".into());
        assert_eq!(text(), "ab");
    }
}
