//! Acquiring and releasing, against a real server.

mod common;

use common::{
    PATIENCE, at_once, client, config, eventually, lock, ms, ready, seconds, server, waiting,
};
use lockclient::{Acquire, Error, KeyError, Outcome, Released, Token};
use std::time::{Duration, Instant};

#[test]
fn a_lock_is_acquired_and_released() {
    let server = server();
    let client = client(server.addr());
    let lock = lock(&client, "orders/1");
    assert_eq!(lock.key(), "orders/1");
    assert!(lock.token().get() > 0);
    assert!(lock.owner() > 0);
    assert!(lock.remaining() > seconds(240) && lock.remaining() < seconds(250));
    assert!(lock.grant().remaining_at_delivery() >= lock.remaining());
    assert_eq!(server.stats().locks.held, 1);
    let token = lock.token();
    assert_eq!(lock.release().unwrap(), Released::Released);
    assert_eq!(server.stats().locks.held, 0);
    assert_eq!(client.release("orders/1", token).unwrap(), Released::NotHeld { retried: false });
    let stats = client.stats();
    assert_eq!((stats.acquired, stats.released, stats.not_held), (1, 1, 1));
    assert_eq!((stats.indeterminate, stats.compensations), (0, 0));
}

#[test]
fn dropping_a_lock_gives_it_back() {
    let server = server();
    let client = client(server.addr());
    drop(lock(&client, "k"));
    eventually("the lock is free", || server.stats().locks.held == 0);
}

#[test]
fn a_grant_without_its_guard_stays_until_its_token_is_released() {
    let server = server();
    let client = client(server.addr());
    let grant = lock(&client, "k").into_grant();
    assert_eq!(server.stats().locks.held, 1);
    client.release_start("k", grant.token()).unwrap();
    eventually("the lock is free", || server.stats().locks.held == 0);
    // Another token releases nothing.
    let _held = lock(&client, "k");
    assert_eq!(client.release("k", grant.token()).unwrap(), Released::NotHeld { retried: false });
    assert_eq!(client.release("k", Token::new(0)).unwrap(), Released::NotHeld { retried: false });
    assert_eq!(server.stats().locks.held, 1);
}

#[test]
fn one_key_has_one_holder_and_the_next_waits_for_its_end() {
    let server = server();
    let (first, second) = (client(server.addr()), client(server.addr()));
    let held = lock(&first, "k");
    let token = held.token();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| lock(&second, "k").token());
        eventually("the other waits", || server.stats().locks.waiters == 1);
        drop(held);
        assert!(waiter.join().unwrap() > token, "tokens grow");
    });
}

#[test]
fn a_wait_that_ends_without_a_grant_is_a_definite_timeout() {
    let server = server();
    let client = client(server.addr());
    let _held = lock(&client, "k");
    let start = Instant::now();
    let outcome = client.acquire("k", &waiting(1)).unwrap();
    assert!(matches!(outcome, Outcome::TimedOut), "{outcome:?}");
    // The server's timer and this clock may differ by a hair.
    assert!(start.elapsed() >= ms(990), "{:?}", start.elapsed());
    assert!(start.elapsed() < PATIENCE);
    assert_eq!(client.stats().timed_out, 1);
}

#[test]
fn dl_2_a_wait_of_zero_is_one_immediate_attempt() {
    let server = server();
    let client = client(server.addr());
    let _held = lock(&client, "k");
    let start = Instant::now();
    let outcome = client.acquire("k", &at_once()).unwrap();
    assert!(matches!(outcome, Outcome::TimedOut), "{outcome:?}");
    assert!(start.elapsed() < seconds(5), "it does not wait for its transport deadline");
    assert!(client.acquire("free", &at_once()).unwrap().acquired().is_some());
}

#[test]
fn snd_6_a_drop_followed_by_a_try_never_meets_its_own_lock() {
    let server = server();
    let client = client(server.addr());
    // From both kinds of connection, and back again.
    for turn in 0..300 {
        let options = if turn % 3 == 0 { waiting(60) } else { at_once() };
        let outcome = client.acquire("k", &options).unwrap();
        let Outcome::Acquired(lock) = outcome else { panic!("{turn}: {outcome:?}") };
        drop(lock);
    }
}

#[test]
fn a_server_at_its_limit_is_busy() {
    let limits = lockd::Config { max_locks: 10, ..lockd::Config::on_free_port() };
    let server = lockd::Server::start(limits).unwrap();
    let client = client(server.addr());
    let _held: Vec<_> = (0..9).map(|key| lock(&client, &key.to_string())).collect();
    let outcome = client.acquire("more", &waiting(60)).unwrap();
    assert!(matches!(outcome, Outcome::Busy), "{outcome:?}");
    assert!(outcome.is_definite());
    assert_eq!(client.stats().busy, 1);
}

