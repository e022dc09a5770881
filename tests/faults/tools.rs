//! The tools themselves: a test that leans on one must know that it does what it says.

use crate::child;
use crate::common::{PATIENCE, eventually, ms};
use crate::door::{Door, Flooded};
use crate::fake_node::{FakeNode, Reaction, Request, Seen, error, leader};
use crate::proxy::{Course, End, Plan, Proxy, Way};
use lockclient::wire::{
    ClientFrame, Decoder, FromServer, PROBE_KEY, ServerFrame, client_proof, server_proof,
};
use socket2::SockRef;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// A client by hand.
struct Hand(TcpStream);

impl Hand {
    fn connect(address: SocketAddr) -> Hand {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Hand(stream)
    }

    fn send(&mut self, frame: ClientFrame<'_>) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        assert_eq!(self.0.write(&bytes).unwrap(), bytes.len());
    }

    fn acquire(&mut self, owner: u64) {
        self.send(ClientFrame::Acquire { wait: 1, lease: 2, owner, key: b"k" });
    }

    /// Reads so many bytes.
    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// One read: what it brings, or how it fails.
    fn read(&mut self) -> Result<Vec<u8>, ErrorKind> {
        let mut bytes = vec![0; 4096];
        let count = self.0.read(&mut bytes).map_err(|error| error.kind())?;
        bytes.truncate(count);
        Ok(bytes)
    }
}

/// The length of an acquire of "k" and of its answer.
const ACQUIRE: u64 = 13;
const GRANT: usize = 19;

fn acquire_bytes(owner: u64) -> [u8; ACQUIRE as usize] {
    let mut bytes = Vec::new();
    ClientFrame::Acquire { wait: 1, lease: 2, owner, key: b"k" }.encode(&mut bytes);
    bytes.try_into().unwrap()
}

#[test]
fn a_fake_node_answers_and_remembers() {
    let node = FakeNode::start();
    let mut hand = Hand::connect(node.address());
    hand.acquire(7);
    let grant = hand.bytes(GRANT);
    let mut decoder = Decoder::<FromServer>::default();
    let frame = decoder.next(&mut &grant[..]).unwrap().unwrap();
    assert_eq!(frame, ServerFrame::Acquired { owner: 7, token: 1, key: b"k" });
    hand.send(ClientFrame::Release { owner: 8, token: 0, key: PROBE_KEY });
    assert_eq!(hand.bytes(16)[0], b'N');
    hand.send(ClientFrame::Release { owner: 9, token: 1, key: b"k" });
    assert_eq!(hand.bytes(11)[0], b'R');
    let seen = node.seen();
    assert_eq!(seen.iter().filter_map(Seen::owner).collect::<Vec<_>>(), [7, 8, 9]);
    assert!(seen[1].is_probe() && seen.iter().all(|seen| seen.connection == 0));

    node.react(|_| Reaction::Hold);
    hand.acquire(10);
    let held = node.wait_for("the acquire", |seen| seen.len() == 4)[3].clone();
    node.say(0, &leader("a:1"));
    node.say(0, &held.timed_out());
    assert_eq!(hand.bytes(5), b"La:1\n");
    assert_eq!(hand.bytes(11)[0], b'T');
    node.react(|_| Reaction::SayAndClose(error("no_leader")));
    hand.acquire(11);
    assert_eq!(hand.bytes(11), b"Eno_leader\n");
    assert_eq!(hand.read(), Ok(Vec::new()));

    let mut other = Hand::connect(node.address());
    assert_eq!(other.0.write(b"A\0").unwrap(), 2);
    other.0.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(node.wait_for_end(1), 2, "the length of what was no whole frame");

    let mut last = Hand::connect(node.address());
    eventually("it is accepted", || node.connections() == 3);
    node.say(2, &leader("a:1"));
    node.reset(2);
    assert_eq!(last.bytes(5), b"La:1\n");
    assert_eq!(last.read(), Err(ErrorKind::ConnectionReset));
    node.wait_for_end(2);
}

#[test]
fn a_fake_node_refuses_and_listens_again() {
    let node = FakeNode::refusing();
    let refused = || TcpStream::connect(node.address()).unwrap_err().kind();
    assert_eq!(refused(), ErrorKind::ConnectionRefused);
    for _ in 0..3 {
        node.listen();
        Hand::connect(node.address()).acquire(1);
        node.refuse();
        assert_eq!(refused(), ErrorKind::ConnectionRefused);
    }
}

