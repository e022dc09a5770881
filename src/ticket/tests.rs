//! The slot, the desk and the completion queue, each with time that the test makes up.

use super::*;
use crate::clock::{Boot, Mono, Now};
use crate::engine::{AcquireCall, AcquireOutcome, Class, Gate, Grant, RequestId};
use crate::input::{Lease, Wait, WorkBudget};
use crate::io::sys;
use crate::reason::{Reason, ReasonKind};
use crate::wire::Key;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

mod keeping;
mod moves;
mod stopped;

const MS: u64 = 1_000_000;

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Both clocks at `count` milliseconds.
fn at(count: u64) -> Now {
    Now { mono: Mono(count * MS), boot: Boot(count * MS) }
}

fn call(deadline: Mono, lease: u64, budget: u64) -> AcquireCall {
    let lease = Lease::new(Duration::from_secs(lease)).unwrap();
    AcquireCall {
        key: Key::new(b"key").unwrap(),
        wait: Wait::new(Duration::from_secs(1)).unwrap(),
        lease,
        budget: WorkBudget::new(Duration::from_secs(budget), lease).unwrap(),
        deadline,
        class: Class::Blocking,
    }
}

/// A slot with a deadline at `deadline` milliseconds, a lease of 10 s and a budget of 4 s.
fn slot(deadline: u64) -> Slot {
    Slot::new(call(Mono(deadline * MS), 10, 4), false)
}

fn granted(token: u64, proof: u64) -> AcquireOutcome {
    AcquireOutcome::Granted(Grant { token, owner: token + 100, proof: Boot(proof * MS) })
}

fn id(index: u32) -> RequestId {
    RequestId::unpack(u64::from(index) | 7 << 32)
}

fn unknown(kind: ReasonKind) -> Take {
    Take::Ended(Ending::Indeterminate(Reason::new(kind)))
}

fn readable(fd: i32) -> bool {
    let mut poll = Poll::new().unwrap();
    poll.registry().register(&mut SourceFd(&fd), Token(0), Interest::READABLE).unwrap();
    let mut events = Events::with_capacity(1);
    poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
    !events.is_empty()
}

#[test]
fn dl_7_a_grant_is_handed_over_up_to_its_deadline_and_never_after() {
    let on_time = slot(1000);
    assert!(on_time.decide(granted(5, 0)));
    let Take::Granted { grant, remaining } = on_time.take(at(1000)) else { panic!("not granted") };
    assert_eq!((grant.token, grant.owner), (5, 105));
    assert_eq!(remaining, ms(9000) - ms(1) - ms(1));
    assert_eq!(on_time.take(at(1000)), Take::Before);

    let late = slot(1000);
    assert!(late.decide(granted(5, 0)));
    let after = Now { mono: Mono(1000 * MS + 1), ..at(1000) };
    let reason = Reason::new(ReasonKind::LateGrant);
    assert_eq!(late.take(after), Take::GivenBack { token: 5, reason });
    assert_eq!(late.take(after), Take::Before);
}

#[test]
fn gr_4_a_grant_of_which_nothing_remains_is_given_back() {
    let reason = Reason::new(ReasonKind::ShortLease);
    // A lease of 10 s, 9.989 s ago: 11 ms less the clocks' error and a millisecond is under one.
    for (boot, kept) in [(9_988, true), (9_989, false), (20_000, false)] {
        let slot = slot(1_000);
        assert!(slot.decide(granted(5, 0)));
        let now = Now { mono: Mono(0), boot: Boot(boot * MS) };
        match slot.take(now) {
            Take::Granted { remaining, .. } => assert!(kept && remaining >= ms(1), "{boot}"),
            other => assert!(!kept && other == Take::GivenBack { token: 5, reason }, "{boot}"),
        }
    }
}

#[test]
fn gr_4_with_enforce_budget_less_than_the_budget_is_given_back() {
    for (enforce, boot, kept) in [(true, 5_990, true), (true, 5_995, false), (false, 5_995, true)] {
        let slot = Slot::new(call(Mono(1_000 * MS), 10, 4), enforce);
        assert!(slot.decide(granted(5, 0)));
        let now = Now { mono: Mono(0), boot: Boot(boot * MS) };
        assert_eq!(matches!(slot.take(now), Take::Granted { .. }), kept, "{enforce} {boot}");
    }
}

