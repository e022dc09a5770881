//! Servers that die, stop, or are not there.

mod common;

use common::fake::{Fake, Peer, Request};
use common::{
    PATIENCE, at_once, client, config, eventually, lock, ms, ready, seconds, server, waiting,
};
use lockclient::wire::ServerFrame;
use lockclient::{Client, Error, Outcome, ReasonKind, Released, Shutdown, Ticket, Token};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// An address where nobody listens.
fn refusing() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

#[test]
fn dl_4_with_nobody_to_connect_to_a_call_ends_unsent_at_its_deadline() {
    let address = refusing();
    let client = config(&address).open().unwrap();
    for (options, least) in [(waiting(1), 1), (at_once(), 5)] {
        let start = Instant::now();
        let outcome = client.acquire("k", &options).unwrap();
        let took = start.elapsed();
        let Outcome::NotSent(failure) = outcome else { panic!("{outcome:?}") };
        assert_eq!(failure.kind(), ReasonKind::Connect);
        assert_eq!(failure.os_error(), Some(libc::ECONNREFUSED));
        assert_eq!(failure.endpoint(), Some(&*address));
        let text = failure.to_string();
        assert!(text.contains("Connection refused") && text.contains(&address), "{text}");
        assert!(took >= seconds(least), "{took:?}");
        assert!(took < seconds(least) + seconds(5), "{took:?}");
    }
    assert_eq!(client.stats().not_sent, 2);
    assert!(!client.wait_ready(ms(10)).unwrap());
}

#[test]
fn rel_3_a_release_without_an_answer_is_unconfirmed_after_five_seconds() {
    let client = config(refusing()).open().unwrap();
    let start = Instant::now();
    let released = client.release("k", Token::new(7)).unwrap();
    assert!(matches!(released, Released::Unconfirmed(_)), "{released:?}");
    assert!(start.elapsed() >= ms(4_990), "{:?}", start.elapsed());
    assert!(start.elapsed() < seconds(10), "{:?}", start.elapsed());
}

#[test]
fn con_1_a_name_that_cannot_be_resolved_is_a_reason() {
    let client = config("no-such-host.invalid:1").open().unwrap();
    let outcome = client.acquire("k", &waiting(2)).unwrap();
    let Outcome::NotSent(failure) = outcome else { panic!("{outcome:?}") };
    // Where even the look-up gets no answer, the dial's time limit ends it.
    let kinds = [ReasonKind::Resolve, ReasonKind::ConnectTimeout, ReasonKind::None];
    assert!(kinds.contains(&failure.kind()), "{failure}");
}

#[test]
fn snd_3_an_unsent_call_moves_on_to_a_server_that_serves() {
    let server = server();
    let config = config(refusing()).endpoint(&server.addr().to_string()).unwrap();
    let client = config.open().unwrap();
    assert!(client.acquire("k", &at_once()).unwrap().acquired().is_some());
}

#[test]
fn a_server_that_is_killed_leaves_sent_calls_unknown() {
    let fake = Fake::start(|_, _| {});
    let client = client(fake.address());
    std::thread::scope(|scope| {
        let blocked: Vec<_> = (0..4)
            .map(|at| {
                let client = &client;
                scope.spawn(move || client.acquire(&format!("k{at}"), &waiting(200)).unwrap())
            })
            .collect();
        eventually("all are sent", || client.stats().in_flight_now == 4);
        let start = Instant::now();
        fake.kill();
        for thread in blocked {
            let outcome = thread.join().unwrap();
            let Outcome::Indeterminate(failure) = outcome else { panic!("{outcome:?}") };
            assert_eq!(failure.kind(), ReasonKind::Io);
            assert!(failure.to_string().contains("reset by peer"), "{failure}");
        }
        assert!(start.elapsed() < PATIENCE);
    });
    let stats = client.stats();
    assert_eq!((stats.indeterminate, stats.in_flight_now), (4, 0));
}

#[test]
fn a_client_goes_on_with_another_server() {
    let (first, second) = (server(), server());
    let addresses = [first.addr(), second.addr()].map(|address| address.to_string());
    let config = config(&addresses[0]).endpoint(&addresses[1]).unwrap();
    let client = ready(&config);
    drop(lock(&client, "k"));
    first.stop().unwrap();
    // What was sent as the server stopped is unknown; then there is the other one.
    let mut outcome = None;
    eventually("the other serves", || {
        outcome = client.acquire("k", &waiting(5)).unwrap().acquired();
        outcome.is_some()
    });
    assert_eq!(second.stats().locks.held, 1);
}

