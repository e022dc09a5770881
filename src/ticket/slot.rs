//! The slot of one acquire: how it stands, decided exactly once.
//!
//! One word says how the acquire stands. The background thread moves it when a frame leaves and
//! when an answer comes; the caller moves it when it cancels, when its own timed wait ends, and
//! when it takes the result. Each move is one compare-and-swap of that word, so that whoever comes
//! second finds out and does nothing. What belongs to a result (token, reason) is written by the
//! background thread before its move and read after it has been seen, hence never torn.

use super::completions::{self, Completions};
use super::condvar::{Condvar, Wakes};
use super::once::Once;
use super::results::{Cancel, Ending, Take, Waited};
use crate::clock::{Boot, Mono, Now};
use crate::engine::{AcquireCall, AcquireOutcome, Grant, RequestId};
use crate::io::sys::EventFd;
use crate::reason::{Reason, ReasonKind};
use crate::sync::{Arc, AtomicU32, AtomicU64, Ordering};
use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// How long after an unsent acquire's deadline its caller still waits for the background thread,
/// which ends it at the deadline and knows the better reason.
const UNSENT_MARGIN: Duration = Duration::from_millis(20);

/// The same, for one that may have been sent, after the end that was set when it was.
const SENT_MARGIN: Duration = Duration::from_millis(50);

/// A caller that wakes this much after its own time limit has stood still; the background thread
/// may have stood still with it …
const STOOD_STILL: Duration = Duration::from_millis(50);

/// … and gets this long to read the answers that wait in its sockets (CLO-1).
const READING_TIME: Duration = Duration::from_millis(50);

/// Less than this of a lease is nothing: the C ABI tells the remainder in milliseconds.
const LEAST_REMAINDER: Duration = Duration::from_millis(1);

const PHASE: u32 = 0xff;
/// Somebody sleeps on the condition variable, or is about to.
const WAITING: u32 = 0x100;
/// There is a descriptor to tell.
const HOOKED: u32 = 0x200;

const UNSENT: u32 = 0;
/// Claimed: a byte may have been sent.
const SENT: u32 = 1;
/// The first phase that is a result.
const GRANTED: u32 = 2;
const TIMED_OUT: u32 = 3;
const BUSY: u32 = 4;
const NOT_SENT: u32 = 5;
const CANCELLED: u32 = 6;
const INDETERMINATE: u32 = 7;
const AUTH: u32 = 8;
const OWNER_EXHAUSTED: u32 = 9;
const THREAD_ENDED: u32 = 10;
// Decided by the caller, or by whoever comes first. The reason's word is the background thread's to
// write, so that the reason of each of these is in its phase.
const OVERDUE_UNSENT: u32 = 11;
const OVERDUE_SENT: u32 = 12;
const CANCELLED_SENT: u32 = 13;
const CANCELLED_GRANT: u32 = 14;
/// The grant's deadline passed before it was taken.
const LATE_GRANT: u32 = 15;
const ABANDONED: u32 = 16;
/// The client was closed.
const CLOSED_SENT: u32 = 17;
const TAKEN: u32 = 18;

/// Who else wants to know that there is a result.
pub(crate) struct Hook {
    /// The queue that it goes to.
    pub(crate) completions: Arc<Completions>,
    /// How that queue's reader knows it.
    pub(crate) tag: u64,
}

/// One acquire.
pub struct Slot {
    state: AtomicU32,
    /// The packed request id, for the background thread alone.
    id: AtomicU64,
    /// While sent: when the wait for an answer ends (DL-6).
    end: AtomicU64,
    token: AtomicU64,
    owner: AtomicU64,
    proof: AtomicU64,
    reason: AtomicU64,
    /// It was answered `B`, and is to be tried again. Not 0: yes.
    busy: AtomicU32,
    /// When a poll first came long after the caller's own time limit; 0 until then.
    first_late_poll: AtomicU64,
    call: AcquireCall,
    enforce_budget: bool,
    hook: Option<Hook>,
    /// The hook's queue's business.
    listing: AtomicU32,
    event: Once<EventFd>,
    changed: Condvar,
}

/// A slot's `id` while the engine has not seen it.
const NO_ID: u64 = u64::MAX;

