//! How a slot moves, step by step.

use super::*;

/// What ends an acquire from the caller's side.
type End = fn(&Slot);

#[test]
fn snd_5_what_was_answered_busy_ends_busy_whoever_ends_it_before_it_is_sent_again() {
    let ways: [End; 4] = [
        |slot| assert_eq!(slot.cancel(), Cancel::Withdrawn),
        Slot::close,
        Slot::abandon,
        |slot| assert!(slot.expire(Mono(2_000 * MS))),
    ];
    for end in ways {
        let mut desk = Desk::new();
        let slot = Arc::new(slot(1_000));
        desk.admit(id(0), slot.clone());
        for _ in 0..2 {
            assert!(desk.claim(id(0), Mono(1)));
            desk.retry(id(0));
        }
        end(&slot);
        assert_eq!(slot.take(at(0)), Take::Ended(Ending::Busy));
    }
}

#[test]
fn snd_5_what_was_answered_busy_and_is_sent_again_is_unknown() {
    let ways: [(End, ReasonKind); 3] = [
        (|slot| assert_eq!(slot.cancel(), Cancel::Withdrawn), ReasonKind::Cancelled),
        (Slot::close, ReasonKind::Closed),
        (Slot::abandon, ReasonKind::ThreadEnded),
    ];
    for (end, kind) in ways {
        let mut desk = Desk::new();
        let slot = Arc::new(slot(1_000));
        desk.admit(id(0), slot.clone());
        assert!(desk.claim(id(0), Mono(1)));
        desk.retry(id(0));
        assert!(desk.claim(id(0), Mono(1)));
        end(&slot);
        assert_eq!(slot.take(at(0)), unknown(kind));
    }
}

#[test]
fn dl_3_a_sleeping_caller_is_told_that_its_acquire_is_unsent_again() {
    for unsend in [<Desk as Gate>::unclaim, Desk::retry] {
        let start = sys::mono();
        let mut desk = Desk::new();
        let slot = Arc::new(Slot::new(call(start + ms(30), 10, 4), false));
        desk.admit(id(0), slot.clone());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| slot.wait(sys::mono, None));
            while !waiter.is_finished() {
                // It may fall asleep while this holds, for as long as this says.
                desk.claim(id(0), start + Duration::from_secs(60));
                unsend(&mut desk, id(0));
                desk.tell();
                std::thread::yield_now();
            }
            assert_eq!(waiter.join().unwrap(), Waited::Overdue);
        });
        assert!(sys::mono().since(start) < Duration::from_secs(30));
    }
}

#[test]
fn what_is_decided_is_decided() {
    let slot = slot(1_000);
    assert!(slot.claim(Mono(1)));
    assert!(slot.decide(granted(5, 0)));
    assert!(!slot.decide(AcquireOutcome::TimedOut));
    assert!(!slot.unclaim() && !slot.claim(Mono(1)));
    slot.abandon();
    assert!(matches!(slot.take(at(0)), Take::Granted { grant: Grant { token: 5, .. }, .. }));
    assert!(!slot.decide(AcquireOutcome::TimedOut), "nor after it was taken");
}

#[test]
fn dl_7_a_grant_is_judged_by_the_time_after_it_was_taken() {
    let slot = slot(1_000);
    assert!(slot.decide(granted(5, 0)));
    let looks = AtomicU32::new(0);
    let clock = || {
        assert_eq!(slot.take(at(0)), Take::Before);
        looks.fetch_add(1, Ordering::Relaxed);
        at(1_001)
    };
    let reason = Reason::new(ReasonKind::LateGrant);
    assert_eq!(slot.take_by(clock), Take::GivenBack { token: 5, reason });
    assert_eq!(looks.into_inner(), 1);
}

#[test]
fn a_close_recalls_the_grants_that_nobody_has_taken() {
    let mut desk = Desk::new();
    let slots = [1u64, 2, 3].map(|token| {
        let slot = Arc::new(slot(1_000));
        desk.admit(id(0), slot.clone());
        assert!(desk.complete(id(0), granted(token, 0)).is_none());
        slot
    });
    assert!(matches!(slots[1].take(at(0)), Take::Granted { .. }));
    let mut tokens: Vec<u64> =
        std::iter::from_fn(|| desk.recall()).map(|back| back.token).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, [1, 3]);
    assert_eq!(slots[0].take(at(0)), unknown(ReasonKind::Closed));
    assert_eq!(slots[1].take(at(0)), Take::Before);
}