#[test]
fn gr_3_the_remainder_is_measured_on_the_boot_clock() {
    let slot = slot(1_000);
    assert!(slot.decide(granted(5, 1_000)));
    // The machine slept: the boot clock went on, the monotonic one did not.
    let now = Now { mono: Mono(0), boot: Boot(4_000 * MS) };
    let Take::Granted { remaining, .. } = slot.take(now) else { panic!("not granted") };
    assert_eq!(remaining, ms(7_000) - ms(3) - ms(1));
}

#[test]
fn snd_5_cancelling_what_is_unsent_is_definite() {
    let slot = slot(1_000);
    assert_eq!(slot.cancel(), Cancel::Withdrawn);
    assert_eq!(slot.cancel(), Cancel::Decided);
    assert!(!slot.claim(Mono(1)), "it may not be sent any more");
    assert!(!slot.decide(AcquireOutcome::TimedOut));
    assert_eq!(slot.take(at(0)), Take::Ended(Ending::Cancelled));
}

#[test]
fn snd_5_cancelling_what_may_have_been_sent_is_unknown() {
    let slot = slot(1_000);
    assert!(slot.claim(Mono(1)));
    assert_eq!(slot.cancel(), Cancel::Withdrawn);
    assert!(!slot.decide(granted(5, 0)), "a grant comes too late: its token is to be released");
    assert_eq!(slot.take(at(0)), unknown(ReasonKind::Cancelled));
}

#[test]
fn snd_5_cancelling_an_untaken_grant_gives_its_token_back() {
    let slot = slot(1_000);
    assert!(slot.claim(Mono(1)));
    assert!(slot.decide(granted(5, 0)));
    assert_eq!(slot.cancel(), Cancel::GivenBack { token: 5 });
    assert_eq!(slot.take(at(0)), unknown(ReasonKind::Cancelled));
}

#[test]
fn snd_5_an_answer_that_was_read_stands() {
    for (outcome, ending) in [
        (AcquireOutcome::TimedOut, Ending::TimedOut),
        (AcquireOutcome::Busy, Ending::Busy),
        (AcquireOutcome::OwnerExhausted, Ending::OwnerExhausted),
        (AcquireOutcome::Cancelled, Ending::Cancelled),
    ] {
        let slot = slot(1_000);
        assert!(slot.claim(Mono(1)));
        assert!(slot.decide(outcome));
        assert_eq!(slot.cancel(), Cancel::Decided);
        assert_eq!(slot.take(at(5_000)), Take::Ended(ending), "late or not (DL-8)");
    }
}

#[test]
fn reasons_reach_the_caller() {
    let reason = Reason::new(ReasonKind::Connect).at(3).with_os_error(Some(111));
    for (outcome, ending) in [
        (AcquireOutcome::NotSent(reason), Ending::NotSent(Some(reason))),
        (AcquireOutcome::Indeterminate(reason), Ending::Indeterminate(reason)),
        (AcquireOutcome::Auth(reason), Ending::Auth(reason)),
    ] {
        let slot = slot(1_000);
        assert!(slot.decide(outcome));
        assert_eq!(slot.take(at(0)), Take::Ended(ending));
    }
}

#[test]
fn host_6_the_caller_gives_up_by_itself_just_after_the_instant_that_is_due() {
    let unsent = slot(1_000);
    assert!(!unsent.expire(Mono(1_019 * MS)));
    assert!(unsent.expire(Mono(1_020 * MS)));
    assert!(!unsent.expire(Mono(1_020 * MS)), "once");
    assert_eq!(unsent.take(at(1_020)), Take::Ended(Ending::NotSent(None)));

    let sent = slot(1_000);
    assert!(sent.claim(Mono(1_700 * MS)));
    assert!(!sent.expire(Mono(1_749 * MS)));
    assert!(sent.expire(Mono(1_750 * MS)));
    assert_eq!(sent.take(at(1_750)), unknown(ReasonKind::Deadline));
}

