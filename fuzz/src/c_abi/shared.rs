//! The calls that may be made on one handle from several threads at once.

use super::header::check;
use super::server::has_granted;
use crate::input::Input;
use ::lockclient::ffi::*;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

pub(super) const KEYS: [&CStr; 3] = [c"a", c"bb", c"\xec\x97\xb4"];
const BAD_KEYS: [&CStr; 4] = [c"", c"a b", c"a\r", c"\xff"];

/// How long a call may block before another thread ends it.
const PATIENCE: Duration = Duration::from_millis(4);

const NUL_TERMINATED: usize = usize::MAX;

/// A ticket, and whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket {
    pub(super) address: usize,
    client: usize,
}

impl Ticket {
    pub(super) fn pointer(self) -> *mut lockclient_ticket {
        ptr::with_exposed_provenance_mut(self.address)
    }
}

/// What is open. A clone of it is for another thread, which may use all of it and free nothing.
#[derive(Debug, Clone, Default)]
pub(super) struct Handles {
    pub(super) clients: [usize; 2],
    pub(super) tickets: Vec<Ticket>,
    /// Fetched as completed.
    pub(super) fetched: Vec<usize>,
    /// Their results were taken by this thread.
    taken: Vec<usize>,
    tokens: Vec<u64>,
    /// Whether there is another thread.
    parallel: bool,
}

impl Handles {
    pub(super) fn client(&self, at: usize) -> *mut lockclient {
        ptr::with_exposed_provenance_mut(self.clients[at])
    }

    /// All of the input, while another thread does the same.
    pub(super) fn run(&mut self, input: &mut Input<'_>) {
        self.parallel = true;
        while !input.is_empty() {
            self.step(input);
        }
        self.parallel = false;
    }

    /// A ticket was freed: its address may come again.
    pub(super) fn forget(&mut self, ticket: Ticket) {
        self.fetched.retain(|fetched| *fetched != ticket.address);
        self.taken.retain(|taken| *taken != ticket.address);
    }

    /// The other thread's doings; `fetched` were fetched before there was one.
    pub(super) fn merge(&mut self, other: Handles, fetched: usize) {
        for ticket in other.tickets {
            if !self.tickets.contains(&ticket) {
                self.tickets.push(ticket);
            }
        }
        for address in &other.fetched[fetched..] {
            assert!(!self.fetched.contains(address), "fetched twice");
            self.fetched.push(*address);
        }
        for address in &self.fetched {
            let known = self.tickets.iter().any(|ticket| ticket.address == *address);
            assert!(known, "a completed ticket that nobody has");
        }
        self.taken.extend(other.taken);
        self.tokens.extend(other.tokens);
    }

    pub(super) fn step(&mut self, input: &mut Input<'_>) {
        let choice = input.below(16);
        let at = input.below(2);
        let client = self.client(at);
        if client.is_null() {
            return;
        }
        match choice {
            0 => self.acquire(client, input),
            1..5 => self.start(client, input),
            5 => self.release(client, input),
            6 => self.release_start(client, input),
            7 => {
                let timeout = u64::from(input.byte() % 3);
                // SAFETY: an open client.
                let status = unsafe { lockclient_wait_ready(client, timeout) };
                check("lockclient_wait_ready", status);
            }
            8 => {
                if input.below(4) == 0 {
                    shut_down(client, u64::from(input.byte() % 4));
                }
            }
            9 => get_stats(client, input),
            10 => self.fetch(client),
            11 => self.cancel(input),
            12 => self.wait(input),
            13 => self.user(input),
            _ => self.poll(input),
        }
    }

    fn ticket(&self, input: &mut Input<'_>) -> Option<Ticket> {
        let count = self.tickets.len();
        (count > 0).then(|| self.tickets[input.below(count)])
    }

    fn acquire(&mut self, client: *mut lockclient, input: &mut Input<'_>) {
        let (key, len) = any_key(input);
        let (wait, lease, budget) = times(input);
        let mut grant = unset();
        // SAFETY: an open client, a key that is there, room for a grant.
        let status = patiently(
            || unsafe {
                lockclient_acquire(
                    client,
                    key.as_ptr(),
                    len,
                    wait,
                    lease,
                    budget,
                    grant.as_mut_ptr(),
                )
            },
            || shut_down(client, 0),
        );
        check("lockclient_acquire", status);
        // SAFETY: it is written whatever the status is.
        self.granted(status, unsafe { grant.assume_init() });
    }