#[test]
fn dl_5_a_server_that_stops_answering_leaves_a_call_unknown_after_the_grace() {
    let fake = Fake::start(|_, _| {});
    let client = ready(&config(fake.address()).response_grace(ms(300)).unwrap());
    let start = Instant::now();
    let outcome = client.acquire("k", &waiting(1)).unwrap();
    let took = start.elapsed();
    let Outcome::Indeterminate(failure) = outcome else { panic!("{outcome:?}") };
    assert_eq!(failure.kind(), ReasonKind::Deadline);
    assert!(took >= ms(1_300), "{took:?}");
    assert!(took < seconds(6), "{took:?}");
}

#[test]
fn dl_6_a_late_answer_within_the_grace_is_definite() {
    let fake = Fake::start(|peer, request| {
        if let Request::Acquire { owner, key, .. } = request {
            std::thread::sleep(ms(1_200));
            peer.send(ServerFrame::TimedOut { owner, key: &key });
        }
    });
    let client = ready(&config(fake.address()).response_grace(seconds(30)).unwrap());
    let outcome = client.acquire("k", &waiting(1)).unwrap();
    assert!(matches!(outcome, Outcome::TimedOut), "{outcome:?}");
}

#[test]
fn dl_6_a_strict_deadline_ends_a_call_at_its_deadline() {
    let fake = Fake::start(|_, _| {});
    let config = config(fake.address()).response_grace(seconds(30)).unwrap().strict_deadline(true);
    let client = ready(&config);
    let start = Instant::now();
    let outcome = client.acquire("k", &waiting(1)).unwrap();
    assert!(matches!(outcome, Outcome::Indeterminate(_)), "{outcome:?}");
    assert!(start.elapsed() >= seconds(1) && start.elapsed() < seconds(6));
}

/// A server that grants, but late, and keeps the tokens that are released.
fn late(delay: Duration) -> (Fake, Arc<Mutex<Vec<u64>>>) {
    let released: Arc<Mutex<Vec<u64>>> = Arc::default();
    let kept = released.clone();
    let tokens = AtomicU64::new(100);
    let fake = Fake::start(move |peer: &Peer, request| match request {
        Request::Acquire { owner, key, .. } => {
            std::thread::sleep(delay);
            peer.grant(owner, tokens.fetch_add(1, Ordering::Relaxed), &key);
        }
        Request::Release { owner, token, key } => {
            kept.lock().unwrap().push(token);
            peer.send(ServerFrame::Released { owner, key: &key });
        }
        Request::Proof => {}
    });
    (fake, released)
}

#[test]
fn dl_7_a_late_grant_is_given_back_by_its_token_and_the_connection_stays() {
    let (fake, released) = late(ms(1_200));
    let client = ready(&config(fake.address()).response_grace(seconds(30)).unwrap());
    let outcome = client.acquire("k", &waiting(1)).unwrap();
    let Outcome::Indeterminate(failure) = outcome else { panic!("{outcome:?}") };
    assert_eq!(failure.kind(), ReasonKind::LateGrant);
    eventually("its token is released", || *released.lock().unwrap() == [100]);
    eventually("the answer is in", || client.stats().released == 1);
    let stats = client.stats();
    assert_eq!((stats.late_grants, stats.compensations, stats.connections_closed), (1, 1, 0));
}

#[test]
fn gr_4_a_grant_with_too_little_of_its_lease_left_is_given_back() {
    // The whole second of lease passes before the grant arrives, and a probe that is answered just
    // before it proves nothing here.
    let (fake, released) = late(ms(1_500));
    let client = ready(&config(fake.address()).ordered_answers(false));
    let options = waiting(60).lease(seconds(1));
    let outcome = client.acquire("k", &options).unwrap();
    let Outcome::Indeterminate(failure) = outcome else { panic!("{outcome:?}") };
    assert_eq!(failure.kind(), ReasonKind::ShortLease);
    eventually("its token is released", || *released.lock().unwrap() == [100]);
}