#[test]
fn clo_1_a_caller_that_polls_after_a_standstill_waits_for_answers_to_be_read() {
    let sent = slot(1_000);
    assert!(sent.claim(Mono(1_700 * MS)));
    // One that polls all the time finds its limit over at once.
    assert!(!sent.expire_polled(Mono(1_749 * MS)));
    // The process was stopped from here on.
    assert!(!sent.expire_polled(Mono(9_000 * MS)));
    assert!(!sent.expire_polled(Mono(9_049 * MS)));
    assert!(sent.decide(AcquireOutcome::TimedOut));
    assert_eq!(sent.take(at(9_049)), Take::Ended(Ending::TimedOut));

    let silent = slot(1_000);
    assert!(silent.claim(Mono(1_700 * MS)));
    assert!(!silent.expire_polled(Mono(9_000 * MS)));
    assert!(silent.expire_polled(Mono(9_050 * MS)));
    assert_eq!(silent.take(at(9_050)), unknown(ReasonKind::Deadline));

    let prompt = slot(1_000);
    assert!(prompt.claim(Mono(1_700 * MS)));
    assert!(prompt.expire_polled(Mono(1_799 * MS)));
}

#[test]
fn dl_8_what_was_answered_busy_is_busy_when_its_time_is_over_unsent() {
    let slot = slot(1_000);
    assert!(slot.claim(Mono(1_700 * MS)));
    assert!(!slot.retry(), "nobody sleeps");
    assert!(slot.expire(Mono(1_020 * MS)));
    assert_eq!(slot.take(at(1_020)), Take::Ended(Ending::Busy));
}

#[test]
fn host_6_a_blocked_caller_returns_though_the_background_thread_does_nothing() {
    for (sent, least, most) in [(false, 70, 150), (true, 130, 220)] {
        let start = sys::mono();
        let slot = Slot::new(call(start + ms(50), 10, 4), false);
        if sent {
            assert!(slot.claim(start + ms(80)));
        }
        assert_eq!(slot.wait(sys::mono, None), Waited::Overdue);
        let took = sys::mono().since(start);
        assert!(took >= ms(least), "{took:?}");
        // The promise is 100 ms; the rest is for a machine under load.
        assert!(took <= ms(most + 2_000), "{took:?}");
    }
}

#[test]
fn a_wait_that_is_to_be_short_leaves_all_as_it_was() {
    let start = sys::mono();
    let slot = Slot::new(call(start + Duration::from_secs(600), 10, 4), false);
    assert_eq!(slot.wait(sys::mono, Some(ms(30))), Waited::Paused);
    assert!(sys::mono().since(start) >= ms(30));
    assert!(slot.claim(start + Duration::from_secs(600)));
    assert!(slot.decide(AcquireOutcome::TimedOut));
    assert_eq!(slot.wait(sys::mono, Some(ms(30))), Waited::Decided);
}

#[test]
fn closing_ends_what_has_no_result_as_far_as_it_is_known() {
    let unsent = slot(1_000);
    unsent.close();
    assert_eq!(unsent.take(at(0)), Take::Ended(Ending::Cancelled));
    assert!(!unsent.claim(Mono(1)), "it is not sent afterwards");
    let sent = slot(1_000);
    assert!(sent.claim(Mono(1)));
    sent.close();
    // Its grant finds nobody, and goes back.
    assert!(!sent.decide(granted(9, 0)));
    let unknown = Ending::Indeterminate(Reason::new(ReasonKind::Closed));
    assert_eq!(sent.take(at(0)), Take::Ended(unknown));
    let decided = slot(1_000);
    assert!(decided.claim(Mono(1)) && decided.decide(granted(9, 0)));
    decided.close();
    assert!(matches!(decided.take(at(0)), Take::Granted { .. }));
}

#[test]
fn host_6_whoever_sleeps_when_all_are_woken_or_afterwards_is_woken() {
    let sleepers = Sleepers::new();
    let slots = [slot(1_000), slot(1_000), slot(1_000)].map(Arc::new);
    let reply = Arc::new(Reply::new(Condvar::new()));
    let early = sleepers.list(Sleeper::Acquire(slots[0].clone()));
    let gone = sleepers.list(Sleeper::Acquire(slots[1].clone()));
    let hopeful = sleepers.list(Sleeper::Ready(reply.clone()));
    drop(gone);
    sleepers.end();
    assert!(slots[0].is_decided() && !slots[1].is_decided());
    assert_eq!(reply.wait(Mono(0)), Some(Readiness::Closed));
    assert!(!slots[2].is_decided());
    let late = sleepers.list(Sleeper::Acquire(slots[2].clone()));
    assert!(slots[2].is_decided());
    drop((early, hopeful, late));
    assert!(slots.iter().all(|slot| Arc::strong_count(slot) == 1), "the list keeps nobody");
}