impl Slot {
    /// A slot for one acquire.
    pub fn new(call: AcquireCall, enforce_budget: bool) -> Slot {
        Slot::grouped(call, enforce_budget, Condvar::new())
    }

    /// The same, with a condition variable that may belong to a group.
    pub(crate) fn grouped(call: AcquireCall, enforce_budget: bool, changed: Condvar) -> Slot {
        Slot {
            state: AtomicU32::new(UNSENT),
            id: AtomicU64::new(NO_ID),
            end: AtomicU64::new(0),
            token: AtomicU64::new(0),
            owner: AtomicU64::new(0),
            proof: AtomicU64::new(0),
            reason: AtomicU64::new(0),
            busy: AtomicU32::new(0),
            first_late_poll: AtomicU64::new(0),
            call,
            enforce_budget,
            hook: None,
            listing: AtomicU32::new(completions::ABSENT),
            event: Once::new(),
            changed,
        }
    }

    /// The same, with somebody else to tell.
    pub(crate) fn hooked(call: AcquireCall, enforce: bool, changed: Condvar, hook: Hook) -> Slot {
        Slot { hook: Some(hook), ..Slot::grouped(call, enforce, changed) }
    }

    /// Makes a slot that nobody else knows ready for another acquire. Not one with a hook or a
    /// descriptor: those are of one ticket.
    pub(crate) fn renew(&mut self, call: AcquireCall, enforce_budget: bool) {
        // What belongs to a result is written before it is read.
        self.state = AtomicU32::new(UNSENT);
        self.id = AtomicU64::new(NO_ID);
        self.busy = AtomicU32::new(0);
        self.first_late_poll = AtomicU64::new(0);
        self.call = call;
        self.enforce_budget = enforce_budget;
    }

    /// What was asked for.
    pub fn call(&self) -> &AcquireCall {
        &self.call
    }

    /// The hook's tag.
    pub(crate) fn tag(&self) -> u64 {
        self.hook.as_ref().map_or(0, |hook| hook.tag)
    }

    pub(super) fn id(&self) -> Option<RequestId> {
        let word = self.id.load(Ordering::Relaxed);
        (word != NO_ID).then(|| RequestId::unpack(word))
    }

    pub(super) fn set_id(&self, id: RequestId) {
        self.id.store(id.pack(), Ordering::Relaxed);
    }

    /// Whether there is a result, taken or not.
    pub fn is_decided(&self) -> bool {
        self.phase() >= GRANTED
    }

    /// Whether there is a grant that nobody has taken.
    pub(super) fn is_untaken_grant(&self) -> bool {
        self.phase() == GRANTED
    }

    fn phase(&self) -> u32 {
        self.state.load(Ordering::Acquire) & PHASE
    }

    /// Moves from any phase that `from` allows to `to`; the flags stay. Says from where.
    fn change(&self, to: u32, from: impl Fn(u32) -> bool) -> Option<u32> {
        self.move_by(|phase| from(phase).then_some(to))
    }

    /// Moves to where `to` says, if it does; the flags stay. Says from where.
    fn move_by(&self, to: impl Fn(u32) -> Option<u32>) -> Option<u32> {
        let mut state = self.state.load(Ordering::Acquire);
        while let Some(to) = to(state & PHASE) {
            let next = state & !PHASE | to;
            match self.state.compare_exchange_weak(state, next, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return Some(state & PHASE),
                Err(now) => state = now,
            }
        }
        None
    }

    /// The background thread: the first byte may leave now. False: it was given up.
    pub(super) fn claim(&self, end: Mono) -> bool {
        // While the phase is UNSENT nobody reads this.
        self.end.store(end.0, Ordering::Relaxed);
        self.change(SENT, |phase| phase == UNSENT).is_some()
    }

    /// The background thread: no byte left after all. True: a sleeping caller has to be woken,
    /// since its time limit is another one now.
    pub(super) fn unclaim(&self) -> bool {
        self.change(UNSENT, |phase| phase == SENT).is_some()
            && self.state.load(Ordering::Relaxed) & WAITING != 0
    }

    /// The background thread: it was answered `B`, and is to be tried again.
    pub(super) fn retry(&self) -> bool {
        self.busy.store(1, Ordering::Relaxed);
        self.unclaim()
    }

