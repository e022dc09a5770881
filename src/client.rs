//! The client's handle.

use crate::clock::Mono;
use crate::config::Config;
use crate::engine::{AcquireCall, Class, RELEASE_TIME, ReleaseCall, ReleaseKind, ReleaseOutcome};
use crate::error::Error;
use crate::handle::Ticket;
use crate::input::{Lease, Wait, WorkBudget};
use crate::io::{self, Audience, BRIEFLY, Command, PATIENTLY, Refused, Shared, sys};
use crate::lock::Lock;
use crate::outcome::{Acquire, Grant, Outcome, Released, Shutdown, Token};
use crate::reason::{Reason, ReasonKind};
use crate::stats::Stats;
use crate::sync::{Arc as SyncArc, Ordering};
use crate::ticket::{
    Cancel, Ending, Hook, Readiness, Reclaim, Reply, Sleeper, Slot, Take, UNLISTED, Waited, Word,
};
use crate::wire::Key;
use std::fmt;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

/// DL-2: the transport deadline of an acquire that waits for nothing.
const TRY_TIME: Duration = Duration::from_secs(5);

/// How much longer than its own end a blocked call waits for the background thread's word.
const MARGIN: Duration = Duration::from_millis(50);

/// How long the releases may take that are under way when the last handle goes.
const FAREWELL: Duration = Duration::from_secs(5);

/// A client of the lock service: one background thread that owns every socket, and handles that
/// any thread may use.
///
/// When the last handle, lock and ticket is gone the client ends by itself, in the background,
/// with up to 5 s for the releases that are still under way.
///
/// In a forked child every call on it is [`Error::Forked`] and touches nothing of the parent's.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    enforce_budget: bool,
    strict_deadline: bool,
    queue_limit: usize,
}

impl Client {
    pub(crate) fn open(config: &Config) -> Result<Client, Error> {
        if config.endpoints.is_empty() {
            return Err(Error::NoEndpoint);
        }
        let shared = io::start(config)?;
        let inner = Inner {
            shared,
            enforce_budget: config.enforce_budget,
            strict_deadline: config.strict_deadline,
            queue_limit: config.queue_limit,
        };
        Ok(Client { inner: Arc::new(inner) })
    }

    /// Blocks until some node serves, for at most `timeout`; says whether one does, as far as the
    /// background thread knows. With a `timeout` of zero it only looks. For checks at start-up.
    ///
    /// # Errors
    /// [`Error::Auth`] at once when every endpoint's last attempt failed authentication, as in
    /// [`Client::acquire`]; [`Error::Closed`], [`Error::Forked`], [`Error::WouldDeadlock`],
    /// [`Error::System`].
    pub fn wait_ready(&self, timeout: Duration) -> Result<bool, Error> {
        let limit = sys::mono() + timeout;
        self.enter_blocking()?;
        // What is known needs no answer, which takes longer than some limits.
        if let Some(readiness) = self.shared().readiness.read() {
            return self.readiness(readiness);
        }
        if timeout.is_zero() {
            return Ok(false);
        }
        let reply = SyncArc::new(Reply::new(self.shared().condvars.make()));
        let command = Command::WaitReady(reply.clone());
        match self.shared().commands.push(command, timeout.min(PATIENTLY)) {
            Ok(()) => {}
            Err(Refused::Stuck) => return Ok(false),
            Err(refused) => return Err(self.refusal(refused)),
        }
        let answer = self.hear(&reply, limit, Sleeper::Ready);
        match answer.or_else(|| self.shared().readiness.read()) {
            Some(readiness) => self.readiness(readiness),
            None => Ok(false),
        }
    }

    fn readiness(&self, readiness: Readiness) -> Result<bool, Error> {
        match readiness {
            Readiness::Ready => Ok(true),
            Readiness::Auth(reason) => Err(Error::Auth(self.shared().failure(reason))),
            Readiness::Closed => Err(self.refusal(Refused::Closed)),
        }
    }

    /// Asks for the lock of `key` and blocks until there is an outcome: give or take 100 ms, by its
    /// deadline (the call plus the wait, or 5 s for a wait of zero), or for an acquire that was sent
    /// by `max(deadline, sent + server's wait) + response_grace`. The server waits what was left of
    /// the deadline, rounded up to whole seconds: up to a second longer if it was sent late. See
    /// [`Config::response_grace`] and [`Config::strict_deadline`].
    ///
    /// `key` is 1..=128 bytes without space, newline and carriage return.
    ///
    /// # Errors
    /// The input cannot be used, or the client cannot; nothing was sent.
    pub fn acquire(&self, key: &str, options: &Acquire) -> Result<Outcome<Lock>, Error> {
        let start = sys::mono();
        self.enter_blocking()?;
        let key = Key::new(key.as_bytes())?;
        let outcome = self.acquire_key(start, &key, options)?;
        Ok(outcome.map(|grant| Lock::new(self.clone(), key, grant)))
    }

