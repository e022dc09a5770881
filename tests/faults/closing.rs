//! How connections end, and what still arrives meanwhile.

use crate::child::{self, hear, say};
use crate::common::{eventually, seconds, server, waiting};
use crate::fake_node::{FakeNode, Reaction, Seen};
use crate::proxy::{Proxy, Way};
use crate::support::{endpoints, narrow, open, unknown, word};
use lockclient::ReasonKind;

#[test]
fn clo_1_a_grant_in_flight_when_its_connection_ends_is_caught_and_released() {
    let server = server();
    let proxy = Proxy::start(server.addr());
    let client = open(&narrow(proxy.endpoint()));
    proxy.change(0, Way::Down, |down| down.hold = true);
    let ticket = client.start("k", &waiting(60)).unwrap();
    eventually("it is granted", || server.stats().locks.held == 1);
    eventually("its answer is on the way", || proxy.waiting(0, Way::Down) > 0);
    ticket.cancel();
    assert_eq!(unknown(ticket.wait().unwrap()), ReasonKind::Cancelled);
    // The server has heard the end; the grant is still on its way.
    eventually("the connection ends", || client.stats().connections_now == 0 || proxy.links() > 1);
    proxy.change(0, Way::Down, |down| down.hold = false);
    eventually("it is released", || server.stats().locks.held == 0);
    assert_eq!(server.stats().locks.expired, 0, "by its token");
    eventually("it is counted", || client.stats().compensations == 1);
}

#[test]
fn clo_1_what_was_read_before_a_reset_counts() {
    let node =
        FakeNode::start_with(
            |seen| {
                if seen.is_acquire() { Reaction::Hold } else { seen.served(1) }
            },
        );
    let client = open(&narrow(node.endpoint()));
    let tickets = ["one", "two"].map(|key| client.start(key, &waiting(60)).unwrap());
    let both = |seen: &[Seen]| seen.iter().filter(|seen| seen.is_acquire()).count() == 2;
    node.wait_for("both", both);
    let acquires = node.acquires();
    node.say(0, &acquires[1].granted(5));
    node.reset(0);
    let second = tickets[1].wait().unwrap().acquired().expect("it was answered");
    assert_eq!(second.token().get(), 5);
    assert_eq!(unknown(tickets[0].wait().unwrap()), ReasonKind::Io);
}

/// In a child that leaves a copy of itself behind when it sends its acquire.
pub(crate) fn leave_a_copy(arguments: &[String]) {
    let client = open(&narrow(&arguments[0]));
    let ticket = client.start("key-that-makes-it-long-enough", &waiting(60)).unwrap();
    hear();
    if arguments[1] == "cancel" {
        ticket.cancel();
    }
    say(word(&ticket.wait().unwrap()));
    client.shutdown(seconds(10)).map(drop).unwrap();
    hear();
}

#[test]
fn clo_2_a_forked_copy_keeps_no_connection_alive() {
    // With the lingering end of a cancelled acquire's connection, and with the plain one.
    for way in ["cancel", "close"] {
        let node = FakeNode::start_with(move |seen| {
            if seen.is_acquire() && way == "cancel" { Reaction::Hold } else { seen.served(1) }
        });
        let shim = [("SHIM_FORK", "1".to_owned()), ("SHIM_CUT_FROM", "30".to_owned())];
        let arguments = [node.endpoint(), way.to_owned()];
        let mut child = child::start_shimmed("leave_a_copy", &arguments, &shim);
        node.wait_for("the acquire", |seen| seen.iter().any(Seen::is_acquire));
        child.tell("end it");
        child.expect(if way == "cancel" { "indeterminate" } else { "acquired" });
        // The copy lives as long as the child, which waits.
        assert_eq!(node.wait_for_end(0), 0);
        child.tell("over");
        child.finish();
    }
}

#[test]
fn con_5_a_silent_server_is_found_out() {
    let node = FakeNode::start();
    let config = narrow(node.endpoint()).idle_probe(seconds(1)).unwrap();
    let client = open(&config);
    node.react(|_| Reaction::Hold);
    let probes = |seen: &[Seen]| seen.iter().filter(|seen| seen.is_probe()).count() == 2;
    let asked = node.wait_for("a probe that stays unanswered", probes)[1].at;
    crate::support::sleep_until(asked + crate::common::ms(1_100));
    // NotSent beats Indeterminate: nothing is written there any more.
    let outcome = client.acquire("k", &waiting(1)).unwrap();
    crate::support::unsent(outcome);
    assert_eq!(node.acquires().len(), 0);
    node.wait_for_end(0);
    // Five seconds from when it was asked, which was somewhat before the question came.
    assert!(asked.elapsed() >= seconds(4));
    // The next connection finds it well again.
    node.react(crate::fake_node::serve());
    assert!(client.acquire("k", &waiting(60)).unwrap().acquired().is_some());
}

/// A server that dies takes nothing along but what was really under way.
#[test]
fn con_3_a_restarted_server_is_found_again() {
    let first = server();
    let proxy = Proxy::start(first.addr());
    let client = open(&endpoints([proxy.endpoint()]));
    let ticket = client.start("held", &waiting(60)).unwrap();
    let held = ticket.wait().unwrap().acquired().unwrap();
    let waiting_ticket = client.start("held", &waiting(60)).unwrap();
    eventually("it waits", || first.stats().locks.waiters == 1);
    first.stop().unwrap();
    assert!(matches!(unknown(waiting_ticket.wait().unwrap()), ReasonKind::Eof | ReasonKind::Io));
    let second = server();
    proxy.retarget(second.addr());
    assert!(client.acquire("other", &waiting(60)).unwrap().acquired().is_some());
    drop(held);
}