    /// The background thread: this is how it ended. False: the caller decided before.
    pub(super) fn decide(&self, outcome: AcquireOutcome) -> bool {
        let reason = |reason: Reason| self.reason.store(reason.pack(), Ordering::Relaxed);
        let phase = match outcome {
            AcquireOutcome::Granted(grant) => {
                self.token.store(grant.token, Ordering::Relaxed);
                self.owner.store(grant.owner, Ordering::Relaxed);
                self.proof.store(grant.proof.0, Ordering::Relaxed);
                GRANTED
            }
            AcquireOutcome::TimedOut => TIMED_OUT,
            AcquireOutcome::Busy => BUSY,
            AcquireOutcome::NotSent(why) => {
                reason(why);
                NOT_SENT
            }
            AcquireOutcome::Cancelled => CANCELLED,
            AcquireOutcome::Indeterminate(why) => {
                reason(why);
                INDETERMINATE
            }
            AcquireOutcome::Auth(why) => {
                reason(why);
                AUTH
            }
            AcquireOutcome::OwnerExhausted => OWNER_EXHAUSTED,
        };
        self.change(phase, |phase| phase < GRANTED).is_some()
    }

    /// The background thread has ended, or cannot be reached.
    pub(crate) fn abandon(&self) {
        self.move_by(|phase| match phase {
            UNSENT => Some(THREAD_ENDED),
            SENT => Some(ABANDONED),
            _ => None,
        });
    }

    /// The background thread: the deadline of an untaken grant has passed. Its token, if it is
    /// still untaken.
    pub(super) fn lapse(&self) -> Option<u64> {
        self.change(LATE_GRANT, |phase| phase == GRANTED)?;
        Some(self.token.load(Ordering::Relaxed))
    }

    /// The background thread: the client is closed. The token of a grant that nobody has taken.
    pub(super) fn recall(&self) -> Option<u64> {
        // No result that a grant can have become has this.
        self.reason.store(Reason::new(ReasonKind::Closed).pack(), Ordering::Relaxed);
        self.change(INDETERMINATE, |phase| phase == GRANTED)?;
        Some(self.token.load(Ordering::Relaxed))
    }

    /// Gives the acquire up (SND-5). Never blocks. Wake the others with [`Slot::wake`].
    pub fn cancel(&self) -> Cancel {
        let from = self.move_by(|phase| match phase {
            UNSENT => Some(CANCELLED),
            SENT => Some(CANCELLED_SENT),
            GRANTED => Some(CANCELLED_GRANT),
            _ => None,
        });
        match from {
            None => Cancel::Decided,
            Some(GRANTED) => Cancel::GivenBack { token: self.token.load(Ordering::Relaxed) },
            Some(_) => Cancel::Withdrawn,
        }
    }

    /// The client is closed, and the background thread does not see to it: as [`Slot::cancel`], but
    /// a grant is left to whoever takes it.
    pub(crate) fn close(&self) {
        self.move_by(|phase| match phase {
            UNSENT => Some(CANCELLED),
            SENT => Some(CLOSED_SENT),
            _ => None,
        });
    }

    /// The caller's own time limit (HOST-6): when it gives up by itself, as things stand.
    fn limit(&self, phase: u32) -> Mono {
        if phase == UNSENT {
            self.call.deadline + UNSENT_MARGIN
        } else {
            Mono(self.end.load(Ordering::Relaxed)) + SENT_MARGIN
        }
    }

    /// Gives the acquire up if the caller's own time limit has passed. True: the engine is to be
    /// told ([`ReasonKind::Deadline`]), and the others woken.
    pub fn expire(&self, now: Mono) -> bool {
        #[cfg(canary)]
        let now = if crate::canary!(one_return_in_time) { Mono(now.0 / 2) } else { now };
        // The exact phase whose limit has passed, or not at all.
        let overdue = |phase| match phase {
            GRANTED.. => None,
            _ if now < self.limit(phase) => None,
            UNSENT => Some(OVERDUE_UNSENT),
            _ => Some(OVERDUE_SENT),
        };
        self.move_by(overdue).is_some()
    }

