//! What becomes of callers when the background thread does nothing, or dies.

use super::*;
use crate::io::Script;
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{self, Sender};
use std::time::Instant;

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// A client of a server that takes connections and says nothing: its calls stay unsent.
fn client(config: Config) -> (Client, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = config.endpoint(&listener.local_addr().unwrap().to_string()).unwrap();
    (config.open().unwrap(), listener)
}

/// A client with one call that was sent: the server answers its probe and nothing else.
fn client_with_a_sent_call(wait: u64) -> (Client, Ticket, TcpStream) {
    use crate::wire::{ClientFrame, Decoder, FromClient, PROBE_KEY, ServerFrame};
    use std::io::{Read, Write};
    let (client, listener) = client(Config::new().connections(1).unwrap());
    let (mut peer, _) = listener.accept().unwrap();
    let options = Acquire::new(Duration::from_secs(wait), Duration::ZERO);
    let ticket = client.start("sent", &options).unwrap();
    let mut decoder = Decoder::<FromClient>::default();
    let mut buffer = [0; 512];
    loop {
        let count = peer.read(&mut buffer).unwrap();
        let mut input = &buffer[..count];
        while let Some(frame) = decoder.next(&mut input).unwrap() {
            match frame {
                ClientFrame::Release { owner, token: 0, .. } => {
                    let mut out = Vec::new();
                    ServerFrame::NotHeld { owner, key: PROBE_KEY }.encode(&mut out);
                    #[allow(clippy::disallowed_methods, reason = "the test's own server")]
                    peer.write_all(&out).unwrap();
                }
                ClientFrame::Acquire { .. } => return (client, ticket, peer),
                _ => panic!("{frame:?}"),
            }
        }
    }
}

fn suffer(client: &Client, run: impl FnOnce() + Send + 'static) {
    let script = Command::Run(Script::new(run));
    client.shared().commands.push(script, PATIENTLY).unwrap();
}

/// Keeps the background thread from doing anything until the sender is dropped.
fn stall(client: &Client) -> Sender<()> {
    let (release, wait) = mpsc::channel::<()>();
    let (entered, inside) = mpsc::channel();
    suffer(client, move || {
        entered.send(()).unwrap();
        let _ = wait.recv();
    });
    inside.recv().unwrap();
    release
}

#[track_caller]
fn assert_took(start: Instant, least: Duration) {
    let took = start.elapsed();
    assert!(took >= least, "{took:?}");
    // The promise is 100 ms; the rest is for a machine under load.
    assert!(took < least + ms(3_000), "{took:?}");
}

#[test]
fn host_6_blocked_calls_return_in_time_though_the_background_thread_stands_still() {
    let (client, _listener) = client(Config::new());
    let stalled = stall(&client);
    let start = Instant::now();
    let options = Acquire::new(ms(1_000), Duration::ZERO);
    std::thread::scope(|scope| {
        let acquire = scope.spawn(|| client.acquire("k", &options).unwrap());
        let ticket = client.start("k", &options).unwrap();
        assert!(ticket.poll().unwrap().is_none());
        assert!(!client.wait_ready(ms(300)).unwrap());
        assert_took(start, ms(300));
        assert!(matches!(acquire.join().unwrap(), Outcome::NotSent(_)));
        assert_took(start, ms(1_000));
        assert!(matches!(ticket.wait().unwrap(), Outcome::NotSent(_)));
    });
    let start = Instant::now();
    assert!(matches!(client.release("k", Token::new(1)).unwrap(), Released::Unconfirmed(_)));
    assert_took(start, RELEASE_TIME);
    let start = Instant::now();
    assert_eq!(client.shutdown(ms(200)).unwrap(), Shutdown::Unconfirmed);
    assert_took(start, ms(200));
    assert!(matches!(client.acquire("k", &options), Err(Error::Closed)));
    drop(stalled);
}

#[test]
fn host_6_a_look_at_who_serves_does_not_need_the_background_thread() {
    let (ready, _ticket, _peer) = client_with_a_sent_call(100);
    // The turn that has sent its call has told so; what stalls the thread is a later one's.
    let stalled = stall(&ready);
    assert!(ready.wait_ready(Duration::ZERO).unwrap());
    assert!(ready.wait_ready(ms(1)).unwrap());
    drop(stalled);
    let (silent, _listener) = client(Config::new());
    let stalled = stall(&silent);
    assert!(!silent.wait_ready(Duration::ZERO).unwrap());
    drop(stalled);
}

#[test]
fn host_6_a_sent_call_is_unknown_in_time_though_the_background_thread_stands_still() {
    let start = Instant::now();
    let (client, ticket, _peer) = client_with_a_sent_call(1);
    let stalled = stall(&client);
    let Outcome::Indeterminate(failure) = ticket.wait().unwrap() else { panic!() };
    assert_eq!(failure.kind(), ReasonKind::Deadline);
    assert!(start.elapsed() >= ms(1_500));
    drop(stalled);
}

