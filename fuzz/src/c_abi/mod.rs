//! Calls of the C ABI in any order and with wrong arguments, from one thread or two, against a
//! server that behaves and misbehaves.
//!
//! Nothing may crash or leak, and each function may return only what the header says.
//!
//! Input: choices of the next call and of its arguments. Calls that would block are ended by
//! another thread's call after some milliseconds, as the header allows.
#![allow(unsafe_code, reason = "the functions under test are C's")]

mod header;
mod server;
mod shared;

use crate::input::Input;
use ::lockclient::ffi::*;
use header::check;
use server::{ADDRESS, MOOD, MOODS};
use shared::{Handles, KEYS, Ticket};
use socket2::{Domain, Socket, Type};
use std::ffi::{CStr, CString, c_char, c_void};
use std::net::{Ipv4Addr, SocketAddr};
use std::ptr;
use std::sync::LazyLock;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

/// A port that refuses: it is taken, and nobody listens.
static REFUSING: LazyLock<(Socket, String)> = LazyLock::new(|| {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    socket.bind(&any.into()).expect("a free port");
    let address = socket.local_addr().expect("it is bound").as_socket().expect("an address");
    (socket, address.to_string())
});

/// What callbacks are given.
static USER: u8 = 0;

/// Must run alone in its process: it counts the threads.
///
/// # Panics
/// An invariant does not hold.
pub fn run(data: &[u8]) {
    LazyLock::force(&ADDRESS);
    let threads = count("/proc/self/task");
    let mut input = Input::new(data);
    let mut run = Run { config: ptr::null_mut(), handles: Handles::default(), opened: 0 };
    MOOD.store(0, Ordering::SeqCst);
    for _ in 0..100 {
        if input.is_empty() {
            break;
        }
        run.step(&mut input);
    }
    run.end(&mut input);
    nothing_stays(threads);
}

struct Run {
    config: *mut lockclient_config,
    handles: Handles,
    opened: usize,
}

impl Run {
    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(32) {
            0..3 => self.open(input),
            3 => self.close(input),
            4 => self.configure(input),
            5 => scratch_config(input),
            6 | 7 => MOOD.store(input.below(MOODS) as u8, Ordering::SeqCst),
            8..10 => self.free_ticket(input),
            10 => nulls(input),
            11 => constants(input),
            12..14 => self.in_parallel(input),
            _ => self.handles.step(input),
        }
    }

    /// Two threads use the same handles, each by choices of its own.
    fn in_parallel(&mut self, input: &mut Input<'_>) {
        let count = input.below(24);
        let mut theirs = Input::new(input.bytes(count));
        let count = input.below(24);
        let mut ours = Input::new(input.bytes(count));
        let mut other = self.handles.clone();
        let fetched = other.fetched.len();
        let handles = &mut self.handles;
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                other.run(&mut theirs);
                other
            });
            handles.run(&mut ours);
            let other = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            handles.merge(other, fetched);
        });
    }

    fn config(&mut self) -> *mut lockclient_config {
        if self.config.is_null() {
            self.config = lockclient_config_new();
            assert!(!self.config.is_null());
            let log: unsafe extern "C" fn(*mut c_void, i32, *const c_char) = log;
            let user = ptr::from_ref(&USER).cast_mut().cast();
            // SAFETY: a live configuration; the callback and its pointer live for ever.
            let status = unsafe { lockclient_config_set_log(self.config, Some(log), user) };
            check("lockclient_config_set_log", status);
        }
        self.config
    }

    fn configure(&mut self, input: &mut Input<'_>) {
        let config = self.config();
        set(config, input);
    }

    fn open(&mut self, input: &mut Input<'_>) {
        if self.opened >= 4 || self.handles.clients.iter().all(|client| *client != 0) {
            return;
        }
        let config = self.config();
        let choice = input.below(8);
        let add = |text: &str| {
            let text = CString::new(text).expect("no NUL");
            // SAFETY: a live configuration and a text that ends with a NUL.
            let status = unsafe { lockclient_config_add_endpoint(config, text.as_ptr()) };
            // The second time it is there already.
            check("lockclient_config_add_endpoint", status);
        };
        match choice {
            0 => {}
            1 => add(&REFUSING.1),
            2 => add("unix:/nonexistent/socket"),
            3 => {
                add(&REFUSING.1);
                add(&ADDRESS);
            }
            _ => add(&ADDRESS),
        }
        let mut client = ptr::dangling_mut();
        // SAFETY: a live configuration and room for a pointer.
        let status = check("lockclient_open", unsafe { lockclient_open(config, &mut client) });
        assert_eq!(status == LOCKCLIENT_OK, !client.is_null());
        if status == LOCKCLIENT_OK {
            let place = self.handles.clients.iter().position(|client| *client == 0);
            self.handles.clients[place.expect("a free place")] = client.expose_provenance();
            self.opened += 1;
        }
    }

    fn close(&mut self, input: &mut Input<'_>) {
        let at = input.below(self.handles.clients.len());
        let client = self.handles.client(at);
        let timeout = u64::from(input.byte() % 4);
        if !client.is_null() {
            // SAFETY: an open client that nobody else uses now, or ever again.
            check("lockclient_close", unsafe { lockclient_close(client, timeout) });
            self.handles.clients[at] = 0;
        }
    }

    fn free_ticket(&mut self, input: &mut Input<'_>) {
        if !self.handles.tickets.is_empty() {
            let at = input.below(self.handles.tickets.len());
            let ticket: Ticket = self.handles.tickets.swap_remove(at);
            self.handles.forget(ticket);
            // SAFETY: a live ticket that nobody else uses now, or ever again.
            unsafe { lockclient_ticket_free(ticket.pointer()) };
        }
    }

    fn end(&mut self, input: &mut Input<'_>) {
        // Tickets may outlive their client.
        let tickets_first = input.is_odd();
        if tickets_first {
            while !self.handles.tickets.is_empty() {
                self.free_ticket(input);
            }
        }
        for at in 0..self.handles.clients.len() {
            let client = self.handles.client(at);
            if !client.is_null() {
                // SAFETY: an open client that nobody else uses now, or ever again.
                check("lockclient_close", unsafe { lockclient_close(client, 0) });
            }
        }
        while !self.handles.tickets.is_empty() {
            self.free_ticket(input);
        }
        // SAFETY: NULL, or a live configuration that nobody else uses.
        unsafe { lockclient_config_free(self.config) };
    }
}

