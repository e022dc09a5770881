//! Setting the time moves nothing: the server looks at the wall clock for its log alone.

mod common;

use common::program::Lockd;
use common::shim::{self, WallClock};
use common::{Answer, Peer, error, plain};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

struct Setting {
    directory: tempfile::TempDir,
    clock: WallClock,
}

impl Setting {
    fn new() -> Setting {
        let directory = tempfile::tempdir().expect("a directory");
        let clock = WallClock::new(directory.path());
        Setting { directory, clock }
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    fn start(&self) -> Lockd {
        let state = self.directory.path().join("state");
        let state = state.to_str().expect("a UTF-8 path");
        let arguments = ["--state-dir", state, "--log", "debug"];
        let mut command = shim::command(&arguments, self.clock.setting());
        let log = File::options().create(true).append(true).open(self.log()).expect("a log");
        Lockd::of(command.stderr(log).spawn().expect("lockd"))
    }
}

/// The years that the log has lines of, the first and the last of them.
fn years(log: &Path) -> (u32, u32) {
    let log = std::fs::read_to_string(log).expect("a log");
    let years = log.lines().filter_map(|line| line.get(..4)?.parse().ok());
    let years: Vec<u32> = years.collect();
    let first = years.iter().min().expect("a line with a time");
    let last = years.iter().max().expect("a line with a time");
    (*first, *last)
}

/// The clock is set while a lease runs and two wait for it. Returns the last token.
fn set_while_a_lease_runs(lockd: &Lockd, clock: &WallClock, hours: i64) -> u64 {
    let mut holder = Peer::connect(lockd.address);
    let mut patient = Peer::connect(lockd.address);
    let mut impatient = Peer::connect(lockd.address);
    let key = format!("set-by/{hours}");
    let begun = Instant::now();
    let held = holder.take(1, &key, 2);
    impatient.acquire(2, &key, 1, 60);
    patient.acquire(3, &key, 60, 1);
    impatient.expect_served();
    patient.expect_served();
    clock.set_hours(hours);
    assert_eq!(impatient.answer(), plain('T', 2, &key));
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_secs(1), "at {hours} h a wait ended after {waited:?}");
    assert!(waited < Duration::from_secs(1) + common::LONG, "{waited:?}");
    let granted = match patient.answer() {
        Answer::Acquired { owner: 3, token, .. } => token,
        other => panic!("expected a grant, got {other:?}"),
    };
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_secs(2), "at {hours} h a lease ended after {waited:?}");
    assert!(waited < Duration::from_secs(2) + common::LONG, "{waited:?}");
    assert!(granted > held);
    holder.release(4, held, &key);
    assert_eq!(holder.answer(), plain('N', 4, &key));
    granted
}

/// The first grant after a start, and when it came.
fn first_grant(peer: &mut Peer) -> (u64, Instant) {
    let end = Instant::now() + common::LONG;
    loop {
        peer.acquire(1, "first", 0, 1);
        match peer.answer() {
            Answer::Acquired { token, .. } => return (token, Instant::now()),
            answer => assert_eq!(answer, error("not_active")),
        }
        assert!(Instant::now() < end, "never active");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn setting_the_wall_clock_ends_no_lease_early_and_keeps_none_longer() {
    let setting = Setting::new();
    let mut lockd = setting.start();
    let mut last = 0;
    // More than ten years among them: so that the log shows that the server was shown it.
    for hours in [6, -12, 100_000] {
        let token = set_while_a_lease_runs(&lockd, &setting.clock, hours);
        assert!(token > last, "token {token} after {last}");
        last = token;
    }
    lockd.signal("TERM");
    assert!(lockd.wait().success());
    let (first, last) = years(&setting.log());
    assert!(last - first >= 10, "its log is of {first} to {last}");
    assert!(setting.clock.reads() > 0);
    assert_eq!(setting.clock.waits(), 0, "something waits for a moment on the wall clock");
}

/// A lease of three seconds runs when the server ends by `signal`, and the clock is set by
/// `hours` before it starts again.
fn set_across_a_restart(signal: &str, hours: i64) {
    let setting = Setting::new();
    let mut lockd = setting.start();
    let mut peer = Peer::connect(lockd.address);
    let begun = Instant::now();
    let token = peer.take(1, "k", 3);
    lockd.signal(signal);
    lockd.wait();
    setting.clock.set_hours(hours);
    let mut lockd = setting.start();
    let (next, at) = first_grant(&mut Peer::connect(lockd.address));
    assert!(next > token, "token {next} after {token}");
    let waited = at - begun;
    assert!(waited >= Duration::from_secs(3), "granted after {waited:?}");
    assert!(waited < Duration::from_secs(6) + common::LONG, "{waited:?}");
    lockd.signal("TERM");
    assert!(lockd.wait().success());
    assert_eq!(setting.clock.waits(), 0, "something waits for a moment on the wall clock");
}

#[test]
fn setting_the_wall_clock_back_before_a_restart_changes_nothing() {
    set_across_a_restart("TERM", -12);
    set_across_a_restart("KILL", -12);
}

#[test]
fn setting_the_wall_clock_forward_before_a_restart_changes_nothing() {
    set_across_a_restart("TERM", 6);
    set_across_a_restart("KILL", 6);
}
