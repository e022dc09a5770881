//! Wakes the background thread out of its poll.
//!
//! A socket pair rather than mio's waker: `send` on a number that the host has closed and used
//! again for a file of its own fails, where a `write` would end up in that file (HOST-3). And a
//! flag tells that the thread is awake, so that only a wake out of sleep costs a system call.

use super::sys::Own;
use crate::sync::{Arc, AtomicBool, AtomicUsize, Ordering};
use mio::net::UnixStream;
use socket2::SockRef;
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::os::fd::RawFd;

/// The callers' end.
#[derive(Debug)]
pub(crate) struct Waker {
    /// The thread is awake, or has been woken: it looks at its commands before it sleeps.
    awake: AtomicBool,
    sender: Own<UnixStream>,
    /// Bytes that were sent.
    sent: Arc<AtomicUsize>,
}

/// The background thread's end.
#[derive(Debug)]
pub(crate) struct WakeReceiver {
    receiver: Own<UnixStream>,
    /// Bytes that were sent, and how many of those are known to have been taken out.
    sent: Arc<AtomicUsize>,
    taken: usize,
    /// How many may lie in the socket.
    room: usize,
}

/// What a byte takes of a socket's buffer, with all that the kernel adds to it: generously.
const COST: usize = 4096;

/// More bytes than this are never left lying.
const MOST: usize = 64;

/// A waker of a thread that is awake, and what that thread polls.
pub(crate) fn pair() -> io::Result<(Waker, WakeReceiver)> {
    let (sender, receiver) = UnixStream::pair()?;
    let room = (SockRef::from(&sender).send_buffer_size()? / COST).clamp(1, MOST);
    let sent = Arc::new(AtomicUsize::new(0));
    let receiver =
        WakeReceiver { receiver: Own::new(receiver)?, sent: sent.clone(), taken: 0, room };
    Ok((Waker { awake: AtomicBool::new(true), sender: Own::new(sender)?, sent }, receiver))
}

impl Waker {
    /// Wakes the thread unless it is awake. An error says that it cannot be woken any more.
    pub(crate) fn wake(&self) -> io::Result<()> {
        if self.awake.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let sender = self.sender.get()?;
        self.sent.fetch_add(1, Ordering::Relaxed);
        match SockRef::from(sender).send_with_flags(&[1], libc::MSG_NOSIGNAL) {
            // Full: then there is something to wake for.
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) if is_passing(&error) => {
                // The next caller tries again, or the thread wakes by itself.
                self.awake.store(false, Ordering::Release);
                Ok(())
            }
            result => result.map(drop),
        }
    }

    /// The number of the callers' end. It never becomes ready for anything that is waited for.
    pub(crate) fn number(&self) -> RawFd {
        self.sender.number()
    }

    /// The thread is about to sleep, and looks at its commands once more after this.
    pub(crate) fn sleeping(&self) {
        // A swap, so that it has its place among the callers' swaps.
        self.awake.swap(false, Ordering::AcqRel);
    }

    /// The thread does not sleep after all, or has woken by itself.
    pub(crate) fn awake(&self) {
        self.awake.swap(true, Ordering::AcqRel);
    }
}

/// Whether an error says nothing about the descriptor.
fn is_passing(error: &io::Error) -> bool {
    let number = error.raw_os_error();
    [libc::EINTR, libc::ENOBUFS, libc::ENOMEM].iter().any(|passing| number == Some(*passing))
}

impl WakeReceiver {
    /// To be registered.
    pub(crate) fn source(&mut self) -> io::Result<&mut UnixStream> {
        self.receiver.get_mut()
    }

    /// Whether the number still means this socket.
    pub(crate) fn is_ours(&self) -> bool {
        self.receiver.is_ours()
    }

    /// Whether a wake has come that was not taken out.
    #[cfg(all(any(loom, shuttle), test))]
    pub(super) fn is_woken(&self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        SockRef::from(self.receiver.get().unwrap()).recv(&mut byte).is_ok_and(|count| count > 0)
    }

    /// A wake has come. Each byte is an event of its own, whether or not those before it were taken
    /// out; they are before the socket could be full of bytes whose events are over.
    pub(crate) fn clear(&mut self) -> io::Result<()> {
        let sent = self.sent.load(Ordering::Relaxed);
        if sent.wrapping_sub(self.taken) < self.room {
            return Ok(());
        }
        self.taken = sent;
        let mut bytes = [MaybeUninit::uninit(); 1024];
        match SockRef::from(self.receiver.get()?).recv(&mut bytes) {
            Ok(0) => Err(super::sys::gone()),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock || is_passing(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use mio::{Events, Interest, Poll, Token};
    use std::time::Duration;

    #[test]
    fn a_sleeping_thread_is_woken_and_one_that_is_awake_is_not() {
        let (waker, mut receiver) = pair().unwrap();
        let mut poll = Poll::new().unwrap();
        let source = receiver.source().unwrap();
        poll.registry().register(source, Token(0), Interest::READABLE).unwrap();
        let mut events = Events::with_capacity(4);
        let mut wakes = |waker: &Waker, receiver: &mut WakeReceiver| {
            waker.wake().unwrap();
            poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
            receiver.clear().unwrap();
            events.iter().count()
        };
        assert_eq!(wakes(&waker, &mut receiver), 0);
        for _ in 0..1_000 {
            waker.sleeping();
            assert_eq!(wakes(&waker, &mut receiver), 1);
            assert_eq!(wakes(&waker, &mut receiver), 0, "it is awake now");
        }
    }

    #[test]
    fn bytes_that_come_together_do_not_fill_the_socket_for_ever() {
        let (waker, mut receiver) = pair().unwrap();
        let mut poll = Poll::new().unwrap();
        let source = receiver.source().unwrap();
        poll.registry().register(source, Token(0), Interest::READABLE).unwrap();
        let mut events = Events::with_capacity(4);
        for _ in 0..3 {
            // Callers that were stopped between their look and their byte, more than there is room
            // for. All of it is one event.
            for _ in 0..2_000 {
                waker.sleeping();
                waker.wake().unwrap();
            }
            poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
            assert_eq!(events.iter().count(), 1);
            receiver.clear().unwrap();
            waker.sleeping();
            waker.wake().unwrap();
            poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
            assert_eq!(events.iter().count(), 1, "it sleeps on");
        }
    }

    #[test]
    fn host_1_a_thread_that_is_gone_is_found_out_without_a_signal() {
        let (waker, receiver) = pair().unwrap();
        drop(receiver);
        waker.sleeping();
        // Callers wake it, on threads that do not block the signal.
        crate::io::sys::let_sigpipe_kill();
        assert_eq!(waker.wake().unwrap_err().kind(), ErrorKind::BrokenPipe);
    }
}