#[test]
fn snd_5_what_was_refused_and_is_ended_before_it_is_sent_again_is_busy() {
    // Refuses once, ends the connection, and does not serve afterwards: no second try can go out.
    let refusing = || {
        let refused = Arc::new(AtomicBool::new(false));
        let once = refused.clone();
        let fake = Fake::start(move |peer: &Peer, request| {
            if let Request::Acquire { owner, key, .. } = request {
                once.store(true, Ordering::SeqCst);
                peer.send(ServerFrame::Busy { owner, key: &key });
                peer.finish();
            }
        });
        let config = config(fake.address()).connections(1).unwrap().busy_retry(true);
        let client = ready(&config);
        fake.serve(false);
        (fake, client, refused)
    };
    let ends: [fn(&Client, &Ticket); 2] = [
        |_, ticket| ticket.cancel(),
        |client, _| assert_eq!(client.shutdown(seconds(10)).unwrap(), Shutdown::Clean),
    ];
    for end in ends {
        let (_fake, client, refused) = refusing();
        let ticket = client.start("k", &waiting(200)).unwrap();
        eventually("it was refused and waits", || {
            let stats = client.stats();
            refused.load(Ordering::SeqCst) && stats.connections_now == 0 && stats.queued_now == 1
        });
        end(&client, &ticket);
        let outcome = ticket.wait().unwrap();
        assert!(matches!(outcome, Outcome::Busy), "{outcome:?}");
        eventually("it is counted", || client.stats().busy == 1);
        assert_eq!(client.stats().cancelled, 0);
    }
}

#[test]
fn clo_1_a_grant_that_comes_after_a_cancel_is_given_back() {
    let (fake, released) = late(ms(300));
    let client = client(fake.address());
    let ticket = client.start("k", &waiting(60)).unwrap();
    eventually("it is sent", || client.stats().in_flight_now == 1);
    ticket.cancel();
    assert!(matches!(ticket.wait().unwrap(), Outcome::Indeterminate(_)));
    eventually("its token is released", || *released.lock().unwrap() == [100]);
}

#[test]
fn an_answer_that_nobody_asked_for_closes_the_connection_and_gives_the_grant_back() {
    let released: Arc<Mutex<Vec<u64>>> = Arc::default();
    let kept = released.clone();
    let fake = Fake::start(move |peer: &Peer, request| match request {
        Request::Acquire { owner, .. } => peer.grant(owner, 55, b"another"),
        Request::Release { owner, token, key } => {
            kept.lock().unwrap().push(token);
            peer.send(ServerFrame::Released { owner, key: &key });
        }
        Request::Proof => {}
    });
    let client = client(fake.address());
    let outcome = client.acquire("k", &waiting(30)).unwrap();
    let Outcome::Indeterminate(failure) = outcome else { panic!("{outcome:?}") };
    assert_eq!(failure.kind(), ReasonKind::Mismatch);
    eventually("its token is released", || *released.lock().unwrap() == [55]);
}

#[test]
fn rel_1_a_release_is_tried_again_when_its_connection_is_lost() {
    let lost = AtomicU64::new(0);
    let fake = Fake::start(move |peer: &Peer, request| match request {
        Request::Acquire { owner, key, .. } => peer.grant(owner, 9, &key),
        Request::Release { .. } if lost.fetch_add(1, Ordering::Relaxed) == 0 => peer.reset(),
        Request::Release { owner, key, .. } => {
            peer.send(ServerFrame::NotHeld { owner, key: &key });
        }
        Request::Proof => {}
    });
    let client = client(fake.address());
    let released = lock(&client, "k").release().unwrap();
    // The first try may have worked: the result says so.
    assert_eq!(released, Released::NotHeld { retried: true });
}

#[test]
fn con_7_one_more_than_the_queue_holds_is_refused_at_once() {
    let client = config(refusing()).queue_limit(5).unwrap().open().unwrap();
    let tickets: Vec<_> = (0..5).map(|_| client.start("k", &waiting(200)).unwrap()).collect();
    assert!(matches!(client.start("k", &waiting(200)), Err(Error::QueueFull)));
    let start = Instant::now();
    assert!(matches!(client.acquire("k", &waiting(200)), Err(Error::QueueFull)));
    assert!(start.elapsed() < seconds(20));
    drop(tickets);
    eventually("there is room again", || client.start("k", &waiting(200)).is_ok());
}

#[test]
fn con_7_more_started_releases_than_the_limit_are_refused() {
    let client = config(refusing()).queue_limit(1024).unwrap().open().unwrap();
    for token in 1..=1024 {
        client.release_start("k", Token::new(token)).unwrap();
    }
    assert!(matches!(client.release_start("k", Token::new(1)), Err(Error::QueueFull)));
    eventually("their five seconds are over", || client.stats().unconfirmed == 1024);
    eventually("there is room again", || client.release_start("k", Token::new(1)).is_ok());
}