    /// Asks for the lock of `key` without blocking: the ticket has the outcome.
    ///
    /// # Errors
    /// As [`Client::acquire`], without [`Error::WouldDeadlock`].
    pub fn start(&self, key: &str, options: &Acquire) -> Result<Ticket, Error> {
        let ticket = self.prepare(key.as_bytes(), options, None)?;
        self.submit(ticket.slot().clone())?;
        Ok(ticket)
    }

    /// Gives the lock of `key` back by its token, and waits for the answer, up to 5 s.
    ///
    /// # Errors
    /// The key cannot be used, or the client cannot; nothing was sent.
    pub fn release(&self, key: &str, token: Token) -> Result<Released, Error> {
        self.release_bytes(key.as_bytes(), token)
    }

    /// Enqueues the release of a token and returns: nobody waits for the answer, which must come
    /// within 5 s, or the lease's end is the safety net. At most [`Config::queue_limit`] are under
    /// way at once.
    ///
    /// # Errors
    /// As [`Client::release`], without [`Error::WouldDeadlock`]; [`Error::QueueFull`].
    pub fn release_start(&self, key: &str, token: Token) -> Result<(), Error> {
        self.release_start_bytes(key.as_bytes(), token)
    }

    /// Ends the client: wakes every blocked caller (unsent calls are cancelled, of sent ones the
    /// outcome is unknown), by `timeout` even if the background thread does nothing; gives back the
    /// grants that no ticket's holder has taken, lets the releases under way finish, and closes the
    /// connections. Returns by `timeout`, give or take
    /// 100 ms, and may be repeated. Later calls are [`Error::Closed`].
    ///
    /// No log callback begins once it has returned. One that was running, and did not return by
    /// `timeout`, may still run; so may the destructors of what the program keeps for each thread,
    /// at the end of the thread that called back.
    ///
    /// # Errors
    /// [`Error::Forked`], and [`Error::WouldDeadlock`] from inside the log callback.
    pub fn shutdown(&self, timeout: Duration) -> Result<Shutdown, Error> {
        let start = sys::mono();
        let deadline = start + timeout;
        let shared = self.shared();
        if self.is_forked() {
            return Err(Error::Forked);
        }
        if shared.log.as_ref().is_some_and(|log| log.is_calling()) {
            return Err(Error::WouldDeadlock);
        }
        // The thread ends a little earlier, so that its word is there in time. If it has ended
        // already there is nothing to ask for.
        let end_by = start + timeout.saturating_sub(MARGIN.min(timeout / 10));
        let limit = deadline + MARGIN;
        let _ = shared.commands.shut(end_by, PATIENTLY.min(limit.since(start)));
        let end = shared.end.wait(limit);
        if end.is_none() {
            // It does nothing: what it would have told those who are blocked they are told here.
            shared.sleepers.end();
        }
        let logged = shared.log.as_ref().is_none_or(|log| log.close(limit));
        if end.is_some() && logged {
            let threads =
                shared.threads.try_lock_for(MARGIN).map(|mut all| std::mem::take(&mut *all));
            for thread in threads.into_iter().flatten() {
                // Past their last business with the client; what is left is the host's own.
                sys::join(thread, limit);
            }
        }
        Ok(end.unwrap_or(Shutdown::Unconfirmed))
    }

    /// Counts since the client was opened. All zero in a forked child.
    #[must_use]
    pub fn stats(&self) -> Stats {
        if self.is_forked() {
            return Stats::default();
        }
        let mut stats = self.shared().board.read();
        stats.unconfirmed += self.shared().lost.load(Ordering::Relaxed);
        stats
    }

    /// As [`Client::acquire`], with a key of bytes and the bare grant.
    pub(crate) fn acquire_grant(
        &self,
        key: &[u8],
        options: &Acquire,
    ) -> Result<Outcome<Grant>, Error> {
        let start = sys::mono();
        self.enter_blocking()?;
        self.acquire_key(start, &Key::new(key)?, options)
    }

    /// As [`Client::release`], with a key of bytes.
    pub(crate) fn release_bytes(&self, key: &[u8], token: Token) -> Result<Released, Error> {
        self.enter_blocking()?;
        self.release_and_wait(Key::new(key)?, token)
    }

