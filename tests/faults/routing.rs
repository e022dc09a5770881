//! Several nodes, of which one serves.

use crate::common::{eventually, lock, ms, waiting};
use crate::fake_node::{FakeNode, Reaction, Seen, error, leader, moved};
use crate::support::{begin, endpoints, open};
use lockclient::{Config, Outcome};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Nodes that agree on who leads.
struct Cluster {
    nodes: Vec<FakeNode>,
    leader: Arc<AtomicUsize>,
}

impl Cluster {
    fn start(count: usize) -> Cluster {
        let leader = Arc::new(AtomicUsize::new(0));
        let token = Arc::new(AtomicU64::new(0));
        let nodes: Vec<_> = (0..count).map(|_| FakeNode::start()).collect();
        let names: Arc<[String]> = nodes.iter().map(FakeNode::endpoint).collect();
        for (at, node) in nodes.iter().enumerate() {
            let (leader, token, names) = (leader.clone(), token.clone(), names.clone());
            node.react(move |seen| match leader.load(Ordering::SeqCst) {
                serving if serving == at => seen.served(1 + token.fetch_add(1, Ordering::Relaxed)),
                // What is still in flight is read, and has no answer.
                other => Reaction::Say(moved(&names[other])),
            });
        }
        Cluster { nodes, leader }
    }

    fn config(&self) -> Config {
        endpoints(self.nodes.iter().map(FakeNode::address))
    }

    /// Another node leads from now on. The one that led tells its clients, or leaves it to them to
    /// find out.
    fn move_to(&self, next: usize, told: bool) {
        let before = self.leader.swap(next, Ordering::SeqCst);
        if told {
            self.nodes[before].say_to_all(&leader(&self.nodes[next].endpoint()));
        }
    }
}