#[test]
fn host_6_shutdown_wakes_every_blocked_caller_though_the_background_thread_stands_still() {
    let (client, sent, mut peer) = client_with_a_sent_call(200);
    let stalled = stall(&client);
    let options = Acquire::new(ms(200_000), Duration::ZERO);
    let unsent = client.start("unsent", &options).unwrap();
    let late = client.start("late", &options).unwrap();
    let closed = |outcome| match outcome {
        Outcome::Indeterminate(failure) => failure.kind() == ReasonKind::Closed,
        _ => false,
    };
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| closed(sent.wait().unwrap()));
        let others = [
            scope.spawn(|| matches!(unsent.wait().unwrap(), Outcome::Cancelled)),
            scope.spawn(|| matches!(client.acquire("k", &options).unwrap(), Outcome::Cancelled)),
            scope.spawn(|| match client.release("k", Token::new(1)).unwrap() {
                Released::Unconfirmed(failure) => failure.kind() == ReasonKind::Closed,
                _ => false,
            }),
        ];
        // Two tickets, and what the last two ask for.
        while client.shared().commands.waiting() < 4 {
            std::thread::yield_now();
        }
        let start = Instant::now();
        assert_eq!(client.shutdown(ms(300)).unwrap(), Shutdown::Unconfirmed);
        assert!(waits.join().unwrap());
        assert!(others.into_iter().all(|other| other.join().unwrap()));
        // Whoever comes to wait now finds the same.
        assert!(matches!(late.wait().unwrap(), Outcome::Cancelled));
        assert_took(start, ms(300));
    });
    // What was said to be unsent stays so when the thread goes on.
    drop(stalled);
    let mut rest = Vec::new();
    std::io::Read::read_to_end(&mut peer, &mut rest).unwrap();
    let rest = String::from_utf8(rest).unwrap();
    assert!(!rest.contains("unsent") && !rest.contains("late"), "{rest}");
}

#[test]
fn host_6_whoever_waits_for_a_server_hears_of_the_clients_end() {
    for dies in [false, true] {
        let (client, _listener) = client(Config::new());
        std::thread::scope(|scope| {
            let stalled = stall(&client);
            let hopeful = scope.spawn(|| client.wait_ready(ms(200_000)));
            while client.shared().commands.waiting() < 1 {
                std::thread::yield_now();
            }
            let start = Instant::now();
            if dies {
                suffer(&client, || panic!("on purpose"));
                drop(stalled);
                let heard = hopeful.join().unwrap();
                assert!(matches!(heard, Err(Error::System(_))), "{heard:?}");
            } else {
                assert_eq!(client.shutdown(ms(100)).unwrap(), Shutdown::Unconfirmed);
                assert!(matches!(hopeful.join().unwrap(), Err(Error::Closed)));
            }
            assert_took(start, Duration::ZERO);
        });
    }
}

#[test]
fn host_6_shutdown_returns_in_time_though_another_caller_stands_still() {
    let (client, listener) = client(Config::new());
    let (mut peer, _) = listener.accept().unwrap();
    let held = client.shared().commands.hold();
    let start = Instant::now();
    assert_eq!(client.shutdown(ms(100)).unwrap(), Shutdown::Unconfirmed);
    assert_took(start, ms(100));
    assert!(matches!(client.wait_ready(ms(1)), Err(Error::Closed)));
    drop(held);
    // The thread was not asked to end, and is when the last handle goes.
    drop(client);
    std::io::Read::read_to_end(&mut peer, &mut Vec::new()).unwrap();
}

#[test]
fn snd_5_cancelling_does_not_need_the_background_thread() {
    let (client, ticket, _peer) = client_with_a_sent_call(100);
    let stalled = stall(&client);
    ticket.cancel();
    assert!(matches!(ticket.poll().unwrap(), Some(Outcome::Indeterminate(_))));
    let unsent = client.start("k", &Acquire::new(ms(90_000), Duration::ZERO)).unwrap();
    unsent.cancel();
    assert!(matches!(unsent.poll().unwrap(), Some(Outcome::Cancelled)));
    drop(stalled);
}

#[test]
fn host_5_a_panic_of_the_background_thread_leaves_nobody_waiting() {
    let (client, ticket, _peer) = client_with_a_sent_call(100);
    let options = Acquire::new(ms(90_000), Duration::ZERO);
    let unsent = client.start("k", &options).unwrap();
    std::thread::scope(|scope| {
        let stalled = stall(&client);
        let release = scope.spawn(|| client.release("k", Token::new(1)).unwrap());
        while client.shared().commands.waiting() < 1 {
            std::thread::yield_now();
        }
        // Some of what waits is taken before the panic, some after it.
        let first = client.start("k", &options).unwrap();
        suffer(&client, || panic!("on purpose"));
        let late = client.start("k", &options).unwrap();
        let start = Instant::now();
        drop(stalled);
        let Outcome::Indeterminate(failure) = ticket.wait().unwrap() else { panic!() };
        assert_eq!(failure.kind(), ReasonKind::ThreadEnded);
        // Sent or not, as the background thread came to it before it stood still.
        assert!(matches!(unsent.wait(), Err(Error::System(_)) | Ok(Outcome::Indeterminate(_))));
        assert!(matches!(first.wait(), Err(Error::System(_))));
        assert!(matches!(late.wait(), Err(Error::System(_))));
        let Released::Unconfirmed(failure) = release.join().unwrap() else { panic!() };
        assert_eq!(failure.kind(), ReasonKind::ThreadEnded);
        assert_took(start, Duration::ZERO);
    });
    assert!(matches!(client.acquire("k", &options), Err(Error::System(_))));
    assert!(matches!(client.start("k", &options), Err(Error::System(_))));
    assert!(matches!(client.release("k", Token::new(1)), Err(Error::System(_))));
    let start = Instant::now();
    assert_eq!(client.shutdown(ms(60_000)).unwrap(), Shutdown::Unconfirmed);
    assert_took(start, Duration::ZERO);
}