    /// [`Slot::expire`] for a caller who does not wait: one that comes long after the limit may
    /// have stood still, and the background thread with it, which gets [`READING_TIME`] from then.
    pub(crate) fn expire_polled(&self, now: Mono) -> bool {
        let late = now.since(self.limit(self.phase()));
        if late < STOOD_STILL {
            return self.expire(now);
        }
        match self.first_late_poll.compare_exchange(0, now.0, Ordering::Relaxed, Ordering::Relaxed)
        {
            Ok(_) => false,
            Err(first) => now.since(Mono(first)) >= READING_TIME && self.expire(now),
        }
    }

    /// Blocks until there is a result, or for `at_most` if that is given.
    pub fn wait(&self, clock: impl Fn() -> Mono, at_most: Option<Duration>) -> Waited {
        if self.is_decided() {
            return Waited::Decided;
        }
        let pause = at_most.map(|time| clock() + time);
        let mut patient = true;
        let mut patience = Mono(0);
        loop {
            let epoch = self.changed.epoch();
            let state = self.state.load(Ordering::Acquire);
            if state & PHASE >= GRANTED {
                return Waited::Decided;
            }
            // Whoever decides after this sees the flag, and ends the epoch.
            let flagged = state | WAITING;
            if state != flagged
                && self
                    .state
                    .compare_exchange_weak(state, flagged, Ordering::AcqRel, Ordering::Acquire)
                    .is_err()
            {
                continue;
            }
            let limit = self.limit(state & PHASE);
            let until = limit.max(patience).min(pause.unwrap_or(Mono(u64::MAX)));
            if !self.changed.wait_until(epoch, until) {
                continue;
            }
            let now = clock();
            if pause.is_some_and(|pause| pause <= now) {
                return Waited::Paused;
            }
            if patient && now.since(limit) >= STOOD_STILL {
                patient = false;
                patience = now + READING_TIME;
            } else if self.expire(now) {
                self.wake();
                return Waited::Overdue;
            }
        }
    }

    /// Takes the result, once, at `now`.
    pub fn take(&self, now: Now) -> Take {
        self.take_by(|| now)
    }

    /// Takes the result, once. This is the delivery gate (DL-7, GR-4): a grant is judged by the time
    /// just after it was taken, so that nothing can come between.
    pub(crate) fn take_by(&self, clock: impl Fn() -> Now) -> Take {
        let phase = self.phase();
        if phase < GRANTED {
            return Take::Pending;
        }
        if self.change(TAKEN, |current| current == phase).is_none() {
            // A grant may lapse or be cancelled at this moment; a second look finds what it is
            // now, and nothing follows but TAKEN.
            return if phase == GRANTED { self.take_by(clock) } else { Take::Before };
        }
        if self.state.load(Ordering::Acquire) & HOOKED != 0 {
            self.quieten();
        }
        if phase == GRANTED { self.gate(clock()) } else { self.ending(phase) }
    }

    fn gate(&self, now: Now) -> Take {
        let token = self.token.load(Ordering::Relaxed);
        let given_back = |kind| Take::GivenBack { token, reason: Reason::new(kind) };
        #[cfg(canary)]
        let now = match crate::canary!(acquired_was_read_and_taken_in_time) {
            true => Now { mono: Mono(0), ..now },
            false => now,
        };
        if now.mono > self.call.deadline {
            return given_back(ReasonKind::LateGrant);
        }
        let proof = Boot(self.proof.load(Ordering::Relaxed));
        let remaining = self.call.lease.proven_remaining(now.boot.since(proof));
        if remaining < LEAST_REMAINDER
            || self.enforce_budget && remaining < self.call.budget.duration()
        {
            return given_back(ReasonKind::ShortLease);
        }
        let owner = self.owner.load(Ordering::Relaxed);
        Take::Granted { grant: Grant { token, owner, proof }, remaining }
    }

