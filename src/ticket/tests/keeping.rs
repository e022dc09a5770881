//! What the desk, the queues and the pools keep, and for how long.

use super::*;
use crate::ticket::condvar::{Condvars, Wakes};

#[test]
fn con_7_taken_grants_are_forgotten_once_there_are_twice_as_many() {
    let mut desk = Desk::new();
    let mut slots = Vec::new();
    let known =
        |slots: &[Arc<Slot>]| slots.iter().filter(|slot| Arc::strong_count(slot) > 1).count();
    // The first look, at the 66th, finds 65 that nobody has taken: the next is at 64 + 2 * 65.
    for count in 1..=64 + 2 * 65 + 1 {
        let slot = Arc::new(slot(1_000));
        slots.push(slot.clone());
        desk.admit(id(0), slot);
        assert!(desk.complete(id(0), granted(1, 0)).is_none());
        desk.tell();
        assert_eq!(known(&slots), count, "looking through all for one would cost");
        if count == 66 {
            assert!(slots.iter().all(|slot| matches!(slot.take(at(0)), Take::Granted { .. })));
        } else if count > 66 {
            assert!(matches!(slots[count - 1].take(at(0)), Take::Granted { .. }));
        }
    }
    let slot = Arc::new(slot(1_000));
    slots.push(slot.clone());
    desk.admit(id(0), slot);
    assert!(desk.complete(id(0), granted(1, 0)).is_none());
    desk.tell();
    assert_eq!(known(&slots), 1);
}

#[test]
fn a_pool_keeps_what_it_is_given_up_to_256() {
    let pool = Pool::new();
    for number in 0..257 {
        pool.put(Arc::new(number));
    }
    let taken: Vec<_> = std::iter::from_fn(|| pool.take(|_| ())).map(|thing| *thing).collect();
    assert_eq!(taken, (0..256).collect::<Vec<_>>());
}

#[test]
fn a_completion_descriptor_is_readable_from_the_first_result_on() {
    let completions = Arc::new(Completions::new());
    let fd = completions.fd().unwrap();
    assert!(!readable(fd));
    let slot = tagged(&completions, 1);
    assert!(slot.decide(AcquireOutcome::Busy));
    Slot::announce(&slot);
    assert!(readable(fd));
    assert_eq!(completions.next(), Some(1));
}

#[test]
fn con_7_dropped_tickets_are_forgotten_once_they_are_the_greater_part() {
    let completions = Arc::new(Completions::new());
    let keepers = [1, 2, 3].map(|tag| tagged(&completions, tag));
    for keeper in &keepers {
        assert!(keeper.decide(AcquireOutcome::Busy));
        Slot::announce(keeper);
    }
    let alone = Arc::strong_count(&completions);
    // With three that are still there up to 64 + 2 * 3 stand in the queue.
    const MOST: u64 = 64 + 2 * 3 - 3;
    for count in 1..=MOST + 1 {
        let slot = tagged(&completions, 3 + count);
        assert!(slot.decide(AcquireOutcome::Busy));
        Slot::announce(&slot);
        slot.unlist();
        drop(slot);
        let dropped = Arc::strong_count(&completions) - alone;
        assert_eq!(dropped as u64, if count <= MOST { count } else { 0 });
    }
    let come: Vec<_> = std::iter::from_fn(|| completions.next()).collect();
    assert_eq!(come, [1, 2, 3]);
}

#[test]
fn a_reply_is_ready_for_another_question() {
    let mut reply = Reply::new(Condvar::new());
    reply.give(1);
    reply.renew();
    assert_eq!(reply.wait(Mono(0)), None);
    reply.give(2);
    assert_eq!(reply.wait(Mono(0)), Some(2));
}

#[test]
fn an_answer_that_came_without_a_wake_counts_at_the_limit() {
    let reply = Reply::new(Condvar::new());
    let limit = sys::mono() + ms(60);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| reply.wait(limit));
        // Time to fall asleep: not needed for the test to pass.
        std::thread::sleep(ms(10));
        let _ = reply.set(5);
        let in_time = sys::mono() < limit;
        let answer = waiter.join().unwrap();
        assert!(answer == Some(5) || !in_time, "{answer:?}");
    });
}

#[test]
fn the_desk_tells_who_sleeps_and_who_reads_completions() {
    let completions = Arc::new(Completions::new());
    let hook = Hook { completions: completions.clone(), tag: 9 };
    let far = sys::mono() + Duration::from_secs(60);
    let slot = Arc::new(Slot::hooked(call(far, 10, 4), false, Condvar::new(), hook));
    let mut desk = Desk::new();
    desk.admit(id(0), slot.clone());
    let other = slot.clone();
    let sleeper = std::thread::spawn(move || other.wait(sys::mono, None));
    assert!(slot.claim(far));
    while !slot.unclaim() {
        // Not asleep yet.
        assert!(slot.claim(far));
        std::thread::yield_now();
    }
    assert!(desk.complete(id(0), AcquireOutcome::Busy).is_none());
    assert_eq!(completions.next(), None);
    desk.tell();
    assert_eq!(completions.next(), Some(9));
    assert_eq!(sleeper.join().unwrap(), Waited::Decided, "its own limit is far away");
}

#[test]
fn whoever_is_gathered_is_woken_whether_it_sleeps_already_or_not() {
    let makers = Condvars::new();
    let condvars = [makers.make(), makers.make(), Condvar::new()];
    let limit = sys::mono() + Duration::from_secs(60);
    std::thread::scope(|scope| {
        let waiters: Vec<_> = condvars
            .iter()
            .map(|condvar| {
                let epoch = condvar.epoch();
                scope.spawn(move || condvar.wait_until(epoch, limit))
            })
            .collect();
        // Time to fall asleep: not needed for the test to pass.
        std::thread::sleep(ms(10));
        let mut wakes = Wakes::default();
        condvars.iter().for_each(|condvar| wakes.add(condvar));
        wakes.notify();
        for waiter in waiters {
            assert!(!waiter.join().unwrap(), "it was not the limit");
        }
    });
}

#[test]
fn a_desk_with_news_says_so_until_it_has_told_them() {
    let mut desk = Desk::new();
    assert!(!desk.has_news());
    desk.admit(id(0), Arc::new(slot(1_000)));
    assert!(!desk.has_news());
    assert!(desk.complete(id(0), AcquireOutcome::Busy).is_none());
    assert!(desk.has_news());
    desk.tell();
    assert!(!desk.has_news());
}

#[test]
fn a_desk_answers_a_question_with_its_news() {
    let mut desk = Desk::new();
    let reply = Reply::new(Condvar::new());
    let limit = sys::mono() + Duration::from_secs(60);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| reply.wait(limit));
        std::thread::sleep(ms(10));
        desk.reply(&reply, 5);
        desk.tell();
        assert_eq!(waiter.join().unwrap(), Some(5));
    });
}
