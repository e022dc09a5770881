//! A list of locks that comes slowly, or not as a whole, or is read slowly.

mod common;

use lockd::LockLine;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

/// A server that gives one client `head` and `body`, and then closes the connection. Its thread
/// ends once everything has been sent.
fn answer_once(head: String, body: String) -> (tempfile::TempDir, PathBuf, JoinHandle<()>) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("admin.sock");
    let listener = UnixListener::bind(&path).expect("a socket");
    let thread = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a client");
        let mut request = String::new();
        let mut lines = BufReader::new(&stream);
        while request != "\r\n" {
            request.clear();
            lines.read_line(&mut request).expect("a request");
        }
        send_all(&stream, format!("{head}\r\n\r\n{body}").as_bytes());
    });
    (dir, path, thread)
}

fn send_all(mut stream: &UnixStream, mut bytes: &[u8]) {
    stream.set_write_timeout(Some(common::LONG)).expect("time-out");
    while !bytes.is_empty() {
        bytes = &bytes[stream.write(bytes).expect("a client that reads")..];
    }
}

/// `count` locks as a list, each on a line.
fn list(count: u64) -> String {
    let line = |token| {
        let lock = LockLine { key: format!("k{token}"), token, remaining_ms: 1000, waiters: 0 };
        format!("{}\n", serde_json::json!(lock))
    };
    (1..=count).map(line).collect()
}

fn head(length: usize) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nContent-Length: {length}")
}

/// What `lockd inspect` makes of an answer.
fn inspect(head: String, body: String) -> Output {
    let (_dir, path, server) = answer_once(head, body);
    let socket = path.to_str().expect("UTF-8");
    let output = Command::new(env!("CARGO_BIN_EXE_lockd"))
        .args(["inspect", "--json", "--admin-socket", socket])
        .output()
        .expect("lockd");
    server.join().expect("the server");
    output
}

#[test]
fn a_whole_list_is_printed() {
    let whole = list(3);
    let output = inspect(head(whole.len()), whole);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 3);
}

#[test]
fn a_list_that_is_cut_short_is_an_error_wherever_it_is_cut() {
    let whole = list(3);
    let line = list(1).len();
    for arrived in [0, 1, line - 1, line, line + 5, 2 * line, whole.len() - 1] {
        let output = inspect(head(whole.len()), whole[..arrived].to_owned());
        assert_eq!(output.status.code(), Some(1), "{arrived} bytes");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(message.contains("cut short"), "{arrived} bytes: {message}");
        assert!(output.stdout.is_empty(), "{arrived} bytes: no part of it passes for the whole");
    }
}

#[test]
fn a_list_that_does_not_say_how_long_it_is_is_an_error() {
    let output = inspect("HTTP/1.1 200 OK".into(), list(3));
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
}

#[test]
fn the_server_need_not_wait_for_whoever_reads_the_list() {
    const LOCKS: u64 = 20_000;
    let body = list(LOCKS);
    let (_dir, path, server) = answer_once(head(body.len()), body);
    let (all_sent, sent) = channel();
    let watcher = std::thread::spawn(move || {
        let result = server.join();
        let _ = all_sent.send(());
        result
    });
    let mut read = 0;
    lockd::inspect(&path, "", usize::MAX, |lock| {
        if read == 0 {
            sent.recv_timeout(common::LONG).expect("the server has sent all of it by now");
        }
        read += 1;
        assert_eq!(lock.token, read);
        Ok(())
    })
    .expect("a list");
    assert_eq!(read, LOCKS);
    watcher.join().expect("the watcher").expect("the server");
}
