//! The whole client but its sockets, under schedules drawn at random: several callers, one who
//! cancels, one who closes, and the background thread, which may die at any step.
//!
//! Run with `RUSTFLAGS="--cfg shuttle" cargo test --release --lib mixes`.

mod thread;

use super::commands::{Audience, Command, Commands, PATIENTLY, Refused};
use super::waker;
use crate::clock::{Boot, Mono, Now};
use crate::engine::{AcquireCall, Class, RELEASE_TIME, ReleaseCall, ReleaseKind, ReleaseOutcome};
use crate::input::{Lease, Wait, WorkBudget};
use crate::reason::ReasonKind;
use crate::sync::Arc;
use crate::ticket::{Cancel, Condvar, Condvars, Ending, Reply, Slot, Take, Waited};
use crate::wire::Key;
use shuttle::rand::{Rng, thread_rng};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use thread::{Background, Found};

const START: u64 = 1_000_000_000_000;

/// The time, which only the background thread moves. Not a place where a schedule may change.
#[derive(Debug, Clone)]
struct Clock(std::sync::Arc<AtomicU64>);

impl Clock {
    fn now(&self) -> Now {
        let nanos = self.0.load(Ordering::Relaxed);
        Now { mono: Mono(nanos), boot: Boot(nanos) }
    }

    fn mono(&self) -> Mono {
        self.now().mono
    }

    fn set(&self, time: Mono) {
        self.0.fetch_max(time.0, Ordering::Relaxed);
    }
}

/// How a caller's call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Returned {
    /// With this token, whose release ended so; nothing: it was refused.
    Acquired(u64, Option<Option<ReleaseOutcome>>),
    /// With this token, which went to the release lane; false: that was refused.
    GivenBack(u64, bool),
    Ended(Ending),
    Refused(Refused),
}

#[derive(Debug, Clone)]
struct Caller {
    commands: Arc<Commands>,
    /// Everybody's belong to one group.
    condvars: Arc<Condvars>,
    clock: Clock,
    key: Key,
}

impl Caller {
    fn slot(&self, wait: u64, class: Class) -> Arc<Slot> {
        let lease = Lease::new(Duration::from_secs(30)).unwrap();
        let time = Duration::from_secs(if wait == 0 { 5 } else { wait });
        let call = AcquireCall {
            key: self.key,
            wait: Wait::new(Duration::from_secs(wait)).unwrap(),
            lease,
            budget: WorkBudget::new(Duration::ZERO, lease).unwrap(),
            deadline: self.clock.mono() + time,
            class,
        };
        Arc::new(Slot::grouped(call, false, self.condvars.make()))
    }

    /// As `Client::acquire_key`.
    fn acquire(&self, slot: &Arc<Slot>) -> Returned {
        match self.commands.acquire(slot.clone(), PATIENTLY) {
            Ok(()) => {}
            Err(Refused::Ended | Refused::Unreachable) => slot.abandon(),
            Err(refused) => return Returned::Refused(refused),
        }
        loop {
            if slot.wait(|| self.clock.mono(), None) == Waited::Overdue {
                Slot::announce(slot);
                let command = Command::Withdraw(slot.clone(), ReasonKind::Deadline);
                let _ = self.commands.push_last(command, PATIENTLY);
            }
            match slot.take(self.clock.now()) {
                Take::Pending => {}
                Take::Before => panic!("somebody else has taken it"),
                Take::Granted { grant, .. } => {
                    let ended = self.release(grant.token);
                    return Returned::Acquired(grant.token, ended);
                }
                Take::GivenBack { token, .. } => return self.give_back(slot, token),
                Take::Ended(ending) => return Returned::Ended(ending),
            }
        }
    }

    /// As `Client::release_and_wait`.
    fn release(&self, token: u64) -> Option<Option<ReleaseOutcome>> {
        let kind = ReleaseKind::Awaited;
        let deadline = self.clock.mono() + RELEASE_TIME;
        let call = ReleaseCall { key: self.key, token, kind, deadline };
        let reply = Arc::new(Reply::new(self.condvars.make()));
        let command = Command::Release(call, Audience::Caller(reply.clone()));
        match self.commands.push(command, PATIENTLY) {
            Ok(()) | Err(Refused::Unreachable) => {}
            Err(_) => return None,
        }
        // The thread, or its end, always has an answer: in a model no wait ends by itself.
        Some(reply.wait(Mono(u64::MAX)).expect("an answer"))
    }

    fn give_back(&self, slot: &Slot, token: u64) -> Returned {
        let reclaim = crate::ticket::Reclaim { key: slot.call().key, token };
        let pushed = self.commands.push_last(Command::Reclaim(reclaim), PATIENTLY);
        Returned::GivenBack(token, pushed.is_ok())
    }

    /// As `Client::give_up`. A token that came back, and whether its release was refused.
    fn cancel(&self, slot: &Arc<Slot>) -> Option<Returned> {
        match slot.cancel() {
            Cancel::Decided => None,
            Cancel::Withdrawn => {
                Slot::announce(slot);
                let command = Command::Withdraw(slot.clone(), ReasonKind::Cancelled);
                let _ = self.commands.push_last(command, PATIENTLY);
                None
            }
            Cancel::GivenBack { token } => Some(self.give_back(slot, token)),
        }
    }
}

/// What a mix has besides its callers.
#[derive(Debug, Clone, Copy)]
struct Mix {
    callers: usize,
    cancels: bool,
    closes: bool,
    dies: bool,
}

