//! The `lockd` program: its start, its end, and signals.

mod common;

use common::program::{Lockd, full_pipe, listening_line};
use common::{Answer, Peer, plain};
use std::io::{BufReader, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn it_says_where_it_listens_and_serves_there() {
    let lockd = Lockd::start(&[]);
    Peer::connect(lockd.address).take(1, "k", 5);
}

#[test]
fn it_says_every_address_on_a_line_of_its_own() {
    let mut lockd = Lockd::start(&["--listen", "[::1]:0"]);
    let second = listening_line(lockd.stdout.as_mut().expect("stdout"));
    assert!(second.is_ipv6());
    for address in [lockd.address, second] {
        Peer::connect(address).expect_served();
    }
}

#[test]
fn it_stops_cleanly_and_soon_on_sigterm_and_sigint() {
    for signal in ["TERM", "INT"] {
        let mut lockd = Lockd::start(&[]);
        let mut holder = Peer::connect(lockd.address);
        let mut waiter = Peer::connect(lockd.address);
        holder.take(1, "k", 60);
        waiter.acquire(2, "k", 60, 60);
        waiter.expect_served();
        let begun = Instant::now();
        lockd.signal(signal);
        let status = lockd.wait();
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        assert!(status.success(), "{signal}: {status}");
        holder.expect_end();
        waiter.expect_end();
    }
}

#[test]
fn it_stops_soon_even_with_a_peer_that_does_not_read() {
    let mut lockd = Lockd::start(&[]);
    let mut deaf = Peer::connect_with_small_window(lockd.address);
    let key = "x".repeat(128);
    for owner in 1..=2000 {
        deaf.release(owner, 0, &key);
    }
    let begun = Instant::now();
    lockd.signal("TERM");
    let status = lockd.wait();
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert!(status.success());
}

#[test]
fn neither_a_closed_standard_output_nor_a_gone_peer_ends_it() {
    let mut lockd = Lockd::start(&["--log", "trace"]);
    lockd.stdout = None;
    for owner in 1..=50 {
        let mut peer = Peer::connect(lockd.address);
        for _ in 0..20 {
            peer.release(owner, 0, "k");
        }
        drop(peer);
    }
    Peer::connect(lockd.address).expect_served();
}

#[test]
fn a_wrong_command_line_or_address_is_an_error_with_its_name() {
    let cases: [(&[&str], &str); 4] = [
        (&["--nonsense"], "--nonsense"),
        (&["--max-locks", "0"], "max-locks"),
        (&["--listen", "127.0.0.1"], "127.0.0.1"),
        (&["--secret-file", "/nonexistent/secret"], "/nonexistent/secret"),
    ];
    for (arguments, name) in cases {
        let output = Lockd::command(arguments).output().expect("lockd");
        assert!(!output.status.success(), "{arguments:?}");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(message.contains(name), "{arguments:?}: {message}");
        assert!(output.stdout.is_empty(), "nothing listens");
    }
}

#[test]
fn help_names_every_option() {
    let output = Command::new(env!("CARGO_BIN_EXE_lockd")).arg("--help").output().expect("lockd");
    assert!(output.status.success());
    let help = String::from_utf8_lossy(&output.stdout).into_owned();
    for option in [
        "--listen",
        "--max-locks",
        "--max-waiters",
        "--max-waiters-per-key",
        "--max-waiters-per-connection",
        "--max-connections",
        "--secret-file",
        "--log",
        "--log-format",
    ] {
        assert!(help.contains(option), "{option}");
    }
}

#[test]
fn its_log_goes_to_standard_error_as_text_or_json() {
    for (format, first) in [("text", '2'), ("json", '{')] {
        let log = log_of(&["--log-format", format], |_| {});
        assert!(!log.is_empty() && log.lines().all(|line| line.starts_with(first)), "{log}");
    }
}

#[test]
fn sighup_makes_it_read_its_secret_files_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("secret");
    std::fs::write(&path, [1; 32]).expect("write");
    let lockd = Lockd::start(&["--secret-file", path.to_str().expect("UTF-8")]);
    let accepted = |secret: &[u8]| {
        let mut peer = Peer::connect(lockd.address);
        let Answer::Challenge(nonce) = peer.answer() else { panic!("no challenge") };
        let proof = lockclient::wire::client_proof(secret, &nonce, &[7; 32]);
        peer.request(lockclient::wire::ClientFrame::Proof { nonce: &[7; 32], proof: &proof });
        matches!(peer.answer(), Answer::Accepted(_))
    };
    assert!(accepted(&[1; 32]));
    std::fs::write(&path, [2; 32]).expect("write");
    lockd.signal("HUP");
    let end = Instant::now() + common::LONG;
    while !accepted(&[2; 32]) {
        assert!(Instant::now() < end, "never read again");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn sighup_without_secrets_changes_nothing() {
    let lockd = Lockd::start(&[]);
    let mut peer = Peer::connect(lockd.address);
    let token = peer.take(1, "k", 60);
    lockd.signal("HUP");
    peer.release(2, token, "k");
    assert_eq!(peer.answer(), plain('R', 2, "k"));
}

#[test]
fn a_full_descriptor_table_does_not_end_it_nor_keep_it_busy() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let lockd = Lockd::start(&["--log", "error"]);
    let directory = format!("/proc/{}/fd", lockd.child.id());
    let used = std::fs::read_dir(directory).expect("descriptors").count() as u64;
    let pid = Pid::from_raw(lockd.child.id() as i32).expect("a process");
    let limit = Some(used + 5);
    prlimit(Some(pid), Resource::Nofile, Rlimit { current: limit, maximum: limit }).expect("limit");
    let mut served: Vec<Peer> = (0..5).map(|_| Peer::connect(lockd.address)).collect();
    for peer in &mut served {
        peer.expect_served();
    }
    let mut waiting: Vec<Peer> = (0..5).map(|_| Peer::connect(lockd.address)).collect();
    for peer in &mut waiting {
        peer.release(1, 0, "k");
    }
    let before = processor_ticks(&lockd);
    std::thread::sleep(Duration::from_secs(1));
    let ticks = processor_ticks(&lockd) - before;
    assert!(ticks < 50, "{ticks} of 100 ticks spent on accepting");
    for peer in &mut served {
        peer.expect_served();
    }
    drop(served);
    for peer in &mut waiting {
        assert_eq!(peer.answer(), plain('N', 1, "k"));
    }
}

/// Processor time used so far, in hundredths of a second.
fn processor_ticks(lockd: &Lockd) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", lockd.child.id())).expect("stat");
    let fields: Vec<&str> =
        stat.rsplit(") ").next().expect("the fields").split_whitespace().collect();
    // User and system time are the 14th and 15th field; the state, here the first, is the 3rd.
    fields[11].parse::<u64>().expect("utime") + fields[12].parse::<u64>().expect("stime")
}