#[test]
fn a_blocked_caller_is_woken_by_every_kind_of_end() {
    let ends: [fn(&Slot) -> bool; 5] = [
        |slot| slot.decide(AcquireOutcome::TimedOut),
        |slot| slot.decide(granted(1, 0)),
        |slot| slot.cancel() == Cancel::Withdrawn,
        |slot| {
            slot.abandon();
            true
        },
        |slot| {
            slot.close();
            true
        },
    ];
    for end in ends {
        let slot = Arc::new(Slot::new(call(sys::mono() + Duration::from_secs(600), 10, 4), false));
        std::thread::scope(|scope| {
            let waiters: Vec<_> =
                (0..3).map(|_| scope.spawn(|| slot.wait(sys::mono, None))).collect();
            assert!(end(&slot));
            slot.wake();
            for waiter in waiters {
                assert_eq!(waiter.join().unwrap(), Waited::Decided, "its own limit is far away");
            }
        });
    }
}

#[test]
fn dl_3_a_frame_of_which_nothing_left_is_unsent_again_and_its_caller_waits_less() {
    let start = sys::mono();
    let slot = Slot::new(call(start + ms(30), 10, 4), false);
    assert!(slot.claim(start + Duration::from_secs(600)));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| slot.wait(sys::mono, None));
        while !slot.unclaim() {
            // Not asleep yet: nobody would have to be woken.
            assert!(slot.claim(start + Duration::from_secs(600)));
            std::thread::yield_now();
        }
        slot.wake();
        assert_eq!(waiter.join().unwrap(), Waited::Overdue);
    });
    assert_eq!(slot.take(sys::now()), Take::Ended(Ending::NotSent(None)));
}

#[test]
fn a_grant_is_taken_or_given_back_once_whoever_tries() {
    for _ in 0..200 {
        let slot = slot(1_000);
        assert!(slot.claim(Mono(1)));
        let ended = AtomicU32::new(0);
        let count = |one: bool| ended.fetch_add(u32::from(one), Ordering::Relaxed);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    slot.wait(|| Mono(0), None);
                    count(matches!(slot.take(at(0)), Take::Granted { .. }));
                });
            }
            scope.spawn(|| count(matches!(slot.cancel(), Cancel::GivenBack { .. })));
            count(!slot.decide(granted(9, 0)));
            slot.wake();
        });
        assert_eq!(ended.into_inner(), 1);
        assert_eq!(slot.take(at(0)), Take::Before);
    }
}

#[test]
fn when_the_thread_ends_what_was_unsent_is_known_to_be() {
    let (unsent, sent, answered) = (slot(1_000), slot(1_000), slot(1_000));
    assert!(sent.claim(Mono(1)));
    let reason = Reason::new(ReasonKind::Eof).at(1);
    assert!(answered.decide(AcquireOutcome::Indeterminate(reason)));
    for slot in [&unsent, &sent, &answered] {
        slot.abandon();
    }
    assert_eq!(unsent.take(at(0)), Take::Ended(Ending::ThreadEnded));
    assert_eq!(sent.take(at(0)), unknown(ReasonKind::ThreadEnded));
    assert_eq!(answered.take(at(0)), Take::Ended(Ending::Indeterminate(reason)));
}

#[test]
fn the_desk_moves_slots_by_their_ids() {
    let mut desk = Desk::new();
    let (first, second) = (Arc::new(slot(1_000)), Arc::new(slot(1_000)));
    desk.admit(id(0), first.clone());
    desk.admit(id(3), second.clone());
    assert!(desk.claim(id(0), Mono(1)));
    assert!(!desk.claim(id(1), Mono(1)), "an id that is not there");
    assert!(!desk.claim(RequestId::unpack(8 << 32), Mono(1)), "an older id of the same place");
    desk.unclaim(id(0));
    assert!(desk.claim(id(0), Mono(1)), "it was unsent again");
    assert!(desk.complete(id(0), AcquireOutcome::Busy).is_none());
    assert_eq!(first.take(at(0)), Take::Ended(Ending::Busy));
    assert_eq!(desk.withdraw(&first), None, "the engine has ended it");

    assert_eq!(second.cancel(), Cancel::Withdrawn);
    assert_eq!(desk.withdraw(&second), Some(id(3)));
    assert_eq!(desk.withdraw(&second), None);
}