fn run(mix: Mix) {
    let (waker, receiver) = waker::pair().unwrap();
    let commands = Arc::new(Commands::new(waker, 16));
    let clock = Clock(std::sync::Arc::new(AtomicU64::new(START)));
    let die_at = if mix.dies { Some(thread_rng().gen_range(0..60)) } else { None };
    let background = Background::new(commands.clone(), receiver, clock.clone(), die_at);
    let background = shuttle::thread::spawn(move || background.run());
    let condvars = Arc::new(Condvars::new());
    let caller = |name: String| Caller {
        commands: commands.clone(),
        condvars: condvars.clone(),
        clock: clock.clone(),
        key: Key::new(name.as_bytes()).unwrap(),
    };
    let mut threads = Vec::new();
    for number in 0..mix.callers {
        let caller = caller(format!("caller-{number}"));
        let wait = thread_rng().gen_range(0..3);
        threads.push(shuttle::thread::spawn(move || {
            let class = if wait == 0 { Class::Try } else { Class::Blocking };
            let slot = caller.slot(wait, class);
            (caller.key, caller.acquire(&slot))
        }));
    }
    let mut canceller = None;
    if mix.cancels {
        let caller = caller("ticket".to_owned());
        let slot = caller.slot(2, Class::Ticket);
        let (other, its_slot) = (caller.clone(), slot.clone());
        canceller = Some(shuttle::thread::spawn(move || other.cancel(&its_slot)));
        threads.push(shuttle::thread::spawn(move || (caller.key, caller.acquire(&slot))));
    }
    if mix.closes {
        let (commands, clock) = (commands.clone(), clock.clone());
        // Its result is looked at nowhere: only what becomes of the others counts.
        let _ = shuttle::thread::spawn(move || {
            let time = Duration::from_secs(thread_rng().gen_range(0..6));
            let _ = commands.shut(clock.mono() + time, PATIENTLY);
        })
        .join();
    }
    let ready = Arc::new(Reply::new(Condvar::new()));
    let hopeful = commands.push(Command::WaitReady(ready.clone()), PATIENTLY).is_ok();
    if hopeful {
        assert!(ready.wait(Mono(u64::MAX)).is_some(), "no word on readiness");
    }
    let mut returned = BTreeMap::new();
    for thread in threads {
        let (key, how) = thread.join().unwrap();
        assert!(returned.insert(key.as_bytes().to_vec(), how).is_none());
    }
    let cancelled = canceller.and_then(|canceller| canceller.join().unwrap());
    // Nobody is left: whatever still runs may end.
    let _ = commands.shut(Mono(0).max(clock.mono()) + RELEASE_TIME + RELEASE_TIME, PATIENTLY);
    let found = background.join().unwrap();
    check(&found, &returned, cancelled);
    if !found.died {
        // A client that was closed is closed, and nothing else, whoever was late with what.
        assert!(!commands.is_broken(), "closed in good order, and taken for dead");
        assert!(!returned.values().any(|how| *how == Returned::Refused(Refused::Ended)));
        assert_eq!(commands.push(Command::WaitReady(ready), PATIENTLY), Err(Refused::Closed));
    }
}

/// What must be true of every schedule.
fn check(found: &Found, returned: &BTreeMap<Vec<u8>, Returned>, cancelled: Option<Returned>) {
    let mut hands: BTreeMap<u64, u32> = BTreeMap::new();
    let mut unreleased = Vec::new();
    for (key, how) in returned {
        let sent = found.seen.contains(key);
        match how {
            Returned::Acquired(token, release) => {
                *hands.entry(*token).or_default() += 1;
                assert_eq!(found.granted.get(token), Some(key), "another's grant");
                match release {
                    Some(Some(ReleaseOutcome::Released | ReleaseOutcome::NotHeld { .. })) => {
                        assert!(found.freed.contains(token), "released, and the server knows not");
                    }
                    _ => unreleased.push(*token),
                }
            }
            Returned::GivenBack(token, handed) => {
                *hands.entry(*token).or_default() += 1;
                if !handed {
                    unreleased.push(*token);
                }
            }
            Returned::Ended(Ending::TimedOut | Ending::Busy) => assert!(sent, "no answer to it"),
            Returned::Ended(Ending::Indeterminate(_)) => {
                assert!(sent || found.died, "unknown, and nothing was sent");
            }
            // Definite: nothing of it was ever sent.
            Returned::Ended(_) | Returned::Refused(_) => assert!(!sent, "{how:?}, and it was sent"),
        }
    }
    if let Some(Returned::GivenBack(token, handed)) = cancelled {
        *hands.entry(token).or_default() += 1;
        if !handed {
            unreleased.push(token);
        }
    }
    assert!(hands.values().all(|hands| *hands == 1), "a grant in two hands: {hands:?}");
    for token in found.granted.keys() {
        let lost = found.died || found.cut_short || found.undelivered.contains(token);
        let known = found.freed.contains(token) || unreleased.contains(token);
        assert!(known || lost, "token {token} is held by nobody, and was not released");
    }
}

/// Executions of each mix: `MIXES` in the environment, or so many.
fn executions() -> usize {
    std::env::var("MIXES").ok().and_then(|text| text.parse().ok()).unwrap_or(2_000)
}

fn explore(mix: Mix) {
    shuttle::check_random(move || run(mix), executions());
    shuttle::check_pct(move || run(mix), executions(), 3);
}

#[test]
fn three_callers_and_a_close() {
    explore(Mix { callers: 3, cancels: false, closes: true, dies: false });
}

#[test]
fn two_callers_and_a_cancelled_ticket() {
    explore(Mix { callers: 2, cancels: true, closes: false, dies: false });
}

#[test]
fn two_callers_a_cancelled_ticket_and_a_close() {
    explore(Mix { callers: 2, cancels: true, closes: true, dies: false });
}

#[test]
fn host_5_two_callers_a_cancelled_ticket_a_close_and_a_thread_that_dies() {
    explore(Mix { callers: 2, cancels: true, closes: true, dies: true });
}