#[test]
fn settings_come_from_the_environment_and_a_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("lockd.toml");
    std::fs::write(&path, "max-locks = 1\nmax-connections = 1\n").expect("write");
    let mut command = Lockd::command(&["--config", path.to_str().expect("UTF-8")]);
    let mut child = command.env("LOCKD_MAX_CONNECTIONS", "2").stderr(Stdio::null()).spawn();
    let child = child.as_mut().expect("lockd");
    let mut stdout = BufReader::new(child.stdout.take().expect("stdout"));
    let address = listening_line(&mut stdout);
    // One lock, by the file; two connections, by the environment, which goes before it.
    let mut first = Peer::connect(address);
    let mut second = Peer::connect(address);
    first.take(1, "k", 60);
    second.acquire(2, "other", 0, 60);
    assert_eq!(second.answer(), plain('B', 2, "other"));
    Peer::connect(address).expect_end();
    child.kill().expect("kill");
    child.wait().expect("wait");
}

#[test]
fn the_service_manager_is_told_when_it_serves_and_when_it_stops() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&path).expect("a socket");
    manager.set_read_timeout(Some(common::LONG)).expect("time-out");
    let told = || {
        let mut buffer = [0; 200];
        let count = manager.recv(&mut buffer).expect("a message");
        String::from_utf8_lossy(&buffer[..count]).trim_end().to_owned()
    };
    let mut command = Lockd::command(&["--log", "off"]);
    let mut child = command.env("NOTIFY_SOCKET", &path).spawn().expect("lockd");
    let mut stdout = BufReader::new(child.stdout.take().expect("stdout"));
    let address = listening_line(&mut stdout);
    let mut lockd = Lockd { child, stdout: None, address };
    assert_eq!(told(), "READY=1");
    lockd.signal("TERM");
    assert_eq!(told(), "STOPPING=1");
    assert!(lockd.wait().success());
}

