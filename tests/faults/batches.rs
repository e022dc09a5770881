//! A batch of frames that is cut, at every byte: what counts as sent, what moves on, and what the
//! server is given.

use crate::child::{self, hear, say};
use crate::common::{at_once, eventually, lock, seconds, server, waiting};
use crate::fake_node::{FakeNode, Reaction, Request, Seen};
use crate::proxy::{Course, End, Plan, Proxy, Way};
use crate::support::{begin, in_parallel, narrow, unknown, word};
use lockclient::{Outcome, ReasonKind, Ticket};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

/// Of different lengths, so that no two frames end at the same distance.
const KEYS: [&str; 4] = ["a", "bb", "ccc", "dddd"];

/// An acquire's length without its key.
const FIXED: usize = 12;
/// A probe's length.
const PROBE: u64 = 24;

/// Where each frame of the batch begins and ends.
fn frames() -> Vec<(usize, usize)> {
    let mut start = 0;
    let frame = |key: &&str| {
        let begin = start;
        start += FIXED + key.len();
        (begin, start)
    };
    KEYS.iter().map(frame).collect()
}

fn batch() -> usize {
    frames()[KEYS.len() - 1].1
}

/// In a child: queues the batch before there is a connection, and says how each acquire ended.
pub(crate) fn send_batch(arguments: &[String]) {
    let client = narrow(&arguments[0]).open().unwrap();
    let tickets = KEYS.map(|key| client.start(key, &waiting(60)).unwrap());
    say("queued");
    for ticket in tickets {
        say(word(&ticket.wait().unwrap()));
    }
}

/// A node that answers the first connection's probe only when told to, and no acquire there.
fn reluctant() -> FakeNode {
    let mut token = 0;
    FakeNode::start_with(move |seen| {
        token += 1;
        if seen.connection == 0 { Reaction::Hold } else { seen.served(token) }
    })
}

fn answer_probe(node: &FakeNode) {
    let seen = node.wait_for("the first probe", |seen| !seen.is_empty());
    node.say(0, &seen[0].not_held());
}

/// Where each key's acquires came in, and under which owners.
fn sightings(node: &FakeNode) -> HashMap<String, Vec<(usize, u64)>> {
    let mut sightings: HashMap<String, Vec<_>> = HashMap::new();
    for seen in node.acquires() {
        let Request::Acquire { owner, key, wait, .. } = seen.request else { continue };
        assert!((1..=60).contains(&wait), "never more than was asked for");
        sightings.entry(key).or_default().push((seen.connection, owner));
    }
    sightings
}

/// Runs a child whose batch is cut at `at`; the words for its acquires, and the node.
fn cut_batch(at: usize, then: &str) -> (Vec<String>, FakeNode) {
    let node = reluctant();
    let shim = [
        ("SHIM_CUT", at.to_string()),
        ("SHIM_CUT_FROM", (PROBE + 1).to_string()),
        ("SHIM_CUT_THEN", then.to_owned()),
    ];
    let child = child::start_shimmed("send_batch", &[node.endpoint()], &shim);
    child.expect("queued");
    answer_probe(&node);
    if then == "again" {
        let all = |seen: &[Seen]| seen.iter().filter(|seen| seen.is_acquire()).count() == 4;
        for seen in node.wait_for("the batch", all).iter().filter(|seen| seen.is_acquire()) {
            node.say(0, &seen.timed_out());
        }
    }
    let words = child.rest();
    child.finish();
    (words, node)
}

#[test]
fn snd_1_snd_3_own_3_a_batch_cut_at_every_byte_by_a_reset() {
    in_parallel(0..=batch(), |at| {
        let (words, node) = cut_batch(at, "reset");
        let whole = frames().iter().map(|(_, end)| *end).filter(|end| *end <= at).max();
        let cut = at - whole.unwrap_or(0);
        assert_eq!(node.wait_for_end(0), cut, "of the frame that was cut no byte more came");
        let sightings = sightings(&node);
        for (place, (start, end)) in frames().into_iter().enumerate() {
            let what = format!("frame {place} of a batch cut at {at}: {words:?} {sightings:?}");
            let seen = sightings.get(KEYS[place]).cloned().unwrap_or_default();
            // OWN-3: the first probe and the four calls drew the first five owners; whoever drew
            // another on the way, after the second connection's probe, would have a greater one.
            assert!(seen.iter().all(|(_, owner)| (1..=5).contains(owner)), "{what}");
            let connections: Vec<_> = seen.into_iter().map(|(connection, _)| connection).collect();
            if at > start {
                assert_eq!(words[place], "indeterminate", "{what}");
                assert_eq!(connections, if at >= end { vec![0] } else { vec![] }, "{what}");
            } else {
                assert_eq!(words[place], "acquired", "{what}");
                assert!(connections.len() == 1 && connections[0] > 0, "{what}");
            }
        }
    });
}