#[test]
fn a_fake_node_demands_a_secret() {
    let (secret, nonce) = (b"0123456789abcdef", [1; 32]);
    let node = FakeNode::start();
    node.demand(secret);
    for (known, op) in [(&secret[..], b'H'), (b"another secret, truly", b'E')] {
        let mut hand = Hand::connect(node.address());
        let challenge: [u8; 32] = hand.bytes(34)[1..33].try_into().unwrap();
        let proof = client_proof(known, &challenge, &nonce);
        hand.send(ClientFrame::Proof { nonce: &nonce, proof: &proof });
        let answer = hand.read().unwrap();
        assert_eq!(answer[0], op);
        if op == b'H' {
            assert_eq!(answer[1..33], server_proof(secret, &challenge, &nonce));
        }
    }
    assert!(matches!(node.seen()[0].request, Request::Proof { .. }));
}

#[test]
fn a_proxy_forwards_and_counts() {
    let node = FakeNode::start();
    let proxy = Proxy::start(node.address());
    let (mut one, mut two) = (Hand::connect(proxy.address()), Hand::connect(proxy.address()));
    one.acquire(1);
    assert_eq!(one.bytes(GRANT)[0], b'A');
    two.acquire(2);
    assert_eq!(two.bytes(GRANT)[0], b'A');
    let acquires: Vec<_> = proxy.acquires().iter().map(|f| (f.link, f.owner)).collect();
    assert_eq!(acquires, [(0, 1), (1, 2)]);
    assert_eq!((proxy.bytes(0, Way::Up), proxy.bytes(1, Way::Down)), (ACQUIRE, GRANT as u64));
    drop(one);
    eventually("the link is gone", || proxy.open_links() == 1);
    node.close(1);
    assert_eq!(two.read(), Ok(Vec::new()), "the end goes through");
    drop(two);
    eventually("the links are gone", || proxy.open_links() == 0);
}

#[test]
fn a_proxy_cuts_and_resets_at_any_byte() {
    let node = FakeNode::start();
    let proxy = Proxy::start(node.address());
    let mut link = 0;
    for at in 0..=2 * ACQUIRE {
        for end in [End::Cut, End::Reset, End::HalfClose] {
            proxy.plan(move |_| Plan {
                up: Course { end: Some((at, end)), ..Course::default() },
                down: Course { swallow: end == End::Cut, ..Course::default() },
            });
            let mut hand = Hand::connect(proxy.address());
            let two = [acquire_bytes(1), acquire_bytes(2)].concat();
            // At byte 0 the connection may be gone already.
            let written = hand.0.write(&two).map_err(|error| error.kind());
            let whole = (at / ACQUIRE) as usize;
            assert_eq!(node.wait_for_end(link), (at % ACQUIRE) as usize);
            match end {
                End::Cut => assert_eq!(hand.read(), Ok(Vec::new())),
                End::Reset => {
                    // The system tells of a reset once.
                    let mut end = written.map(|_| Vec::new());
                    for _ in 0..3 {
                        end = end.and_then(|_| hand.read());
                    }
                    assert_eq!(end, Err(ErrorKind::ConnectionReset));
                }
                // The answers come back all the same.
                _ => drop(hand.bytes(whole * GRANT)),
            }
            let count = |seen: &Seen| seen.connection == link;
            assert_eq!(node.seen().iter().filter(|seen| count(seen)).count(), whole);
            assert_eq!(proxy.acquires().iter().filter(|f| f.link == link).count(), whole);
            link += 1;
        }
    }
}

#[test]
fn a_proxy_holds_glues_delays_and_dribbles() {
    let node = FakeNode::start();
    let proxy = Proxy::start(node.address());
    let mut hand = Hand::connect(proxy.address());
    eventually("the link", || proxy.links() == 1);

    proxy.change(0, Way::Down, |down| down.hold = true);
    hand.acquire(1);
    eventually("an answer waits", || proxy.waiting(0, Way::Down) == GRANT);
    hand.acquire(2);
    eventually("two answers wait", || proxy.waiting(0, Way::Down) == 2 * GRANT);
    proxy.change(0, Way::Down, |down| down.hold = false);
    assert_eq!(hand.read().unwrap().len(), 2 * GRANT, "glued together");

    proxy.change(0, Way::Up, |up| up.delay = ms(60));
    let start = Instant::now();
    hand.acquire(3);
    hand.bytes(GRANT);
    assert!(start.elapsed() >= ms(60));
    proxy.change(0, Way::Up, |up| up.delay = Duration::ZERO);

    proxy.change(0, Way::Down, |down| down.dribble = Some(ms(3)));
    let start = Instant::now();
    hand.acquire(4);
    assert_eq!(hand.bytes(GRANT)[0], b'A');
    assert!(start.elapsed() >= ms(3) * (GRANT as u32 - 1));
}