unsafe extern "C" fn log(user: *mut c_void, level: i32, message: *const c_char) {
    assert_eq!(user.cast_const(), ptr::from_ref(&USER).cast());
    assert!((LOCKCLIENT_LOG_ERROR..=LOCKCLIENT_LOG_DEBUG).contains(&level));
    // SAFETY: the header: a text that lives as long as this call.
    let message = unsafe { CStr::from_ptr(message) };
    assert!(message.to_str().is_ok_and(|text| !text.is_empty()));
}

/// One setter, with any value. Times are such that nothing takes long.
fn set(config: *mut lockclient_config, input: &mut Input<'_>) {
    let choice = input.below(10);
    let byte = input.byte();
    let on = byte % 2 == 1;
    let wild = |good: u64| match byte {
        0..16 => 0,
        16..32 => u64::MAX,
        32..48 => u64::from(byte),
        _ => good,
    };
    // SAFETY: NULL or a live configuration; the secret's bytes are there.
    let (name, status) = unsafe {
        match choice {
            0 => {
                let secret = [byte; 300];
                let len = usize::from(byte) * 2 % 300;
                let status = lockclient_config_set_secret(config, secret.as_ptr(), len);
                ("lockclient_config_set_secret", status)
            }
            1 => {
                let status = lockclient_config_set_connections(config, wild(3) as u32);
                ("lockclient_config_set_connections", status)
            }
            2 => {
                let status = lockclient_config_set_connect_timeout_ms(config, wild(10));
                ("lockclient_config_set_connect_timeout_ms", status)
            }
            3 => {
                let status = lockclient_config_set_response_grace_ms(config, wild(50));
                ("lockclient_config_set_response_grace_ms", status)
            }
            4 => {
                let status = lockclient_config_set_strict_deadline(config, on);
                ("lockclient_config_set_strict_deadline", status)
            }
            5 => {
                let status = lockclient_config_set_enforce_budget(config, on);
                ("lockclient_config_set_enforce_budget", status)
            }
            6 => {
                let status = lockclient_config_set_busy_retry(config, on);
                ("lockclient_config_set_busy_retry", status)
            }
            7 => {
                let status = lockclient_config_set_ordered_answers(config, on);
                ("lockclient_config_set_ordered_answers", status)
            }
            8 => {
                let status = lockclient_config_set_idle_probe_ms(config, wild(1_000));
                ("lockclient_config_set_idle_probe_ms", status)
            }
            _ => {
                let status = lockclient_config_set_queue_limit(config, wild(2) as usize);
                ("lockclient_config_set_queue_limit", status)
            }
        }
    };
    check(name, status);
}