    /// What was written for an acquire that ended so.
    fn granted(&mut self, status: i32, grant: lockclient_grant) {
        assert_eq!(grant.reserved, [0; 5]);
        if status == LOCKCLIENT_OK {
            assert!(grant.token != 0 && grant.owner != 0 && grant.remaining_ms > 0, "{grant:?}");
            assert!(has_granted(grant.token), "a token that no server made");
            self.tokens.push(grant.token);
        } else {
            assert_eq!((grant.token, grant.owner, grant.remaining_ms), (0, 0, 0), "not zeroed");
        }
    }

    fn start(&mut self, client: *mut lockclient, input: &mut Input<'_>) {
        if self.tickets.len() >= 16 {
            return;
        }
        let (key, len) = any_key(input);
        let (wait, lease, budget) = times(input);
        let mut ticket = ptr::dangling_mut();
        // SAFETY: an open client, a key that is there, room for a pointer.
        let status = unsafe {
            lockclient_acquire_start(client, key.as_ptr(), len, wait, lease, budget, &mut ticket)
        };
        check("lockclient_acquire_start", status);
        assert_eq!(status == LOCKCLIENT_OK, !ticket.is_null());
        if status == LOCKCLIENT_OK {
            let address = ticket.expose_provenance();
            // An address may come again once its ticket was freed.
            self.taken.retain(|taken| *taken != address);
            self.tickets.push(Ticket { address, client: client.expose_provenance() });
        }
    }

    fn release(&mut self, client: *mut lockclient, input: &mut Input<'_>) {
        let (key, token) = self.any_token(input);
        // SAFETY: an open client and a key that is there.
        let status = patiently(
            || unsafe { lockclient_release(client, key.as_ptr(), NUL_TERMINATED, token) },
            || shut_down(client, 0),
        );
        check("lockclient_release", status);
    }

    fn release_start(&mut self, client: *mut lockclient, input: &mut Input<'_>) {
        let (key, token) = self.any_token(input);
        // SAFETY: an open client and a key that is there.
        let status =
            unsafe { lockclient_release_start(client, key.as_ptr(), NUL_TERMINATED, token) };
        check("lockclient_release_start", status);
    }

    /// One that was granted, or any number.
    fn any_token(&mut self, input: &mut Input<'_>) -> (&'static CStr, u64) {
        let choice = input.byte();
        match self.tokens.pop() {
            Some(token) if choice < 192 => (KEYS[usize::from(choice % 3)], token),
            _ if choice.is_multiple_of(4) => (BAD_KEYS[usize::from(choice / 4 % 4)], 1),
            _ => (KEYS[0], u64::from(choice / 16) * 77),
        }
    }

    fn fetch(&mut self, client: *mut lockclient) {
        // SAFETY: an open client.
        let (fd, ticket) =
            unsafe { (lockclient_completion_fd(client), lockclient_next_completed(client)) };
        assert!(fd >= 0);
        if !ticket.is_null() {
            let address = ticket.expose_provenance();
            let known = self.tickets.iter().find(|known| known.address == address);
            assert!(self.parallel || known.is_some(), "a completed ticket that nobody has");
            if let Some(known) = known {
                assert_eq!(known.client, client.expose_provenance(), "another client's ticket");
            }
            assert!(!self.fetched.contains(&address), "fetched twice");
            self.fetched.push(address);
        }
    }

    fn cancel(&mut self, input: &mut Input<'_>) {
        let Some(ticket) = self.ticket(input) else { return };
        // SAFETY: a live ticket.
        let status = unsafe { lockclient_ticket_cancel(ticket.pointer()) };
        check("lockclient_ticket_cancel", status);
        self.take(ticket, false);
    }

    fn poll(&mut self, input: &mut Input<'_>) {
        if let Some(ticket) = self.ticket(input) {
            self.take(ticket, true);
        }
    }

    fn take(&mut self, ticket: Ticket, may_be_pending: bool) {
        let mut grant = unset();
        // SAFETY: a live ticket, and room for a grant.
        let status = unsafe { lockclient_ticket_poll(ticket.pointer(), grant.as_mut_ptr()) };
        check("lockclient_ticket_poll", status);
        assert!(may_be_pending || status != LOCKCLIENT_PENDING, "cancelled, and still pending");
        // SAFETY: it is written whatever the status is.
        self.took(ticket, status, unsafe { grant.assume_init() });
    }

    fn took(&mut self, ticket: Ticket, status: i32, grant: lockclient_grant) {
        self.granted(status, grant);
        if status == LOCKCLIENT_PENDING {
            assert!(!self.taken.contains(&ticket.address), "pending again");
            return;
        }
        if self.taken.contains(&ticket.address) {
            assert_eq!(status, LOCKCLIENT_E_TAKEN, "a result was given out twice");
        } else {
            assert!(self.parallel || status != LOCKCLIENT_E_TAKEN, "taken by nobody");
            self.taken.push(ticket.address);
        }
    }

