//! lockclient through its Rust interface: one client for all threads, with the default settings.

#![allow(unsafe_code, reason = "the load generator is C, and calls back")]

use lockclient::{Acquire, Client, Config, Lock, Outcome, Released};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;
use std::time::Duration;

/// `struct contender` of `c/load.h`.
#[repr(C)]
struct Contender {
    open: unsafe extern "C" fn(*const c_char),
    join: unsafe extern "C" fn(c_int) -> *mut c_void,
    acquire: unsafe extern "C" fn(*mut c_void, *const c_char, usize) -> u64,
    release: unsafe extern "C" fn(*mut c_void, *const c_char, usize, u64),
    leave: unsafe extern "C" fn(*mut c_void),
    close: unsafe extern "C" fn(),
}

unsafe extern "C" {
    fn load_main(
        count: c_int,
        arguments: *const *const c_char,
        contender: *const Contender,
    ) -> c_int;
}

static CLIENT: OnceLock<Client> = OnceLock::new();

fn client() -> &'static Client {
    CLIENT.get().expect("opened first")
}

fn options() -> Acquire {
    Acquire::new(Duration::from_secs(60), Duration::from_secs(10))
}

unsafe extern "C" fn open(server: *const c_char) {
    // SAFETY: the load generator passes its argument, a C string.
    let server = unsafe { CStr::from_ptr(server) }.to_str().expect("an address");
    let client = Config::new().endpoint(server).expect("an address").open().expect("a client");
    assert!(client.wait_ready(Duration::from_secs(10)).expect("a client"), "no server");
    assert!(CLIENT.set(client).is_ok(), "opened once");
}

/// What a thread holds.
type Held = Option<Lock>;

unsafe extern "C" fn join(_: c_int) -> *mut c_void {
    Box::into_raw(Box::new(Held::None)).cast()
}

unsafe extern "C" fn acquire(held: *mut c_void, key: *const c_char, length: usize) -> u64 {
    // SAFETY: what `join` made for this thread, which alone uses it.
    let held = unsafe { &mut *held.cast::<Held>() };
    // SAFETY: so many bytes of a string that outlives the call.
    let key = unsafe { std::slice::from_raw_parts(key.cast::<u8>(), length) };
    let key = std::str::from_utf8(key).expect("keys are ASCII");
    match client().acquire(key, &options()) {
        Ok(Outcome::Acquired(lock)) => {
            let token = lock.token().get();
            *held = Some(lock);
            token
        }
        other => panic!("{other:?}"),
    }
}

unsafe extern "C" fn release(held: *mut c_void, _: *const c_char, _: usize, _: u64) {
    // SAFETY: as above.
    let held = unsafe { &mut *held.cast::<Held>() };
    let lock = held.take().expect("acquired before");
    match lock.release() {
        Ok(Released::Released) => {}
        other => panic!("{other:?}"),
    }
}

unsafe extern "C" fn leave(held: *mut c_void) {
    // SAFETY: what `join` made; this is its last use.
    drop(unsafe { Box::from_raw(held.cast::<Held>()) });
}

unsafe extern "C" fn close() {
    let _ = client().shutdown(Duration::from_secs(5)).expect("a client");
}

fn main() {
    let arguments: Vec<CString> = std::env::args()
        .map(|argument| CString::new(argument).expect("arguments have no NUL"))
        .collect();
    let mut pointers: Vec<*const c_char> = arguments.iter().map(|text| text.as_ptr()).collect();
    pointers.push(std::ptr::null());
    let contender = Contender { open, join, acquire, release, leave, close };
    // SAFETY: an argument vector as `main` of C gets it, and functions that keep what the header
    // says; all of it outlives the call.
    let status =
        unsafe { load_main(arguments.len() as c_int, pointers.as_ptr(), &raw const contender) };
    std::process::exit(status);
}
