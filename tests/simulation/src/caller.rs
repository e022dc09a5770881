//! Calling threads: they ask, wait on the real slot, hold, and give back.

use crate::client::Command;
use crate::faults::Kind;
use crate::record::{Decider, Outcome, Record, ReleaseEnd};
use crate::time::{MILLI, SECOND, Time};
use crate::world::{CallInfo, Event, World};
use lockclient::clock::Mono;
use lockclient::engine::{AcquireCall, Class, ReleaseCall, ReleaseKind};
use lockclient::ticket::{Cancel, Ending, Slot, Take};
use lockclient::{Lease, Wait, WorkBudget};
use std::sync::Arc;
use std::time::Duration;

/// REL-1, and DL-2's transport deadline.
const FIVE: Duration = Duration::from_secs(5);
/// The caller's own time limit is so much after the end that the engine knows.
const UNSENT_MARGIN: u64 = 20 * MILLI;
const SENT_MARGIN: u64 = 50 * MILLI;

/// What a caller is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Waiting { cancel_at: Option<Time> },
    Holding,
    Releasing { limit: u64 },
}

/// A calling thread.
#[derive(Debug)]
pub(crate) struct Caller {
    /// Whom it will ask next, and whom it asked last.
    home: u16,
    client: u16,
    state: State,
    slot: Option<Arc<Slot>>,
    call: u32,
    key: usize,
    token: u64,
    /// It does nothing before, whatever wakes it.
    next: Time,
    drowsy_until: Time,
    /// When the event of its own time limit comes; one at a time, however many calls it makes.
    alarm: Time,
    /// How much later than it could have, by its own clock, it ran since the call.
    late: u64,
    /// It shows that a new acquire succeeds.
    fresh: bool,
}

impl Caller {
    pub(crate) fn is_idle(&self) -> bool {
        self.state == State::Idle
    }

    pub(crate) fn move_to(&mut self, old: u16, new: u16) {
        if self.home == old {
            self.home = new;
        }
    }

    pub(crate) fn waiting_at(&self, client: u16) -> Option<u32> {
        let waits = matches!(self.state, State::Waiting { .. });
        (waits && self.client == client).then_some(self.call)
    }
}

impl World {
    /// A new thread of a client's, with something to do soon.
    pub(crate) fn add_caller(&mut self, client: u16) {
        let number = self.new_caller(client, false);
        let at = self.t + self.rng.below(self.plan.think + 1);
        self.sleep(number, at);
    }

    fn new_caller(&mut self, client: u16, fresh: bool) -> u32 {
        self.callers.push(Caller {
            home: client,
            client,
            state: State::Idle,
            slot: None,
            call: 0,
            key: 0,
            token: 0,
            next: Time::MAX,
            drowsy_until: 0,
            alarm: Time::MAX,
            late: 0,
            fresh,
        });
        self.callers.len() as u32 - 1
    }

    /// The caller does something at this time, not before.
    fn sleep(&mut self, number: u32, at: Time) {
        self.callers[number as usize].next = at;
        self.push(at, Event::Caller { caller: number });
    }

    /// The same, for a time that mostly something else comes before.
    fn sleep_long(&mut self, number: u32, at: Time) {
        let caller = &mut self.callers[number as usize];
        caller.next = at;
        if caller.alarm > at {
            caller.alarm = at;
            self.push(at, Event::Caller { caller: number });
        }
    }

    /// A call has changed: its caller is woken, perhaps late.
    pub(crate) fn notify(&mut self, call: u32) {
        let number = self.calls[call as usize].caller;
        let at = self.t + if self.plan.wake == 0 { 0 } else { self.rng.below(self.plan.wake) };
        let caller = &mut self.callers[number as usize];
        let waits = matches!(caller.state, State::Waiting { .. });
        if !waits || caller.call != call || caller.drowsy_until > self.t {
            return;
        }
        if self.faults.happens(Kind::LateWake) {
            let time = self.faults.duration(Kind::LateWake);
            let caller = &mut self.callers[number as usize];
            caller.drowsy_until = at + time;
            caller.late += time + time / 1_000;
            self.log.add(self.t, Record::Fault { kind: Kind::LateWake, on: number, time });
            return self.sleep(number, at + time);
        }
        if caller.next > at {
            self.sleep(number, at);
        }
    }