    fn wait(&mut self, input: &mut Input<'_>) {
        let Some(ticket) = self.ticket(input) else { return };
        let mut grant = unset();
        // SAFETY: a live ticket, and room for a grant.
        let status = patiently(
            || unsafe { lockclient_ticket_wait(ticket.pointer(), grant.as_mut_ptr()) },
            || {
                // SAFETY: a live ticket, which any thread may cancel.
                let status = unsafe { lockclient_ticket_cancel(ticket.pointer()) };
                check("lockclient_ticket_cancel", status);
            },
        );
        check("lockclient_ticket_wait", status);
        // SAFETY: it is written whatever the status is.
        self.took(ticket, status, unsafe { grant.assume_init() });
    }

    fn user(&mut self, input: &mut Input<'_>) {
        let Some(ticket) = self.ticket(input) else { return };
        let word = ptr::without_provenance_mut(usize::from(input.byte()));
        // SAFETY: a live ticket.
        unsafe {
            lockclient_ticket_set_user(ticket.pointer(), word);
            let user = lockclient_ticket_user(ticket.pointer());
            assert!(self.parallel || user == word);
            assert!(lockclient_ticket_fd(ticket.pointer()) >= 0);
        }
    }
}

fn shut_down(client: *mut lockclient, timeout: u64) {
    // SAFETY: an open client; any thread may shut it down.
    check("lockclient_shutdown", unsafe { lockclient_shutdown(client, timeout) });
}

/// Runs `call`; if it takes long, another thread runs `rescue`, after which it must return.
fn patiently<T>(call: impl FnOnce() -> T, rescue: impl FnOnce()) -> T {
    struct Shared<T>(T);
    // SAFETY: what the closures share are handles, which any thread may use.
    unsafe impl<T> Send for Shared<T> {}
    impl<F: FnOnce()> Shared<F> {
        fn run(self) {
            (self.0)();
        }
    }
    let rescue = Shared(rescue);
    let (done, waits) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            if waits.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                rescue.run();
            }
        });
        let result = call();
        drop(done);
        result
    })
}

/// A grant that is not zero, to see that it is written.
fn unset() -> MaybeUninit<lockclient_grant> {
    let mut grant = MaybeUninit::uninit();
    // SAFETY: all bytes are inside.
    unsafe { ptr::write_bytes(grant.as_mut_ptr(), 0xAA, 1) };
    grant
}

fn any_key(input: &mut Input<'_>) -> (&'static CStr, usize) {
    let choice = input.byte();
    let key = match choice {
        240.. => BAD_KEYS[usize::from(choice % 4)],
        _ => KEYS[usize::from(choice % 3)],
    };
    let len = match choice % 16 {
        0 => key.count_bytes().min(1),
        1 => NUL_TERMINATED - 1,
        2 => key.count_bytes(),
        _ => NUL_TERMINATED,
    };
    (key, len)
}

/// Wait, lease, work budget: mostly good.
fn times(input: &mut Input<'_>) -> (u64, u64, u64) {
    let choice = input.byte();
    match choice {
        0..8 => (u64::MAX, 1000, 0),
        8..16 => (0, 0, 0),
        16..24 => (0, u64::MAX, 1),
        24..32 => (1, 1000, 1001),
        32..40 => (255_001, 255_000, 250_000),
        40..48 => (1000, 1000, u64::MAX),
        _ => (u64::from(choice % 4) * 700, 1 + u64::from(choice) * 100, u64::from(choice % 2)),
    }
}

/// However much room there is: no more is written, and all of it is.
fn get_stats(client: *mut lockclient, input: &mut Input<'_>) {
    let mut room = [0xAA_u8; 300];
    let size = usize::from(input.byte());
    // A structure has its alignment, and so has this.
    let offset = room.as_ptr().align_offset(align_of::<lockclient_stats>());
    let place = room[offset..].as_mut_ptr().cast();
    // SAFETY: an open client, and at least `size` bytes: 300 less an alignment.
    let status = unsafe { lockclient_get_stats(client, place, size) };
    check("lockclient_get_stats", status);
    assert!(room[offset + size..].iter().all(|byte| *byte == 0xAA), "beyond its room");
    let known = size_of::<lockclient_stats>();
    if size > known {
        assert!(room[offset + known..offset + size].iter().all(|byte| *byte == 0), "not zeroed");
    }
}