/// Starts it, lets `cause` do something to it, stops it, and gives its log.
fn log_of(arguments: &[&str], cause: impl FnOnce(&Lockd)) -> String {
    let mut child = Lockd::command(arguments).stderr(Stdio::piped()).spawn().expect("lockd");
    let mut stdout = BufReader::new(child.stdout.take().expect("stdout"));
    let address = listening_line(&mut stdout);
    let mut stderr = child.stderr.take().expect("stderr");
    let mut lockd = Lockd { child, stdout: None, address };
    cause(&lockd);
    lockd.signal("TERM");
    lockd.wait();
    let mut log = String::new();
    stderr.read_to_string(&mut log).expect("the log");
    log
}

#[test]
fn start_stop_and_what_it_means_to_have_no_state_are_logged_once() {
    let log = log_of(&[], |lockd| Peer::connect(lockd.address).expect_served());
    for message in ["no state directory", " started ", "stopping", " stopped"] {
        assert_eq!(log.matches(message).count(), 1, "{message} in\n{log}");
    }
}

#[test]
fn limits_that_are_reached_are_logged_but_not_as_often_as_they_are() {
    let log = log_of(&["--max-connections", "1"], |lockd| {
        let mut peer = Peer::connect(lockd.address);
        peer.expect_served();
        for _ in 0..200 {
            Peer::connect(lockd.address).expect_end();
        }
    });
    let said = log.matches("too many connections").count();
    assert!((1..20).contains(&said), "{said} of 200 in\n{log}");
    let log = log_of(&["--max-locks", "1"], |lockd| {
        let mut peer = Peer::connect(lockd.address);
        let token = peer.take(1, "k", 60);
        for owner in 2..200 {
            peer.acquire(owner, "other", 0, 60);
            assert_eq!(peer.answer(), plain('B', owner, "other"));
        }
        peer.release(200, token, "k");
        assert_eq!(peer.answer(), plain('R', 200, "k"));
    });
    let said = log.matches("acquires refused").count();
    assert_eq!(said, 1, "{log}");
    let log = log_of(&[], |lockd| {
        for _ in 0..100 {
            let mut peer = Peer::connect(lockd.address);
            peer.send(b"GET / HTTP/1.1\r\n\r\n");
            assert_eq!(peer.answer(), common::error("bad_request"));
        }
    });
    let said = log.matches("malformed frame").count();
    assert!((1..20).contains(&said), "{said} of 100 in\n{log}");
}

#[test]
fn the_log_says_why_acquires_are_refused() {
    let full = "a queue is full: acquires refused";
    let tokenless = "no token can be issued any more: waiters refused";
    let log = log_of(&["--max-waiters-per-key", "1"], |lockd| {
        let mut peer = Peer::connect(lockd.address);
        peer.take(1, "k", 60);
        peer.acquire(2, "k", 60, 5);
        peer.acquire(3, "k", 60, 5);
        assert_eq!(peer.answer(), plain('B', 3, "k"));
    });
    assert_eq!((log.matches(full).count(), log.matches(tokenless).count()), (1, 0), "{log}");
    let dir = tempfile::tempdir().expect("a directory");
    let log = log_of(&["--state-dir", dir.path().to_str().expect("UTF-8")], |lockd| {
        let mut peer = Peer::connect(lockd.address);
        let token = peer.take(1, "k", 5);
        peer.acquire(2, "k", 60, 6);
        peer.expect_served();
        // It cannot write its new content where a directory is, and a longer lease needs that.
        std::fs::create_dir(dir.path().join("state.new")).expect("mkdir");
        peer.release(3, token, "k");
        assert_eq!(peer.answer(), plain('R', 3, "k"));
        assert_eq!(peer.answer(), plain('B', 2, "k"));
    });
    assert_eq!((log.matches(full).count(), log.matches(tokenless).count()), (0, 1), "{log}");
}

#[test]
fn nobody_reading_its_log_does_not_hold_it_up() {
    let (reader, writer) = full_pipe();
    let mut command = Lockd::command(&["--log", "trace"]);
    let mut child = command.stderr(writer).spawn().expect("lockd");
    let mut stdout = BufReader::new(child.stdout.take().expect("stdout"));
    let address = listening_line(&mut stdout);
    let mut lockd = Lockd { child, stdout: None, address };
    for _ in 0..20 {
        let mut peer = Peer::connect(address);
        peer.send(b"?");
        assert_eq!(peer.answer(), common::error("bad_request"));
    }
    lockd.signal("HUP");
    Peer::connect(address).expect_served();
    lockd.signal("TERM");
    assert!(lockd.wait().success());
    drop(reader);
}