    /// As [`Client::release`], with a checked key.
    pub(crate) fn release_key(&self, key: &Key, token: Token) -> Result<Released, Error> {
        self.enter_blocking()?;
        self.release_and_wait(*key, token)
    }

    /// As [`Client::release_start`], with a key of bytes.
    pub(crate) fn release_start_bytes(&self, key: &[u8], token: Token) -> Result<(), Error> {
        self.enter()?;
        let call = release_call(Key::new(key)?, token, ReleaseKind::Awaited);
        let shared = self.shared();
        if shared.started.fetch_add(1, Ordering::Relaxed) >= self.inner.queue_limit {
            shared.started.fetch_sub(1, Ordering::Relaxed);
            return Err(Error::QueueFull);
        }
        match shared.commands.push(Command::Release(call, Audience::Count), PATIENTLY) {
            // A thread that cannot be woken may be awake, and send it.
            Ok(()) | Err(Refused::Unreachable) => Ok(()),
            Err(refused) => {
                shared.started.fetch_sub(1, Ordering::Relaxed);
                Err(self.refusal(refused))
            }
        }
    }

    /// A guard was dropped. Never blocks, never panics; does nothing in a forked child.
    pub(crate) fn release_dropped(&self, key: &Key, token: Token) {
        if !self.is_forked() {
            let call = release_call(*key, token, ReleaseKind::Guard);
            self.push_last(Command::Release(call, Audience::Nobody));
        }
    }

    /// A descriptor that is readable while a tagged ticket with a result was not fetched. Made at
    /// the first call; the client's own.
    pub(crate) fn completion_fd(&self) -> Result<RawFd, Error> {
        if self.is_forked() {
            return Err(Error::Forked);
        }
        Ok(self.shared().completions.fd()?)
    }

    /// The tag of a ticket that has a result and was neither fetched nor dropped; each comes once.
    pub(crate) fn next_completed(&self) -> Result<Option<u64>, Error> {
        if self.is_forked() {
            return Err(Error::Forked);
        }
        Ok(self.shared().completions.next())
    }

    /// Whether this process is a fork of the one that opened the client.
    pub(crate) fn is_forked(&self) -> bool {
        self.shared().fork.is_forked()
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }

    /// What every call looks at first.
    pub(crate) fn enter(&self) -> Result<(), Error> {
        if self.is_forked() {
            Err(Error::Forked)
        } else if self.shared().commands.is_closed() {
            Err(self.refusal(Refused::Closed))
        } else {
            Ok(())
        }
    }

    fn enter_blocking(&self) -> Result<(), Error> {
        self.enter()?;
        self.not_from_the_log()
    }

    /// A call that blocks is refused inside the log callback.
    pub(crate) fn not_from_the_log(&self) -> Result<(), Error> {
        match &self.shared().log {
            Some(log) if log.is_calling() => Err(Error::WouldDeadlock),
            _ => Ok(()),
        }
    }

    /// Why something was not taken, in the caller's terms.
    fn refusal(&self, refused: Refused) -> Error {
        match refused {
            Refused::Full => Error::QueueFull,
            Refused::Closed if !self.shared().commands.is_broken() => Error::Closed,
            Refused::Stuck => Error::System(std::io::ErrorKind::TimedOut.into()),
            Refused::Closed | Refused::Ended | Refused::Unreachable => thread_ended(),
        }
    }

    /// Checks an acquire's input (IN-1 to IN-3).
    fn call(
        &self,
        start: Mono,
        key: Key,
        options: &Acquire,
        blocking: bool,
    ) -> Result<AcquireCall, Error> {
        let wait = Wait::new(options.wait)?;
        let lease = Lease::new(options.lease)?;
        let budget = WorkBudget::new(options.budget, lease)?;
        let time = match wait.seconds() {
            0 => TRY_TIME,
            seconds => Duration::from_secs(u64::from(seconds)),
        };
        let class = match wait.seconds() {
            _ if !blocking || self.inner.strict_deadline => Class::Ticket,
            0 => Class::Try,
            _ => Class::Blocking,
        };
        Ok(AcquireCall { key, wait, lease, budget, deadline: start + time, class })
    }

    fn acquire_key(
        &self,
        start: Mono,
        key: &Key,
        options: &Acquire,
    ) -> Result<Outcome<Grant>, Error> {
        let call = self.call(start, *key, options, true)?;
        let shared = self.shared();
        let enforce = self.inner.enforce_budget;
        let patience = call.deadline.since(sys::mono());
        let pooled = shared.slots.take(|slot| slot.renew(call.clone(), enforce));
        let slot = pooled
            .unwrap_or_else(|| SyncArc::new(Slot::grouped(call, enforce, shared.condvars.make())));
        match shared.commands.acquire(slot.clone(), patience) {
            Ok(()) => {}
            // It may be in the queue, of a thread that cannot be woken.
            Err(Refused::Ended | Refused::Unreachable) => slot.abandon(),
            Err(Refused::Stuck) => return Ok(Outcome::NotSent(self.last_failure())),
            Err(refused) => return Err(self.refusal(refused)),
        }
        let outcome = self.wait(&slot);
        shared.slots.put(slot);
        outcome
    }

