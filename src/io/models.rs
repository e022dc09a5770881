//! Every order of a caller that pushes and the thread that falls asleep, or ends.

use super::commands::{Command, Commands, PATIENTLY, Refused};
use super::waker;
use crate::clock::Mono;
use crate::reason::ReasonKind;
use crate::sync::Arc;
use crate::ticket::{Condvar, Reply};
use loom::thread;
use std::collections::VecDeque;

fn commands() -> (Arc<Commands>, waker::WakeReceiver) {
    let (waker, receiver) = waker::pair().unwrap();
    (Arc::new(Commands::new(waker, 16)), receiver)
}

fn push(commands: &Commands) -> Result<(), Refused> {
    commands.push(Command::WaitReady(Arc::new(Reply::new(Condvar::new()))), PATIENTLY)
}

#[test]
fn the_thread_never_sleeps_on_a_command_without_a_wake() {
    loom::model(|| {
        let (commands, receiver) = commands();
        let pushers: Vec<_> = (0..2)
            .map(|_| {
                let commands = commands.clone();
                thread::spawn(move || push(&commands).unwrap())
            })
            .collect();
        // One turn of the thread's: it takes what is there, and sleeps if it may.
        let mut batch = VecDeque::new();
        commands.take(&mut batch, 0);
        let asleep = commands.may_sleep(0);
        for pusher in pushers {
            pusher.join().unwrap();
        }
        let taken = batch.len();
        let waits = 2 - taken;
        if asleep && waits > 0 {
            assert!(receiver.is_woken(), "asleep, and nobody woke it");
        }
        batch.clear();
        commands.take(&mut batch, 0);
        assert_eq!(batch.len(), waits);
    });
}

#[test]
fn host_5_what_is_pushed_is_handed_over_or_refused_when_the_thread_ends() {
    loom::model(|| {
        let (commands, _receiver) = commands();
        let other = commands.clone();
        let pusher = thread::spawn(move || push(&other));
        let left = commands.end(PATIENTLY).unwrap().len();
        match pusher.join().unwrap() {
            Ok(()) => assert_eq!(left, 1),
            Err(refused) => assert!(refused == Refused::Ended && left == 0),
        }
    });
}

#[test]
fn rel_6_a_release_that_was_taken_is_not_left_behind_by_an_orderly_end() {
    loom::model(|| {
        let (commands, _receiver) = commands();
        commands.shut(Mono(0), PATIENTLY).unwrap();
        let mut batch = VecDeque::new();
        commands.take(&mut batch, 0);
        let other = commands.clone();
        let pusher = thread::spawn(move || {
            let reply = Command::WaitReady(Arc::new(Reply::new(Condvar::new())));
            other.push_last(reply, PATIENTLY).is_ok()
        });
        let ended = commands.end_if_idle();
        let taken = pusher.join().unwrap();
        assert!(!(ended && taken), "it ended over a command that it had taken");
        assert!(commands.acquire(slot(), PATIENTLY).is_err());
    });
}

fn slot() -> Arc<crate::ticket::Slot> {
    use crate::engine::{AcquireCall, Class};
    use crate::input::{Lease, Wait, WorkBudget};
    use std::time::Duration;
    let lease = Lease::new(Duration::from_secs(10)).unwrap();
    let call = AcquireCall {
        key: crate::wire::Key::new(b"key").unwrap(),
        wait: Wait::new(Duration::ZERO).unwrap(),
        lease,
        budget: WorkBudget::new(Duration::ZERO, lease).unwrap(),
        deadline: Mono(1_000),
        class: Class::Try,
    };
    Arc::new(crate::ticket::Slot::new(call, false))
}

#[test]
fn con_7_the_queue_never_holds_more_than_its_limit() {
    loom::model(|| {
        let (waker, _receiver) = waker::pair().unwrap();
        let commands = Arc::new(Commands::new(waker, 1));
        let other = commands.clone();
        let pusher = thread::spawn(move || other.acquire(slot(), PATIENTLY).is_ok());
        let mut batch = VecDeque::new();
        // The thread takes an acquire, and the engine keeps it unsent.
        commands.take(&mut batch, 0);
        let unsent = batch.len();
        let second = commands.acquire(slot(), PATIENTLY).is_ok();
        let first = pusher.join().unwrap();
        assert!(u32::from(first) + u32::from(second) == 1, "{first} {second} {unsent}");
        let withdrawn = Command::Withdraw(slot(), ReasonKind::Cancelled);
        assert!(commands.push_last(withdrawn, PATIENTLY).is_ok(), "what ends something gets in");
    });
}
