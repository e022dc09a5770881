//! What provably remains of a lease, against what the server knows.

use crate::child::{self, say};
use crate::common::{eventually, ms, seconds, server};
use crate::fake_node::{FakeNode, Reaction, Request, Seen};
use crate::proxy::{Proxy, Way};
use crate::support::{endpoints, leasing, narrow, open, sleep_until, unknown};
use lockclient::{Acquire, Lock, Outcome, ReasonKind};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A node that grants when it is told to, and notes when it did.
struct Granter {
    node: FakeNode,
    acquire: Arc<Mutex<Option<Seen>>>,
}

impl Granter {
    fn start() -> Granter {
        let acquire = Arc::new(Mutex::new(None));
        let noted = acquire.clone();
        let node = FakeNode::start_with(move |seen| {
            if seen.is_acquire() {
                *noted.lock().unwrap() = Some(seen.clone());
                return Reaction::Hold;
            }
            seen.served(1)
        });
        Granter { node, acquire }
    }

    /// Grants the acquire. The lease began between these two instants.
    fn grant(&self) -> (Instant, Instant) {
        eventually("an acquire", || self.acquire.lock().unwrap().is_some());
        let acquire = self.acquire.lock().unwrap().take().unwrap();
        let before = Instant::now();
        self.node.say(acquire.connection, &acquire.granted(1));
        (before, Instant::now())
    }
}

/// When the lock provably ends.
fn end(lock: &Lock) -> Instant {
    let now = Instant::now();
    now + lock.remaining()
}

fn acquired(outcome: Outcome<Lock>) -> Lock {
    outcome.acquired().expect("granted")
}

#[test]
fn gr_2_the_bound_is_never_above_the_truth_and_close_to_it_while_waiting() {
    let granter = Granter::start();
    let proxy = Proxy::start(granter.node.address());
    let lease = 8;
    for (wait, held) in [(ms(0), ms(0)), (ms(2_500), ms(0)), (ms(0), ms(1_500))] {
        let client = open(&narrow(proxy.endpoint()));
        let link = proxy.links() - 1;
        let ticket = client.start("k", &leasing(60, lease)).unwrap();
        std::thread::sleep(wait);
        // What holds the grant back on its way makes the bound smaller, not wrong.
        proxy.change(link, Way::Down, |down| down.hold = !held.is_zero());
        let (before, after) = granter.grant();
        sleep_until(after + held);
        proxy.change(link, Way::Down, |down| down.hold = false);
        let lock = acquired(ticket.wait().unwrap());
        for _ in 0..3 {
            let bound = end(&lock);
            assert!(bound <= before + seconds(lease), "more than the truth");
            let least = before + seconds(lease) - ms(1_200);
            assert!(bound >= least, "{:?} less than the truth", after + seconds(lease) - bound);
            std::thread::sleep(ms(20));
        }
        client.shutdown(seconds(10)).map(drop).unwrap();
    }
}

#[test]
fn gr_2_without_ordered_answers_only_the_acquire_itself_proves_anything() {
    let granter = Granter::start();
    let client = open(&narrow(granter.node.endpoint()).ordered_answers(false));
    let start = Instant::now();
    let ticket = client.start("k", &leasing(60, 8)).unwrap();
    eventually("an acquire", || granter.acquire.lock().unwrap().is_some());
    let came = granter.acquire.lock().unwrap().as_ref().unwrap().at;
    std::thread::sleep(ms(2_500));
    granter.grant();
    let lock = acquired(ticket.wait().unwrap());
    let bound = end(&lock);
    assert!(bound <= came + seconds(8), "{:?}", bound - came);
    assert!(bound >= start + seconds(8) - ms(100), "{:?}", bound - start);
}