    pub(crate) fn act(&mut self, number: u32) {
        let caller = &mut self.callers[number as usize];
        if caller.alarm <= self.t {
            caller.alarm = Time::MAX;
        }
        if caller.next > self.t {
            if matches!(caller.state, State::Waiting { .. }) {
                let at = caller.next;
                self.sleep_long(number, at);
            }
            return;
        }
        let caller = &self.callers[number as usize];
        let client = &self.clients[usize::from(caller.client)];
        if client.frozen_until > self.t && caller.state != State::Idle {
            // Its process is stopped. Its clock may or may not go on.
            let until = client.frozen_until;
            let late = client.clock.mono(until).saturating_sub(client.clock.mono(self.t));
            self.callers[number as usize].late += late;
            return self.sleep(number, until);
        }
        match caller.state {
            State::Idle => self.call(number),
            State::Waiting { cancel_at } => self.wait(number, cancel_at),
            State::Holding => self.give_up(number),
            State::Releasing { limit } => {
                let now = self.now(caller.client).mono.0;
                if now < limit {
                    let at = self.clients[usize::from(caller.client)].clock.when_mono(limit);
                    return self.sleep(number, at);
                }
                let token = caller.token;
                self.release_ended(number, token, ReleaseEnd::Unconfirmed);
            }
        }
    }

    /// Nothing to do for a while.
    fn rest(&mut self, number: u32) {
        let caller = &mut self.callers[number as usize];
        caller.state = State::Idle;
        caller.next = Time::MAX;
        if !caller.fresh && self.started < self.plan.acquires {
            let at = self.t + 1 + self.rng.below(self.plan.think);
            self.sleep(number, at);
        }
    }

    fn call(&mut self, number: u32) {
        if self.started >= self.plan.acquires && !self.callers[number as usize].fresh {
            return;
        }
        let home = self.callers[number as usize].home;
        let client = &self.clients[usize::from(home)];
        if client.frozen_until > self.t {
            let at = client.frozen_until;
            return self.sleep(number, at);
        }
        let fresh = self.callers[number as usize].fresh;
        let plan = &self.plan;
        let rng = &mut self.rng;
        let ticket = rng.below(16) < plan.tickets;
        let mut wait = match rng.below(16) < plan.tries {
            true => 0,
            false => rng.between(1, plan.wait),
        };
        let mut lease = rng.between(1, plan.lease);
        let mut budget = if rng.one_in(2) { 0 } else { rng.between(0, lease) };
        let mut key = rng.below(plan.keys as u64) as usize;
        if fresh {
            (wait, lease, budget, key) = (30, 10, 0, plan.keys + usize::from(home));
        }
        let strict = client.strict;
        let class = match wait {
            _ if ticket || strict => Class::Ticket,
            0 => Class::Try,
            _ => Class::Blocking,
        };
        let now = client.clock.now(self.t);
        let time = if wait == 0 { FIVE } else { Duration::from_secs(wait) };
        let deadline = now.mono + time;
        let seconds = Duration::from_secs;
        let (Ok(checked_wait), Ok(checked_lease)) =
            (Wait::new(seconds(wait)), Lease::new(seconds(lease)))
        else {
            return;
        };
        let Ok(checked_budget) = WorkBudget::new(seconds(budget), checked_lease) else { return };
        let call = AcquireCall {
            key: self.keys[key],
            wait: checked_wait,
            lease: checked_lease,
            budget: checked_budget,
            deadline,
            class,
        };
        let slot = Arc::new(Slot::new(call, client.enforce));
        let call = self.calls.len() as u32;
        self.calls.push(CallInfo { caller: number, end: 0, decided: false });
        self.started += 1;
        let record = Record::Call {
            call,
            client: home,
            key: key as u16,
            class,
            wait: wait as u8,
            lease: lease as u8,
            budget: budget as u8,
            deadline: deadline.0,
        };
        self.log.add(self.t, record);
        if !fresh {
            self.draw_surroundings();
        }
        let cancel_at = match self.faults.happens(Kind::Cancel) {
            true => Some(self.t + self.faults.duration(Kind::Cancel)),
            false => None,
        };
        let caller = &mut self.callers[number as usize];
        caller.client = home;
        caller.slot = Some(slot.clone());
        (caller.call, caller.key, caller.late, caller.drowsy_until) = (call, key, 0, 0);
        caller.state = State::Waiting { cancel_at };
        if self.clients[usize::from(home)].ended {
            // The queue refuses it: nothing was sent.
            return self.returned(number, Outcome::Ended);
        }
        self.clients[usize::from(home)].commands.push(Command::Acquire(slot, call));
        self.wake_thread(home);
        self.sleep_until_limit(number, cancel_at);
    }

    fn sleep_until_limit(&mut self, number: u32, cancel_at: Option<Time>) {
        let caller = &self.callers[number as usize];
        let Some(slot) = &caller.slot else { return };
        let limit = match self.calls[caller.call as usize].end {
            0 => slot.call().deadline.0 + UNSENT_MARGIN,
            end => end + SENT_MARGIN,
        };
        let at = self.clients[usize::from(caller.client)].clock.when_mono(limit);
        // If the slot's own limit is another one, look again soon.
        let at = if at <= self.t { self.t + MILLI } else { at };
        self.sleep_long(number, cancel_at.map_or(at, |cancel| at.min(cancel.max(self.t + 1))));
    }

