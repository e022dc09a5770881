//! The `lockd` program ends soon when it is told to, whatever stands in its way.

mod common;

use common::program::Lockd;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// Tells it to stop, and gives how it ended within its 2 seconds.
fn stop(lockd: &mut Lockd) -> ExitStatus {
    let begun = Instant::now();
    lockd.signal("TERM");
    let status = lockd.wait();
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    status
}

#[test]
fn a_secret_file_that_became_a_fifo_does_not_keep_it_from_stopping() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("secret");
    std::fs::write(&path, [1; 32]).expect("write");
    let mut lockd = Lockd::start(&["--secret-file", path.to_str().expect("UTF-8")]);
    std::fs::remove_file(&path).expect("remove");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into()).expect("a FIFO");
    lockd.signal("HUP");
    assert!(stop(&mut lockd).success());
}
