//! Many threads, few keys: never two holders, and tokens only grow.

mod common;

use common::{client, config, eventually, ready, server, waiting};
use lockclient::{Client, Outcome};
use std::sync::atomic::{AtomicU64, Ordering};

const THREADS: usize = 64;
const TURNS: usize = 200;
const KEYS: usize = 8;

/// What the locks protect: who is inside, and the greatest token that was.
#[derive(Default)]
struct Protected {
    holder: AtomicU64,
    newest: AtomicU64,
}

impl Protected {
    fn enter(&self, token: u64) {
        assert_eq!(self.holder.swap(token, Ordering::SeqCst), 0, "two holders");
        assert!(self.newest.swap(token, Ordering::SeqCst) < token, "a token that did not grow");
    }

    fn leave(&self, token: u64) {
        assert_eq!(self.holder.swap(0, Ordering::SeqCst), token, "another came in");
    }
}

fn work(thread: usize, client: &Client, protected: &[Protected]) {
    for turn in 0..TURNS {
        let at = (thread * 7 + turn * 3) % KEYS;
        let key = format!("key/{at}");
        let outcome = match turn % 4 {
            0 => client.start(&key, &waiting(250)).unwrap().wait().unwrap(),
            _ => client.acquire(&key, &waiting(250)).unwrap(),
        };
        let Outcome::Acquired(lock) = outcome else { panic!("{outcome:?}") };
        let token = lock.token().get();
        protected[at].enter(token);
        if turn % 8 == 1 {
            std::thread::yield_now();
        }
        protected[at].leave(token);
        if turn % 2 == 0 {
            drop(lock);
        } else {
            assert_eq!(lock.release().unwrap(), lockclient::Released::Released);
        }
    }
}

#[test]
fn many_threads_never_hold_one_lock_twice() {
    let server = server();
    // Threads of one client, and two more clients beside it.
    let clients = [
        client(server.addr()),
        client(server.addr()),
        ready(&config(server.addr()).connections(1).unwrap()),
    ];
    let protected: Vec<Protected> = (0..KEYS).map(|_| Protected::default()).collect();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (client, protected) = (&clients[thread % 4 % 3], &protected);
            scope.spawn(move || work(thread, client, protected));
        }
    });
    eventually("nothing is held", || server.stats().locks.held == 0);
    assert_eq!(server.stats().locks.waiters, 0);
    assert_eq!(server.stats().locks.grants, (THREADS * TURNS) as u64);
    let acquired: u64 = clients.iter().map(|client| client.stats().acquired).sum();
    assert_eq!(acquired, (THREADS * TURNS) as u64);
    for client in &clients {
        let stats = client.stats();
        assert_eq!((stats.indeterminate, stats.unconfirmed, stats.connections_closed), (0, 0, 0));
        assert_eq!((stats.queued_now, stats.in_flight_now), (0, 0));
    }
}

#[test]
fn cancelling_at_any_moment_leaves_nothing_held() {
    let server = server();
    let client = client(server.addr());
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let client = &client;
            scope.spawn(move || {
                for turn in 0..150 {
                    let ticket = client.start(&format!("k/{}", turn % 5), &waiting(250)).unwrap();
                    for _ in 0..(thread * 37 + turn * 11) % 300 {
                        std::hint::spin_loop();
                    }
                    match turn % 3 {
                        0 => drop(ticket),
                        1 => ticket.cancel(),
                        // Whoever is granted it after all holds it for a moment.
                        _ => drop(ticket.poll().unwrap()),
                    }
                }
            });
        }
    });
    // A grant whose answer was lost with its connection would stay until its lease ends: that is
    // what a close costs, and here every grant is read or undone by the server.
    eventually("nothing is held and nobody waits", || {
        let locks = server.stats().locks;
        locks.held == 0 && locks.waiters == 0
    });
}