#[test]
fn busy_retry_tries_again_inside_the_deadline() {
    let limits = lockd::Config { max_locks: 10, ..lockd::Config::on_free_port() };
    let server = lockd::Server::start(limits).unwrap();
    let client = ready(&config(server.addr()).busy_retry(true));
    let mut held: Vec<_> = (0..9).map(|key| lock(&client, &key.to_string())).collect();
    // Never for a wait of zero.
    assert!(matches!(client.acquire("more", &at_once()).unwrap(), Outcome::Busy));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| client.acquire("more", &waiting(60)).unwrap());
        eventually("it was refused", || server.stats().locks.busy >= 2);
        // Below three quarters it lets acquires in again.
        held.truncate(6);
        assert!(waiter.join().unwrap().acquired().is_some());
    });
}

#[test]
fn in_5_input_that_cannot_be_used_is_refused_at_once_and_sends_nothing() {
    let server = server();
    let client = client(server.addr());
    let before = server.stats();
    let none = Duration::ZERO;
    let cases: [(&str, Acquire); 9] = [
        ("", at_once()),
        ("a b", at_once()),
        ("a\nb", at_once()),
        ("a\r", at_once()),
        (&"k".repeat(129), at_once()),
        ("k", Acquire::new(seconds(255) + Duration::from_nanos(1), none)),
        ("k", Acquire::new(none, none).lease(none)),
        ("k", Acquire::new(none, none).lease(Duration::MAX)),
        ("k", Acquire::new(none, seconds(31))),
    ];
    for (key, options) in &cases {
        let error = client.acquire(key, options).unwrap_err();
        let fits = match error {
            Error::BadKey(_) => *key != "k",
            Error::UnsupportedDuration(_) | Error::InsufficientLease(_) => *key == "k",
            _ => false,
        };
        assert!(fits, "{key:?} {error:?}");
        assert!(client.start(key, options).is_err());
    }
    assert!(matches!(
        client.release("a\rb", Token::new(1)),
        Err(Error::BadKey(KeyError::CarriageReturn))
    ));
    assert!(client.release_start("", Token::new(1)).is_err());
    let after = server.stats();
    assert_eq!(after.locks.acquires, before.locks.acquires);
    assert_eq!(after.locks.not_held, before.locks.not_held);
    // No owner was used up: the next acquire's is as small as the probes before it allow.
    let owner = lock(&client, "k").owner();
    assert!(owner < 10, "{owner}");
}

#[test]
fn a_server_with_a_secret_takes_a_client_that_knows_it() {
    let secret = b"0123456789abcdef";
    let secrets = vec![lockd::Secret::new(secret).unwrap()];
    let server =
        lockd::Server::start(lockd::Config { secrets, ..lockd::Config::on_free_port() }).unwrap();
    let client = ready(&config(server.addr()).secret(secret).unwrap());
    assert_eq!(lock(&client, "k").release().unwrap(), Released::Released);
}

#[test]
fn con_3_a_client_that_no_server_accepts_is_told_so_at_once() {
    let secrets = vec![lockd::Secret::new(b"0123456789abcdef").unwrap()];
    let server =
        lockd::Server::start(lockd::Config { secrets, ..lockd::Config::on_free_port() }).unwrap();
    for config in [config(server.addr()), config(server.addr()).secret(&[7; 16]).unwrap()] {
        // One that waits from the start, and one that comes later.
        let client = config.open().unwrap();
        let start = Instant::now();
        assert!(matches!(client.wait_ready(seconds(200)), Err(Error::Auth(_))));
        let error = client.acquire("k", &waiting(200)).unwrap_err();
        let Error::Auth(failure) = error else { panic!("{error:?}") };
        assert_eq!(failure.endpoint(), Some(&*server.addr().to_string()));
        assert!(start.elapsed() < PATIENCE);
        assert!(matches!(client.release("k", Token::new(3)), Err(Error::Auth(_))));
        // One that looks, and one that waits.
        assert!(matches!(client.wait_ready(Duration::ZERO), Err(Error::Auth(_))));
        assert!(matches!(client.wait_ready(PATIENCE), Err(Error::Auth(_))));
        assert!(start.elapsed() < PATIENCE);
    }
}

#[test]
fn a_look_finds_a_server_that_serves_and_one_that_has_gone() {
    let server = server();
    let client = client(server.addr());
    assert!((0..1_000).all(|_| client.wait_ready(Duration::ZERO).unwrap()));
    server.stop().unwrap();
    eventually("nobody serves", || !client.wait_ready(Duration::ZERO).unwrap());
    assert!(!client.wait_ready(ms(10)).unwrap());
}

#[test]
fn con_1_an_endpoint_may_be_a_name() {
    let server = server();
    let client = client(format!("localhost:{}", server.addr().port()));
    assert_eq!(lock(&client, "k").release().unwrap(), Released::Released);
}
