//! What the lock table costs: time an operation and memory a lock, as the number of locks grows.
//!
//! `cargo bench -p lockd --bench table`

use lockclient::wire::{ClientFrame, ServerFrame};
use lockd::core::{Acquire, Answers, ConnectionId, Core, Limits, Time};
use lockd::outbox::BATCH;
use lockd::session::Session;
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};

const LIMITS: Limits = Limits {
    locks: 2_000_000,
    waiters: 2_000_000,
    waiters_per_key: 2_000_000,
    waiters_per_connection: 2_000_000,
};
const OPERATIONS: usize = 1_000_000;
const HERE: ConnectionId = ConnectionId(0);

/// Keeps the token of the last grant.
struct Last(u64);

impl Answers for Last {
    fn answer(&mut self, _: ConnectionId, frame: ServerFrame<'_>) {
        if let ServerFrame::Acquired { token, .. } = frame {
            self.0 = token;
        }
        black_box(frame);
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }

    /// Different numbers below `bound`, which is more than `count`.
    fn some_below(&mut self, bound: usize, count: usize) -> Vec<usize> {
        let mut numbers = Vec::with_capacity(count);
        while numbers.len() < count {
            let number = self.below(bound);
            if !numbers.contains(&number) {
                numbers.push(number);
            }
        }
        numbers
    }
}

fn key(number: usize) -> [u8; 24] {
    let mut key = *b"tenant/00/job/0000000000";
    let mut rest = number;
    for digit in key[14..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// Memory that this process has in use, in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("statm");
    let pages: usize = statm.split(' ').nth(1).expect("pages").parse().expect("a number");
    pages * 4096
}

/// Processor time of this thread: a busy machine does not lengthen it.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn percentile(sorted: &[Duration], share: f64) -> Duration {
    sorted[((sorted.len() - 1) as f64 * share) as usize]
}

fn fill(count: usize) -> (Core, Vec<u64>, Time) {
    let mut core = Core::new(LIMITS, 1, u64::MAX);
    let now = Time::from_nanos(1);
    let mut out = Last(0);
    let tokens = (0..count)
        .map(|number| {
            let lease = 200 + (number % 50) as u8;
            core.acquire(
                HERE,
                Acquire { wait: 0, lease, owner: 1, key: &key(number) },
                now,
                &mut out,
            );
            out.0
        })
        .collect();
    (core, tokens, now)
}

/// Takes the answers of a batch: the tokens of the grants among them.
#[derive(Default)]
struct Tokens(Vec<u64>);

impl Answers for Tokens {
    fn answer(&mut self, _: ConnectionId, frame: ServerFrame<'_>) {
        match frame {
            ServerFrame::Acquired { token, .. } => self.0.push(token),
            ServerFrame::Released { .. } => {}
            other => panic!("unexpected {other:?}"),
        }
    }
}

/// Releases and acquires random ones of the locks that are held, so many requests at a time, from
/// the bytes that a connection has received.
fn locks(count: usize, together: usize) {
    let before = resident();
    let (mut core, mut tokens, mut now) = fill(count);
    let bytes = resident().saturating_sub(before + tokens.capacity() * 8);
    let mut random = Random(88172645463325252);
    let mut out = Tokens::default();
    let mut session = Session::new(HERE, None, now, &mut out);
    let mut took = Vec::with_capacity(OPERATIONS / BATCH);
    for _ in 0..OPERATIONS / BATCH {
        let numbers = random.some_below(count, BATCH);
        // What arrives, one element after the other.
        let mut arrivals = Vec::with_capacity(2 * BATCH);
        for numbers in numbers.chunks(together) {
            let (mut releases, mut acquires) = (Vec::new(), Vec::new());
            for number in numbers {
                let (key, token) = (&key(*number), tokens[*number]);
                ClientFrame::Release { owner: 2, token, key }.encode(&mut releases);
                ClientFrame::Acquire { wait: 0, lease: 250, owner: 3, key }.encode(&mut acquires);
            }
            arrivals.extend([releases, acquires]);
        }
        out.0.clear();
        now = now.after(Duration::from_micros(1));
        let begun = processor_time();
        for requests in &arrivals {
            session.receive(requests, now, &[], &mut core, &mut out);
            core.advance(now, &mut out);
        }
        took.push((processor_time() - begun) / BATCH as u32);
        for (number, token) in numbers.iter().zip(&out.0) {
            tokens[*number] = *token;
        }
    }
    let total: Duration = took.iter().sum();
    took.sort_unstable();
    println!(
        "{count:>9} locks, {together:>2} requests together  {:>5.0} ns a release and acquire \
         (99 % {:>5} ns)  {:>4} bytes a lock",
        total.as_nanos() as f64 / took.len() as f64,
        percentile(&took, 0.99).as_nanos(),
        bytes / count,
    );
    assert_eq!(core.stats().held, count);
}