#[test]
fn a_proxy_swallows_and_stalls() {
    let node = FakeNode::start();
    let proxy = Proxy::start_narrow(node.address(), |link| Plan {
        up: Course { swallow: link == 0, stall: link == 1, ..Course::default() },
        ..Plan::default()
    });
    let (mut one, two) = (Hand::connect(proxy.address()), Hand::connect(proxy.address()));
    eventually("both links", || proxy.links() == 2);
    one.acquire(1);
    // What is not read fills the socket.
    two.0.set_nonblocking(true).unwrap();
    SockRef::from(&two.0).set_send_buffer_size(1).unwrap();
    let piece = acquire_bytes(2).repeat(64);
    let mut sent = 0;
    let full = loop {
        match { &two.0 }.write(&piece[sent % ACQUIRE as usize..]) {
            Ok(count) => sent += count,
            Err(error) => break error.kind(),
        }
        assert!(sent < 1 << 24);
    };
    assert_eq!(full, ErrorKind::WouldBlock);
    assert_eq!(node.seen().len(), 0);
    proxy.change(1, Way::Up, |up| up.stall = false);
    node.wait_for("what was stalled", |seen| seen.len() >= sent / ACQUIRE as usize);
    assert!(node.seen().iter().all(|seen| seen.connection == 1), "the first one's vanished");
    proxy.refuse(true);
    let mut refused = Hand::connect(proxy.address());
    assert_eq!(refused.read(), Err(ErrorKind::ConnectionReset));
}

#[test]
fn a_flooded_port_answers_no_syn() {
    let flooded = Flooded::new();
    let error = TcpStream::connect_timeout(&flooded.address(), ms(300)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let door = Door::closed();
    let error = TcpStream::connect_timeout(&door.address(), ms(300)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

/// In a child: sends a text with bad sockets, and says how each send ended.
pub(crate) fn send_badly(arguments: &[String]) {
    let address: SocketAddr = arguments[0].parse().unwrap();
    let stream = loop {
        match TcpStream::connect(address) {
            Ok(stream) => break stream,
            Err(error) => child::say(&format!("{:?}", error.kind())),
        }
    };
    let mut rest = &acquire_bytes(1)[..];
    while !rest.is_empty() {
        match { &stream }.write(rest) {
            Ok(count) => {
                child::say(&count.to_string());
                rest = &rest[count..];
            }
            Err(error) => {
                child::say(&format!("{:?}", error.kind()));
                if error.kind() == ErrorKind::ConnectionReset {
                    return;
                }
            }
        }
    }
}

fn shimmed(node: &FakeNode, shim: &[(&str, &str)]) -> Vec<String> {
    let shim: Vec<_> = shim.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    let child = child::start_shimmed("send_badly", &[node.endpoint()], &shim);
    let lines = child.rest();
    child.finish();
    lines
}

#[test]
fn the_shim_does_what_it_says() {
    let node = FakeNode::start();
    assert_eq!(shimmed(&node, &[]), ["13"]);
    assert_eq!(shimmed(&node, &[("SHIM_CONNECT", "1")]), ["ConnectionRefused", "13"]);
    let cut = |then| [("SHIM_CUT", "5"), ("SHIM_CUT_THEN", then), ("SHIM_CUT_FROM", "13")];
    assert_eq!(shimmed(&node, &cut("reset")), ["5", "ConnectionReset"]);
    assert_eq!(node.wait_for_end(2), 5);
    assert_eq!(shimmed(&node, &cut("again")), ["5", "8"]);
    assert_eq!(shimmed(&node, &[("SHIM_CUT", "0")]), ["ConnectionReset"]);
    let again = [("SHIM_CUT", "0"), ("SHIM_CUT_THEN", "again")];
    assert_eq!(shimmed(&node, &again), ["WouldBlock", "13"]);
    // Too short to be cut.
    assert_eq!(shimmed(&node, &[("SHIM_CUT", "5"), ("SHIM_CUT_FROM", "14")]), ["13"]);
    let random = |seed| {
        let often = [("SHIM_SHORT", "700"), ("SHIM_AGAIN", "200"), ("SHIM_INTR", "200")];
        shimmed(&node, &[&often[..], &[("SHIM_SEED", seed)]].concat())
    };
    let (one, two) = (random("1"), random("2"));
    assert_eq!(one, random("1"), "the seed decides");
    assert_ne!(one, two);
    assert!(one.len() + two.len() > 4, "{one:?} {two:?}");
    assert_eq!(shimmed(&node, &[("SHIM_RESET", "1000")]).last().unwrap(), "ConnectionReset");
}