#[test]
fn gr_2_the_bound_ends_before_the_server_takes_the_lock_back() {
    let server = server();
    let client = open(&endpoints([server.addr()]));
    let other = open(&endpoints([server.addr()]));
    let holder = acquired(other.acquire("k", &leasing(0, 60)).unwrap());
    let ticket = client.start("k", &leasing(60, 2)).unwrap();
    eventually("it waits", || server.stats().locks.waiters == 1);
    std::thread::sleep(ms(1_300));
    drop(holder);
    let lock = acquired(ticket.wait().unwrap());
    let bound = end(&lock);
    // Somebody else gets it when the server's own clock says so.
    let next = other.acquire("k", &leasing(60, 60)).unwrap();
    let taken = Instant::now();
    assert!(next.acquired().is_some());
    assert_eq!(server.stats().locks.expired, 1);
    assert!(bound <= taken, "more than the server knew: {:?}", bound - taken);
    assert!(lock.remaining().is_zero());
    let _ = lock.into_grant();
}

#[test]
fn gr_4_a_grant_of_which_nothing_remains_is_given_back() {
    let granter = Granter::start();
    let proxy = Proxy::start(granter.node.address());
    let client = open(&narrow(proxy.endpoint()));
    let ticket = client.start("k", &leasing(60, 1)).unwrap();
    proxy.change(0, Way::Down, |down| down.hold = true);
    let (_, after) = granter.grant();
    sleep_until(after + ms(1_100));
    proxy.change(0, Way::Down, |down| down.hold = false);
    assert_eq!(unknown(ticket.wait().unwrap()), ReasonKind::ShortLease);
    let released = |seen: &Seen| matches!(seen.request, Request::Release { token: 1, .. });
    granter.node.wait_for("its release", |seen| seen.iter().any(released));
    assert_eq!(granter.node.open_connections(), 1);
}

#[test]
fn gr_4_enforce_budget_gives_back_what_is_too_short_for_the_work() {
    for enforce in [false, true] {
        let granter = Granter::start();
        let proxy = Proxy::start(granter.node.address());
        let client = open(&narrow(proxy.endpoint()).enforce_budget(enforce));
        let options = Acquire::new(seconds(60), seconds(60)).lease(seconds(61));
        let ticket = client.start("k", &options).unwrap();
        proxy.change(0, Way::Down, |down| down.hold = true);
        let (_, after) = granter.grant();
        sleep_until(after + ms(1_100));
        proxy.change(0, Way::Down, |down| down.hold = false);
        let outcome = ticket.wait().unwrap();
        if enforce {
            assert_eq!(unknown(outcome), ReasonKind::ShortLease);
        } else {
            let lock = acquired(outcome);
            assert!(lock.grant().remaining_at_delivery() < seconds(60));
        }
    }
}

/// The time since the machine started, which every process here shares.
fn uptime() -> Duration {
    let text = std::fs::read_to_string("/proc/uptime").expect("uptime");
    let seconds = text.split(' ').next().expect("two numbers");
    Duration::from_secs_f64(seconds.parse().expect("seconds"))
}

/// In a child: takes "k" and says, in milliseconds of uptime, when its lease provably ends.
pub(crate) fn tell_the_end(arguments: &[String]) {
    let client = open(&narrow(&arguments[0]));
    match client.acquire("k", &leasing(60, 8)).unwrap() {
        Outcome::Acquired(lock) => {
            let remaining = lock.remaining();
            say(&(uptime() + remaining).as_millis().to_string());
        }
        other => say(crate::support::word(&other)),
    }
    client.shutdown(seconds(5)).map(drop).unwrap();
}

#[test]
fn gr_2_a_process_that_stood_still_does_not_overrate_its_lease() {
    let granter = Granter::start();
    let child = child::start("tell_the_end", &[granter.node.endpoint()]);
    eventually("an acquire", || granter.acquire.lock().unwrap().is_some());
    child.freeze();
    let before = uptime();
    let (_, after) = granter.grant();
    sleep_until(after + ms(1_500));
    child.thaw();
    let bound = Duration::from_millis(child.line().parse().unwrap());
    // Uptime is told in hundredths, rounded down; the child's reading comes after the bound's.
    let truth = before + seconds(8) + ms(10);
    assert!(bound <= truth + ms(20), "{bound:?} is more than {truth:?}");
    assert!(bound + ms(1_200) >= truth - ms(30), "{bound:?} is much less than {truth:?}");
    child.finish();
}
