//! What survives a restart, whatever ended the run before.

mod common;

use common::program::Lockd;
use common::{Answer, Peer, error, plain};
use lockclient::wire::ClientFrame;
use std::io::Read;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

fn start(dir: &Path) -> Lockd {
    Lockd::start(&["--state-dir", dir.to_str().expect("a UTF-8 path")])
}

/// What a start that fails says.
fn refusal(dir: &Path) -> String {
    let arguments = ["--state-dir", dir.to_str().expect("a UTF-8 path"), "--log", "off"];
    let mut child = Lockd::command(&arguments).stderr(Stdio::piped()).spawn().expect("lockd");
    let status = child.wait().expect("wait");
    assert!(!status.success());
    let mut message = String::new();
    child.stderr.take().expect("stderr").read_to_string(&mut message).expect("stderr");
    message
}

/// Tries until the lock is granted. Returns the token and when it came.
fn take_when_active(peer: &mut Peer, key: &str, lease: u8) -> (u64, Instant) {
    let end = Instant::now() + common::LONG;
    loop {
        peer.acquire(1, key, 0, lease);
        match peer.answer() {
            Answer::Acquired { token, .. } => return (token, Instant::now()),
            Answer::Error(code) => assert_eq!(code, "not_active"),
            other => panic!("unexpected {other:?}"),
        }
        assert!(Instant::now() < end, "never active");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn after_a_clean_stop_tokens_go_on_and_only_what_is_left_of_the_leases_is_waited_for() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut lockd = start(dir.path());
    let mut peer = Peer::connect(lockd.address);
    let short = peer.take(1, "short", 1);
    let long = peer.take(2, "long", 200);
    assert!(long > short);
    peer.release(3, long, "long");
    assert_eq!(peer.answer(), plain('R', 3, "long"));
    lockd.signal("TERM");
    assert!(lockd.wait().success());
    let stopped = Instant::now();
    let lockd = start(dir.path());
    let mut peer = Peer::connect(lockd.address);
    let (token, at) = take_when_active(&mut peer, "long", 5);
    assert_eq!(token, long + 1);
    assert!(at - stopped < Duration::from_secs(8), "waited for a lease that was released");
}

#[test]
fn after_a_kill_nothing_is_granted_until_the_longest_lease_has_ended_and_then_it_is() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut lockd = start(dir.path());
    let mut peer = Peer::connect(lockd.address);
    let asked = Instant::now();
    let held = peer.take(1, "k", 3);
    lockd.signal("KILL");
    lockd.wait();
    let lockd = start(dir.path());
    let mut peer = Peer::connect(lockd.address);
    peer.release(2, 0, "_probe");
    assert_eq!(peer.answer(), error("not_active"));
    // The former holder's token is not known any more.
    peer.release(3, held, "k");
    assert_eq!(peer.answer(), plain('N', 3, "k"));
    let (token, at) = take_when_active(&mut peer, "k", 5);
    assert!(token > held);
    let waited = at - asked;
    assert!(waited >= Duration::from_secs(3), "two holders within a lease: {waited:?}");
    assert!(waited < Duration::from_secs(9), "{waited:?}");
    peer.expect_served();
}

#[test]
fn the_quarantine_option_holds_without_a_state_directory_too() {
    let begun = Instant::now();
    let lockd = Lockd::start(&["--quarantine", "1"]);
    let mut peer = Peer::connect(lockd.address);
    let (token, at) = take_when_active(&mut peer, "k", 5);
    assert_eq!(token, 1);
    assert!(at - begun >= Duration::from_secs(1), "{:?}", at - begun);
    assert!(at - begun < Duration::from_secs(7), "{:?}", at - begun);
}

#[test]
fn a_second_server_on_the_same_directory_refuses_to_start() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut first = start(dir.path());
    let message = refusal(dir.path());
    assert!(message.contains("another lockd"), "{message}");
    assert!(message.contains(dir.path().to_str().unwrap()), "{message}");
    Peer::connect(first.address).take(1, "k", 1);
    first.signal("KILL");
    first.wait();
    // The claim ends with the process, however it ended.
    start(dir.path());
}