    /// The first step of [`Client::start`]: the ticket, of which nobody else knows yet. If it has a
    /// tag then it is also handed out by [`Client::next_completed`], once it has a result and until
    /// it is dropped.
    pub(crate) fn prepare(
        &self,
        key: &[u8],
        options: &Acquire,
        tag: Option<u64>,
    ) -> Result<Ticket, Error> {
        let start = sys::mono();
        self.enter()?;
        let call = self.call(start, Key::new(key)?, options, false)?;
        let (enforce, changed) = (self.inner.enforce_budget, self.shared().condvars.make());
        let slot = SyncArc::new(match tag {
            Some(tag) => {
                let completions = self.shared().completions.clone();
                Slot::hooked(call, enforce, changed, Hook { completions, tag })
            }
            None => Slot::grouped(call, enforce, changed),
        });
        Ok(Ticket::new(self.clone(), slot))
    }

    /// The second step, with the ticket's slot: a tagged ticket may be fetched by another thread as
    /// soon as the background thread knows of it, and be gone before this has returned. After an
    /// error the ticket has nothing left to do but to be dropped.
    pub(crate) fn submit(&self, slot: SyncArc<Slot>) -> Result<(), Error> {
        let patience = slot.call().deadline.since(sys::mono()).min(PATIENTLY);
        match self.shared().commands.acquire(slot.clone(), patience) {
            Ok(()) => Ok(()),
            // As above: what has become of it is in the slot.
            Err(Refused::Ended | Refused::Unreachable) => {
                slot.abandon();
                Slot::announce(&slot);
                Ok(())
            }
            Err(refused) => {
                slot.abandon();
                Err(self.refusal(refused))
            }
        }
    }

    /// Blocks until a slot has a result, and takes it.
    pub(crate) fn wait(&self, slot: &SyncArc<Slot>) -> Result<Outcome<Grant>, Error> {
        let mut listed = None;
        loop {
            let at_most = listed.is_none().then_some(UNLISTED);
            match slot.wait(sys::mono, at_most) {
                Waited::Decided => {}
                Waited::Overdue => self.overdue(slot),
                Waited::Paused => {
                    let sleeper = Sleeper::Acquire(slot.clone());
                    listed = Some(self.shared().sleepers.list(sleeper));
                }
            }
            if let Some(outcome) = self.take(slot) {
                return outcome;
            }
        }
    }

    /// Ends a slot's acquire if its time is over, though the background thread has not.
    pub(crate) fn expire(&self, slot: &SyncArc<Slot>) {
        if !slot.is_decided() && slot.expire_polled(sys::mono()) {
            self.overdue(slot);
        }
    }

    /// The caller's own time limit has made a result.
    fn overdue(&self, slot: &SyncArc<Slot>) {
        Slot::announce(slot);
        // The engine finds out by itself, if a little later.
        let command = Command::Withdraw(slot.clone(), ReasonKind::Deadline);
        let _ = self.shared().commands.push_last(command, BRIEFLY);
    }

    /// Gives a slot's acquire up (SND-5).
    pub(crate) fn give_up(&self, slot: &SyncArc<Slot>) {
        match slot.cancel() {
            Cancel::Decided => {}
            Cancel::Withdrawn => {
                Slot::announce(slot);
                // As above: an acquire that was sent is given up at its end, if not at once.
                let command = Command::Withdraw(slot.clone(), ReasonKind::Cancelled);
                let _ = self.shared().commands.push_last(command, BRIEFLY);
            }
            Cancel::GivenBack { token } => self.reclaim(slot, token),
        }
    }