    fn wait(&mut self, number: u32, cancel_at: Option<Time>) {
        let caller = &self.callers[number as usize];
        let (client, call) = (caller.client, caller.call);
        let Some(slot) = caller.slot.clone() else { return };
        let now = self.now(client);
        if !slot.is_decided() {
            if cancel_at.is_some_and(|at| at <= self.t) {
                self.cancel(number, &slot);
            } else if slot.expire(now.mono) {
                self.decided(call, Decider::Limit, now.mono.0);
                Slot::announce(&slot);
                let command = Command::Withdraw(slot.clone(), lockclient::ReasonKind::Deadline);
                self.command(client, command);
            } else {
                return self.sleep_until_limit(number, cancel_at);
            }
        } else if cancel_at.is_some_and(|at| at <= self.t) && self.rng.one_in(2) {
            // It cancels without a look at what there is.
            self.cancel(number, &slot);
        }
        self.take(number, &slot);
    }

    fn cancel(&mut self, number: u32, slot: &Arc<Slot>) {
        let caller = &self.callers[number as usize];
        let (client, call) = (caller.client, caller.call);
        let mono = self.now(client).mono.0;
        self.log.add(self.t, Record::Fault { kind: Kind::Cancel, on: number, time: 0 });
        match slot.cancel() {
            Cancel::Decided => {}
            Cancel::Withdrawn => {
                self.decided(call, Decider::Cancel, mono);
                Slot::announce(slot);
                let command = Command::Withdraw(slot.clone(), lockclient::ReasonKind::Cancelled);
                self.command(client, command);
            }
            Cancel::GivenBack { token } => {
                self.decided(call, Decider::Cancel, mono);
                self.command(client, Command::Reclaim(slot.call().key, token));
            }
        }
    }

    fn decided(&mut self, call: u32, by: Decider, mono: u64) {
        self.calls[call as usize].decided = true;
        self.log.add(self.t, Record::Decide { call, by, mono });
    }

    /// Asks the client's thread for something, if there still is one.
    fn command(&mut self, client: u16, command: Command) {
        if !self.clients[usize::from(client)].ended {
            self.clients[usize::from(client)].commands.push(command);
            self.wake_thread(client);
        }
    }

    fn take(&mut self, number: u32, slot: &Arc<Slot>) {
        let client = self.callers[number as usize].client;
        let now = self.now(client);
        match slot.take(now) {
            Take::Pending | Take::Before => return,
            Take::Granted { grant, remaining } => {
                let told = u64::try_from(remaining.as_nanos()).unwrap_or(u64::MAX);
                let token = grant.token;
                // Its holder looks at the remainder again and again, until it is zero.
                let lease = u64::from(slot.call().lease.seconds()) * SECOND;
                let end = grant.proof.0 + (lease - MILLI) / 1_001 * 1_000;
                let until = self.clients[usize::from(client)].clock.when_boot(end);
                let clock = &self.cluster.clock;
                let lease_end = self.log.ledger.token(token).map_or(0, |token| token.lease_end);
                let left = clock.boot(lease_end).saturating_sub(clock.boot(self.t));
                self.returned(number, Outcome::Acquired);
                let call = self.callers[number as usize].call;
                self.log.add(self.t, Record::Hold { call, token, told, left, until });
                self.hold(number, token, until);
            }
            Take::GivenBack { token, reason } => {
                self.command(client, Command::Reclaim(slot.call().key, token));
                self.returned(number, Outcome::Indeterminate(reason.kind));
            }
            Take::Ended(ending) => {
                let outcome = match ending {
                    Ending::TimedOut => Outcome::TimedOut,
                    Ending::Busy => Outcome::Busy,
                    Ending::NotSent(_) => Outcome::NotSent,
                    Ending::Cancelled => Outcome::Cancelled,
                    Ending::Indeterminate(reason) => Outcome::Indeterminate(reason.kind),
                    Ending::Auth(_) => Outcome::Auth,
                    Ending::OwnerExhausted => Outcome::OwnerExhausted,
                    Ending::ThreadEnded => Outcome::Ended,
                };
                self.returned(number, outcome);
            }
        }
        // A result is handed out once, however often it is asked for.
        if slot.take(now) != Take::Before {
            let call = self.callers[number as usize].call;
            let outcome = Outcome::Ended;
            let (mono, boot) = (now.mono.0, now.boot.0);
            self.log.add(self.t, Record::Return { call, outcome, mono, boot, late: 0 });
        }
    }

