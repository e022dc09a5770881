//! One caller who cancels again and again.

use crate::common::{lock, ms, seconds, server, waiting};
use crate::support::{endpoints, open};
use lockclient::Outcome;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

#[test]
fn con_6_a_caller_who_cancels_all_the_time_does_not_ruin_others() {
    let server = server();
    let client = open(&endpoints([server.addr()]));
    let holder = open(&endpoints([server.addr()]));
    let (over, ruined, done, cancelled) =
        (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
    let time = seconds(3);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Held by another: what is cancelled was sent and has no answer.
            let _held = lock(&holder, "stormy");
            while !over.load(Ordering::Relaxed) {
                let ticket = client.start("stormy", &waiting(60)).unwrap();
                ticket.cancel();
                drop(ticket.wait().unwrap());
                // And some after they have surely left.
                let ticket = client.start("stormy", &waiting(60)).unwrap();
                std::thread::sleep(Duration::from_micros(500));
                ticket.cancel();
                cancelled.fetch_add(2, Ordering::Relaxed);
            }
        });
        let waiters: Vec<_> = (0..8)
            .map(|thread| {
                let (client, holder, ruined, done) = (&client, &holder, &ruined, &done);
                scope.spawn(move || {
                    let key = format!("calm-{thread}");
                    let start = Instant::now();
                    while start.elapsed() < time {
                        let held = lock(holder, &key);
                        std::thread::scope(|both| {
                            both.spawn(move || {
                                std::thread::sleep(ms(20));
                                drop(held);
                            });
                            match client.acquire(&key, &waiting(60)).unwrap() {
                                Outcome::Acquired(lock) => drop(lock),
                                Outcome::Indeterminate(_) => {
                                    ruined.fetch_add(1, Ordering::Relaxed);
                                }
                                other => panic!("{other:?}"),
                            }
                        });
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let results: Vec<_> = waiters.into_iter().map(|waiter| waiter.join()).collect();
        over.store(true, Ordering::Relaxed);
        assert!(results.iter().all(Result::is_ok));
    });
    let (ruined, done, cancelled) =
        (ruined.into_inner(), done.into_inner(), cancelled.into_inner());
    println!("{ruined} of {done} waits ruined by {cancelled} cancels");
    assert!(done >= 50 && cancelled >= 100, "{done} waits, {cancelled} cancels");
    // One in ten is what is promised. Apart from each other they do far better, and if they
    // shared one connection more than this would be ruined.
    assert!(ruined * 50 <= done, "{ruined} of {done} waits ruined");
}
