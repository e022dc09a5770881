//! A server at capacity.

use crate::common::{ms, seconds, waiting};
use crate::fake_node::{FakeNode, Reaction, Request, Seen};
use crate::support::{narrow, open};
use lockclient::Outcome;
use std::time::Instant;

/// A node that is busy so many times.
fn busy(times: usize) -> FakeNode {
    let mut left = times;
    FakeNode::start_with(move |seen| {
        if seen.is_acquire() && left > 0 {
            left -= 1;
            return Reaction::Say(seen.busy());
        }
        seen.served(1)
    })
}

fn parts(seen: &Seen) -> (u8, u64) {
    match &seen.request {
        Request::Acquire { wait, owner, key, .. } if key == "k" => (*wait, *owner),
        other => panic!("{other:?}"),
    }
}

#[test]
fn busy_comes_at_once_and_as_it_is() {
    let node = busy(usize::MAX);
    let client = open(&narrow(node.endpoint()));
    let start = Instant::now();
    for wait in [0, 1, 100] {
        assert!(matches!(client.acquire("k", &waiting(wait)).unwrap(), Outcome::Busy));
    }
    assert!(start.elapsed() < seconds(20));
    assert_eq!(node.acquires().len(), 3, "one attempt each");
    assert_eq!(node.open_connections(), 1);
}

#[test]
fn busy_retry_tries_again_with_fresh_owners_and_the_same_deadline() {
    let node = busy(7);
    let client = open(&narrow(node.endpoint()).busy_retry(true));
    let lock = client.acquire("k", &waiting(30)).unwrap().acquired().expect("at the eighth try");
    let acquires = node.acquires();
    let (waits, mut owners): (Vec<u8>, Vec<u64>) = acquires.iter().map(parts).unzip();
    assert_eq!(acquires.len(), 8);
    assert!(waits.is_sorted_by(|earlier, later| earlier >= later) && waits[0] <= 30);
    assert_eq!(lock.owner(), owners[7]);
    owners.sort_unstable();
    owners.dedup();
    assert_eq!(owners.len(), 8);
    // Backoff: 20 ms, doubling, each with jitter. Seven of them in less than 20 ms would be none.
    let took = acquires[7].at - acquires[0].at;
    assert!(took >= ms(20), "{took:?}");
    assert_eq!(client.stats().busy, 0, "what is tried again is not told");
    assert_eq!(node.open_connections(), 1);
}

#[test]
fn busy_retry_ends_busy_at_the_deadline() {
    let node = busy(usize::MAX);
    let client = open(&narrow(node.endpoint()).busy_retry(true));
    let start = Instant::now();
    assert!(matches!(client.acquire("k", &waiting(1)).unwrap(), Outcome::Busy));
    // The last try may end it before the deadline, when no time is left for another.
    assert!(start.elapsed() < seconds(3));
    let tries = node.acquires().len();
    assert!((2..=60).contains(&tries), "{tries} tries");
    assert!(matches!(client.acquire("k", &waiting(0)).unwrap(), Outcome::Busy));
    assert_eq!(node.acquires().len(), tries + 1, "never again for an attempt at once");
}