#[test]
fn snd_5_a_grant_for_a_slot_that_was_given_up_comes_back() {
    let mut desk = Desk::new();
    let slot = Arc::new(slot(1_000));
    desk.admit(id(0), slot.clone());
    assert!(desk.claim(id(0), Mono(1)));
    assert_eq!(slot.cancel(), Cancel::Withdrawn);
    let reclaim = desk.complete(id(0), granted(77, 0)).unwrap();
    assert_eq!((reclaim.token, reclaim.key.as_str()), (77, "key"));
    assert_eq!(desk.next_timeout(), None);
}

#[test]
fn dl_7_an_untaken_grant_lapses_at_its_deadline_and_not_when_somebody_looks() {
    let mut desk = Desk::new();
    for (index, deadline) in [(0, 300), (1, 100), (2, 200)] {
        let slot = Arc::new(slot(deadline));
        desk.admit(id(index), slot);
        assert!(desk.complete(id(index), granted(deadline, 0)).is_none());
    }
    assert_eq!(desk.next_timeout(), Some(Mono(100 * MS + 1)));
    assert!(desk.lapsed(Mono(100 * MS)).is_none(), "taken at its deadline it would count");
    assert_eq!(desk.lapsed(Mono(100 * MS + 1)).unwrap().token, 100);
    assert!(desk.lapsed(Mono(100 * MS + 1)).is_none());
    // The machine stood still for a while.
    let late = [desk.lapsed(Mono(900 * MS)), desk.lapsed(Mono(900 * MS))];
    assert_eq!(late.map(|reclaim| reclaim.unwrap().token), [200, 300]);
    assert!(desk.lapsed(Mono(900 * MS)).is_none());
    assert_eq!(desk.next_timeout(), None);
}

#[test]
fn dl_7_a_lapsed_grant_is_a_late_one_for_its_caller() {
    let mut desk = Desk::new();
    let slot = Arc::new(slot(100));
    desk.admit(id(0), slot.clone());
    assert!(desk.complete(id(0), granted(5, 0)).is_none());
    assert_eq!(desk.lapsed(Mono(101 * MS)).unwrap().token, 5);
    assert_eq!(slot.take(at(101)), unknown(ReasonKind::LateGrant));
}

fn pooled(pool: &Pool<Slot>, call: AcquireCall) -> Arc<Slot> {
    let renewed = pool.take(|slot| slot.renew(call.clone(), false));
    renewed.unwrap_or_else(|| Arc::new(Slot::new(call, false)))
}

#[test]
fn con_7_taken_grants_do_not_pile_up_and_their_slots_are_used_again() {
    let mut desk = Desk::new();
    let pool = Pool::new();
    let mut seen = std::collections::HashSet::new();
    for turn in 0..10_000 {
        // Ever earlier deadlines, so that no taken grant is ever the next to lapse.
        let call = call(Mono((100_000 - turn) * MS), 10, 4);
        let slot = pooled(&pool, call);
        seen.insert(Arc::as_ptr(&slot));
        desk.admit(id(0), slot.clone());
        assert!(desk.complete(id(0), granted(turn + 1, 0)).is_none());
        desk.tell();
        assert!(matches!(slot.take(at(0)), Take::Granted { .. }));
        pool.put(slot);
    }
    assert!(seen.len() < 200, "{}", seen.len());
}

#[test]
fn a_slot_that_somebody_else_still_knows_is_not_used_again() {
    let pool = Pool::new();
    let first = pooled(&pool, call(Mono(1), 10, 4));
    let known = first.clone();
    pool.put(first);
    let second = pooled(&pool, call(Mono(1), 10, 4));
    assert!(!Arc::ptr_eq(&known, &second));
    drop(known);
    let third = pooled(&pool, call(Mono(2), 10, 4));
    assert_eq!(third.call().deadline, Mono(2));
    assert_eq!(third.take(at(0)), Take::Pending);
}

