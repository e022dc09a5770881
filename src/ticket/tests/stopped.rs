//! Callers that the system stops while they hold something (HOST-6).

use super::*;
use crate::ticket::once::Once;
use std::sync::mpsc;
use std::time::Instant;

/// Runs while another caller is stopped in the completions, for ten seconds at most.
fn while_stopped(completions: &Completions, run: impl FnOnce()) {
    std::thread::scope(|scope| {
        let (entered, inside) = mpsc::channel();
        let (go, gate) = mpsc::channel::<()>();
        scope.spawn(move || {
            completions.stop_inside(|| {
                entered.send(()).unwrap();
                let _ = gate.recv_timeout(Duration::from_secs(10));
            });
        });
        inside.recv().unwrap();
        let start = Instant::now();
        run();
        assert!(start.elapsed() < Duration::from_secs(5), "it waited for who was stopped");
        drop(go);
    });
}

fn ended(completions: &Arc<Completions>, tag: u64) -> Arc<Slot> {
    let slot = tagged(completions, tag);
    assert!(slot.decide(AcquireOutcome::Busy));
    slot
}

#[test]
fn host_6_a_caller_that_is_stopped_in_the_completions_delays_nobody() {
    let completions = Arc::new(Completions::new());
    let fd = completions.fd().unwrap();
    let mut desk = Desk::new();
    let first = ended(&completions, 1);
    Slot::announce(&first);
    let slots: Vec<_> = (2..=4).map(|tag| tagged(&completions, tag)).collect();
    while_stopped(&completions, || {
        for (at, slot) in slots.iter().enumerate() {
            desk.admit(id(at as u32), slot.clone());
            assert!(desk.complete(id(at as u32), AcquireOutcome::Busy).is_none());
            desk.tell();
        }
        assert!(desk.is_behind());
        assert_eq!(completions.next(), None);
        assert!(readable(fd));
        assert_eq!(completions.fd().unwrap(), fd);
        // One is listed, and one is not yet.
        first.unlist();
        slots[1].unlist();
    });
    assert!(!readable(fd), "what was dropped meanwhile does not count");
    let last = tagged(&completions, 5);
    desk.admit(id(9), last.clone());
    assert!(desk.complete(id(9), AcquireOutcome::Busy).is_none());
    desk.tell();
    assert!(!desk.is_behind());
    assert!(readable(fd));
    let come: Vec<_> = std::iter::from_fn(|| completions.next()).collect();
    assert_eq!(come, [2, 4, 5], "once, in order, and none that was dropped");
    assert!(!readable(fd));
    drop((first, slots, last, desk));
    assert_eq!(Arc::strong_count(&completions), 1, "no cycle keeps anything");
}

#[test]
fn whoever_uses_the_completions_for_a_moment_is_waited_for() {
    let completions = Arc::new(Completions::new());
    let slot = ended(&completions, 1);
    std::thread::scope(|scope| {
        let (entered, inside) = mpsc::channel();
        let inner = &completions;
        scope.spawn(move || {
            inner.stop_inside(|| {
                entered.send(()).unwrap();
                // Time to meet it: if they do not meet, less is shown, and nothing fails.
                std::thread::sleep(ms(30));
            });
        });
        inside.recv().unwrap();
        assert!(completions.add(&slot, Duration::from_secs(60)));
    });
    assert_eq!(completions.next(), Some(1));
}

#[test]
fn host_6_what_a_caller_could_not_list_the_background_thread_does() {
    let completions = Arc::new(Completions::new());
    let slots: Vec<_> = (1..=3).map(|tag| tagged(&completions, tag)).collect();
    let mut desk = Desk::new();
    desk.admit(id(0), slots[0].clone());
    desk.admit(id(1), slots[1].clone());
    while_stopped(&completions, || {
        for slot in &slots {
            assert_eq!(slot.cancel(), Cancel::Withdrawn);
            Slot::announce(slot);
        }
    });
    assert_eq!(completions.next(), None);
    // It hears of the first from its caller, of the second from the engine, and never knew the third.
    assert_eq!(desk.withdraw(&slots[0]), Some(id(0)));
    assert!(desk.complete(id(1), AcquireOutcome::Cancelled).is_none());
    desk.see_to(&slots[2]);
    desk.tell();
    let come: Vec<_> = std::iter::from_fn(|| completions.next()).collect();
    assert_eq!(come, [1, 2, 3]);
}

#[test]
fn host_6_a_thread_that_ends_lists_the_rest_however_long_that_takes() {
    let completions = Arc::new(Completions::new());
    let mut desk = Desk::new();
    let slot = tagged(&completions, 1);
    desk.refuse(slot.clone());
    let end = std::cell::OnceCell::new();
    while_stopped(&completions, || {
        desk.abandon();
        assert!(desk.is_behind());
        let _ = end.set(std::thread::spawn(move || desk.list_the_rest()));
    });
    end.into_inner().unwrap().join().unwrap();
    assert_eq!(completions.next(), Some(1));
}

#[test]
fn host_6_a_completion_descriptor_that_cannot_be_made_now_is_an_error() {
    let completions = Arc::new(Completions::new());
    while_stopped(&completions, || {
        assert_eq!(completions.fd().unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    });
    assert!(!readable(completions.fd().unwrap()));
}

#[test]
fn host_6_what_is_just_being_made_is_not_waited_for() {
    let (once, made) = (Once::new(), Once::new());
    let (entered, inside) = mpsc::channel();
    let (go, gate) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let slow = &once;
        scope.spawn(move || {
            let make = || {
                entered.send(()).unwrap();
                let _ = gate.recv_timeout(Duration::from_secs(10));
                Ok(1)
            };
            assert_eq!(slow.get_or_make(make).unwrap(), &1);
        });
        inside.recv().unwrap();
        let start = Instant::now();
        assert_eq!(once.get(), None);
        assert_eq!(once.get_or_make(|| Ok(2)).unwrap_err().kind(), std::io::ErrorKind::TimedOut);
        assert!(start.elapsed() < Duration::from_secs(5));
        drop(go);
    });
    assert_eq!(once.get_or_make(|| Ok(2)).unwrap(), &1);
    assert!(made.get_or_make(|| Err(std::io::ErrorKind::Other.into())).is_err());
    assert_eq!(made.get_or_make(|| Ok(3)).unwrap(), &3);
}