fn growth(count: usize) {
    let mut core = Core::new(LIMITS, 1, u64::MAX);
    let now = Time::from_nanos(1);
    let mut out = Last(0);
    let mut took: Vec<Duration> = (0..count)
        .map(|number| {
            let key = key(number);
            let begun = Instant::now();
            core.acquire(HERE, Acquire { wait: 0, lease: 250, owner: 1, key: &key }, now, &mut out);
            begun.elapsed()
        })
        .collect();
    took.sort_unstable();
    println!(
        "{count:>9} acquires while the table grows: median {} ns, 99.9 % {:.1} us, worst {:.1} us",
        percentile(&took, 0.5).as_nanos(),
        percentile(&took, 0.999).as_nanos() as f64 / 1e3,
        percentile(&took, 1.0).as_nanos() as f64 / 1e3,
    );
}

fn waiters(count: usize) {
    let (mut core, _, now) = fill(1000);
    let mut out = Last(0);
    let before = resident();
    for number in 0..count {
        let connection = ConnectionId((number % 1000) as u32);
        let request = Acquire { wait: 255, lease: 1, owner: 1, key: &key(number % 1000) };
        core.acquire(connection, request, now, &mut out);
    }
    let bytes = resident().saturating_sub(before);
    let begun = processor_time();
    for connection in 0..1000 {
        core.disconnect(ConnectionId(connection));
    }
    println!(
        "{count:>9} waiters  {:>4} bytes a waiter, {:>4.0} ns to leave with a connection",
        bytes / count,
        (processor_time() - begun).as_nanos() as f64 / count as f64,
    );
    assert_eq!(core.stats().waiters, 0);
}

/// One who waits for a random one of `keys` is granted it, and another comes to wait.
fn hand_over(count: usize, keys: usize) {
    let (mut core, mut tokens, now) = fill(keys);
    let mut out = Last(0);
    let wait = |number: usize, core: &mut Core, out: &mut Last| {
        let request = Acquire { wait: 255, lease: 250, owner: 1, key: &key(number % keys) };
        core.acquire(ConnectionId((number % 1000) as u32), request, now, out);
    };
    (0..count).for_each(|number| wait(number, &mut core, &mut out));
    let mut random = Random(88172645463325252);
    let numbers: Vec<usize> = (0..OPERATIONS).map(|_| random.below(keys)).collect();
    let begun = processor_time();
    for number in numbers {
        core.release(HERE, 2, tokens[number], &key(number), now, &mut out);
        tokens[number] = out.0;
        wait(number, &mut core, &mut out);
    }
    println!(
        "{count:>9} waiters for {keys:>4} keys  {:>4.0} ns a release, a grant and another that waits",
        (processor_time() - begun).as_nanos() as f64 / OPERATIONS as f64,
    );
    assert_eq!(core.stats().waiters, count);
}

fn expiry(count: usize) {
    let (mut core, _, now) = fill(count);
    let mut out = Last(0);
    let begun = processor_time();
    core.advance(now.after_seconds(255), &mut out);
    println!(
        "{count:>9} leases that end at once: {:.0} ns each",
        (processor_time() - begun).as_nanos() as f64 / count as f64
    );
    assert_eq!(core.stats().held, 0);
}

/// Each figure comes from a process of its own, so that none finds memory that another used.
fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    if let (Some(what), Some(count)) = (arguments.next(), arguments.next()) {
        let count = count.parse().expect("a number");
        return match what.as_str() {
            "alone" => locks(count, 1),
            "together" => locks(count, BATCH),
            "waiters" => waiters(count),
            "growth" => growth(count),
            "hot" => hand_over(count, 1),
            "warm" => hand_over(count, count.min(1000)),
            _ => expiry(count),
        };
    }
    let this = std::env::current_exe().expect("this program");
    for (what, count) in [
        ("alone", "1000"),
        ("alone", "10000"),
        ("alone", "100000"),
        ("alone", "1000000"),
        ("together", "1000"),
        ("together", "10000"),
        ("together", "100000"),
        ("together", "1000000"),
        ("waiters", "100000"),
        ("hot", "1"),
        ("hot", "100"),
        ("hot", "10000"),
        ("hot", "100000"),
        ("warm", "1000"),
        ("warm", "100000"),
        ("growth", "1000000"),
        ("expiry", "1000000"),
    ] {
        let status = Command::new(&this).args([what, count]).status().expect("this program");
        assert!(status.success());
    }
}
