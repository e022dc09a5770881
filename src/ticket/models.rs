//! Every order of the threads that meet at a slot, tried one by one.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test --release --lib models`.

use super::*;
use crate::clock::{Boot, Mono, Now};
use crate::engine::{AcquireCall, AcquireOutcome, Class, Gate, Grant, RequestId};
use crate::input::{Lease, Wait, WorkBudget};
use crate::reason::ReasonKind;
use crate::sync::Arc;
use crate::wire::Key;
use loom::thread;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use std::time::Duration;

fn call() -> AcquireCall {
    let lease = Lease::new(Duration::from_secs(10)).unwrap();
    AcquireCall {
        key: Key::new(b"key").unwrap(),
        wait: Wait::new(Duration::from_secs(1)).unwrap(),
        lease,
        budget: WorkBudget::new(Duration::ZERO, lease).unwrap(),
        deadline: Mono(1_000),
        class: Class::Ticket,
    }
}

fn slot() -> Arc<Slot> {
    Arc::new(Slot::new(call(), false))
}

fn granted() -> AcquireOutcome {
    AcquireOutcome::Granted(Grant { token: 5, owner: 1, proof: Boot(0) })
}

/// How often the token of a grant that was made is in somebody's hands at the end.
fn hands(decided: bool, cancelled: Cancel, taken: Take) -> u32 {
    u32::from(!decided)
        + u32::from(matches!(cancelled, Cancel::GivenBack { token: 5 }))
        + u32::from(matches!(taken, Take::Granted { .. }))
}

