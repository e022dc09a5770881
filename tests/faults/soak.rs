//! Everything at once, for a while; then it heals, and nothing is left over.
//!
//! 30 s; `LOCKCLIENT_SOAK_SECONDS` says how long else, `LOCKCLIENT_SOAK_SEED` with which dice.

use crate::child::{self, say};
use crate::common::{PATIENCE, eventually, ms, seconds};
use crate::proxy::{Course, End, Plan, Proxy, Way};
use crate::support::{endpoints, leasing};
use lockclient::{Client, Outcome, Released};
use lockd::Server;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What a call may take beyond its own end: the grace, the caller's own margin, and a machine that
/// does much else.
const SLACK: Duration = Duration::from_millis(500 + 100 + 2_000);

/// Locks that are asked for; few enough to be wanted by several at once.
const KEYS: usize = 24;

fn number(name: &str, fallback: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(fallback)
}

#[derive(Debug, Default)]
struct Tally {
    acquired: AtomicU64,
    definite: AtomicU64,
    unknown: AtomicU64,
    longest: AtomicU64,
}

impl Tally {
    /// Counts an outcome, which must have come in time.
    fn count<T>(&self, outcome: &Outcome<T>, start: Instant, wait: u64) {
        let counter = match outcome {
            Outcome::Acquired(_) => &self.acquired,
            Outcome::Indeterminate(_) => &self.unknown,
            _ => &self.definite,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        // An attempt at once has 5 s; a wait on the wire may end up to 1 s after the deadline.
        let own = if wait == 0 { seconds(5) } else { seconds(wait) + seconds(1) };
        let over = start.elapsed().saturating_sub(own);
        self.longest.fetch_max(over.as_millis() as u64, Ordering::Relaxed);
        assert!(over <= SLACK, "a wait of {wait} s took {:?}", start.elapsed());
    }
}

fn work(client: &Client, seed: u64, over: &AtomicBool, tally: &Tally) {
    let mut dice = fastrand::Rng::with_seed(seed);
    while !over.load(Ordering::Relaxed) {
        let key = format!("k{}", dice.usize(..KEYS));
        let wait = dice.u64(0..=2);
        let options = leasing(wait, dice.u64(1..=3));
        let start = Instant::now();
        let outcome = match dice.u32(0..10) {
            0..5 => client.acquire(&key, &options).unwrap(),
            5..8 => client.start(&key, &options).unwrap().wait().unwrap(),
            8 => {
                let ticket = client.start(&key, &options).unwrap();
                std::thread::sleep(Duration::from_micros(dice.u64(0..3_000)));
                ticket.cancel();
                ticket.wait().unwrap()
            }
            _ => {
                drop(client.start(&key, &options).unwrap());
                continue;
            }
        };
        tally.count(&outcome, start, wait);
        let Outcome::Acquired(lock) = outcome else { continue };
        std::thread::sleep(Duration::from_micros(dice.u64(0..2_000)));
        if dice.bool() {
            drop(lock);
            continue;
        }
        let start = Instant::now();
        let _: Released = lock.release().unwrap();
        assert!(start.elapsed() <= seconds(5) + SLACK, "a release took {:?}", start.elapsed());
    }
}

/// The network and the server, which get worse and worse.
struct World {
    proxy: Proxy,
    server: Mutex<Option<Server>>,
}

impl World {
    fn start() -> World {
        let server = crate::common::server();
        World { proxy: Proxy::start(server.addr()), server: Mutex::new(Some(server)) }
    }

    fn restart(&self, outage: Duration) {
        let mut server = self.server.lock().unwrap();
        server.take().unwrap().stop().unwrap();
        std::thread::sleep(outage);
        let next = crate::common::server();
        self.proxy.retarget(next.addr());
        *server = Some(next);
    }

