//! The event-loop and daemon programs in `examples/`.

use crate::native::{Link, program, run};
use crate::programs::server;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

fn example(name: &str) -> PathBuf {
    let cc = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let source = format!("../examples/{name}.c");
    program(&cc, &format!("example-{name}"), &source, &[], Link::Shared)
}

/// A file or directory name of this test process's own.
fn temporary(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()))
}

fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}: it never happened");
        thread::sleep(Duration::from_millis(5));
    }
}

fn send_signal(pid: u32, signal: &str) {
    let status = Command::new("kill").args([&format!("-{signal}"), &pid.to_string()]).status();
    assert!(status.expect("kill runs").success());
}

#[test]
fn a_poll_loop_has_thousands_in_flight() {
    const JOBS: usize = 5000;
    let server = server();
    let mut jobs = String::new();
    for job in 0..JOBS {
        writeln!(jobs, "key/{} {}", job % 1500, job % 5).unwrap();
    }
    let file = temporary("jobs");
    fs::write(&file, jobs).expect("a temporary file");
    let mut command = Command::new(example("daemon_poll"));
    let mut child = command
        .arg(server.addr().to_string())
        .stdin(File::open(&file).expect("it is there"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let lines: Vec<String> = BufReader::new(child.stdout.take().expect("piped"))
        .lines()
        .collect::<Result<_, _>>()
        .expect("text");
    assert!(child.wait().expect("it ends").success());
    fs::remove_file(file).expect("it is still there");

    let (last, done) = lines.split_last().expect("it printed something");
    assert_eq!(last, "closed LOCKCLIENT_OK");
    assert_eq!(done.len(), JOBS);
    let tokens: HashSet<&str> = done
        .iter()
        .filter(|line| line.starts_with("done "))
        .filter_map(|l| l.rsplit(' ').next())
        .collect();
    assert_eq!(tokens.len(), JOBS, "{:?}", done.iter().find(|line| !line.starts_with("done")));
    assert_eq!(server.stats().locks.held, 0);
}

#[test]
fn a_poll_loop_ends_on_sigterm() {
    let server = server();
    let mut child = Command::new(example("daemon_poll"))
        .arg(server.addr().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut input = child.stdin.take().expect("piped");
    writeln!(input, "one 300").expect("it reads");
    eventually("the lock is held", || server.stats().locks.held == 1);
    send_signal(child.id(), "TERM");
    // It finishes what it has begun.
    let lines: Vec<String> = BufReader::new(child.stdout.take().expect("piped"))
        .lines()
        .collect::<Result<_, _>>()
        .expect("text");
    assert!(child.wait().expect("it ends").success());
    assert_eq!(lines, ["done one 1", "closed LOCKCLIENT_OK"]);
    drop(input);
}

#[test]
fn one_ticket_in_a_poll_loop() {
    let server = server();
    let holder = lockclient::Config::new()
        .endpoint(&server.addr().to_string())
        .and_then(|config| config.connections(1))
        .expect("settings")
        .open()
        .expect("a client");
    let asked = lockclient::Acquire::new(Duration::from_secs(30), Duration::ZERO);
    let lock = holder.acquire("k", &asked).expect("no error").acquired().expect("it is free");

    let mut child = Command::new(example("ticket_poll"))
        .args([&server.addr().to_string(), "k"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    // It does other things while it waits, and only then is the lock given back.
    for _ in 0..3 {
        assert_eq!(lines.next().expect("a line").expect("text"), "tick");
    }
    let token = lock.token().get();
    drop(lock);
    let rest: Vec<String> = lines.map(|line| line.expect("text")).collect();
    assert_eq!(rest.last().expect("a line"), &format!("held k token {}", token + 1));
    assert!(rest[..rest.len() - 1].iter().all(|line| line == "tick"));
    assert!(child.wait().expect("it ends").success());

    // The end of its input cancels it.
    let lock = holder.acquire("k", &asked).expect("no error").acquired().expect("it is free");
    let finished =
        run(Command::new(example("ticket_poll")).args([&server.addr().to_string(), "k"]));
    assert!(finished.stdout.contains("not held: LOCKCLIENT_"), "{finished:?}");
    drop(lock);
}

/// Ends a daemon that a failed test leaves behind.
struct Daemon(PathBuf);

impl Daemon {
    fn pid(&self) -> Option<u32> {
        fs::read_to_string(&self.0).ok()?.trim().parse().ok()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(pid) = self.pid() {
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
            let _ = fs::remove_file(&self.0);
        }
    }
}

#[test]
fn a_daemon_of_the_old_school() {
    let (server, second) = (server(), server());
    let (configuration, log) = (temporary("daemon.conf"), temporary("daemon.log"));
    fs::write(&configuration, format!("{}\n", server.addr())).expect("a temporary file");
    let daemon = Daemon(temporary("daemon.pid"));
    let logged = |text: &str| fs::read_to_string(&log).unwrap_or_default().contains(text);

    let started = run(Command::new(example("legacy_daemon")).args([
        daemon.0.as_path(),
        &configuration,
        &log,
    ]));
    // The process that was started is gone; the daemon has no terminal and no parent here.
    assert!(started.status.success(), "{started:?}");
    eventually("it does its job", || logged("the job runs with token 1\n"));
    assert!(logged("started\n"));
    // The library's lines come from a thread of their own.
    eventually("the library logs", || logged("lockclient: "));
    let pid = daemon.pid().expect("it wrote its pid");

    fs::write(&configuration, format!("{}\n", second.addr())).expect("it is still there");
    send_signal(pid, "HUP");
    eventually("it reads its configuration", || logged("configured again\n"));
    eventually("it uses the other server", || second.stats().locks.grants >= 1);

    send_signal(pid, "TERM");
    eventually("it ends", || logged("ended: LOCKCLIENT_OK\n"));
    eventually("it removes its pid", || daemon.pid().is_none());
    assert!(!logged("FORKED"));
    for file in [configuration, log] {
        fs::remove_file(file).expect("it is still there");
    }
}