#[test]
fn a_second_server_refuses_to_start_even_if_the_lock_file_is_gone() {
    let dir = tempfile::tempdir().expect("a directory");
    let _lockd = start(dir.path());
    std::fs::remove_file(dir.path().join("lock")).expect("remove");
    let message = refusal(dir.path());
    assert!(message.contains("another lockd is using it"), "{message}");
}

/// As when the volume is mounted only after the start: what is there then is another run's state.
#[test]
fn what_has_taken_its_directorys_place_is_left_alone() {
    let parent = tempfile::tempdir().expect("a directory");
    let (place, other) = (parent.path().join("state"), parent.path().join("other"));
    let mut before = start(&other);
    before.signal("TERM");
    assert!(before.wait().success());
    let mut lockd = start(&place);
    let mut peer = Peer::connect(lockd.address);
    peer.take(1, "k", 1);
    std::fs::rename(&place, parent.path().join("moved")).expect("rename");
    std::fs::rename(&other, &place).expect("rename");
    let content = || std::fs::read(place.join("state")).expect("the state file");
    let found = content();
    peer.acquire(2, "longer", 0, 2);
    assert_eq!(peer.answer(), error("not_active"));
    lockd.signal("TERM");
    assert!(!lockd.wait().success());
    assert_eq!(content(), found);
}

#[test]
fn peers_that_take_every_descriptor_do_not_keep_it_from_granting() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let dir = tempfile::tempdir().expect("a directory");
    let lockd = start(dir.path());
    let mut peer = Peer::connect(lockd.address);
    peer.take(1, "k", 1);
    let descriptors = format!("/proc/{}/fd", lockd.child.id());
    let used = std::fs::read_dir(descriptors).expect("descriptors").count() as u64;
    let pid = Pid::from_raw(lockd.child.id() as i32).expect("a process");
    let limit = Some(used + 5);
    prlimit(Some(pid), Resource::Nofile, Rlimit { current: limit, maximum: limit }).expect("limit");
    let mut taking: Vec<Peer> = (0..10).map(|_| Peer::connect(lockd.address)).collect();
    for peer in &mut taking[..5] {
        peer.expect_served();
    }
    peer.take(2, "longer", 2);
    peer.take(3, "longest", 3);
}

#[test]
fn a_damaged_or_empty_state_file_keeps_it_from_starting_and_is_left_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut lockd = start(dir.path());
    Peer::connect(lockd.address).take(1, "k", 1);
    lockd.signal("TERM");
    lockd.wait();
    let path = dir.path().join("state");
    let good = std::fs::read(&path).expect("the state file");
    for damaged in [good[..good.len() - 1].to_vec(), Vec::new(), vec![0; 100], vec![b'x'; 5000]] {
        std::fs::write(&path, &damaged).expect("write");
        let message = refusal(dir.path());
        assert!(message.contains("damaged"), "{message}");
        assert_eq!(std::fs::read(&path).expect("the state file"), damaged);
    }
    std::fs::write(&path, &good).expect("write");
    start(dir.path());
}

#[test]
fn a_directory_that_cannot_be_used_is_an_error_with_its_name() {
    let dir = tempfile::tempdir().expect("a directory");
    // It cannot write its new content where a directory is.
    std::fs::create_dir(dir.path().join("state.new")).expect("mkdir");
    let message = refusal(dir.path());
    assert!(message.contains(dir.path().to_str().unwrap()), "{message}");
    let file = dir.path().join("file");
    std::fs::write(&file, "").expect("write");
    let message = refusal(&file);
    assert!(message.contains(file.to_str().unwrap()), "{message}");
    let missing = dir.path().join("missing").join("state");
    let message = refusal(&missing);
    assert!(message.contains(missing.to_str().unwrap()), "{message}");
}

#[test]
fn a_state_that_cannot_be_written_any_more_ends_all_grants_and_nothing_else() {
    let dir = tempfile::tempdir().expect("a directory");
    let lockd = start(dir.path());
    let mut peer = Peer::connect(lockd.address);
    let token = peer.take(1, "k", 5);
    std::fs::create_dir(dir.path().join("state.new")).expect("mkdir");
    // Shorter leases need nothing new on the disk; a longer one does.
    peer.take(2, "other", 5);
    peer.acquire(3, "longer", 0, 6);
    assert_eq!(peer.answer(), error("not_active"));
    std::fs::remove_dir(dir.path().join("state.new")).expect("rmdir");
    peer.acquire(4, "again", 0, 5);
    assert_eq!(peer.answer(), error("not_active"));
    peer.release(5, 0, "_probe");
    assert_eq!(peer.answer(), error("not_active"));
    peer.release(6, token, "k");
    assert_eq!(peer.answer(), plain('R', 6, "k"));
}