#[test]
fn host_5_an_end_of_the_thread_ends_all_that_the_desk_knows() {
    let mut desk = Desk::new();
    let slots = [0, 3].map(|index| {
        let slot = Arc::new(slot(1_000));
        desk.admit(id(index), slot.clone());
        slot
    });
    assert!(desk.claim(id(3), Mono(1)));
    desk.abandon();
    assert_eq!(slots[0].take(at(0)), Take::Ended(Ending::ThreadEnded));
    assert_eq!(slots[1].take(at(0)), unknown(ReasonKind::ThreadEnded));
    assert_eq!(desk.withdraw(&slots[0]), None, "they are forgotten");
}

#[test]
fn clo_1_a_poll_that_comes_50_ms_late_may_have_stood_still() {
    let slot = slot(1_000);
    assert!(slot.claim(Mono(1_700 * MS)));
    assert!(!slot.expire_polled(Mono(1_800 * MS)));
    assert!(!slot.expire_polled(Mono(1_850 * MS - 1)));
    assert!(slot.expire_polled(Mono(1_850 * MS)));
}

#[test]
fn host_6_a_blocked_caller_sleeps() {
    let start = sys::mono();
    let slot = Slot::new(call(start + ms(50), 10, 4), false);
    let looks = AtomicU32::new(0);
    let clock = || {
        looks.fetch_add(1, Ordering::Relaxed);
        sys::mono()
    };
    assert_eq!(slot.wait(clock, None), Waited::Overdue);
    assert!(sys::mono().since(start) >= ms(70));
    assert!(
        looks.into_inner() < 100,
        "it looks at the clock when it is woken, and not all the time"
    );
}

#[test]
fn clo_1_a_caller_that_wakes_long_after_its_limit_waits_for_answers_to_be_read() {
    let start = sys::mono();
    let long_ago = Mono(start.0 - 200 * MS);
    let slot = Slot::new(call(long_ago, 10, 4), false);
    assert_eq!(slot.wait(sys::mono, None), Waited::Overdue);
    assert!(sys::mono().since(start) >= ms(50));
}

#[test]
fn host_6_a_caller_that_wakes_in_time_gives_up_at_once() {
    // Under load some wake late; all of them would only if they waited for something.
    let in_time = (0..100).any(|_| {
        let start = sys::mono();
        let slot = Slot::new(call(start, 10, 4), false);
        assert_eq!(slot.wait(sys::mono, None), Waited::Overdue);
        sys::mono().since(start) < ms(20 + 40)
    });
    assert!(in_time);
}

#[test]
fn gr_4_what_is_just_enough_is_handed_over() {
    // A lease of 10 s less what has passed, a thousandth of that and 1 ms: 1 ms, and 4 s.
    for (enforce, elapsed) in [(false, 9_988_011_989), (true, 5_993_006_994)] {
        for (more, kept) in [(0, true), (1, false)] {
            let slot = Slot::new(call(Mono(1_000 * MS), 10, 4), enforce);
            assert!(slot.decide(granted(5, 0)));
            let now = Now { mono: Mono(0), boot: Boot(elapsed + more) };
            assert_eq!(matches!(slot.take(now), Take::Granted { .. }), kept, "{elapsed} {more}");
        }
    }
}

#[test]
fn host_6_a_caller_that_was_woken_for_nothing_is_woken_again() {
    let slot = Slot::new(call(sys::mono() + Duration::from_secs(60), 10, 4), false);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| slot.wait(sys::mono, None));
        // Time to fall asleep: not needed for the test to pass.
        std::thread::sleep(ms(10));
        slot.wake();
        std::thread::sleep(ms(10));
        assert!(slot.decide(AcquireOutcome::Busy));
        slot.wake();
        assert_eq!(waiter.join().unwrap(), Waited::Decided);
    });
}