#[test]
fn con_3_con_4_a_leader_that_moves_while_16_threads_work() {
    let cluster = Cluster::start(3);
    let client = open(&cluster.config());
    let (over, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut moves = Vec::new();
    let unknown: HashSet<String> = std::thread::scope(|scope| {
        let work = |thread: usize| {
            let mut unknown = Vec::new();
            for turn in 0.. {
                if over.load(Ordering::Relaxed) {
                    return unknown;
                }
                let key = format!("{thread}-{turn}");
                let wait = if turn % 2 == 0 { 20 } else { 0 };
                match client.acquire(&key, &waiting(wait)).unwrap() {
                    Outcome::Acquired(lock) => drop(lock),
                    Outcome::Indeterminate(_) => unknown.push(key),
                    other => panic!("{key}: {other:?}"),
                }
                done.fetch_add(1, Ordering::Relaxed);
                // A pause, so that the frames that are kept stay few.
                std::thread::sleep(ms(1));
            }
            unreachable!()
        };
        let workers: Vec<_> = (0..16).map(|thread| scope.spawn(move || work(thread))).collect();
        for (turn, next) in [1, 2, 0, 2, 1].into_iter().enumerate() {
            std::thread::sleep(ms(500));
            moves.push((Instant::now(), cluster.leader.load(Ordering::SeqCst), next));
            cluster.move_to(next, turn % 2 == 0);
            let count = done.load(Ordering::Relaxed);
            eventually("work goes on", || done.load(Ordering::Relaxed) > count + 64);
        }
        over.store(true, Ordering::Relaxed);
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    // What each node was sent while it did not lead.
    let mut astray: HashMap<String, (usize, Duration)> = HashMap::new();
    for (at, node) in cluster.nodes.iter().enumerate() {
        for seen in node.acquires() {
            let last = moves.iter().rfind(|(when, ..)| *when <= seen.at);
            let leads = last.map_or(0, |(_, _, next)| *next);
            if leads != at {
                let since = last.map_or(Duration::ZERO, |(when, ..)| seen.at - *when);
                astray.insert(seen.key().unwrap().to_owned(), (at, since));
            }
        }
    }
    let slow: Vec<_> = astray.iter().filter(|(_, (_, since))| *since > ms(400)).collect();
    assert!(slow.is_empty(), "to a follower long after the move: {slow:?}");
    // Unknown is only what a node was sent that could not answer it any more.
    let mut sent: HashMap<String, usize> = HashMap::new();
    for seen in cluster.nodes.iter().flat_map(FakeNode::acquires) {
        *sent.entry(seen.key().unwrap().to_owned()).or_default() += 1;
    }
    assert!(sent.values().all(|times| *times == 1), "no acquire was sent twice");
    for key in &unknown {
        assert!(sent.contains_key(key), "{key} was never sent, and is definite");
    }
    let total = done.load(Ordering::Relaxed);
    assert!(unknown.len() <= 16 * moves.len(), "{} of {total} unknown", unknown.len());
    assert_eq!(sent.len(), total, "each one was sent once");
}

#[test]
fn con_2_hints_that_are_no_endpoints_lead_nowhere() {
    let stranger = FakeNode::start();
    let node = FakeNode::start();
    let client = open(&endpoints([node.endpoint()]));
    let port = stranger.address().port();
    let mut hints = vec![
        stranger.endpoint(),
        format!("localhost:{port}"),
        format!("[::1]:{port}"),
        format!("[::ffff:127.0.0.1]:{port}"),
        String::new(),
        ":".into(),
        "127.0.0.1".into(),
        "127.0.0.1:0".into(),
        "127.0.0.1:99999".into(),
        "\u{fffd} %s%n\\".into(),
        "x".repeat(140),
    ];
    for hint in &hints {
        node.say(0, &leader(hint));
    }
    node.say(0, b"L\xff\xfe:7\n");
    assert!(client.acquire("k", &waiting(60)).unwrap().acquired().is_some());
    assert_eq!(node.connections(), 1, "a notice closes nothing");
    // The same from a node that sends its clients away.
    hints.truncate(3);
    for hint in hints {
        let connection = node.connections();
        node.react(move |seen| {
            let sent_away = seen.is_acquire() && seen.connection < connection;
            if sent_away { Reaction::Say(moved(&hint)) } else { seen.served(1) }
        });
        let outcome = client.acquire("k", &waiting(60)).unwrap();
        assert!(matches!(outcome, Outcome::Indeterminate(_)), "{outcome:?}");
        assert!(client.acquire("k", &waiting(60)).unwrap().acquired().is_some());
    }
    assert_eq!(stranger.connections(), 0);
}

#[test]
fn con_2_a_hint_in_another_spelling_is_the_endpoint() {
    for is_moved in [false, true] {
        let (one, two) = (FakeNode::start(), FakeNode::start());
        let port = two.address().port();
        let client = open(&endpoints([one.endpoint(), format!("localhost:{port}")]));
        let hint = format!("LocalHost.:0{port}");
        if is_moved {
            one.react(
                move |seen| {
                    if seen.is_acquire() { Reaction::Say(moved(&hint)) } else { seen.served(1) }
                },
            );
            drop(client.acquire("first", &waiting(60)).unwrap());
        } else {
            one.say(0, &leader(&hint));
            // From when the notice is read no acquire goes to the other any more.
            eventually("it goes where the leader is", || {
                drop(lock(&client, "first"));
                two.acquires().len() == 1
            });
        }
        let before = one.acquires().len();
        drop(lock(&client, "second"));
        assert_eq!(one.acquires().len(), before);
        assert!(two.acquires().iter().any(|seen| seen.key() == Some("second")));
    }
}

#[test]
fn con_4_a_node_that_may_not_serve_gets_no_acquire() {
    for code in ["no_leader", "not_active", "auth_failed", "bad_request", "never_heard_of"] {
        let (one, two) = (FakeNode::start(), FakeNode::refusing());
        one.react(move |_| Reaction::Say(error(code)));
        let client = begin(&endpoints([one.endpoint(), two.endpoint()]));
        let ticket = client.start("k", &waiting(60)).unwrap();
        eventually("it was asked again", || one.connections() >= 2);
        two.listen();
        assert!(ticket.wait().unwrap().acquired().is_some(), "{code}");
        assert_eq!(one.acquires().len(), 0, "{code}");
        assert!(one.seen().iter().all(Seen::is_probe), "{code}");
    }
}

#[test]
fn con_4_nothing_is_believed_of_a_server_that_has_not_proved_itself() {
    let secret = b"0123456789abcdef";
    let (liar, good) = (FakeNode::start(), FakeNode::start());
    good.demand(secret);
    // It grants, and names a leader, before any handshake; or proves nothing afterwards.
    let client = {
        liar.greet([leader("127.0.0.1:1"), moved(&good.endpoint())].concat());
        begin(&endpoints([liar.endpoint(), good.endpoint()]).secret(secret).unwrap())
    };
    drop(lock(&client, "k"));
    assert!(liar.connections() >= 1);
    assert_eq!(liar.seen().len(), 0, "nothing was sent to it");
    assert_eq!(good.acquires().len(), 1);
    liar.demand(b"another secret, truly");
    good.refuse();
    good.close_all();
    // Until then a call may still go out on it, and is unknown.
    eventually("the end is noticed", || client.stats().connections_now == 0);
    let reason = crate::support::unsent(client.acquire("k", &waiting(1)).unwrap());
    assert!(
        matches!(reason, lockclient::ReasonKind::Auth | lockclient::ReasonKind::Connect),
        "{reason:?}"
    );
    assert_eq!(liar.acquires().len(), 0);
}
