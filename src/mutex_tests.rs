use super::*;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

#[test]
fn what_many_threads_count_under_it_is_all_there() {
    const EACH: u32 = 20_000;
    let mutex = Arc::new(Mutex::new(0));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let mutex = mutex.clone();
            thread::spawn(move || (0..EACH).for_each(|_| *mutex.lock() += 1))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(*mutex.lock(), 8 * EACH);
}

#[test]
fn host_6_a_timed_try_ends_by_its_time_and_not_before() {
    const TIME: Duration = Duration::from_millis(30);
    let mutex = Mutex::new(());
    let held = mutex.lock();
    assert!(mutex.try_lock().is_none());
    let start = Instant::now();
    assert!(mutex.try_lock_for(TIME).is_none());
    assert!(start.elapsed() >= TIME);
    drop(held);
    assert!(mutex.try_lock_for(Duration::ZERO).is_some());
}

#[test]
fn all_who_sleep_are_woken_and_get_it_in_turn() {
    let mutex = Arc::new(Mutex::new(0));
    let held = mutex.lock();
    let (send, ended) = mpsc::channel();
    let threads: Vec<_> = (0..4u32)
        .map(|number| {
            let (mutex, send) = (mutex.clone(), send.clone());
            thread::spawn(move || {
                // With a limit, and without.
                let guard = (number % 2 == 0).then(|| mutex.try_lock_for(Duration::from_secs(60)));
                let mut guard =
                    guard.map_or_else(|| mutex.lock(), |timed| timed.expect("a minute"));
                *guard += 1;
                send.send(()).unwrap();
            })
        })
        .collect();
    // Long enough for them to sleep. If they do not yet, less is shown, and nothing fails.
    thread::sleep(Duration::from_millis(50));
    assert!(ended.try_recv().is_err());
    drop(held);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(*mutex.lock(), 4);
}

#[test]
fn a_panic_under_it_leaves_it_usable() {
    crate::quiet::install();
    let mutex = Arc::new(Mutex::new(1));
    let other = mutex.clone();
    let thread = thread::spawn(move || {
        let _quiet = crate::quiet::Quiet::enter();
        let _held = other.lock();
        panic!("on purpose");
    });
    assert!(thread.join().is_err());
    assert_eq!(mutex.try_lock().map(|guard| *guard), Some(1));
}
