//! The server is killed at any moment and started again on the same state directory, and in the
//! end it lives long enough to show that it is as it was in the beginning.

use super::attacks::Attack;
use super::common::program::Lockd;
use super::common::{self, Answer, Peer};
use super::witness::{self, Random, Seen};
use super::{await_descriptors, descriptors, resident_kib, soak_seconds};
use std::io::Read;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest lease that is asked for, in seconds: what a start after a kill waits for.
const LONGEST: u8 = 2;
/// Lives that end early, one after the other, before one that lasts.
const CLUSTER: u64 = 12;
/// What a process may take more at the end of its life than at its beginning, whoever came by:
/// buffers and tables are kept at their highest.
const MORE_KIB: u64 = 8 * 1024;

struct Program<'a> {
    dir: &'a Path,
    attack: &'a Attack,
    seen: &'a Arc<Seen>,
    kills: u64,
    /// The longest time from a start to the first grant.
    slowest: Duration,
}

impl Program<'_> {
    fn arguments(&self) -> [String; 8] {
        let path = |name: &str| self.dir.join(name).to_str().expect("a UTF-8 path").into();
        [
            "--state-dir".into(),
            path("state"),
            "--admin-socket".into(),
            path("admin"),
            "--max-waiters-per-connection".into(),
            "100".into(),
            "--log".into(),
            "error".into(),
        ]
    }

    fn start(&self) -> Lockd {
        let lockd = start(&self.arguments());
        self.attack.moved(lockd.address);
        lockd
    }

    fn kill(&mut self, mut lockd: Lockd) {
        lockd.signal("KILL");
        lockd.wait();
        self.kills += 1;
    }

    /// A life of `duration` from the moment at which the process is made.
    fn short_life(&mut self, duration: Duration) {
        let begun = Instant::now();
        let arguments = self.arguments();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut child = Lockd::command(&arguments).stderr(Stdio::null()).spawn().expect("lockd");
        if duration < Duration::from_millis(20) {
            // It need not have come as far as to listen.
            std::thread::sleep(duration);
            child.kill().expect("kill");
            child.wait().expect("wait");
            self.kills += 1;
            return;
        }
        let lockd = Lockd::of(child);
        self.attack.moved(lockd.address);
        std::thread::sleep(duration.saturating_sub(begun.elapsed()));
        self.kill(lockd);
    }

    /// Waits until it grants, which must not take longer than the longest lease of before.
    fn await_active(&mut self, lockd: &Lockd, begun: Instant) {
        let mut peer = Peer::connect(lockd.address);
        loop {
            peer.acquire(1, "first", 0, 1);
            match peer.answer() {
                Answer::Acquired { .. } => break,
                Answer::Error(code) => assert_eq!(code, "not_active"),
                other => panic!("{other:?}"),
            }
            let waited = begun.elapsed();
            assert!(waited < Duration::from_secs(LONGEST.into()) + common::LONG, "{waited:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        self.slowest = self.slowest.max(begun.elapsed());
    }

    /// A life that lasts for `duration` from its first grant. What it takes at the end is compared
    /// with what it took in the beginning.
    fn long_life(&mut self, duration: Duration) {
        let begun = Instant::now();
        let lockd = self.start();
        let first_kib = resident_kib(&lockd);
        self.await_active(&lockd, begun);
        let grants = self.seen.grants();
        std::thread::sleep(duration);
        let last_kib = resident_kib(&lockd);
        let grants = self.seen.grants() - grants;
        eprintln!("a life of {:?}: {grants} grants, {first_kib} then {last_kib} KiB", duration);
        assert!(grants > 0, "nobody was granted anything");
        assert!(last_kib < first_kib + MORE_KIB, "{first_kib} then {last_kib} KiB");
        self.kill(lockd);
    }
}

fn start(arguments: &[String]) -> Lockd {
    Lockd::start(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

/// One of the numbers that the server tells about itself.
fn number(admin: &Path, name: &str) -> u64 {
    let mut stream = Peer::connect_unix(admin).stream;
    common::send_all(&stream, b"GET /metrics HTTP/1.0\r\n\r\n").expect("send");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let found = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("{name} in {answer}")).parse().expect("a number")
}

fn await_zero(admin: &Path, name: &str) {
    let end = Instant::now() + common::LONG;
    while number(admin, name) > 0 {
        assert!(Instant::now() < end, "{name} is {}", number(admin, name));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Kills, as long as `duration` lasts: many soon one after the other, then one after a long life.
fn kill_again_and_again(program: &mut Program<'_>, duration: Duration) {
    let end = Instant::now() + duration;
    let mut random = Random(88172645463325252);
    while Instant::now() < end {
        for _ in 0..CLUSTER {
            // Most within the time in which nothing is granted yet, some soon after.
            let millis = match random.below(3) {
                0 => random.below(20),
                1 => random.below(400),
                _ => random.below(u64::from(LONGEST) * 1500),
            };
            if Instant::now() < end {
                program.short_life(Duration::from_millis(millis));
            }
        }
        program.long_life(duration / 12);
    }
}

#[test]
fn kills_among_hostile_peers_repeat_no_token_share_no_lock_and_leave_nothing_behind() {
    let duration = Duration::from_secs(soak_seconds(6));
    let dir = tempfile::tempdir().expect("a directory");
    let seen = Arc::new(Seen::default());
    // Nobody listens there yet.
    let attack = Attack::on_mortal("127.0.0.1:9".parse().expect("an address"), LONGEST);
    let (kills, slowest) = (0, Duration::ZERO);
    let mut program = Program { dir: dir.path(), attack: &attack, seen: &seen, kills, slowest };
    let attackers = attack.begin();
    let witnesses = witness::begin(&attack, &seen, LONGEST);
    kill_again_and_again(&mut program, duration.mul_f64(0.6));
    attack.end(attackers);
    attack.end(witnesses);
    assert!(seen.grants() > 0 && seen.not_active() > 0);

    // The last one lives through a storm, and another.
    let begun = Instant::now();
    let mut lockd = program.start();
    program.await_active(&lockd, begun);
    let admin = dir.path().join("admin");
    let at_rest = |lockd: &Lockd, before| {
        await_descriptors(lockd, before);
        await_zero(&admin, "lockd_waiters");
        await_zero(&admin, "lockd_held");
    };
    // Nobody is connected: this is what there is to come back to.
    await_zero(&admin, "lockd_connections");
    let before = descriptors(&lockd);
    at_rest(&lockd, before);
    let fresh_kib = resident_kib(&lockd);
    let mut settled_kib = 0;
    for round in 0..2 {
        let attack = Attack::on_mortal(lockd.address, LONGEST);
        let attackers = attack.begin();
        let witnesses = witness::begin(&attack, &seen, LONGEST);
        std::thread::sleep(duration.mul_f64(0.2));
        attack.end(attackers);
        attack.end(witnesses);
        at_rest(&lockd, before);
        let kib = resident_kib(&lockd);
        eprintln!("storm {round}: fresh {fresh_kib} KiB, then {kib} KiB, {before} descriptors");
        assert!(kib < fresh_kib + MORE_KIB, "{fresh_kib} then {kib} KiB");
        if round == 0 {
            settled_kib = kib;
        } else {
            assert!(kib < settled_kib + settled_kib / 8 + 1024, "{settled_kib} then {kib} KiB");
        }
    }
    eprintln!(
        "{} kills, {} grants, {} times not active, slowest start {:?}",
        program.kills,
        seen.grants(),
        seen.not_active(),
        program.slowest,
    );
    Peer::connect(lockd.address).expect_served();
    lockd.signal("TERM");
    assert!(lockd.wait().success());
}
