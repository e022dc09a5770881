//! The `lockd` program ends soon when it is told to, whatever stands in its way.

mod common;

use common::Peer;
use common::program::{Lockd, full_pipe};
use std::os::unix::net::UnixStream;
use std::process::{ExitStatus, Stdio};
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

#[test]
fn nobody_reading_why_it_failed_does_not_keep_it_from_ending() {
    let dir = tempfile::tempdir().expect("a directory");
    let (reader, writer) = full_pipe();
    let mut command = Lockd::command(&["--state-dir", dir.path().to_str().expect("UTF-8")]);
    let mut lockd = Lockd::of(command.stderr(writer).spawn().expect("lockd"));
    // It cannot write its new content where a directory is: its stop is not recorded.
    std::fs::create_dir(dir.path().join("state.new")).expect("mkdir");
    assert!(!stop(&mut lockd).success());
    drop(reader);
}

#[test]
fn nobody_reading_where_it_listens_keeps_it_neither_from_serving_nor_from_stopping() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("socket");
    let (reader, writer) = full_pipe();
    let listen = format!("unix:{}", path.display());
    let mut command = Lockd::command(&["--listen", &listen]);
    let child = command.stdout(writer).stderr(Stdio::null()).spawn().expect("lockd");
    let address = "127.0.0.1:0".parse().expect("an address");
    let mut lockd = Lockd { child, stdout: None, address };
    let end = Instant::now() + common::LONG;
    while UnixStream::connect(&path).is_err() {
        assert!(Instant::now() < end, "it never listens");
        std::thread::sleep(Duration::from_millis(5));
    }
    Peer::connect_unix(&path).expect_served();
    assert!(stop(&mut lockd).success());
    drop(reader);
}
