//! What the standard library and socket2 do not offer. The only `unsafe` outside the C ABI.
#![allow(unsafe_code, reason = "system calls without a safe wrapper; each says why it is sound")]

use crate::clock::{Boot, Mono, Now};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::thread::JoinHandleExt;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::{self, Builder, JoinHandle};
use std::time::Duration;

/// Both clocks.
pub(crate) fn now() -> Now {
    Now { mono: mono(), boot: Boot(clock(libc::CLOCK_BOOTTIME)) }
}

/// The monotonic clock.
pub(crate) fn mono() -> Mono {
    Mono(clock(libc::CLOCK_MONOTONIC))
}

fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec to write to. Both clocks exist on every supported kernel,
    // so the call cannot fail.
    unsafe { libc::clock_gettime(id, &raw mut time) };
    u64::try_from(time.tv_sec)
        .unwrap_or(0)
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// Fills `bytes` with random ones.
pub(crate) fn random(bytes: &mut [u8]) -> io::Result<()> {
    getrandom::fill(bytes).map_err(|error| match error.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::Error::other("there are no random bytes"),
    })
}

/// Which file a descriptor's number means. A host that closes descriptors it does not own, and
/// opens files of its own under their numbers, is found out by it (HOST-3). Files of the kernel's
/// anonymous kind (eventfd, epoll, timerfd) all look alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    device: libc::dev_t,
    inode: libc::ino_t,
}

impl Identity {
    /// Of the file that `fd` means now.
    pub(crate) fn of(fd: RawFd) -> io::Result<Identity> {
        let mut stat = MaybeUninit::<libc::stat>::uninit();
        // SAFETY: `stat` is valid to write a stat to; any number is legal for `fd`.
        if unsafe { libc::fstat(fd, stat.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: fstat succeeded and has filled it.
        let stat = unsafe { stat.assume_init() };
        Ok(Identity { device: stat.st_dev, inode: stat.st_ino })
    }

    /// Whether `fd` still means this file.
    pub(crate) fn is(self, fd: RawFd) -> bool {
        Identity::of(fd).is_ok_and(|now| now == self)
    }
}

/// A descriptor with its file's identity. Dropping it closes the file, unless the number means
/// another file by then: that one is the host's.
#[derive(Debug)]
pub(crate) struct Own<T: AsRawFd + IntoRawFd> {
    /// None only while it is dropped.
    inner: Option<T>,
    number: RawFd,
    identity: Identity,
}

impl<T: AsRawFd + IntoRawFd> Own<T> {
    /// Remembers what `inner` means.
    pub(crate) fn new(inner: T) -> io::Result<Own<T>> {
        let number = inner.as_raw_fd();
        let identity = Identity::of(number)?;
        Ok(Own { inner: Some(inner), number, identity })
    }

    /// Its number, whatever it means now.
    pub(crate) fn number(&self) -> RawFd {
        self.number
    }

    /// What it was made of, if its number still means that.
    pub(crate) fn get(&self) -> io::Result<&T> {
        if self.is_ours() { self.unchecked() } else { Err(gone()) }
    }

    /// What it was made of, if its number still means that.
    pub(crate) fn get_mut(&mut self) -> io::Result<&mut T> {
        if self.is_ours() { self.inner.as_mut().ok_or_else(gone) } else { Err(gone()) }
    }

    /// What it was made of, without a look.
    pub(crate) fn unchecked(&self) -> io::Result<&T> {
        self.inner.as_ref().ok_or_else(gone)
    }

    /// Whether its number still means its file.
    pub(crate) fn is_ours(&self) -> bool {
        self.identity.is(self.number)
    }
}

impl<T: AsRawFd + IntoRawFd> Drop for Own<T> {
    fn drop(&mut self) {
        let Some(inner) = self.inner.take() else { return };
        let number = inner.into_raw_fd();
        if self.identity.is(number) {
            // SAFETY: `inner` owned it until now, and it still means the same file.
            drop(unsafe { OwnedFd::from_raw_fd(number) });
        }
    }
}

/// The error of a descriptor that was closed, or replaced, behind our back.
pub(crate) fn gone() -> io::Error {
    io::Error::from_raw_os_error(libc::EBADF)
}

/// A descriptor that a host can wait on.
#[derive(Debug)]
pub(crate) struct EventFd(Own<OwnedFd>);

impl EventFd {
    /// One that is not readable.
    pub(crate) fn new() -> io::Result<EventFd> {
        // SAFETY: takes no pointers.
        let number = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if number < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor that nobody else owns.
        Own::new(unsafe { OwnedFd::from_raw_fd(number) }).map(EventFd)
    }

    /// The descriptor's number.
    pub(crate) fn number(&self) -> RawFd {
        self.0.number()
    }

    /// Makes it readable.
    pub(crate) fn signal(&self) {
        if self.0.is_ours() {
            // SAFETY: takes no pointers. It fails only when the counter is full: then it is
            // readable.
            unsafe { libc::eventfd_write(self.number(), 1) };
        }
    }

    /// Makes it unreadable.
    pub(crate) fn clear(&self) {
        let mut count = 0;
        if self.0.is_ours() {
            // SAFETY: `count` is valid to write to. It fails only when there is nothing to clear.
            unsafe { libc::eventfd_read(self.number(), &raw mut count) };
        }
    }
}

/// What an epoll is asked about a descriptor that can never be ready: nothing.
fn never() -> libc::epoll_event {
    // The kernel adds errors and hang-ups of itself; as edges they come once.
    libc::epoll_event { events: libc::EPOLLET as u32, u64: u64::MAX - 1 }
}

/// Puts `fd` into an epoll, without interest in it, to know the epoll by.
pub(crate) fn mark_epoll(epoll: RawFd, fd: RawFd) -> io::Result<()> {
    // SAFETY: the event is valid for the length of the call, which only reads it.
    match unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &mut never()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether `epoll` is the one that was marked with `fd`, and both are what they were: all epolls
/// look alike, but another has not got that file under that number.
pub(crate) fn is_marked(epoll: RawFd, fd: RawFd) -> bool {
    // SAFETY: as above.
    unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_MOD, fd, &mut never()) == 0 }
}

/// A word that threads sleep on, each with a bit of its own.
#[derive(Debug)]
pub(crate) struct Futex(AtomicU32);

impl Futex {
    pub(crate) fn new() -> Futex {
        Futex(AtomicU32::new(0))
    }

