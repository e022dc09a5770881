//! What every exported function passes through: no panic leaves it, nothing is printed, `errno`
//! is as it was, and a host that cancels its threads (`pthread_cancel`) cancels none in here.

use super::last_error;
use super::status::lockclient_status;
use super::status::{Ended, LOCKCLIENT_E_PANIC, LOCKCLIENT_OK, LOCKCLIENT_PENDING};
use crate::quiet::{self, Quiet};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the body of an exported function. `on_panic` is what C gets if it panics.
pub(super) fn boundary<T>(on_panic: T, body: impl FnOnce() -> T) -> T {
    let _kept = Errno::keep();
    let _whole = Uncancelled::enter();
    quiet::install();
    let _quiet = Quiet::enter();
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        panicked(payload);
        on_panic
    })
}

// What follows is in no hurry, and once is enough for all exported functions.

#[cold]
#[inline(never)]
fn panicked(payload: Box<dyn Any + Send>) {
    let said = text(&*payload);
    last_error::set(format!("a bug in this library: {}", said.unwrap_or("it said nothing")).into());
    if said.is_none() {
        // Whatever it is: its drop may panic, and one leaked box is the lesser evil.
        std::mem::forget(payload);
    }
}

#[inline(never)]
fn failed(ended: Ended) -> lockclient_status {
    let status = ended.status;
    // Nothing has failed yet, and an event loop meets this all the time.
    if status != LOCKCLIENT_PENDING {
        last_error::set(ended.message);
    }
    status
}

/// What a panic said.
fn text(payload: &(dyn Any + Send)) -> Option<&str> {
    let owned = || payload.downcast_ref::<String>().map(String::as_str);
    payload.downcast_ref::<&str>().copied().or_else(owned)
}

/// The same for a function that gives a status: what failed is kept for `lockclient_last_error`.
pub(super) fn status(body: impl FnOnce() -> Result<(), Ended>) -> lockclient_status {
    boundary(LOCKCLIENT_E_PANIC, || match body() {
        Ok(()) => LOCKCLIENT_OK,
        Err(ended) => failed(ended),
    })
}

/// The same for a function that gives `none` on any failure.
pub(super) fn value_or<T: Copy>(none: T, body: impl FnOnce() -> Result<T, Ended>) -> T {
    boundary(none, || {
        body().unwrap_or_else(|ended| {
            failed(ended);
            none
        })
    })
}

unsafe extern "C" {
    /// POSIX; the `libc` crate has it for other systems only.
    safe fn pthread_setcancelstate(
        state: libc::c_int,
        old: Option<&mut libc::c_int>,
    ) -> libc::c_int;
}

/// `PTHREAD_CANCEL_DISABLE`, which is the same in every C library of Linux.
const DISABLED: libc::c_int = 1;

/// Until it is dropped the thread is not cancelled: a cancellation unwinds the stack, which Rust's
/// frames answer with the end of the process. One that comes meanwhile waits.
struct Uncancelled(libc::c_int);

impl Uncancelled {
    fn enter() -> Uncancelled {
        let mut before = 0;
        pthread_setcancelstate(DISABLED, Some(&mut before));
        Uncancelled(before)
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        pthread_setcancelstate(self.0, None);
    }
}

/// Puts `errno` back when dropped.
struct Errno(libc::c_int);

impl Errno {
    fn keep() -> Errno {
        // SAFETY: the pointer is the calling thread's own errno, valid as long as the thread.
        Errno(unsafe { *libc::__errno_location() })
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        // SAFETY: as in `keep`; the value is dropped on the thread that made it.
        unsafe { *libc::__errno_location() = self.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;
    use std::process::Command;

    fn last() -> String {
        // SAFETY: the text is this thread's and no call follows while it is read.
        unsafe { CStr::from_ptr(last_error::get()) }.to_str().unwrap().to_owned()
    }

    extern "C" fn panics() -> lockclient_status {
        status(|| panic!("provoked"))
    }

    /// Runs in a process of its own, whose output can be looked at.
    #[test]
    #[allow(clippy::print_stdout, reason = "says to the parent that the checks were made")]
    fn host_5_a_panic_becomes_a_status_and_prints_nothing() {
        const CHILD: &str = "LOCKCLIENT_TEST_PANICKING_CHILD";
        if std::env::var_os(CHILD).is_some() {
            assert_eq!(panics(), LOCKCLIENT_E_PANIC);
            assert_eq!(last(), "a bug in this library: provoked");
            println!("survived");
            return;
        }
        let me = std::env::current_exe().unwrap();
        let name = "ffi::boundary::tests::host_5_a_panic_becomes_a_status_and_prints_nothing";
        let child = Command::new(me)
            .args([name, "--exact", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let printed = String::from_utf8(child.stdout).unwrap();
        assert!(child.status.success() && printed.contains("survived"), "{printed}");
        assert_eq!(String::from_utf8(child.stderr).unwrap(), "");
    }

    #[test]
    fn a_panics_text_is_kept_whatever_it_was_made_of() {
        type Body = fn() -> i32;
        let bodies: [(Body, &str); 3] = [
            (|| panic!("plain"), "a bug in this library: plain"),
            (|| panic!("number {}", last().len()), "a bug in this library: number 28"),
            (|| std::panic::panic_any(()), "a bug in this library: it said nothing"),
        ];
        for (body, said) in bodies {
            assert_eq!(boundary(-1, body), -1);
            assert_eq!(last(), said);
        }
    }

    #[test]
    fn host_4_errno_is_kept_through_success_failure_and_panic() {
        let disturb = || std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
        type Body = fn() -> Result<(), Ended>;
        let ends: [(Body, lockclient_status); 3] = [
            (|| Ok(()), LOCKCLIENT_OK),
            (|| Err(Ended::new(LOCKCLIENT_PENDING)), LOCKCLIENT_PENDING),
            (|| panic!("provoked"), LOCKCLIENT_E_PANIC),
        ];
        for (end, expected) in ends {
            // SAFETY: this thread's own errno.
            unsafe { *libc::__errno_location() = 4242 };
            let got = status(|| {
                // SAFETY: as above.
                unsafe { *libc::__errno_location() = 17 };
                end()
            });
            assert_eq!((got, disturb()), (expected, 4242));
        }
    }
}