#[test]
fn a_state_directory_is_made_if_it_is_missing() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("state");
    let lockd = start(&path);
    Peer::connect(lockd.address).take(1, "k", 5);
    assert!(path.join("state").is_file());
}

/// Kills servers on one directory, most while they start, some while they grant.
fn kill_many(seed: u64, rounds: u32) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut random = seed;
    let mut below = |bound: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) % bound
    };
    let mut last_token = 0;
    let mut last_lease: Option<Instant> = None;
    for round in 0..rounds {
        for _ in 0..10 {
            let arguments = ["--state-dir", dir.path().to_str().expect("a UTF-8 path")];
            let mut command = Lockd::command(&arguments);
            let mut child =
                command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("lockd");
            std::thread::sleep(Duration::from_micros(below(12_000)));
            child.kill().expect("kill");
            child.wait().expect("wait");
        }
        let mut lockd = start(dir.path());
        let mut peer = Peer::connect(lockd.address);
        let (first, at) = take_when_active(&mut peer, &format!("first{round}"), 1);
        assert!(first > last_token, "token {first} after {last_token}");
        if let Some(lease) = last_lease {
            assert!(at - lease >= Duration::from_secs(1), "granted within a lease of before");
        }
        last_token = first;
        // Grants on another thread, so that the kill comes at any point of one.
        let granting = std::thread::spawn(move || {
            let mut last = (0, None);
            for owner in 1.. {
                let asked = Instant::now();
                let key = format!("k{round}-{owner}");
                let mut request = Vec::new();
                ClientFrame::Acquire { wait: 0, lease: 1, owner, key: key.as_bytes() }
                    .encode(&mut request);
                if common::send_all(&peer.stream, &request).is_err() {
                    break;
                }
                match peer.try_answer() {
                    Ok(Some(Answer::Acquired { token, .. })) => {
                        assert!(token > last.0);
                        last = (token, Some(asked));
                    }
                    Ok(Some(other)) => panic!("unexpected {other:?}"),
                    Ok(None) | Err(_) => break,
                }
            }
            last
        });
        std::thread::sleep(Duration::from_micros(below(60_000)));
        lockd.child.kill().expect("kill");
        lockd.wait();
        let (token, asked) = granting.join().expect("the granting thread");
        last_token = last_token.max(token);
        last_lease = asked.or(last_lease);
    }
}

#[test]
fn killed_some_hundred_times_it_never_issues_a_token_twice_nor_within_a_lease() {
    let threads: Vec<_> = (1..=4)
        .map(|number| std::thread::spawn(move || kill_many(number * 0x9E37_79B9_7F4A, 7)))
        .collect();
    for thread in threads {
        thread.join().expect("no violation");
    }
}

#[test]
fn on_a_full_disk_it_does_not_start_or_grants_nothing_any_more() {
    let dir = tempfile::tempdir().expect("a directory");
    let new = dir.path().join("state.new");
    std::os::unix::fs::symlink("/dev/full", &new).expect("symlink");
    let message = refusal(dir.path());
    assert!(message.contains("No space left"), "{message}");

    std::fs::remove_file(&new).expect("remove");
    let mut lockd = start(dir.path());
    let mut peer = Peer::connect(lockd.address);
    let token = peer.take(1, "k", 1);
    std::os::unix::fs::symlink("/dev/full", &new).expect("symlink");
    peer.acquire(2, "other", 0, 2);
    assert_eq!(peer.answer(), error("not_active"));
    peer.release(3, token, "k");
    assert_eq!(peer.answer(), plain('R', 3, "k"));
    // Not even its clean end can be recorded, and it says so.
    lockd.signal("TERM");
    assert!(!lockd.wait().success());

    std::fs::remove_file(&new).expect("remove");
    let lockd = start(dir.path());
    let mut peer = Peer::connect(lockd.address);
    let (next, _) = take_when_active(&mut peer, "k", 1);
    assert!(next > token);
}