    /// Takes a slot's result, if there is one.
    pub(crate) fn take(&self, slot: &SyncArc<Slot>) -> Option<Result<Outcome<Grant>, Error>> {
        let shared = self.shared();
        Some(match slot.take_by(sys::now) {
            Take::Pending => return None,
            Take::Before => Err(Error::Taken),
            Take::Granted { grant, remaining } => Ok(Outcome::Acquired(Grant {
                token: Token::new(grant.token),
                owner: grant.owner,
                lease: slot.call().lease,
                proof: grant.proof,
                at_delivery: remaining,
            })),
            Take::GivenBack { token, reason } => {
                self.reclaim(slot, token);
                Ok(Outcome::Indeterminate(shared.failure(reason)))
            }
            Take::Ended(ending) => match ending {
                Ending::TimedOut => Ok(Outcome::TimedOut),
                Ending::Busy => Ok(Outcome::Busy),
                Ending::NotSent(Some(reason)) => Ok(Outcome::NotSent(shared.failure(reason))),
                Ending::NotSent(None) => Ok(Outcome::NotSent(self.last_failure())),
                Ending::Cancelled => Ok(Outcome::Cancelled),
                Ending::Indeterminate(reason) => Ok(Outcome::Indeterminate(shared.failure(reason))),
                Ending::Auth(reason) => Err(Error::Auth(shared.failure(reason))),
                Ending::OwnerExhausted => Err(Error::OwnerExhausted),
                Ending::ThreadEnded => Err(thread_ended()),
            },
        })
    }

    /// The token of a grant that is not handed over goes to the release lane.
    fn reclaim(&self, slot: &Slot, token: u64) {
        self.push_last(Command::Reclaim(Reclaim { key: slot.call().key, token }));
    }

    /// Hands over a release that nobody waits for.
    fn push_last(&self, command: Command) {
        let shared = self.shared();
        match shared.commands.push_last(command, PATIENTLY) {
            // In the queue of a thread that cannot be woken it is counted at that thread's end.
            Ok(()) | Err(Refused::Unreachable) => {}
            Err(_) => {
                shared.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn release_and_wait(&self, key: Key, token: Token) -> Result<Released, Error> {
        let call = release_call(key, token, ReleaseKind::Awaited);
        let limit = call.deadline + MARGIN;
        let shared = self.shared();
        let pooled = shared.replies.take(Reply::renew);
        let reply =
            pooled.unwrap_or_else(|| SyncArc::new(Reply::new(self.shared().condvars.make())));
        let command = Command::Release(call, Audience::Caller(reply.clone()));
        match shared.commands.push(command, PATIENTLY) {
            // A thread that cannot be woken may be awake, and send it.
            Ok(()) | Err(Refused::Unreachable) => {}
            Err(refused) => return Err(self.refusal(refused)),
        }
        let outcome = self.hear(&reply, limit, Sleeper::Release);
        shared.replies.put(reply);
        let unconfirmed = |reason| Ok(Released::Unconfirmed(shared.failure(reason)));
        match outcome {
            Some(Some(ReleaseOutcome::Released)) => Ok(Released::Released),
            Some(Some(ReleaseOutcome::NotHeld { retried })) => Ok(Released::NotHeld { retried }),
            Some(Some(ReleaseOutcome::Unconfirmed(reason))) => unconfirmed(reason),
            Some(Some(ReleaseOutcome::Auth(reason))) => Err(Error::Auth(shared.failure(reason))),
            Some(Some(ReleaseOutcome::OwnerExhausted)) => Err(Error::OwnerExhausted),
            Some(None) => unconfirmed(Reason::new(ReasonKind::ThreadEnded)),
            None => unconfirmed(Reason::new(ReasonKind::Deadline)),
        }
    }

    /// Blocks until there is a reply, at most until `limit`.
    fn hear<T: Word>(
        &self,
        reply: &SyncArc<Reply<T>>,
        limit: Mono,
        sleeper: fn(SyncArc<Reply<T>>) -> Sleeper,
    ) -> Option<T> {
        let soon = limit.min(sys::mono() + UNLISTED);
        reply.wait(soon).or_else(|| {
            let _listed = self.shared().sleepers.list(sleeper(reply.clone()));
            reply.wait(limit)
        })
    }

    fn last_failure(&self) -> crate::outcome::Failure {
        self.shared().failure(self.shared().last_error())
    }
}

fn release_call(key: Key, token: Token, kind: ReleaseKind) -> ReleaseCall {
    ReleaseCall { key, token: token.get(), kind, deadline: sys::mono() + RELEASE_TIME }
}

fn thread_ended() -> Error {
    Error::System(std::io::Error::other(ReasonKind::ThreadEnded.text()))
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.shared.fork.is_forked() {
            // Whatever another thread was changing when the process forked is half changed here
            // for ever: nothing of it may be freed.
            std::mem::forget(self.shared.clone());
        } else if !self.shared.commands.is_shut() {
            let _ = self.shared.commands.shut(sys::mono() + FAREWELL, PATIENTLY);
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("endpoints", &self.shared().endpoints).finish()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
#[path = "client_tests.rs"]
mod tests;
