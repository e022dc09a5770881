//! What callers ask of the background thread: a queue under one lock, emptied in one swap.

use super::waker::Waker;
use crate::clock::Mono;
use crate::engine::{ReleaseCall, ReleaseOutcome};
use crate::reason::ReasonKind;
use crate::sync::{Arc, AtomicBool, Mutex, MutexGuard, Ordering};
use crate::ticket::{Readiness, Reclaim, Reply, Slot};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::Duration;

/// How long a push waits for the lock where nothing is lost but an early word to the engine,
/// which finds out by itself later on.
pub(crate) const BRIEFLY: Duration = Duration::from_millis(10);

/// How long a push waits for the lock where a lease's end is the safety net. The lock is held for
/// a few instructions: only a holder that the system has stopped makes anybody wait.
pub(crate) const PATIENTLY: Duration = Duration::from_secs(1);

/// How long the thread waits for the lock, before it goes on without: it has others to look after
/// than a caller that was stopped in here (HOST-6).
const MOMENT: Duration = Duration::from_millis(1);

/// A queue's room that is kept from one turn to the next.
const KEPT: usize = 1024;

/// What is asked of the background thread.
#[derive(Debug)]
pub(crate) enum Command {
    /// An acquire.
    Acquire(Arc<Slot>),
    /// The slot's caller has given it up, and why.
    Withdraw(Arc<Slot>, ReasonKind),
    /// A release, and who wants to know its end.
    Release(ReleaseCall, Audience),
    /// A grant that could not be handed over.
    Reclaim(Reclaim),
    /// Somebody waits for a node that serves.
    WaitReady(Arc<Reply<Readiness>>),
    /// The client is closed; the lane drains until then.
    Shutdown(Mono),
    /// An endpoint's name was looked up.
    Resolved(u16, io::Result<Vec<SocketAddr>>),
    /// What a test wants the thread to suffer.
    #[cfg(test)]
    Run(Script),
}

/// Something that a test has the thread do.
#[cfg(test)]
pub(crate) struct Script(Box<dyn FnOnce() + Send>);

#[cfg(test)]
impl Script {
    pub(crate) fn new(run: impl FnOnce() + Send + 'static) -> Script {
        Script(Box::new(run))
    }

    pub(super) fn run(self) {
        (self.0)();
    }
}

#[cfg(test)]
impl std::fmt::Debug for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Script")
    }
}

/// Who wants to know a release's end.
#[derive(Debug)]
pub(crate) enum Audience {
    /// Nobody.
    Nobody,
    /// The count of started releases.
    Count,
    /// A blocked caller.
    Caller(Arc<Answer>),
}

/// What the caller of a release waits for. Nothing: the thread has ended.
pub(crate) type Answer = Reply<Option<ReleaseOutcome>>;

/// Why something was not taken. Nothing of it will be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Too many acquires wait.
    Full,
    /// The client is closed.
    Closed,
    /// The background thread has ended.
    Ended,
    /// The background thread cannot be woken. What was asked is in its queue all the same, and
    /// is carried out if the thread happens to be awake.
    Unreachable,
    /// The queue's lock could not be had in time.
    Stuck,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Open,
    Closing,
    Ended,
}

#[derive(Debug)]
struct Inner {
    waiting: VecDeque<Command>,
    /// Acquires in `waiting`.
    acquires: usize,
    /// Acquires that wait unsent in the engine, at most.
    unsent: usize,
    stage: Stage,
}

/// The queue.
#[derive(Debug)]
pub(crate) struct Commands {
    inner: Mutex<Inner>,
    waker: Waker,
    /// The waker does not work any more.
    broken: AtomicBool,
    /// For a look without the lock.
    closed: AtomicBool,
    /// The thread has been asked to end.
    shut: AtomicBool,
    limit: usize,
}

impl Commands {
    pub(crate) fn new(waker: Waker, limit: usize) -> Commands {
        let inner = Inner { waiting: VecDeque::new(), acquires: 0, unsent: 0, stage: Stage::Open };
        Commands {
            inner: Mutex::new(inner),
            waker,
            broken: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            shut: AtomicBool::new(false),
            limit,
        }
    }

    /// Whether the client was closed, or its thread has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Whether the thread has been asked to end, or has ended.
    pub(crate) fn is_shut(&self) -> bool {
        self.shut.load(Ordering::Acquire)
    }