#[test]
fn snd_5_a_claim_and_a_cancel_agree() {
    loom::model(|| {
        let slot = slot();
        let other = slot.clone();
        let canceller = thread::spawn(move || other.cancel());
        let claimed = slot.claim(Mono(2_000));
        assert_eq!(canceller.join().unwrap(), Cancel::Withdrawn);
        match slot.take(Now::default()) {
            Take::Ended(Ending::Cancelled) => assert!(!claimed),
            Take::Ended(Ending::Indeterminate(reason)) => {
                assert!(claimed);
                assert_eq!(reason.kind, ReasonKind::Cancelled);
            }
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn snd_5_a_cancel_meets_a_frame_that_is_unsent_again() {
    loom::model(|| {
        let slot = slot();
        let other = slot.clone();
        let canceller = thread::spawn(move || other.cancel());
        let sent = slot.claim(Mono(2_000)) && {
            slot.unclaim();
            slot.claim(Mono(2_000))
        };
        assert_eq!(canceller.join().unwrap(), Cancel::Withdrawn);
        let taken = slot.take(Now::default());
        // What was not sent in the end may be called unknown; what was sent is never called unsent.
        assert!(!sent || matches!(taken, Take::Ended(Ending::Indeterminate(_))), "{taken:?}");
    });
}

#[test]
fn snd_5_a_cancel_meets_an_acquire_that_is_answered_busy() {
    loom::model(|| {
        let slot = slot();
        let other = slot.clone();
        let canceller = thread::spawn(move || other.cancel());
        let claimed = slot.claim(Mono(2_000));
        if claimed {
            slot.retry();
        }
        assert_eq!(canceller.join().unwrap(), Cancel::Withdrawn);
        match slot.take(Now::default()) {
            Take::Ended(Ending::Cancelled) => assert!(!claimed, "unsent, and it was sent"),
            Take::Ended(Ending::Busy | Ending::Indeterminate(_)) => assert!(claimed),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_grant_is_taken_or_given_back_once() {
    loom::model(|| {
        let slot = slot();
        assert!(slot.claim(Mono(2_000)));
        let (second, third) = (slot.clone(), slot.clone());
        let canceller = thread::spawn(move || second.cancel());
        let taker = thread::spawn(move || third.take(Now::default()));
        let decided = slot.decide(granted());
        let (cancelled, taken) = (canceller.join().unwrap(), taker.join().unwrap());
        let late = slot.take(Now::default());
        assert_eq!(hands(decided, cancelled, taken) + hands(true, Cancel::Decided, late), 1);
        assert_eq!(slot.take(Now::default()), Take::Before);
    });
}

#[test]
fn dl_7_a_grant_is_taken_or_lapses() {
    loom::model(|| {
        let slot = slot();
        assert!(slot.claim(Mono(2_000)) && slot.decide(granted()));
        let other = slot.clone();
        let taker = thread::spawn(move || other.take(Now::default()));
        let lapsed = slot.lapse();
        match taker.join().unwrap() {
            Take::Granted { grant, .. } => {
                assert_eq!(grant.token, 5);
                assert_eq!(lapsed, None);
            }
            Take::Ended(Ending::Indeterminate(reason)) => {
                assert_eq!(reason.kind, ReasonKind::LateGrant);
                assert_eq!(lapsed, Some(5));
            }
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_grant_is_never_torn() {
    loom::model(|| {
        let slot = slot();
        assert!(slot.claim(Mono(2_000)));
        let other = slot.clone();
        let taker = thread::spawn(move || other.take(Now::default()));
        assert!(slot.decide(granted()));
        match taker.join().unwrap() {
            Take::Pending => {}
            Take::Granted { grant, .. } => assert_eq!((grant.token, grant.owner), (5, 1)),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn whoever_sleeps_is_woken() {
    loom::model(|| {
        let slot = slot();
        let other = slot.clone();
        // A wait never times out here: if the wake were lost the model would be stuck.
        let waiter = thread::spawn(move || {
            assert_eq!(other.wait(|| Mono(0), None), Waited::Decided);
            other.take(Now::default())
        });
        assert!(slot.claim(Mono(2_000)) && slot.decide(AcquireOutcome::TimedOut));
        Slot::announce(&slot);
        assert_eq!(waiter.join().unwrap(), Take::Ended(Ending::TimedOut));
    });
}

#[test]
fn whoever_sleeps_is_woken_by_a_cancel() {
    loom::model(|| {
        let slot = slot();
        let other = slot.clone();
        let waiter = thread::spawn(move || other.wait(|| Mono(0), None));
        assert_eq!(slot.cancel(), Cancel::Withdrawn);
        Slot::announce(&slot);
        assert_eq!(waiter.join().unwrap(), Waited::Decided);
    });
}

#[test]
fn host_6_whoever_lists_itself_is_woken_by_the_end() {
    for sent in [false, true] {
        loom::model(move || {
            let slot = slot();
            assert!(!sent || slot.claim(Mono(2_000)));
            let sleepers = Arc::new(Sleepers::new());
            let (other, list) = (slot.clone(), sleepers.clone());
            let waiter = thread::spawn(move || {
                let _listed = list.list(Sleeper::Acquire(other.clone()));
                other.wait(|| Mono(0), None)
            });
            sleepers.end();
            assert_eq!(waiter.join().unwrap(), Waited::Decided);
            match slot.take(Now::default()) {
                Take::Ended(Ending::Cancelled) => assert!(!sent),
                Take::Ended(Ending::Indeterminate(_)) => assert!(sent),
                other => panic!("{other:?}"),
            }
        });
    }
}

#[test]
fn host_6_the_callers_limit_and_the_answer_make_one_result() {
    loom::model(|| {
        let slot = slot();
        assert!(slot.claim(Mono(1)));
        let other = slot.clone();
        let expirer = thread::spawn(move || other.expire(Mono(u64::MAX)));
        let decided = slot.decide(granted());
        let expired = expirer.join().unwrap();
        assert_ne!(decided, expired);
        let taken = slot.take(Now::default());
        assert_eq!(matches!(taken, Take::Granted { .. }), decided);
    });
}

fn readable(fd: i32) -> bool {
    let mut poll = Poll::new().unwrap();
    poll.registry().register(&mut SourceFd(&fd), Token(0), Interest::READABLE).unwrap();
    let mut events = Events::with_capacity(1);
    poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
    !events.is_empty()
}

#[test]
fn a_descriptor_is_readable_if_and_only_if_a_result_is_untaken() {
    loom::model(|| {
        let slot = slot();
        let (second, third) = (slot.clone(), slot.clone());
        let decider = thread::spawn(move || {
            assert!(second.decide(AcquireOutcome::Busy));
            second.wake();
        });
        let taker = thread::spawn(move || third.take(Now::default()));
        let fd = slot.fd().unwrap();
        decider.join().unwrap();
        let taken = taker.join().unwrap() != Take::Pending;
        assert_eq!(readable(fd), !taken);
    });
}

#[test]
fn a_completed_ticket_comes_or_is_gone() {
    loom::model(|| {
        let completions = Arc::new(Completions::new());
        let hook = Hook { completions: completions.clone(), tag: 9 };
        let slot = Arc::new(Slot::hooked(call(), false, Condvar::new(), hook));
        let (second, third) = (slot.clone(), slot.clone());
        let decider = thread::spawn(move || {
            assert!(second.decide(AcquireOutcome::Busy));
            Slot::announce(&second);
        });
        let reader = completions.clone();
        let fetcher = thread::spawn(move || reader.next());
        third.unlist();
        decider.join().unwrap();
        fetcher.join().unwrap();
        assert_eq!(completions.next(), None, "it came after its ticket was dropped");
    });
}

#[test]
fn host_6_whoever_cannot_have_the_completions_leaves_nothing_behind() {
    for dropped in [false, true] {
        loom::model(move || {
            let completions = Arc::new(Completions::new());
            let hook = Hook { completions: completions.clone(), tag: 9 };
            let slot = Arc::new(Slot::hooked(call(), false, Condvar::new(), hook));
            let mut desk = Desk::new();
            desk.admit(RequestId::unpack(0), slot.clone());
            // Each of the three may find that another one has the lock.
            let decider = thread::spawn(move || {
                assert!(desk.complete(RequestId::unpack(0), AcquireOutcome::Busy).is_none());
                desk.tell();
                desk
            });
            let reader = completions.clone();
            let fetcher = thread::spawn(move || reader.next());
            if dropped {
                slot.unlist();
            }
            let mut desk = decider.join().unwrap();
            let fetched = fetcher.join().unwrap();
            desk.tell();
            assert!(!desk.is_behind());
            let left = completions.next();
            if dropped {
                assert_eq!(left, None, "it came after its ticket was dropped");
            } else {
                assert_eq!(u32::from(fetched == Some(9)) + u32::from(left == Some(9)), 1);
            }
            drop((slot, desk));
            assert_eq!(Arc::strong_count(&completions), 1, "no cycle keeps anything");
        });
    }
}

#[test]
fn a_reply_reaches_whoever_waits() {
    loom::model(|| {
        let reply = Arc::new(Reply::new(Condvar::new()));
        let other = reply.clone();
        let waiter = thread::spawn(move || other.wait(Mono(0)));
        reply.give(true);
        reply.give(false);
        assert_eq!(waiter.join().unwrap(), Some(true));
    });
}

#[test]
fn a_pooled_slot_is_used_again_only_when_nobody_else_knows_it() {
    loom::model(|| {
        let pool = Pool::new();
        let slot = slot();
        let mut desk = Desk::new();
        let id = RequestId::unpack(0);
        desk.admit(id, slot.clone());
        assert!(desk.claim(id, Mono(2_000)));
        let thread = thread::spawn(move || {
            assert!(desk.complete(id, AcquireOutcome::Busy).is_none());
            desk.tell();
        });
        assert_eq!(slot.wait(|| Mono(0), None), Waited::Decided);
        assert_eq!(slot.take(Now::default()), Take::Ended(Ending::Busy));
        pool.put(slot);
        if let Some(slot) = pool.take(|slot| slot.renew(call(), false)) {
            assert_eq!(slot.take(Now::default()), Take::Pending);
        }
        thread.join().unwrap();
    });
}