    fn returned(&mut self, number: u32, outcome: Outcome) {
        let caller = &mut self.callers[number as usize];
        let (call, client, late, fresh) = (caller.call, caller.client, caller.late, caller.fresh);
        caller.slot = None;
        let now = self.now(client);
        let (mono, boot) = (now.mono.0, now.boot.0);
        self.log.add(self.t, Record::Return { call, outcome, mono, boot, late });
        self.outcomes.count(outcome);
        if fresh {
            let acquired = outcome == Outcome::Acquired;
            self.log.add(self.t, Record::Fresh { client, acquired });
        }
        if outcome == Outcome::Acquired {
            return;
        }
        self.rest(number);
        if matches!(outcome, Outcome::Auth | Outcome::OwnerExhausted | Outcome::Ended) {
            // Asking again at once would find the same.
            let caller = &mut self.callers[number as usize];
            if caller.next != Time::MAX {
                let at = self.t + SECOND;
                self.sleep(number, at);
            }
        }
    }

    fn hold(&mut self, number: u32, token: u64, proven: Time) {
        let caller = &mut self.callers[number as usize];
        caller.token = token;
        caller.state = State::Holding;
        if self.faults.happens(Kind::AbandonHold) {
            return self.rest(number);
        }
        let mut until = self.t + self.rng.below(self.plan.hold + 1);
        if self.faults.happens(Kind::OverHold) {
            until = proven + self.faults.duration(Kind::OverHold);
        }
        self.sleep(number, until);
    }

    /// Gives the lock back.
    fn give_up(&mut self, number: u32) {
        let caller = &self.callers[number as usize];
        let (client, token, key) = (caller.client, caller.token, self.keys[caller.key]);
        let now = self.now(client).mono;
        let deadline = now + FIVE;
        let awaited = self.rng.one_in(3);
        let kind = if awaited { ReleaseKind::Awaited } else { ReleaseKind::Guard };
        let call = ReleaseCall { key, token, kind, deadline };
        let closed = self.clients[usize::from(client)].is_closed();
        // A closed client takes what a guard drops, as long as it runs, and nothing else.
        let handed = !(self.clients[usize::from(client)].ended || awaited && closed);
        self.log.add(self.t, Record::GiveUp { token, mono: now.0, handed });
        if !handed {
            return self.rest(number);
        }
        self.command(client, Command::Release(call, awaited.then_some(number)));
        if awaited {
            let limit = (deadline + Duration::from_nanos(SENT_MARGIN)).0;
            self.callers[number as usize].state = State::Releasing { limit };
            let at = self.clients[usize::from(client)].clock.when_mono(limit);
            self.sleep(number, at);
        } else {
            self.rest(number);
        }
    }

    /// An awaited release has its answer, or will have none.
    pub(crate) fn release_ended(&mut self, number: u32, token: u64, end: ReleaseEnd) {
        let caller = &self.callers[number as usize];
        // One that has waited to its own limit knows already.
        if matches!(caller.state, State::Releasing { .. }) && caller.token == token {
            self.log.add(self.t, Record::ReleaseReturn { token, end });
            self.rest(number);
        }
    }

    /// A new acquire by each client that can have one.
    pub(crate) fn try_again(&mut self) {
        for client in 0..self.clients.len() as u16 {
            let at = &self.clients[usize::from(client)];
            if at.is_closed() || at.hopeless {
                continue;
            }
            let number = self.new_caller(client, true);
            self.sleep(number, self.t);
            let until = self.t + 60 * SECOND;
            while self.t < until && self.step() {
                let caller = &self.callers[number as usize];
                if caller.is_idle() && caller.next == Time::MAX {
                    break;
                }
            }
        }
    }

    /// What is left of calls that have ended.
    pub(crate) fn look_around(&mut self) {
        for number in 0..self.clients.len() {
            let client = &self.clients[number];
            if client.ended {
                continue;
            }
            let counters = client.engine.counters();
            let (queued, in_flight) = (counters.queued_now, counters.in_flight_now);
            let client = number as u16;
            self.log.add(self.t, Record::Quiet { client, queued, in_flight });
        }
        let waiters = self.cluster.core.stats().waiters as u64;
        self.log.add(self.t, Record::QuietServer { waiters });
    }

    /// Closes every client in good order.
    pub(crate) fn close_all(&mut self) {
        for number in 0..self.clients.len() as u16 {
            let deadline = Mono(self.now(number).mono.0 + 5 * SECOND);
            let client = &mut self.clients[usize::from(number)];
            if !client.is_closed() {
                client.orderly = !client.hopeless;
                client.closing = Some(deadline);
                client.commands.push(Command::Shutdown(deadline));
                self.wake_thread(number);
            }
        }
    }

    /// Whether all have closed.
    pub(crate) fn look_at_closed(&mut self) {
        for number in 0..self.clients.len() {
            if !self.clients[number].ended {
                let client = number as u16;
                self.log.add(self.t, Record::Drained { client, clean: false });
            }
        }
    }
}
