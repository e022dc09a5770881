//! Ordinary timeouts stay ordinary: no connection ends with them, and nobody else notices.

use crate::common::{eventually, lock, ms, seconds, server, waiting};
use crate::proxy::{Course, Plan, Proxy};
use crate::support::{endpoints, leasing, open};
use lockclient::Outcome;
use std::time::{Duration, Instant};

#[test]
fn dl_6_dl_8_32_threads_time_out_and_bystanders_do_not_notice() {
    let server = server();
    // The answers all at once, each after a while, and byte by byte.
    let courses = [
        Course::default(),
        Course { delay: ms(100), ..Course::default() },
        Course { dribble: Some(Duration::from_micros(50)), ..Course::default() },
    ];
    for (at, down) in courses.into_iter().enumerate() {
        let proxy = Proxy::start_with(server.addr(), move |_| Plan { down, ..Plan::default() });
        // Byte by byte it takes a while, which is not what this is about.
        let config = endpoints([proxy.endpoint()]).response_grace(seconds(20)).unwrap();
        let client = open(&config);
        let holder = open(&endpoints([server.addr()]));
        let (held, kept) = (format!("held-{at}"), format!("kept-{at}"));
        let held_lock = lock(&holder, &held);
        let kept_lock = lock(&holder, &kept);
        std::thread::scope(|scope| {
            // Each gives it back at once, for the next.
            let bystander =
                || client.acquire(&kept, &leasing(60, 60)).unwrap().acquired().is_some();
            let bystanders: Vec<_> = (0..4).map(|_| scope.spawn(bystander)).collect();
            eventually("they wait", || server.stats().locks.waiters == 4);
            let start = Instant::now();
            let waiters: Vec<_> =
                (0..32).map(|_| scope.spawn(|| client.acquire(&held, &waiting(1)))).collect();
            for waiter in waiters {
                let outcome = waiter.join().unwrap().unwrap();
                assert!(matches!(outcome, Outcome::TimedOut), "{outcome:?}");
            }
            // The server's timer and this clock may differ by a hair.
            assert!(start.elapsed() >= ms(990));
            drop(kept_lock);
            for bystander in bystanders {
                assert!(bystander.join().unwrap());
            }
        });
        drop(held_lock);
        let stats = client.stats();
        assert_eq!((stats.connections_closed, stats.indeterminate, stats.timed_out), (0, 0, 32));
        assert_eq!(proxy.links(), proxy.open_links());
        assert_eq!(client.shutdown(seconds(20)).unwrap(), lockclient::Shutdown::Clean);
        holder.shutdown(seconds(20)).map(drop).unwrap();
    }
}
