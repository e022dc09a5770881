//! The server stands still in the middle of a turn, kept by the system or by its disk.

mod common;

use common::program::Lockd;
use common::{Answer, Peer, shim};
use lockclient::wire::ClientFrame;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A server that stops at its next `call` once [`StandsStill::order`] has said so.
struct StandsStill {
    lockd: Lockd,
    file: PathBuf,
}

impl StandsStill {
    fn start(directory: &Path, call: &str) -> StandsStill {
        let file = directory.join("stop");
        let order = format!("{call}:{}", file.display());
        let mut command = shim::command(&["--log", "off"], ("SHIM_STOP", &order));
        StandsStill { lockd: Lockd::of(command.spawn().expect("lockd")), file }
    }

    fn order(&self) {
        std::fs::write(&self.file, []).expect("a file");
    }
}

/// Between its look and its read a lease must not run: its client counts from the moment at which
/// it sent the request's last byte.
#[test]
fn gr_2_a_lease_never_begins_before_its_request_was_sent() {
    const LEASE: Duration = Duration::from_secs(2);
    let directory = tempfile::tempdir().expect("a directory");
    let server = StandsStill::start(directory.path(), "recv");
    let [mut late, mut next] = [(); 2].map(|()| Peer::connect(server.lockd.address));
    late.expect_served();
    next.expect_served();

    let mut request = Vec::new();
    ClientFrame::Acquire { wait: 0, lease: 2, owner: 2, key: b"k" }.encode(&mut request);
    let (begin, end) = request.split_at(5);
    server.order();
    late.send(begin);
    server.lockd.expect_frozen();
    std::thread::sleep(Duration::from_millis(300));
    let sent = Instant::now();
    late.send(end);
    server.lockd.signal("CONT");
    assert!(matches!(late.answer(), Answer::Acquired { owner: 2, .. }));
    next.acquire(2, "k", 10, 1);
    assert!(matches!(next.answer(), Answer::Acquired { owner: 2, .. }));
    let lasted = sent.elapsed();
    assert!(lasted >= LEASE, "granted to another {lasted:?} after it was asked for");
}

#[test]
fn after_a_stop_a_lock_goes_to_nobody_who_has_gone_meanwhile() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = StandsStill::start(directory.path(), "wait");
    let [mut holder, mut gone, mut patient, mut other] =
        [(); 4].map(|()| Peer::connect(server.lockd.address));
    holder.take(1, "k", 1);
    let end = Instant::now() + Duration::from_secs(1);
    gone.acquire(1, "k", 100, 100);
    gone.expect_served();
    patient.acquire(1, "k", 100, 100);
    patient.expect_served();
    other.expect_served();

    // It has looked, and found this alone.
    server.order();
    other.try_release(5, 0, "whatever").expect("send");
    server.lockd.expect_frozen();
    drop(gone);
    std::thread::sleep(end.saturating_duration_since(Instant::now()));
    server.lockd.signal("CONT");
    assert!(matches!(patient.answer(), Answer::Acquired { .. }));
}

#[test]
fn after_a_slow_write_a_lock_goes_to_nobody_who_has_gone_meanwhile() {
    let directory = tempfile::tempdir().expect("a directory");
    let state = directory.path().to_str().expect("a UTF-8 path");
    // The first two replacements of the state file are those of the start and of the first grant.
    let arguments = ["--state-dir", state, "--log", "off"];
    let mut command = shim::command(&arguments, ("SHIM_DISK", "fsync:5:slow"));
    let lockd = Lockd::of(command.spawn().expect("lockd"));
    let [mut holder, mut gone, mut patient, mut longer, mut newcomer] =
        [(); 5].map(|()| Peer::connect(lockd.address));
    for peer in [&mut gone, &mut patient, &mut longer, &mut newcomer] {
        peer.expect_served();
    }
    holder.take(1, "k", 1);
    gone.acquire(1, "k", 100, 100);
    gone.expect_served();
    patient.acquire(1, "k", 100, 1);
    patient.expect_served();

    // One turn finds both: a lease longer than any before, which the disk has to hear of, and a
    // request for the lock, whose lease ends meanwhile.
    lockd.freeze();
    longer.acquire(2, "long", 0, 100);
    newcomer.acquire(2, "k", 0, 1);
    lockd.signal("CONT");
    let limit = Instant::now() + common::LONG;
    while !directory.path().join("state.new").exists() {
        assert!(Instant::now() < limit, "nothing is written");
        std::thread::yield_now();
    }
    drop(gone);
    assert!(matches!(patient.answer(), Answer::Acquired { .. }));
}