#[test]
fn a_descriptor_is_readable_as_long_as_there_is_a_result_to_take() {
    let slot = slot(1_000);
    let fd = slot.fd().unwrap();
    assert_eq!(slot.fd().unwrap(), fd);
    assert!(!readable(fd));
    slot.wake();
    assert!(!readable(fd), "nothing has ended");
    assert!(slot.decide(AcquireOutcome::Busy));
    slot.wake();
    assert!(readable(fd));
    assert_eq!(slot.take(at(0)), Take::Ended(Ending::Busy));
    assert!(!readable(fd));
    slot.wake();
    assert!(!readable(fd));
}

#[test]
fn a_descriptor_made_after_the_result_is_readable_at_once() {
    let slot = slot(1_000);
    assert!(slot.decide(AcquireOutcome::Busy));
    let fd = slot.fd().unwrap();
    assert!(readable(fd));
    assert_eq!(slot.take(at(0)), Take::Ended(Ending::Busy));
    assert!(!readable(fd));
}

fn tagged(completions: &Arc<Completions>, tag: u64) -> Arc<Slot> {
    let hook = Hook { completions: completions.clone(), tag };
    Arc::new(Slot::hooked(call(Mono(1_000 * MS), 10, 4), false, Condvar::new(), hook))
}

#[test]
fn completed_tickets_come_once_and_in_order() {
    let completions = Arc::new(Completions::new());
    let slots: Vec<_> = (1..=3).map(|tag| tagged(&completions, tag)).collect();
    let fd = completions.fd().unwrap();
    assert_eq!(completions.next(), None);
    for slot in [&slots[1], &slots[0]] {
        assert!(slot.decide(AcquireOutcome::Busy));
        Slot::announce(slot);
        Slot::announce(slot);
    }
    Slot::announce(&slots[2]);
    assert!(readable(fd));
    assert_eq!(completions.next(), Some(2));
    assert!(readable(fd));
    assert_eq!(completions.next(), Some(1));
    assert!(!readable(fd));
    assert_eq!(completions.next(), None, "the third has no result");
}

#[test]
fn a_dropped_ticket_does_not_come() {
    let completions = Arc::new(Completions::new());
    let (first, second) = (tagged(&completions, 1), tagged(&completions, 2));
    let fd = completions.fd().unwrap();
    assert!(first.decide(AcquireOutcome::Busy));
    Slot::announce(&first);
    first.unlist();
    assert!(!readable(fd));
    second.unlist();
    assert_eq!(second.cancel(), Cancel::Withdrawn);
    Slot::announce(&second);
    assert_eq!(completions.next(), None);
    drop((first, second));
    assert_eq!(Arc::strong_count(&completions), 1, "no cycle keeps anything");
}

#[test]
fn con_7_tickets_that_are_never_fetched_do_not_pile_up() {
    let completions = Arc::new(Completions::new());
    let keeper = tagged(&completions, 0);
    assert!(keeper.decide(AcquireOutcome::Busy));
    Slot::announce(&keeper);
    for tag in 1..1_000 {
        let slot = tagged(&completions, tag);
        assert!(slot.decide(AcquireOutcome::Busy));
        Slot::announce(&slot);
        slot.unlist();
    }
    assert!(Arc::strong_count(&completions) < 100);
    assert_eq!(completions.next(), Some(0));
}

#[test]
fn a_completion_descriptor_made_late_is_readable_at_once() {
    let completions = Arc::new(Completions::new());
    let slot = tagged(&completions, 1);
    assert!(slot.decide(AcquireOutcome::Busy));
    Slot::announce(&slot);
    assert!(readable(completions.fd().unwrap()));
    assert_eq!(completions.next(), Some(1));
}

#[test]
fn a_reply_is_given_once_and_waited_for_within_its_limit() {
    let reply = Reply::new(Condvar::new());
    let start = sys::mono();
    assert_eq!(reply.wait(start + ms(20)), None);
    assert!(sys::mono().since(start) >= ms(20));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| reply.wait(start + Duration::from_secs(600)));
        reply.give(1);
        assert_eq!(waiter.join().unwrap(), Some(1));
    });
    reply.give(2);
    assert_eq!(reply.wait(start), Some(1));
}
