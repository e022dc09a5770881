//! How a client ends.

mod common;

use common::fake::{Fake, Request};
use common::{
    PATIENCE, at_once, client, config, eventually, lock, ms, ready, seconds, server, waiting,
};
use lockclient::{Error, Outcome, ReasonKind, Released, Shutdown, Token};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

#[test]
fn an_idle_client_ends_cleanly_even_in_no_time() {
    let server = server();
    for timeout in [Duration::ZERO, seconds(30)] {
        let client = client(server.addr());
        let start = Instant::now();
        let end = client.shutdown(timeout).unwrap();
        // In no time at all its thread may not have come to say so.
        assert!(end == Shutdown::Clean || timeout.is_zero());
        assert!(start.elapsed() < seconds(20));
        assert_eq!(client.shutdown(PATIENCE).unwrap(), Shutdown::Clean, "it may be repeated");
    }
    eventually("its connections are closed", || server.stats().connections == 0);
}

#[test]
fn every_call_after_a_shutdown_says_that_the_client_is_closed() {
    let server = server();
    let client = client(server.addr());
    let other = client.clone();
    assert_eq!(client.shutdown(PATIENCE).unwrap(), Shutdown::Clean);
    assert!(matches!(other.acquire("k", &at_once()), Err(Error::Closed)));
    assert!(matches!(other.start("k", &at_once()), Err(Error::Closed)));
    assert!(matches!(other.release("k", Token::new(1)), Err(Error::Closed)));
    assert!(matches!(other.release_start("k", Token::new(1)), Err(Error::Closed)));
    assert!(matches!(other.wait_ready(ms(1)), Err(Error::Closed)));
    // Before the input is looked at.
    assert!(matches!(other.acquire("", &at_once()), Err(Error::Closed)));
}

#[test]
fn host_6_shutdown_wakes_every_blocked_caller() {
    let server = server();
    let holder = client(server.addr());
    let _held = lock(&holder, "k");
    let client = client(server.addr());
    std::thread::scope(|scope| {
        let blocked: Vec<_> =
            (0..8).map(|_| scope.spawn(|| client.acquire("k", &waiting(200)).unwrap())).collect();
        eventually("all wait", || server.stats().locks.waiters == 8);
        let ticket = client.start("k", &waiting(200)).unwrap();
        eventually("all wait", || server.stats().locks.waiters == 9);
        let start = Instant::now();
        // Nothing is known to be held, so nothing is unconfirmed.
        assert_eq!(client.shutdown(PATIENCE).unwrap(), Shutdown::Clean);
        for thread in blocked {
            let outcome = thread.join().unwrap();
            let Outcome::Indeterminate(failure) = outcome else { panic!("{outcome:?}") };
            assert_eq!(failure.kind(), ReasonKind::Closed);
        }
        assert!(matches!(ticket.wait().unwrap(), Outcome::Indeterminate(_)));
        assert!(start.elapsed() < PATIENCE);
    });
    eventually("nobody waits", || server.stats().locks.waiters == 0);
}

#[test]
fn what_was_not_sent_is_cancelled_by_a_shutdown() {
    // Accepts connections and never says a word.
    let fake = Fake::start(|_, _| {});
    fake.serve(false);
    let client = config(fake.address()).open().unwrap();
    std::thread::scope(|scope| {
        let blocked = scope.spawn(|| client.acquire("k", &waiting(200)).unwrap());
        let hopeful = scope.spawn(|| client.wait_ready(seconds(200)));
        eventually("it is queued", || client.stats().queued_now == 1);
        assert_eq!(client.shutdown(PATIENCE).unwrap(), Shutdown::Clean);
        assert!(matches!(blocked.join().unwrap(), Outcome::Cancelled));
        assert!(matches!(hopeful.join().unwrap(), Err(Error::Closed)));
    });
}