    /// Whether the thread has ended without having been asked to, or cannot be reached.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// Adds an acquire; there may be more than enough already (CON-7).
    pub(crate) fn acquire(&self, slot: Arc<Slot>, patience: Duration) -> Result<(), Refused> {
        let mut inner = self.open(patience)?;
        if inner.acquires + inner.unsent >= self.limit {
            return Err(Refused::Full);
        }
        inner.acquires += 1;
        self.add(inner, Command::Acquire(slot))
    }

    /// Adds what has no bound but its callers' number.
    pub(crate) fn push(&self, command: Command, patience: Duration) -> Result<(), Refused> {
        let inner = self.open(patience)?;
        self.add(inner, command)
    }

    /// Adds what is still taken while the client closes: what ends something.
    pub(crate) fn push_last(&self, command: Command, patience: Duration) -> Result<(), Refused> {
        let inner = self.lock(patience)?;
        self.add(inner, command)
    }

    /// Asks the thread to end. Nothing new is taken afterwards, whether or not it can be asked.
    pub(crate) fn shut(&self, deadline: Mono, patience: Duration) -> Result<(), Refused> {
        self.closed.store(true, Ordering::Release);
        let mut inner = self.lock(patience)?;
        inner.stage = Stage::Closing;
        self.shut.store(true, Ordering::Release);
        self.add(inner, Command::Shutdown(deadline))
    }

