//! One deadline for each acquire, whatever the network does meanwhile.

use crate::child::{self, hear, say};
use crate::common::{ms, seconds, waiting};
use crate::door::{Door, Flooded};
use crate::fake_node::{FakeNode, Reaction, Request, Seen, serve};
use crate::proxy::{Course, Plan, Proxy, Way};
use crate::support::{
    begin, endpoints, in_parallel, narrow, open, sleep_until, unknown, unsent, word,
};
use lockclient::{Outcome, ReasonKind, Shutdown};
use std::time::{Duration, Instant};

fn wire_wait(seen: &Seen) -> u8 {
    match seen.request {
        Request::Acquire { wait, .. } => wait,
        _ => panic!("{seen:?}"),
    }
}

/// A node that serves, but answers its first probe only after `time`.
fn late(time: Duration) -> FakeNode {
    let mut serve = serve();
    FakeNode::start_with(move |seen| {
        if seen.is_probe() && seen.connection == 0 {
            std::thread::sleep(time);
        }
        serve(seen)
    })
}

#[test]
fn dl_1_dl_3_a_late_connection_starts_no_fresh_wait() {
    // The first frame that can leave carries what is left then.
    let node = late(ms(1_300));
    let client = begin(&narrow(node.endpoint()));
    let tickets = [5, 2].map(|wait| client.start(&format!("k{wait}"), &waiting(wait)).unwrap());
    let at_once = client.start("now", &waiting(0)).unwrap();
    for ticket in tickets.iter().chain([&at_once]) {
        assert!(ticket.wait().unwrap().acquired().is_some());
    }
    let waits: Vec<_> = node.acquires().iter().map(wire_wait).collect();
    // Under load the connection may be later still, never earlier; and what waits never sends 0.
    assert!((1..=4).contains(&waits[0]), "{waits:?}");
    assert_eq!(waits[1..], [1, 0], "{waits:?}");
}

#[test]
fn dl_1_dl_3_a_failover_starts_no_fresh_wait() {
    // Accepts, and answers nothing until it closes.
    let mute = FakeNode::start_with(|_| Reaction::Hold);
    let good = FakeNode::refusing();
    let client = begin(&endpoints([mute.endpoint(), good.endpoint()]));
    let start = Instant::now();
    let ticket = client.start("k", &waiting(5)).unwrap();
    mute.wait_for("a probe", |seen| !seen.is_empty());
    sleep_until(start + ms(1_200));
    mute.refuse();
    mute.close_all();
    good.listen();
    assert!(ticket.wait().unwrap().acquired().is_some());
    let acquires = good.acquires();
    assert_eq!(acquires.len(), 1);
    assert!((1..=4).contains(&wire_wait(&acquires[0])), "{acquires:?}");
    assert_eq!(mute.acquires().len(), 0);
}

#[test]
fn dl_4_a_connection_that_serves_after_the_deadline_carries_nothing() {
    let node = FakeNode::start_with(|_| Reaction::Hold);
    let client = begin(&narrow(node.endpoint()));
    let ticket = client.start("k", &waiting(1)).unwrap();
    let probe = node.wait_for("a probe", |seen| !seen.is_empty())[0].clone();
    assert_eq!(unsent(ticket.wait().unwrap()), ReasonKind::None);
    node.react(|seen| seen.served(1));
    node.say(0, &probe.not_held());
    assert!(client.acquire("another", &waiting(30)).unwrap().acquired().is_some());
    let acquires = node.acquires();
    assert_eq!(acquires.iter().filter_map(Seen::key).collect::<Vec<_>>(), ["another"]);
}

#[test]
fn dl_4_every_endpoint_refuses() {
    let (one, two) = (Door::closed(), Door::closed());
    let client = begin(&endpoints([one.address(), two.address()]));
    let start = Instant::now();
    let outcome = client.acquire("k", &waiting(1)).unwrap();
    let took = start.elapsed();
    let Outcome::NotSent(failure) = outcome else { panic!("{outcome:?}") };
    assert_eq!(failure.kind(), ReasonKind::Connect);
    assert_eq!(failure.os_error(), Some(libc::ECONNREFUSED));
    assert!(took >= seconds(1) && took < seconds(3), "{took:?}");
}

#[test]
fn dl_2_dl_4_an_attempt_at_once_ends_unsent_after_five_seconds() {
    let door = Door::closed();
    let client = begin(&narrow(door.address()));
    let start = Instant::now();
    let reason = unsent(client.acquire("k", &waiting(0)).unwrap());
    assert_eq!(reason, ReasonKind::Connect);
    assert!(start.elapsed() >= seconds(5) && start.elapsed() < seconds(7));
}

