//! Tokens that begin above all that were ever granted, where what was granted is not known any more.

mod common;

use common::Peer;
use common::program::Lockd;
use std::path::Path;

/// What the state file in `dir` says of `name`.
fn recorded(dir: &Path, name: &str) -> String {
    let text = std::fs::read_to_string(dir.join("state")).expect("a state file");
    let mut fields = text.lines().filter_map(|line| line.split_once(' '));
    fields.find(|(field, _)| *field == name).expect("the field").1.to_owned()
}

/// Starts it on `dir`, sees whether it grants, and stops it.
fn run(dir: &Path, arguments: &[&str]) -> Option<u64> {
    let state_dir = ["--state-dir", dir.to_str().expect("UTF-8")];
    let mut lockd = Lockd::start(&[&state_dir, arguments].concat());
    let mut peer = Peer::connect(lockd.address);
    peer.acquire(1, "k", 0, 1);
    let token = match peer.answer() {
        common::Answer::Acquired { token, .. } => {
            // So that the next start need not wait for it.
            peer.release(2, token, "k");
            assert_eq!(peer.answer(), common::plain('R', 2, "k"));
            Some(token)
        }
        answer => {
            assert_eq!(answer, common::error("not_active"));
            None
        }
    };
    lockd.signal("TERM");
    assert!(lockd.wait().success());
    token
}

#[test]
fn a_lost_state_directory_is_begun_anew_above_what_was_granted_and_after_it_has_ended() {
    let dir = tempfile::tempdir().expect("a directory");
    assert_eq!(run(dir.path(), &["--first-token", "5000"]), None);
    assert_eq!(recorded(dir.path(), "tokens"), "4999");
    let left: u64 = recorded(dir.path(), "quarantine-ms").parse().expect("milliseconds");
    assert!((200_000..=255_000).contains(&left), "{left}");
    // What is left of the quarantine is waited for, with the option and without.
    assert_eq!(run(dir.path(), &["--first-token", "5000"]), None);
    assert_eq!(run(dir.path(), &[]), None);
    assert_eq!(recorded(dir.path(), "tokens"), "4999");
}

#[test]
fn a_first_token_that_has_been_passed_changes_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    assert_eq!(run(dir.path(), &[]), Some(1));
    assert_eq!(run(dir.path(), &["--first-token", "2"]), Some(2));
    assert_eq!(run(dir.path(), &["--first-token", "1"]), Some(3));
}

#[test]
fn without_a_state_directory_tokens_begin_there_at_every_start() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("lockd.toml");
    std::fs::write(&path, "first-token = 18446744073709551613\n").expect("write");
    for _ in 0..2 {
        let lockd = Lockd::start(&["--config", path.to_str().expect("UTF-8")]);
        assert_eq!(Peer::connect(lockd.address).take(1, "k", 60), u64::MAX - 2);
    }
    let child = Lockd::command(&[]).env("LOCKD_FIRST_TOKEN", "7").spawn().expect("lockd");
    assert_eq!(Peer::connect(Lockd::of(child).address).take(1, "k", 60), 7);
}

#[test]
fn a_first_token_that_cannot_be_one_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let state_dir = dir.path().join("state");
    for number in ["0", "18446744073709551615", "18446744073709551616", "-1"] {
        let first_token = format!("--first-token={number}");
        let arguments = ["--state-dir", state_dir.to_str().expect("UTF-8"), &first_token];
        let output = Lockd::command(&arguments).output().expect("lockd");
        assert!(!output.status.success() && output.stdout.is_empty(), "{number}");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(message.contains("first-token"), "{number}: {message}");
        assert!(!state_dir.exists(), "{number}: it has taken nothing yet");
    }
}