    /// How often it was woken.
    pub(crate) fn value(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// Sleeps until it is woken for one of `bits`, unless it was woken since its value was `seen`,
    /// and at most until `limit`. True: until `limit`.
    pub(crate) fn wait(&self, seen: u32, bits: u32, limit: Mono) -> bool {
        let limit = timespec(limit);
        // SAFETY: the word and the time are valid for the length of the call, which writes to
        // neither. Of its errors only the one that is asked for says anything: a waiter may wake
        // for nothing.
        let result = unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.0.as_ptr(),
                libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG,
                seen,
                &raw const limit,
                ptr::null::<u32>(),
                bits,
            )
        };
        result != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ETIMEDOUT)
    }

    /// Wakes whoever sleeps with one of `bits`.
    pub(crate) fn wake(&self, bits: u32) {
        self.0.fetch_add(1, Ordering::Release);
        // SAFETY: the call only uses the word's address to find its sleepers.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.0.as_ptr(),
                libc::FUTEX_WAKE_BITSET | libc::FUTEX_PRIVATE_FLAG,
                i32::MAX,
                ptr::null::<libc::timespec>(),
                ptr::null::<u32>(),
                bits,
            );
        }
    }
}

/// A point on the monotonic clock, as the kernel takes it.
fn timespec(at: Mono) -> libc::timespec {
    const SECOND: u64 = 1_000_000_000;
    libc::timespec {
        tv_sec: libc::time_t::try_from(at.0 / SECOND).unwrap_or(libc::time_t::MAX),
        // Below the number of nanoseconds in a second, which fits.
        tv_nsec: (at.0 % SECOND) as libc::c_long,
    }
}