#[test]
fn dl_4_con_3_an_endpoint_that_swallows_packets() {
    let hole = Flooded::new();
    let config = narrow(hole.address()).connect_timeout(ms(300)).unwrap();
    let client = begin(&config);
    let start = Instant::now();
    let reason = unsent(client.acquire("k", &waiting(1)).unwrap());
    assert_eq!(reason, ReasonKind::ConnectTimeout);
    assert!(start.elapsed() >= seconds(1) && start.elapsed() < seconds(3));

    // The next endpoint is tried long before connecting to the first has timed out.
    let node = FakeNode::start();
    let config = endpoints([hole.address(), node.address()]);
    let client = begin(&config.connect_timeout(seconds(60)).unwrap());
    assert!(client.acquire("k", &waiting(50)).unwrap().acquired().is_some());
    assert!(client.acquire("k", &waiting(0)).unwrap().acquired().is_some());
}

/// In a child: one acquire, its outcome, its time in milliseconds, and how long the end took.
pub(crate) fn acquire_once(arguments: &[String]) {
    let wait = arguments[0].parse().unwrap();
    let client = endpoints(&arguments[1..]).connect_timeout(seconds(60)).unwrap().open().unwrap();
    let start = Instant::now();
    let outcome = client.acquire("k", &waiting(wait)).unwrap();
    say(word(&outcome));
    say(&start.elapsed().as_millis().to_string());
    drop(outcome);
    let start = Instant::now();
    let end = client.shutdown(seconds(5)).unwrap();
    say(&format!("{end:?}"));
    say(&start.elapsed().as_millis().to_string());
}

#[test]
fn dl_4_con_1_a_name_server_that_does_not_answer() {
    let shim = [("SHIM_NAME", "nowhere.example".to_owned())];
    let run = |arguments: &[String]| {
        let child = child::start_shimmed("acquire_once", arguments, &shim);
        let lines = child.rest();
        child.finish();
        let [outcome, took, end, closing] = lines.try_into().unwrap();
        assert_eq!(end, format!("{:?}", Shutdown::Clean));
        assert!(closing.parse::<u128>().unwrap() < 3_000, "{closing}");
        (outcome, took.parse::<u128>().unwrap())
    };
    let nowhere = "nowhere.example:7420".to_owned();
    let (outcome, took) = run(&["1".into(), nowhere.clone()]);
    assert_eq!(outcome, "not-sent");
    assert!((1_000..3_000).contains(&took), "{took} ms");
    // Nobody else waits for the name.
    let node = FakeNode::start();
    let (outcome, took) = run(&["50".into(), nowhere, node.endpoint()]);
    assert_eq!(outcome, "acquired");
    assert!(took < 40_000, "{took} ms");
}

#[test]
fn dl_5_dl_6_without_an_answer_the_outcome_is_unknown_and_the_connection_ends() {
    let node = FakeNode::start();
    let client = open(&narrow(node.endpoint()));
    node.react(|seen| if seen.is_acquire() { Reaction::Hold } else { seen.served(9) });
    let start = Instant::now();
    let reason = unknown(client.acquire("k", &waiting(1)).unwrap());
    let took = start.elapsed();
    assert_eq!(reason, ReasonKind::Deadline);
    // The response grace is part of it.
    assert!(took >= ms(1_500) && took < ms(3_000), "{took:?}");
    node.wait_for_end(0);
}

#[test]
fn dl_6_a_strict_deadline_has_no_grace() {
    let node = FakeNode::start();
    let config = narrow(node.endpoint()).response_grace(seconds(60)).unwrap();
    let client = open(&config.strict_deadline(true));
    node.react(|seen| if seen.is_acquire() { Reaction::Hold } else { seen.served(9) });
    let start = Instant::now();
    assert_eq!(unknown(client.acquire("k", &waiting(1)).unwrap()), ReasonKind::Deadline);
    assert!(start.elapsed() >= seconds(1) && start.elapsed() < seconds(20));
    node.wait_for_end(0);
}

#[test]
fn dl_6_dl_8_a_late_answer_inside_the_grace_is_definite() {
    let node = FakeNode::start();
    let client = open(&narrow(node.endpoint()).response_grace(seconds(30)).unwrap());
    node.react(|seen| if seen.is_acquire() { Reaction::Hold } else { seen.served(9) });
    let start = Instant::now();
    let tickets = ["t", "b"].map(|key| client.start(key, &waiting(1)).unwrap());
    let all = |seen: &[Seen]| seen.iter().filter(|seen| seen.is_acquire()).count() == 2;
    node.wait_for("both", all);
    sleep_until(start + ms(1_200));
    assert!(tickets.iter().all(|ticket| ticket.poll().unwrap().is_none()), "they still wait");
    let acquires = node.acquires();
    node.say(0, &acquires[0].timed_out());
    node.say(0, &acquires[1].busy());
    assert!(matches!(tickets[0].wait().unwrap(), Outcome::TimedOut));
    assert!(matches!(tickets[1].wait().unwrap(), Outcome::Busy));
    assert_eq!((node.open_connections(), client.stats().indeterminate), (1, 0));
}