#[test]
fn snd_1_a_batch_cut_at_every_byte_by_a_full_socket_goes_on_verbatim() {
    in_parallel(0..=batch(), |at| {
        let (words, node) = cut_batch(at, "again");
        assert_eq!(words, ["timed-out"; 4], "cut at {at}");
        let acquires = node.acquires();
        let keys: Vec<_> = acquires.iter().filter_map(Seen::key).collect();
        assert_eq!(keys, KEYS, "once each, in call order, cut at {at}");
        let owners: Vec<_> = acquires.iter().filter_map(Seen::owner).collect();
        assert!(owners.is_sorted() && owners[3] <= 5, "cut at {at}: {owners:?}");
    });
}

/// The client's kernel has taken the whole batch: wherever the network cuts it, it was sent.
#[test]
fn snd_2_a_batch_cut_at_every_byte_on_the_way_is_never_sent_again() {
    let server = server();
    let address = server.addr();
    let all = (1..=batch()).flat_map(|at| [End::Reset, End::Cut].map(|end| (at, end)));
    in_parallel(all, |(at, end)| {
        let what = format!("{end:?}-at-{at}");
        let proxy = Proxy::start_with(address, move |link| match link {
            0 => Plan {
                up: Course { end: Some((PROBE + at as u64, end)), ..Course::default() },
                // The probe's answer alone comes through, once the batch is queued.
                down: Course { hold: true, end: Some((16, End::Swallow)), ..Course::default() },
            },
            _ => Plan::default(),
        });
        let client = begin(&narrow(proxy.endpoint()));
        let tickets: Vec<Ticket> = KEYS
            .iter()
            .map(|key| client.start(&format!("{what}/{key}"), &waiting(60)).unwrap())
            .collect();
        eventually("a link", || proxy.links() > 0);
        proxy.change(0, Way::Down, |down| down.hold = false);
        for ticket in tickets {
            let reason = unknown(ticket.wait().unwrap());
            assert!(matches!(reason, ReasonKind::Io | ReasonKind::Eof), "{what}: {reason:?}");
        }
        // The server is as good as before.
        drop(lock(&client, &format!("{what}/afterwards")));
        let mut given = proxy.acquires();
        assert_eq!(given.pop().map(|frame| frame.link), Some(1), "{what}");
        assert!(given.iter().all(|frame| frame.link == 0), "{what}: {given:?}");
        let whole = |len: usize| FIXED + what.len() + 1 + len;
        let mut end = 0;
        let ends = KEYS.map(|key| {
            end += whole(key.len());
            end
        });
        assert_eq!(given.len(), ends.iter().filter(|end| **end <= at).count(), "{what}");
    });
}

/// What a worker asks for in a run with bad sockets.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// In a child: four threads take and give back locks of their own; says how it went.
pub(crate) fn work_badly(arguments: &[String]) {
    let rounds: u64 = arguments[1].parse().unwrap();
    let client = crate::support::endpoints([&arguments[0]]).open().unwrap();
    let unknown = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (client, unknown) = (&client, &unknown);
            scope.spawn(move || {
                for _ in 0..rounds / 4 {
                    let key = format!("k{}", NEXT.fetch_add(1, Ordering::Relaxed));
                    let options = if thread % 2 == 0 { at_once() } else { waiting(20) };
                    match client.acquire(&key, &options).unwrap() {
                        Outcome::Acquired(lock) if thread < 2 => drop(lock),
                        Outcome::Acquired(lock) => drop(lock.release().unwrap()),
                        Outcome::Indeterminate(_) => {
                            unknown.fetch_add(1, Ordering::Relaxed);
                        }
                        other => panic!("a free lock: {other:?}"),
                    }
                }
            });
        }
    });
    let _ = client.shutdown(seconds(10)).unwrap();
    say(&unknown.load(Ordering::Relaxed).to_string());
    hear();
}

#[test]
fn snd_2_bad_sockets_give_the_server_no_owner_twice() {
    in_parallel(1..=4, |seed: u64| {
        let server = server();
        let proxy = Proxy::start(server.addr());
        let shim = [("SHORT", 200), ("AGAIN", 100), ("INTR", 100), ("RESET", 10), ("SEED", seed)];
        let names = shim.map(|(name, _)| format!("SHIM_{name}"));
        let shim: Vec<_> =
            names.iter().zip(shim).map(|(name, (_, value))| (&**name, value.to_string())).collect();
        let rounds = 400;
        let mut child =
            child::start_shimmed("work_badly", &[proxy.endpoint(), rounds.to_string()], &shim);
        let unknown: usize = child.line().parse().unwrap();
        let mut owners = HashSet::new();
        let mut keys = HashSet::new();
        for frame in proxy.forwarded() {
            assert!(owners.insert(frame.owner), "seed {seed}: twice: {frame:?}");
            if frame.op == 'A' {
                assert!(keys.insert(frame.key.clone()), "seed {seed}: twice: {frame:?}");
            }
        }
        assert!(proxy.links() > 1, "seed {seed}: no connection was lost");
        assert!(keys.len() <= rounds && keys.len() + unknown >= rounds, "seed {seed}");
        child.tell("done");
        child.finish();
    });
}