    fn hurt(&self, dice: &mut fastrand::Rng) {
        let links = self.proxy.links();
        // One of the last: most of the earlier ones are gone.
        let link = links.saturating_sub(1 + dice.usize(0..4));
        let way = if dice.bool() { Way::Up } else { Way::Down };
        let pause = ms(dice.u64(20..=1_500));
        if links == 0 {
            return;
        }
        let change = |change: fn(&mut Course), back: fn(&mut Course)| {
            self.proxy.change(link, way, change);
            std::thread::sleep(pause);
            self.proxy.change(link, way, back);
        };
        match dice.u32(0..12) {
            0 => self.proxy.end(link, End::Reset),
            1 => self.proxy.end(link, End::Cut),
            2 => self.proxy.end(link, End::HalfClose),
            3 => self.proxy.change(link, way, |course| course.swallow = true),
            4 => change(|course| course.hold = true, |course| course.hold = false),
            5 => change(|course| course.stall = true, |course| course.stall = false),
            6 => change(|course| course.delay = ms(40), |course| course.delay = ms(0)),
            7 => change(|course| course.dribble = Some(ms(1)), |course| course.dribble = None),
            8 => {
                self.proxy.refuse(true);
                self.proxy.end_all(End::Reset);
                std::thread::sleep(pause);
                self.proxy.refuse(false);
            }
            9 => self.restart(pause / 4),
            _ => {
                let (up, down) = (dice.u64(0..400), dice.u64(0..400));
                let course = |at| Course { end: Some((at, End::Reset)), ..Course::default() };
                self.proxy.plan(move |_| Plan { up: course(up), down: course(down) });
                self.proxy.end_all(End::Reset);
                std::thread::sleep(pause);
                self.proxy.plan(|_| Plan::default());
            }
        }
    }
}

fn count(what: &str) -> usize {
    std::fs::read_dir(format!("/proc/self/{what}")).expect(what).count()
}

/// In a child, so that its threads and descriptors can be counted.
pub(crate) fn soak(arguments: &[String]) {
    let [time, seed] = [0, 1].map(|at: usize| arguments[at].parse::<u64>().unwrap());
    let before = (count("task"), count("fd"));
    let world = World::start();
    let client = endpoints([world.proxy.endpoint()]).open().unwrap();
    let (over, tally) = (AtomicBool::new(false), Tally::default());
    std::thread::scope(|scope| {
        for thread in 0..32 {
            let (client, over, tally) = (&client, &over, &tally);
            scope.spawn(move || {
                // One that fails must not leave the others going for ever.
                let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    work(client, seed * 1_000 + thread, over, tally);
                }));
                if let Err(panic) = failed {
                    over.store(true, Ordering::Relaxed);
                    std::panic::resume_unwind(panic);
                }
            });
        }
        let mut dice = fastrand::Rng::with_seed(seed);
        let start = Instant::now();
        while start.elapsed() < seconds(time) && !over.load(Ordering::Relaxed) {
            std::thread::sleep(ms(dice.u64(0..200)));
            world.hurt(&mut dice);
        }
        over.store(true, Ordering::Relaxed);
    });

    // It heals.
    let World { proxy, server } = world;
    proxy.end_all(End::Reset);
    let server = server.into_inner().unwrap().unwrap();
    let start = Instant::now();
    for at in 0..KEYS {
        let fresh = client.acquire(&format!("fresh-{at}"), &leasing(20, 3)).unwrap();
        assert!(matches!(fresh, Outcome::Acquired(_)), "{fresh:?}");
    }
    let healed = start.elapsed();
    assert!(healed < seconds(10), "{healed:?}");
    eventually("nothing is left of the acquires", || {
        let stats = client.stats();
        stats.queued_now + stats.in_flight_now == 0
    });
    eventually("nothing is left of the locks", || {
        let locks = server.stats().locks;
        locks.held + locks.waiters == 0
    });
    let stats = client.stats();
    assert_eq!(client.shutdown(PATIENCE).unwrap(), lockclient::Shutdown::Clean);
    let links = proxy.links();
    drop((client, proxy, server));
    eventually("no thread and no descriptor is left", || (count("task"), count("fd")) == before);
    say(&format!(
        "seed {seed}: {} acquired, {} otherwise definite, {} unknown; at most {} ms over; \
         {links} links, {} given back, healed in {healed:?}",
        tally.acquired.into_inner(),
        tally.definite.into_inner(),
        tally.unknown.into_inner(),
        tally.longest.into_inner(),
        stats.compensations,
    ));
}

#[test]
fn host_6_a_soak_in_a_bad_world_leaves_nothing_over() {
    let time = number("LOCKCLIENT_SOAK_SECONDS", 30);
    let seed = number("LOCKCLIENT_SOAK_SEED", u64::from(std::process::id()));
    println!("seed {seed}");
    let child = child::start("soak", &[time.to_string(), seed.to_string()]);
    let lines = child.rest_within(seconds(time) + PATIENCE * 2);
    println!("{lines:?}");
    assert_eq!(lines.len(), 1);
    child.finish();
}