/// Tells a forked child from the process that made it, at the price of one load (HOST-2).
#[derive(Debug)]
pub(crate) struct ForkMark(NonNull<AtomicU64>);

// SAFETY: the mapping is private to this value, is only read through an atomic after it was made,
// and is unmapped by the drop of its one owner.
unsafe impl Send for ForkMark {}
// SAFETY: as above.
unsafe impl Sync for ForkMark {}

/// Any page size: the kernel rounds up to whole pages.
const MARK_SIZE: usize = 1;

impl ForkMark {
    /// A mark of this process.
    pub(crate) fn new() -> io::Result<ForkMark> {
        // SAFETY: asks for a new private mapping wherever the kernel likes; touches no other.
        let page = unsafe {
            libc::mmap(
                ptr::null_mut(),
                MARK_SIZE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mark = ForkMark(NonNull::new(page.cast()).ok_or_else(io::Error::last_os_error)?);
        // SAFETY: the mapping that was just made.
        if unsafe { libc::madvise(page, MARK_SIZE, libc::MADV_WIPEONFORK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        mark.word().store(1, Ordering::Relaxed);
        Ok(mark)
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: page-aligned, zeroed or set to 1 by us, mapped as long as `self` lives, and never
        // accessed but through this atomic.
        unsafe { self.0.as_ref() }
    }

    /// Whether this process is a fork of the one that made the mark.
    pub(crate) fn is_forked(&self) -> bool {
        self.word().load(Ordering::Relaxed) == 0
    }
}

impl Drop for ForkMark {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nothing refers to any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), MARK_SIZE) };
    }
}

/// Signals that stay open on the library's own threads: the synchronous faults, so that crash
/// handlers work, SIGABRT among them, and the profiler's timer.
const OPEN_SIGNALS: [libc::c_int; 8] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGABRT,
    libc::SIGPROF,
];

/// Starts a thread that no other signal is delivered to; the caller's mask is left as it was.
pub(crate) fn spawn(
    name: &str,
    stack: usize,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let mut blocked = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets are valid to write to; sigfillset fills the first before it is used.
    let error = unsafe {
        libc::sigfillset(blocked.as_mut_ptr());
        for signal in OPEN_SIGNALS {
            libc::sigdelset(blocked.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, blocked.as_ptr(), before.as_mut_ptr())
    };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    // A new thread starts with its spawner's mask.
    let thread = Builder::new().name(name.to_owned()).stack_size(stack).spawn(run);
    // SAFETY: `before` was filled by the first call.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    thread
}

/// Waits until a thread is gone, at most until `limit`: the destructors of what a host keeps for each
/// thread run at its end, and may take their time. A thread that is not gone by then is left alone.
pub(crate) fn join(thread: JoinHandle<()>, limit: Mono) {
    const SHORTEST: Duration = Duration::from_micros(20);
    const LONGEST: Duration = Duration::from_millis(1);

    let mut nap = SHORTEST;
    // Not by a timed join, whose limit is on a clock that somebody may set.
    // SAFETY: the handle is the only one, so that nobody has joined or detached the thread.
    while unsafe { libc::pthread_tryjoin_np(thread.as_pthread_t(), ptr::null_mut()) } != 0 {
        if mono() >= limit {
            return; // Dropping the handle detaches the thread.
        }
        thread::sleep(nap);
        nap = (nap * 2).min(LONGEST);
    }
    // It is joined: the handle must neither do so again nor detach it.
    let _ = thread.into_pthread_t();
}

/// Tests run with SIGPIPE ignored. So that the flag counts that keeps it away, it gets its default
/// back: a signal would end the whole test program.
#[cfg(test)]
pub(super) fn let_sigpipe_kill() {
    // SAFETY: changes this process's disposition of one signal, which no test relies on.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

#[cfg(test)]
#[path = "sys_tests.rs"]
mod tests;