    fn lock(&self, patience: Duration) -> Result<MutexGuard<'_, Inner>, Refused> {
        let inner = self.inner.try_lock_for(patience).ok_or(Refused::Stuck)?;
        if self.is_broken() {
            return Err(Refused::Ended);
        }
        if inner.stage == Stage::Ended {
            // In good order: to whoever comes late the client is closed.
            return Err(Refused::Closed);
        }
        Ok(inner)
    }

    fn open(&self, patience: Duration) -> Result<MutexGuard<'_, Inner>, Refused> {
        let inner = self.lock(patience)?;
        if inner.stage == Stage::Closing { Err(Refused::Closed) } else { Ok(inner) }
    }

    fn add(&self, mut inner: MutexGuard<'_, Inner>, command: Command) -> Result<(), Refused> {
        inner.waiting.push_back(command);
        drop(inner);
        if self.waker.wake().is_err() {
            let inner = self.inner.try_lock_for(BRIEFLY);
            if inner.is_some_and(|inner| inner.stage == Stage::Ended) {
                // It woke by itself and has ended meanwhile. What waited was handed over then.
                return Ok(());
            }
            // The host has closed our descriptors. The thread finds out when it wakes by itself.
            self.broken.store(true, Ordering::Release);
            return Err(Refused::Unreachable);
        }
        Ok(())
    }

    /// The lock, if it can be had within a moment.
    fn moment(&self) -> Option<MutexGuard<'_, Inner>> {
        self.inner.try_lock_for(MOMENT)
    }

    /// The thread: swaps what waits with `batch`, which is empty. `unsent` is the engine's count.
    /// If a caller was stopped with the lock then nothing is taken now, and the thread may not sleep.
    pub(crate) fn take(&self, batch: &mut VecDeque<Command>, unsent: usize) {
        if batch.capacity() > KEPT {
            *batch = VecDeque::new();
        }
        let Some(mut inner) = self.moment() else { return };
        std::mem::swap(&mut inner.waiting, batch);
        inner.unsent = unsent + inner.acquires;
        inner.acquires = 0;
    }

    /// The thread: whether it may sleep, that is, nothing waits. From now on a push wakes it.
    pub(crate) fn may_sleep(&self, unsent: usize) -> bool {
        // Before the look: whoever pushes after the look finds the flag cleared.
        self.waker.sleeping();
        let idle = self.moment().is_some_and(|mut inner| {
            inner.unsent = unsent;
            inner.waiting.is_empty()
        });
        if !idle {
            self.waker.awake();
        }
        idle
    }

    /// The thread: whether something waits, or somebody is just asking for something.
    pub(crate) fn has_waiting(&self) -> bool {
        self.inner.try_lock().is_none_or(|inner| !inner.waiting.is_empty())
    }

    /// Does what a caller does that the system stops at the worst moment.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> impl Sized {
        self.inner.lock()
    }

    /// How many commands wait.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.inner.lock().waiting.len()
    }

    /// The number of a descriptor that is this client's alone.
    pub(crate) fn mark(&self) -> RawFd {
        self.waker.number()
    }

    /// The thread: it has woken.
    pub(crate) fn woken(&self) {
        self.waker.awake();
    }

    /// The thread wants to end: it may if nothing waits, and then nothing is taken any more.
    pub(crate) fn end_if_idle(&self) -> bool {
        let Some(mut inner) = self.moment() else { return false };
        let idle = inner.waiting.is_empty();
        if idle {
            inner.stage = Stage::Ended;
        }
        idle
    }

    /// The thread ends: what waits is handed over, and nothing is taken any more. None: the lock
    /// could not be had in time.
    pub(crate) fn end(&self, patience: Duration) -> Option<VecDeque<Command>> {
        let mut inner = self.inner.try_lock_for(patience)?;
        if inner.stage == Stage::Open {
            self.broken.store(true, Ordering::Release);
        }
        inner.stage = Stage::Ended;
        self.closed.store(true, Ordering::Release);
        self.shut.store(true, Ordering::Release);
        Some(std::mem::take(&mut inner.waiting))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::ticket::Condvar;

    #[test]
    fn host_3_what_a_thread_that_cannot_be_woken_was_asked_is_not_called_unsent() {
        let (waker, receiver) = crate::io::waker::pair().unwrap();
        let commands = Commands::new(waker, 1);
        assert!(commands.may_sleep(0));
        drop(receiver);
        let shut = commands.push(Command::Shutdown(Mono(1)), PATIENTLY);
        assert_eq!(shut, Err(Refused::Unreachable));
        // A thread that is awake all the same finds it.
        let mut batch = Default::default();
        commands.take(&mut batch, 0);
        assert!(matches!(batch.pop_front(), Some(Command::Shutdown(Mono(1)))));
        assert!(batch.pop_front().is_none());
        assert_eq!(commands.push(Command::Shutdown(Mono(2)), PATIENTLY), Err(Refused::Ended));
    }

    fn question() -> Command {
        Command::WaitReady(Arc::new(Reply::new(Condvar::new())))
    }

    #[test]
    fn end_a_client_whose_thread_has_ended_in_order_is_closed() {
        let (waker, _receiver) = crate::io::waker::pair().unwrap();
        let commands = Commands::new(waker, 1);
        commands.shut(Mono(0), PATIENTLY).unwrap();
        assert_eq!(commands.push(question(), PATIENTLY), Err(Refused::Closed));
        assert_eq!(commands.end(PATIENTLY).unwrap().len(), 1);
        assert_eq!(commands.push(question(), PATIENTLY), Err(Refused::Closed));
        assert_eq!(commands.push_last(question(), PATIENTLY), Err(Refused::Closed));
        assert!(!commands.is_broken());
    }

    #[test]
    fn end_a_wake_that_comes_after_an_orderly_end_is_no_sign_of_a_broken_thread() {
        let (waker, receiver) = crate::io::waker::pair().unwrap();
        let commands = Commands::new(waker, 1);
        assert!(commands.may_sleep(0));
        // Between the push and its wake the thread wakes by itself, takes a shutdown, and ends.
        let mut inner = commands.lock(PATIENTLY).unwrap();
        inner.stage = Stage::Ended;
        drop(receiver);
        assert_eq!(commands.add(inner, question()), Ok(()));
        assert!(!commands.is_broken());
    }

    #[test]
    fn host_6_the_thread_does_not_wait_for_a_caller_that_is_stopped_in_the_queue() {
        let (waker, _receiver) = crate::io::waker::pair().unwrap();
        let commands = Arc::new(Commands::new(waker, 1));
        commands.push(question(), PATIENTLY).unwrap();
        let (go, gate) = std::sync::mpsc::channel::<()>();
        let (entered, inside) = std::sync::mpsc::channel();
        let holder = commands.clone();
        let stopped = std::thread::spawn(move || {
            let _held = holder.hold();
            entered.send(()).unwrap();
            let _ = gate.recv_timeout(Duration::from_secs(10));
        });
        inside.recv().unwrap();
        let start = std::time::Instant::now();
        let mut batch = VecDeque::new();
        commands.take(&mut batch, 0);
        assert!(batch.is_empty());
        assert!(!commands.may_sleep(0), "something waits");
        assert!(commands.has_waiting());
        assert!(!commands.end_if_idle());
        assert!(commands.end(MOMENT).is_none());
        assert!(start.elapsed() < Duration::from_secs(5));
        drop(go);
        stopped.join().unwrap();
        commands.take(&mut batch, 0);
        assert_eq!(batch.len(), 1);
        assert!(commands.may_sleep(0));
    }
}