#[test]
fn rel_6_shutdown_lets_the_releases_under_way_finish() {
    let server = server();
    let client = client(server.addr());
    let locks: Vec<_> = (0..500).map(|key| lock(&client, &key.to_string())).collect();
    drop(locks);
    assert_eq!(client.shutdown(PATIENCE).unwrap(), Shutdown::Clean);
    assert_eq!(server.stats().locks.held, 0);
    assert_eq!(client.stats().released, 500);
}

#[test]
fn rel_6_shutdown_returns_in_its_time_and_tells_what_it_could_not_confirm() {
    let fake = Fake::start(|peer, request| {
        if let Request::Acquire { owner, key, .. } = request {
            peer.grant(owner, 7, &key);
        }
    });
    let client = client(fake.address());
    drop(lock(&client, "k"));
    let start = Instant::now();
    assert_eq!(client.shutdown(ms(200)).unwrap(), Shutdown::Unconfirmed);
    // The thread ends a tenth earlier, so that its word is there in time.
    assert!(start.elapsed() >= ms(180), "{:?}", start.elapsed());
    assert!(start.elapsed() < seconds(4), "{:?}", start.elapsed());
    // On a machine under load the thread's word may come after its caller has left.
    eventually("it is counted", || client.stats().unconfirmed == 1);
    // A caller that is blocked in a release is told as well.
    let blocked = common::client(fake.address());
    let token = lock(&blocked, "k").into_grant().token();
    std::thread::scope(|scope| {
        let release = scope.spawn(|| blocked.release("k", token).unwrap());
        eventually("it is under way", || fake.accepted() >= 2 && blocked.stats().acquired == 1);
        std::thread::sleep(ms(20));
        assert_eq!(blocked.shutdown(Duration::ZERO).unwrap(), Shutdown::Unconfirmed);
        match release.join().unwrap() {
            Released::Unconfirmed(failure) => assert_eq!(failure.kind(), ReasonKind::Closed),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn the_last_handle_takes_the_client_along_after_the_releases() {
    let server = server();
    let client = client(server.addr());
    let held = lock(&client, "k");
    let ticket = client.start("k", &waiting(200)).unwrap();
    drop(client);
    // Lock and ticket keep it open.
    assert_eq!(server.stats().locks.held, 1);
    assert!(server.stats().connections > 0);
    drop(ticket);
    drop(held);
    eventually("it is free", || server.stats().locks.held == 0);
    eventually("the client has gone", || server.stats().connections == 0);
}

#[test]
fn a_lock_that_is_dropped_after_a_shutdown_is_left_to_its_lease() {
    let server = server();
    let client = client(server.addr());
    let held = lock(&client, "k");
    let other = lock(&client, "l");
    assert_eq!(client.shutdown(PATIENCE).unwrap(), Shutdown::Clean);
    drop(held);
    assert!(matches!(other.release(), Err(Error::Closed)));
    assert_eq!(client.stats().unconfirmed, 1);
    assert_eq!(server.stats().locks.held, 2);
}

#[test]
fn the_threads_of_a_client_are_gone_when_shutdown_returns() {
    let server = server();
    let ours = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names =
            tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names.filter(|name| name.trim() == "end-test-log").count()
    };
    // Other tests have clients too: the log thread is told apart by a name that it gives itself.
    let config = config(server.addr()).log(|_, _| rename_this_thread("end-test-log"));
    let client = ready(&config);
    eventually("the log thread has been called", || ours() == 1);
    assert_eq!(client.shutdown(PATIENCE).unwrap(), Shutdown::Clean);
    assert_eq!(ours(), 0);
}

/// What a program keeps for each thread, and that is slow to let go of.
struct Slow(mpsc::Receiver<()>);

impl Drop for Slow {
    fn drop(&mut self) {
        let _ = self.0.recv_timeout(seconds(20));
    }
}

thread_local! {
    static SLOW: std::cell::OnceCell<Slow> = const { std::cell::OnceCell::new() };
}

#[test]
fn host_6_a_shutdown_does_not_wait_for_the_programs_own_destructors() {
    let server = server();
    let (go, gate) = mpsc::channel();
    let (send, lines) = mpsc::channel();
    let gate = Mutex::new(Some(gate));
    let config = config(server.addr()).log(move |_, _| {
        if let Some(gate) = gate.lock().unwrap().take() {
            SLOW.with(|slow| assert!(slow.set(Slow(gate)).is_ok()));
            send.send(()).unwrap();
        }
    });
    let client = ready(&config);
    lines.recv().unwrap();
    let start = Instant::now();
    assert_eq!(client.shutdown(ms(500)).unwrap(), Shutdown::Clean);
    assert!(start.elapsed() < seconds(10), "{:?}", start.elapsed());
    assert!(start.elapsed() >= ms(500), "it gives them the time that there is");
    drop(go);
}

fn rename_this_thread(name: &str) {
    let path = "/proc/thread-self/comm";
    std::fs::write(path, name).unwrap();
}

#[test]
fn blocking_calls_from_inside_the_log_callback_are_refused() {
    let server = server();
    let known: Arc<Mutex<Option<lockclient::Client>>> = Arc::default();
    let (send, receive) = mpsc::channel();
    let inside = known.clone();
    let config = config(server.addr()).log(move |_, _| {
        if let Some(client) = inside.lock().unwrap().as_ref() {
            let refused = |error| matches!(error, Some(Error::WouldDeadlock));
            let token = Token::new(1);
            let ticket = client.start("l", &waiting(1)).unwrap();
            send.send([
                refused(client.acquire("k", &at_once()).err()),
                refused(client.release("k", token).err()),
                refused(client.wait_ready(ms(1)).err()),
                refused(client.shutdown(ms(1)).err()),
                refused(ticket.wait().err()),
                client.release_start("k", token).is_ok(),
            ])
            .unwrap();
        }
    });
    let client = ready(&config);
    *known.lock().unwrap() = Some(client.clone());
    // Something to log: a connection is lost.
    let ticket = client.start("k", &waiting(60)).unwrap();
    // A late line about the first connection may have started the other ticket before, and taken
    // this one's connection along when it was dropped.
    eventually("it has ended", || {
        let stats = client.stats();
        stats.acquired + stats.indeterminate >= 1
    });
    drop(ticket);
    assert_eq!(receive.recv_timeout(PATIENCE).unwrap(), [true; 6]);
    *known.lock().unwrap() = None;
    assert_eq!(client.shutdown(PATIENCE).unwrap(), Shutdown::Clean);
    let count = receive.try_iter().count();
    std::thread::sleep(ms(50));
    assert_eq!(receive.try_iter().count(), 0, "a callback after shutdown ({count} before)");
}

#[test]
fn gr_5_a_release_that_is_refused_inside_the_log_callback_gives_the_lock_back() {
    let server = server();
    let held: Arc<Mutex<Option<lockclient::Lock>>> = Arc::default();
    let (send, receive) = mpsc::channel();
    let inside = held.clone();
    let config = config(server.addr()).log(move |_, _| {
        if let Some(lock) = inside.lock().unwrap().take() {
            send.send(lock.release()).unwrap();
        }
    });
    let client = ready(&config);
    *held.lock().unwrap() = Some(lock(&client, "k"));
    // A try has a connection of its own, and a line tells of it.
    drop(client.acquire("l", &at_once()).unwrap());
    let released = receive.recv_timeout(PATIENCE).unwrap();
    assert!(matches!(released, Err(Error::WouldDeadlock)), "{released:?}");
    eventually("the lock is free", || server.stats().locks.held == 0);
}

#[test]
fn a_client_without_an_endpoint_is_not_opened() {
    assert!(matches!(lockclient::Config::new().open(), Err(Error::NoEndpoint)));
}
