//! Keeps the library from printing (HOST-4).
//!
//! A panic is a bug here, and is caught wherever this library's code is called from outside or
//! runs on a thread of its own. But the message is printed by the panic hook before anything can
//! be caught, and the hook belongs to the whole program. So one is put around it that is silent
//! while a thread runs this library's code, and passes everything else on. A C program has a copy
//! of the standard library, and so of the hook, to this library alone; in a Rust program, whoever
//! sets a hook of its own later decides by that.

use std::cell::Cell;
use std::panic::{self, PanicHookInfo};
use std::sync::atomic::{AtomicBool, Ordering};

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// While it lives, a panic on this thread prints nothing.
#[derive(Debug)]
pub(crate) struct Quiet(());

impl Quiet {
    /// Silences this thread.
    pub(crate) fn enter() -> Quiet {
        DEPTH.set(DEPTH.get() + 1);
        Quiet(())
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Puts the silent hook around the program's. Once; later calls do nothing.
///
/// Nobody waits for whoever does it, nor does it in its place: in a child that was forked meanwhile
/// that thread is gone, and the standard library's lock of the hook may be held for ever (HOST-2).
/// Such a child goes without the silent hook, and so does a call on another thread until the hook is
/// there; it matters only if this library has a bug then.
pub(crate) fn install() {
    static BEGUN: AtomicBool = AtomicBool::new(false);
    // The hook cannot be touched while this thread panics; the next client sees to it then.
    if BEGUN.load(Ordering::Relaxed) || std::thread::panicking() {
        return;
    }
    if !BEGUN.swap(true, Ordering::Relaxed) {
        panic::set_hook(around(panic::take_hook()));
    }
}

type Hook = Box<dyn Fn(&PanicHookInfo<'_>) + Send + Sync>;

fn around(others: Hook) -> Hook {
    Box::new(move |info| {
        if DEPTH.get() == 0 {
            others(info);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn host_4_a_panic_of_ours_reaches_no_hook_and_others_do() {
        // One that counts is put under ours, and over the one that was there.
        let count = Arc::new(AtomicU32::new(0));
        let seen = count.clone();
        let below = panic::take_hook();
        panic::set_hook(around(Box::new(move |info| {
            if std::thread::current().name() == Some("counted") {
                seen.fetch_add(1, Ordering::Relaxed);
            } else {
                below(info);
            }
        })));
        let run = |quiet: bool| {
            let body = move || {
                let _quiet = quiet.then(Quiet::enter);
                panic!("on purpose");
            };
            let thread = std::thread::Builder::new().name("counted".to_owned()).spawn(body);
            assert!(thread.unwrap().join().is_err());
        };
        run(true);
        assert_eq!(count.load(Ordering::Relaxed), 0);
        run(false);
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }
}
