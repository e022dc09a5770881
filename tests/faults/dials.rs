//! However bad it gets, nobody is dialled without bound.

use crate::common::{ms, seconds, waiting};
use crate::fake_node::{FakeNode, Reaction, moved};
use crate::support::{begin, endpoints};
use lockclient::Outcome;
use std::time::{Duration, Instant};

/// What may be dialled in `time`: a burst, and then ten a second.
fn bound(time: Duration) -> usize {
    8 + 1 + (time.as_millis() / 100) as usize
}

/// 16 threads ask all the time for 2.5 s; how many connections the nodes got, and in what time.
fn storm(nodes: &[FakeNode]) -> (usize, Duration) {
    let start = Instant::now();
    let client = begin(&endpoints(nodes.iter().map(FakeNode::address)));
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let client = &client;
            scope.spawn(move || {
                while start.elapsed() < ms(2_500) {
                    let outcome = client.acquire(&thread.to_string(), &waiting(1)).unwrap();
                    assert!(!matches!(outcome, Outcome::Acquired(_)), "{outcome:?}");
                }
            });
        }
    });
    let count = nodes.iter().map(FakeNode::connections).sum();
    (count, start.elapsed())
}

#[test]
fn con_3_no_dial_storm_when_every_node_ends_its_connections() {
    let closing = || FakeNode::start_with(|_| Reaction::SayAndClose(Vec::new()));
    let nodes = [closing(), closing(), closing()];
    let (count, time) = storm(&nodes);
    assert!(count <= bound(time), "{count} dials in {time:?}");
    assert!(count >= 6, "{count}: each is tried again");
}

#[test]
fn con_3_no_dial_storm_when_two_nodes_name_each_other() {
    let nodes = [FakeNode::start(), FakeNode::start()];
    for (node, other) in [(0, 1), (1, 0)] {
        let other = nodes[other].endpoint();
        nodes[node].react(move |_| Reaction::SayAndClose(moved(&other)));
    }
    let (count, time) = storm(&nodes);
    assert!(count <= bound(time), "{count} dials in {time:?}");
    assert!(count >= 6, "{count}: each is tried again");
}

#[test]
fn con_3_no_dial_storm_when_every_acquire_ends_its_connection() {
    let node = FakeNode::start_with(|seen| {
        if seen.is_acquire() { Reaction::SayAndClose(Vec::new()) } else { seen.served(1) }
    });
    let (count, time) = storm(&[node]);
    assert!(count <= bound(time), "{count} dials in {time:?}");
    assert!(count >= 6, "{count}: it is tried again");
    assert!(time < seconds(20));
}
