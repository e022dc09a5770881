//! Serving allocates nothing once tables and buffers have their size: counted over the whole
//! server, from its sockets to its sockets.

mod common;
#[path = "../../tests/common/counting.rs"]
mod counting;

use common::{Answer, Peer, plain, start};
use lockclient::wire::ClientFrame;
use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    /// Whether this is the test's own thread, which plays the clients and may allocate.
    static CLIENT: Cell<bool> = const { Cell::new(false) };
}

/// Allocations of all other threads.
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

fn count() {
    if !CLIENT.get() {
        ALLOCATIONS.fetch_add(1, Ordering::SeqCst);
    }
}

#[global_allocator]
static COUNTING: counting::Counting = counting::Counting;

/// Runs `work` until all has its size, and then says how often the server allocates when it is
/// run again as often. Where many keys are held at a time both runs hold the same ones: how many
/// of them share a bucket depends on a hash that is another in every process.
fn allocations(server: SocketAddr, times: u64, mut work: impl FnMut(u64)) -> u64 {
    (0..times).for_each(&mut work);
    // What the last turn had still to do is done when the next one answers.
    let mut peer = Peer::connect(server);
    peer.expect_served();
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    (times..2 * times).for_each(&mut work);
    peer.expect_served();
    ALLOCATIONS.load(Ordering::SeqCst) - before
}

fn pair(peer: &mut Peer, key: &str) {
    let token = peer.take(1, key, 60);
    peer.release(2, token, key);
    assert_eq!(peer.answer(), plain('R', 2, key));
}

/// Acquires and releases as many keys in two writes.
fn batch(peer: &mut Peer, keys: &[String]) {
    let mut requests = Vec::new();
    for (owner, key) in (1..).zip(keys) {
        ClientFrame::Acquire { wait: 0, lease: 60, owner, key: key.as_bytes() }
            .encode(&mut requests);
    }
    peer.send(&requests);
    requests.clear();
    for (owner, key) in (1..).zip(keys) {
        let Answer::Acquired { token, .. } = peer.answer() else { panic!("expected a grant") };
        ClientFrame::Release { owner, token, key: key.as_bytes() }.encode(&mut requests);
    }
    peer.send(&requests);
    for (owner, key) in (1..).zip(keys) {
        assert_eq!(peer.answer(), plain('R', owner, key));
    }
}

#[test]
fn serving_allocates_nothing() {
    CLIENT.set(true);
    let server = start();
    let address = server.addr();
    let mut peers: Vec<Peer> = (0..16).map(|_| Peer::connect(address)).collect();

    // The counting itself works: a new connection is not free.
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    let mut more: Vec<Peer> = (0..200).map(|_| Peer::connect(address)).collect();
    more.iter_mut().for_each(Peer::expect_served);
    assert!(ALLOCATIONS.load(Ordering::SeqCst) > before);
    drop(more);

    let key = |number: u64| format!("tenant/00/job/{number:010}");
    let counted = allocations(address, 500, |_| pair(&mut peers[0], "one/key"));
    assert_eq!(counted, 0, "one key, one request at a time");
    let counted = allocations(address, 500, |round| pair(&mut peers[0], &key(round)));
    assert_eq!(counted, 0, "another key each time");
    let long = |number: u64| format!("{number:0len$}", len = 27 + number as usize % 102);
    let counted = allocations(address, 500, |round| pair(&mut peers[0], &long(round % 250)));
    assert_eq!(counted, 0, "keys that are too long for a lock's record");

    for size in [16, 64, 200] {
        let counted = allocations(address, 20, |round| {
            let first = round % 20 * size;
            let keys: Vec<String> = (first..first + size).map(key).collect();
            batch(&mut peers[round as usize % 16], &keys);
        });
        assert_eq!(counted, 0, "{size} requests at a time");
    }

    // One hands over to the next, who waited.
    let mut token = peers[0].take(1, "hot", 60);
    let counted = allocations(address, 200, |round| {
        let (holder, next) = (round as usize % 16, (round as usize + 1) % 16);
        peers[next].acquire(1, "hot", 60, 60);
        peers[next].expect_served();
        peers[holder].release(2, token, "hot");
        assert_eq!(peers[holder].answer(), plain('R', 2, "hot"));
        let Answer::Acquired { token: new, .. } = peers[next].answer() else { panic!("a grant") };
        token = new;
    });
    assert_eq!(counted, 0, "from holder to waiter");

    let counted = allocations(address, 200, |round| {
        let peer = &mut peers[round as usize % 16];
        peer.acquire(3, "hot", 0, 60);
        assert_eq!(peer.answer(), plain('T', 3, "hot"));
        peer.release(4, token - 1, "hot");
        assert_eq!(peer.answer(), plain('N', 4, "hot"));
        peer.expect_served();
    });
    assert_eq!(counted, 0, "what is refused, and probes");
}