/// A configuration that is never opened, so that any address may stand in it.
fn scratch_config(input: &mut Input<'_>) {
    let config = lockclient_config_new();
    let count = input.below(120);
    let mut text = input.bytes(count).to_vec();
    text.retain(|byte| *byte != 0);
    let text = CString::new(text).expect("no NUL is left");
    // SAFETY: a live configuration, which nobody uses after it is freed.
    unsafe {
        let status = lockclient_config_add_endpoint(config, text.as_ptr());
        check("lockclient_config_add_endpoint", status);
        set(config, input);
        lockclient_config_free(config);
    }
}

/// NULL where there must be something.
fn nulls(input: &mut Input<'_>) {
    let (no_config, no_client, no_ticket) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    let key = KEYS[0].as_ptr();
    let mut grant = lockclient_grant { token: 7, owner: 7, remaining_ms: 7, reserved: [7; 5] };
    let mut ticket = ptr::dangling_mut();
    let mut client = ptr::dangling_mut();
    // SAFETY: every function takes NULL; what is not NULL is live.
    unsafe {
        let statuses = [
            lockclient_config_add_endpoint(no_config, key),
            lockclient_config_set_secret(no_config, key.cast(), 16),
            lockclient_config_set_log(no_config, None, ptr::null_mut()),
            lockclient_open(ptr::null(), &mut client),
            lockclient_wait_ready(no_client, 0),
            lockclient_shutdown(no_client, 0),
            lockclient_close(no_client, 0),
            lockclient_acquire(no_client, key, 1, 0, 1000, 0, &mut grant),
            lockclient_acquire(no_client, ptr::null(), 1, 0, 1000, 0, ptr::null_mut()),
            lockclient_release(no_client, key, 1, 1),
            lockclient_release_start(no_client, key, 1, 1),
            lockclient_acquire_start(no_client, key, 1, 0, 1000, 0, &mut ticket),
            lockclient_ticket_wait(no_ticket, &mut grant),
            lockclient_ticket_poll(no_ticket, ptr::null_mut()),
            lockclient_ticket_cancel(no_ticket),
            lockclient_get_stats(no_client, ptr::null_mut(), input.below(200)),
        ];
        assert_eq!(statuses, [LOCKCLIENT_E_INVALID_ARGUMENT; 16]);
        assert_eq!(lockclient_ticket_fd(no_ticket), -1);
        assert_eq!(lockclient_completion_fd(no_client), -1);
        assert!(lockclient_next_completed(no_client).is_null());
        assert!(lockclient_ticket_user(no_ticket).is_null());
        lockclient_ticket_set_user(no_ticket, ptr::null_mut());
        lockclient_ticket_free(no_ticket);
        lockclient_config_free(no_config);
    }
    assert_eq!((grant.token, ticket.is_null(), client.is_null()), (0, true, true));
}

fn constants(input: &mut Input<'_>) {
    let status = i32::from_be_bytes([input.byte(), 0, 0, input.byte()]);
    for status in [status, i32::from(input.byte().cast_signed())] {
        for text in [lockclient_status_name(status), lockclient_status_text(status)] {
            // SAFETY: the header: never NULL, and a constant.
            assert!(!unsafe { CStr::from_ptr(text) }.is_empty());
        }
        if lockclient_status_is_definite(status) {
            assert!((-12..=5).contains(&status));
        }
    }
    assert_eq!(lockclient_abi_version(), 1);
    // SAFETY: the header: never NULL, and a constant.
    assert!(!unsafe { CStr::from_ptr(lockclient_version()) }.is_empty());
}

/// Whatever was made was freed: each client's thread ends with its client, and no descriptor stays.
fn nothing_stays(threads: usize) {
    let end = Instant::now() + Duration::from_secs(10);
    while count("/proc/self/task") > threads {
        assert!(Instant::now() < end, "a thread outlives its client");
        thread::sleep(Duration::from_micros(200));
    }
    let descriptors = count("/proc/self/fd");
    // The server may not have closed all of its own yet.
    assert!(descriptors < 200, "{descriptors} descriptors");
}

fn count(directory: &str) -> usize {
    std::fs::read_dir(directory).map_or(0, Iterator::count)
}