/// In a child with a small send buffer: 200 acquires at once; what became of them.
pub(crate) fn fill_socket(arguments: &[String]) {
    let wait = arguments[0].parse().unwrap();
    let client = open(&narrow(&arguments[1]).response_grace(seconds(2)).unwrap());
    say("ready");
    hear();
    let start = Instant::now();
    let key = |at: u32| format!("{at:0>120}");
    let tickets: Vec<_> =
        (0..200).map(|at| client.start(&key(at), &waiting(wait)).unwrap()).collect();
    let outcomes: Vec<_> = tickets.iter().map(|ticket| ticket.wait().unwrap()).collect();
    let took = start.elapsed().as_millis();
    let words: Vec<_> = outcomes.iter().map(word).collect();
    let count = |word| words.iter().filter(|other| **other == word).count();
    say(&format!("{} {}", count("not-sent"), count("indeterminate")));
    // In call order: what left did so before what did not.
    say(&words.is_sorted_by_key(|word| *word == "not-sent").to_string());
    say(&took.to_string());
    client.shutdown(seconds(10)).map(drop).unwrap();
}

/// A child whose connection has just been stalled and that is about to fill it.
fn full_socket(wait: u64) -> (FakeNode, Proxy, child::Process) {
    let node = FakeNode::start();
    // What one stalled connection left unsent must not get out over the next one.
    let proxy = Proxy::start_narrow(node.address(), |link| Plan {
        up: Course { stall: link > 0, ..Course::default() },
        ..Plan::default()
    });
    let shim = [("SHIM_FULL", "2048".to_owned())];
    let arguments = [wait.to_string(), proxy.endpoint()];
    let mut child = child::start_shimmed("fill_socket", &arguments, &shim);
    child.expect("ready");
    proxy.change(0, Way::Up, |up| up.stall = true);
    child.tell("go");
    (node, proxy, child)
}

#[test]
fn dl_4_dl_6_a_socket_that_stays_full_past_the_deadline() {
    let (_node, proxy, child) = full_socket(1);
    let line = child.line();
    let (not_sent, unknown) = line.split_once(' ').unwrap();
    let (not_sent, unknown): (u32, u32) = (not_sent.parse().unwrap(), unknown.parse().unwrap());
    assert_eq!(not_sent + unknown, 200);
    assert!(not_sent > 0 && unknown > 0, "{line}: the socket was never full");
    child.expect("true");
    // The frame that was cut ends at its deadline, and takes the others along: no grace for it.
    let took: u32 = child.line().parse().unwrap();
    assert!((1_000..2_900).contains(&took), "{took} ms");
    child.finish();
    assert_eq!(proxy.acquires().len(), 0);
}

#[test]
fn dl_3_what_a_full_socket_did_not_take_is_encoded_anew() {
    let (node, proxy, child) = full_socket(20);
    std::thread::sleep(ms(1_300));
    proxy.change(0, Way::Up, |up| up.stall = false);
    child.expect("0 0");
    child.finish();
    let acquires = node.acquires();
    let waits: Vec<_> = acquires.iter().map(wire_wait).collect();
    assert_eq!(waits.len(), 200);
    assert!(acquires.iter().all(|seen| seen.connection == 0));
    assert!(waits.is_sorted_by(|earlier, later| earlier >= later), "{waits:?}");
    // Under load both may be less.
    assert!(waits[0] <= 20 && waits[199] <= 19 && waits[0] > waits[199], "{waits:?}");
}

/// In a child: an acquire of "k" for 1 s that is answered while the process stands still.
pub(crate) fn stand_still(arguments: &[String]) {
    let client = open(&narrow(&arguments[0]));
    let outcome = client.acquire("k", &waiting(1)).unwrap();
    say(word(&outcome));
    // The connection is as good as before.
    say(word(&client.acquire("again", &waiting(30)).unwrap()));
    let stats = client.stats();
    say(&format!("{} {}", stats.connections_closed, stats.late_grants));
}

#[test]
fn clo_1_dl_8_a_process_that_stood_still_past_its_deadline_closes_nothing() {
    // Several at once: whether the caller or the background thread wakes first is chance.
    let all = [false, false, true, false, false, false, true, false];
    in_parallel(all, |granted| {
        let node = FakeNode::start_with(|seen| {
            let held = seen.key() == Some("k") && seen.is_acquire();
            if held { Reaction::Hold } else { seen.served(9) }
        });
        let child = child::start("stand_still", &[node.endpoint()]);
        let seen = node.wait_for("the acquire", |seen| seen.iter().any(Seen::is_acquire));
        let acquire = seen.iter().find(|seen| seen.is_acquire()).unwrap();
        child.freeze();
        node.say(0, &if granted { acquire.granted(77) } else { acquire.timed_out() });
        // Past the deadline, the grace, and what the caller adds by itself.
        sleep_until(acquire.at + ms(2_200));
        child.thaw();
        // What was in the socket counts.
        child.expect(if granted { "indeterminate" } else { "timed-out" });
        child.expect("acquired");
        child.expect(if granted { "0 1" } else { "0 0" });
        if granted {
            let released = |seen: &Seen| matches!(&seen.request, Request::Release { token: 77, key, .. } if key == "k");
            node.wait_for("the release", |seen| seen.iter().any(released));
        }
        child.finish();
        assert_eq!(node.connections(), 1);
    });
}
