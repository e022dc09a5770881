//! The program's own calls to its disk fail, or it is killed at one of them, each in turn.

mod common;

use common::program::Lockd;
use common::{Answer, Peer, error, shim};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// What a run had come to when it ended.
#[derive(Default)]
struct Run {
    /// The last token that was granted.
    token: u64,
    /// Until when the last lease runs at least.
    until: Option<Instant>,
    /// Whether it granted all that it was asked for, and stopped cleanly when told to.
    faultless: bool,
}

/// Its address, unless it ends before it listens.
fn listening(mut child: Child) -> Result<Lockd, Child> {
    use std::io::{BufRead, BufReader};
    let mut stdout = BufReader::new(child.stdout.take().expect("stdout"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("standard output");
    match line.strip_prefix("listening on ") {
        Some(address) => {
            let address = address.trim_end().parse().expect("an address");
            Ok(Lockd { child, stdout: Some(stdout), address })
        }
        None => Err(child),
    }
}

/// One acquire. `None` if the server is gone.
fn ask(peer: &mut Peer, lease: u8, run: &mut Run) -> Option<Answer> {
    let asked = Instant::now();
    let key = format!("lease/{lease}");
    peer.try_acquire(u64::from(lease), &key, 0, lease).ok()?;
    let answer = peer.try_answer().ok()??;
    if let Answer::Acquired { token, .. } = answer {
        assert!(token > run.token, "token {token} after {}", run.token);
        run.token = token;
        run.until = run.until.max(Some(asked + Duration::from_secs(lease.into())));
    }
    Some(answer)
}

/// Starts, grants, grants longer, and stops: each of these writes. Something happens on the way.
fn run(directory: &Path, fault: &str) -> Run {
    let state = directory.to_str().expect("a UTF-8 path");
    let mut command = shim::command(&["--state-dir", state, "--log", "off"], ("SHIM_DISK", fault));
    let mut run = Run::default();
    let mut lockd = match listening(command.spawn().expect("lockd")) {
        Ok(lockd) => lockd,
        Err(mut child) => {
            assert!(!child.wait().expect("wait").success(), "{fault}: ended without a reason");
            return run;
        }
    };
    let mut peer = Peer::connect(lockd.address);
    let mut failed = false;
    for lease in 1..=2 {
        match ask(&mut peer, lease, &mut run) {
            Some(Answer::Acquired { .. }) => {
                assert!(!failed, "{fault}: granted after it could not be made durable");
            }
            Some(answer) => {
                assert_eq!(answer, error("not_active"), "{fault}");
                failed = true;
            }
            None => return run,
        }
    }
    lockd.signal("TERM");
    // Even after a failure the end may be recorded: that replaces the file anew.
    run.faultless = lockd.wait().success() && !failed;
    run
}

/// Whatever happened: it starts again, issues later tokens, and none within a lease of before.
fn happens(step: &str, number: u32, what: &str) -> Run {
    let directory = tempfile::tempdir().expect("a directory");
    let fault = format!("{step}:{number}:{what}");
    let run = run(directory.path(), &fault);
    let state = directory.path().to_str().expect("a UTF-8 path");
    let child = Lockd::command(&["--state-dir", state, "--log", "off"])
        .stderr(Stdio::null())
        .spawn()
        .expect("lockd");
    let Ok(lockd) = listening(child) else { panic!("{fault}: it does not start again") };
    let mut peer = Peer::connect(lockd.address);
    let end = Instant::now() + common::LONG;
    let mut next = Run { token: run.token, ..Run::default() };
    while !matches!(ask(&mut peer, 3, &mut next), Some(Answer::Acquired { .. })) {
        assert!(Instant::now() < end, "{fault}: never active");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(run.until.is_none_or(|until| Instant::now() >= until), "{fault}: within a lease");
    run
}

/// Each failure, every time that a run takes this step, and once more than it does.
fn happens_each_time(step: &str, times: u32) {
    std::thread::scope(|scope| {
        for what in ["EIO", "ENOSPC", "before", "after"] {
            for number in 1..=times + 1 {
                scope.spawn(move || {
                    let run = happens(step, number, what);
                    let faultless = run.faultless && run.token == 2;
                    assert_eq!(faultless, number > times, "{step}:{number}:{what}");
                });
            }
        }
    });
}

// The state file is replaced four times, and each time file and directory are synced.
const REPLACED: u32 = 4;

#[test]
fn opening_the_new_file_fails_or_is_the_end() {
    happens_each_time("open", REPLACED);
}

#[test]
fn writing_fails_or_is_the_end() {
    happens_each_time("write", REPLACED);
}

#[test]
fn a_write_that_takes_one_byte_is_continued() {
    for number in 1..=REPLACED {
        let run = happens("write", number, "short");
        assert!(run.faultless && run.token == 2);
    }
}

#[test]
fn syncing_fails_or_is_the_end() {
    happens_each_time("fsync", 2 * REPLACED);
}

#[test]
fn renaming_fails_or_is_the_end() {
    happens_each_time("rename", REPLACED);
}