    fn ending(&self, phase: u32) -> Take {
        let reason = || Reason::unpack(self.reason.load(Ordering::Relaxed));
        let unknown = |kind| Ending::Indeterminate(Reason::new(kind));
        Take::Ended(match phase {
            TIMED_OUT => Ending::TimedOut,
            BUSY => Ending::Busy,
            NOT_SENT => Ending::NotSent(Some(reason())),
            // Unsent when it ended, but sent before: the last answer was `B`, and it is definite.
            // Asked here and not before the move: it may be sent and answered in between.
            CANCELLED | THREAD_ENDED | OVERDUE_UNSENT if self.busy.load(Ordering::Relaxed) != 0 => {
                Ending::Busy
            }
            CANCELLED => Ending::Cancelled,
            INDETERMINATE => Ending::Indeterminate(reason()),
            AUTH => Ending::Auth(reason()),
            OWNER_EXHAUSTED => Ending::OwnerExhausted,
            THREAD_ENDED => Ending::ThreadEnded,
            OVERDUE_UNSENT => Ending::NotSent(None),
            OVERDUE_SENT => unknown(ReasonKind::Deadline),
            CANCELLED_SENT | CANCELLED_GRANT => unknown(ReasonKind::Cancelled),
            LATE_GRANT => unknown(ReasonKind::LateGrant),
            ABANDONED => unknown(ReasonKind::ThreadEnded),
            CLOSED_SENT => unknown(ReasonKind::Closed),
            _ => return Take::Before,
        })
    }

    /// Tells whoever waits that the word has changed. Without any lock held.
    pub fn wake(&self) {
        if let Some(changed) = self.tell() {
            changed.notify_all();
        }
    }

    /// As [`Slot::wake`], but for the condition variable, if anybody sleeps on it.
    fn tell(&self) -> Option<&Condvar> {
        let state = self.state.load(Ordering::Acquire);
        if state & HOOKED != 0 {
            self.signal();
        }
        (state & WAITING != 0).then_some(&self.changed)
    }

    /// Wakes its waiters and, if it has a result, hands it to its completion queue.
    pub fn announce(slot: &Arc<Slot>) {
        let sleeper = slot.tell();
        // If the queue cannot be had, the background thread lists the slot when it hears of it.
        Slot::enlist(slot, completions::BRIEFLY);
        if let Some(changed) = sleeper {
            changed.notify_all();
        }
    }

    /// Tells whoever waits, as [`Slot::wake`], but who sleeps is woken with all of `wakes`.
    pub(super) fn gather(&self, wakes: &mut Wakes) {
        if let Some(changed) = self.tell() {
            wakes.add(changed);
        }
    }

    /// Hands it to its completion queue, if it has one and a result. False: that could not be had
    /// in time.
    pub(super) fn enlist(slot: &Arc<Slot>, patience: Duration) -> bool {
        match &slot.hook {
            Some(hook) if slot.is_to_list() => hook.completions.add(slot, patience),
            _ => true,
        }
    }

    /// Whether it has a result that its completion queue does not know of.
    pub(super) fn is_to_list(&self) -> bool {
        self.hook.is_some() && self.is_listing(completions::ABSENT) && self.is_decided()
    }

    /// Whether this is its listing.
    pub(super) fn is_listing(&self, listing: u32) -> bool {
        self.listing.load(Ordering::Acquire) == listing
    }

    /// Moves its listing. False: it is another one.
    pub(super) fn list(&self, from: u32, to: u32) -> bool {
        self.listing.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn has_untaken_result(&self) -> bool {
        (GRANTED..TAKEN).contains(&self.phase())
    }

    /// The descriptor is readable as long as there is a result to take …
    fn signal(&self) {
        if let Some(event) = self.event.get()
            && self.has_untaken_result()
        {
            event.signal();
            // … which may have been taken between the look and the signal. A read-modify-write, not a
            // load: whoever takes it after this finds the signal and clears it.
            let phase = self.state.fetch_or(0, Ordering::AcqRel) & PHASE;
            if !(GRANTED..TAKEN).contains(&phase) {
                event.clear();
            }
        }
    }

    fn quieten(&self) {
        if let Some(event) = self.event.get() {
            event.clear();
        }
    }

    /// The slot's descriptor, made at the first call.
    pub(crate) fn fd(&self) -> io::Result<RawFd> {
        let event = match self.event.get() {
            Some(event) => event,
            None => self.event.get_or_make(EventFd::new)?,
        };
        if self.state.load(Ordering::Acquire) & HOOKED == 0 {
            self.state.fetch_or(HOOKED, Ordering::AcqRel);
            // A result that came before the flag did not see it.
            self.signal();
        }
        Ok(event.number())
    }

    /// Takes the slot out of its completion queue, or keeps it from getting there.
    pub(crate) fn unlist(&self) {
        if let Some(hook) = &self.hook {
            hook.completions.forget(self);
        }
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("phase", &self.phase()).field("call", &self.call).finish()
    }
}
