//! A host that closes descriptors it does not own, or has none left (HOST-3, HOST-7). Each test
//! runs in a process of its own: itself, started once more.

#![allow(unsafe_code, reason = "closing descriptors behind their owner's back")]

mod common;

use common::fake::{Fake, Request};
use common::{config, ms, ready, seconds, waiting};
use lockclient::{Client, Error, Outcome, ReasonKind};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::Instant;

const ADDRESS: &str = "LOCKCLIENT_TEST_ADDRESS";

/// Runs the test `name` again in a process of its own. In that process: gives the address.
fn alone(name: &str, address: impl ToString) -> Option<String> {
    if let Ok(address) = std::env::var(ADDRESS) {
        return Some(address);
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(ADDRESS, address.to_string())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(text.contains("1 passed"), "{text}");
    None
}

/// Grants whatever is asked for, but what begins with `wait`.
fn granting() -> Fake {
    Fake::start(|peer, request| match request {
        Request::Acquire { owner, key, .. } if !key.starts_with(b"wait") => {
            peer.grant(owner, 1, &key);
        }
        _ => {}
    })
}

fn descriptors() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap();
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let mut numbers: Vec<i32> = numbers.collect();
    // The one that lists them is closed by now.
    // SAFETY: only asks.
    numbers.retain(|fd| unsafe { libc::fcntl(*fd, libc::F_GETFD) } != -1);
    numbers
}

fn processor_time() -> std::time::Duration {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: valid to write to, and filled before it is read.
    let usage = unsafe {
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()), 0);
        usage.assume_init()
    };
    let of = |time: libc::timeval| {
        seconds(time.tv_sec as u64) + std::time::Duration::from_micros(time.tv_usec as u64)
    };
    of(usage.ru_utime) + of(usage.ru_stime)
}

/// Closes what the client has, as `closefrom` does, and opens files under the same numbers.
fn replace_all(keep: &[i32]) -> Vec<File> {
    let theirs: Vec<i32> = descriptors().into_iter().filter(|fd| !keep.contains(fd)).collect();
    assert!(theirs.len() >= 4, "{theirs:?}");
    let make = |fd: &i32| {
        let path = std::env::temp_dir().join(format!("lockclient-{}-{fd}", std::process::id()));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path);
        std::fs::remove_file(&path).unwrap();
        file.unwrap()
    };
    let files: Vec<File> = theirs.iter().map(make).collect();
    for (fd, file) in theirs.iter().zip(&files) {
        // SAFETY: what the client thinks is its own means a file of the test's from now on: the
        // very abuse that the test is about.
        assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), *fd) }, *fd);
    }
    files
}

/// Nothing more can be had from the client, and it says so.
fn is_dead(client: &Client) {
    for _ in 0..3 {
        let error = client.acquire("k", &waiting(2));
        assert!(matches!(error, Err(Error::System(_)) | Ok(Outcome::NotSent(_))), "{error:?}");
    }
    assert!(matches!(client.acquire("k", &waiting(2)), Err(Error::System(_))));
}

#[test]
fn host_3_a_client_whose_descriptors_were_replaced_fails_and_touches_nothing() {
    let fake = granting();
    let name = "host_3_a_client_whose_descriptors_were_replaced_fails_and_touches_nothing";
    let Some(address) = alone(name, fake.address()) else { return };
    let keep = descriptors();
    let client = ready(&config(address));
    drop(client.acquire("k", &waiting(2)).unwrap().acquired().unwrap());
    let blocked = client.start("wait", &waiting(1)).unwrap();
    let lock = client.acquire("l", &waiting(2)).unwrap().acquired().unwrap();
    while client.stats().in_flight_now == 0 {
        std::thread::sleep(ms(1));
    }
    let files = replace_all(&keep);
    let used = processor_time();
    is_dead(&client);
    let outcome = blocked.wait().unwrap();
    let Outcome::Indeterminate(failure) = outcome else { panic!("{outcome:?}") };
    let kinds = [ReasonKind::ThreadEnded, ReasonKind::Deadline, ReasonKind::Io];
    assert!(kinds.contains(&failure.kind()), "{failure}");
    drop(lock);
    std::thread::sleep(ms(300));
    assert!(processor_time() - used < seconds(1), "something spins");
    let start = Instant::now();
    let _ = client.shutdown(ms(100)).unwrap();
    assert!(start.elapsed() < seconds(10));
    drop(client);
    for mut file in files {
        assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), 0, "something was written");
    }
    let after = descriptors();
    assert!(keep.iter().all(|fd| after.contains(fd)));
}

#[test]
fn host_3_a_client_whose_descriptors_were_closed_fails_and_does_not_spin() {
    let fake = granting();
    let name = "host_3_a_client_whose_descriptors_were_closed_fails_and_does_not_spin";
    let Some(address) = alone(name, fake.address()) else { return };
    let keep = descriptors();
    let client = ready(&config(address));
    drop(client.acquire("k", &waiting(2)).unwrap().acquired().unwrap());
    for fd in descriptors().into_iter().filter(|fd| !keep.contains(fd)) {
        // SAFETY: the very abuse that the test is about.
        unsafe { libc::close(fd) };
    }
    let used = processor_time();
    is_dead(&client);
    std::thread::sleep(ms(300));
    assert!(processor_time() - used < seconds(1), "something spins");
    let _ = client.shutdown(ms(100)).unwrap();
}

fn limit_descriptors(count: libc::rlim_t) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a valid limit to write to and to read from.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        limit.rlim_cur = count;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
    }
}

#[test]
fn host_7_without_descriptors_opening_fails_and_leaks_none() {
    let fake = granting();
    let name = "host_7_without_descriptors_opening_fails_and_leaks_none";
    let Some(address) = alone(name, fake.address()) else { return };
    let config = config(address);
    let before = descriptors();
    let mut failed = 0;
    // Below the limit there are ever more numbers that are free.
    for limit in 0.. {
        assert!(limit < 1024, "it never opened");
        limit_descriptors(limit);
        match config.open() {
            Ok(client) => {
                let _ = client.shutdown(seconds(30)).unwrap();
                break;
            }
            Err(error) => {
                assert!(matches!(error, Error::System(_)), "{error:?}");
                failed += 1;
            }
        }
        limit_descriptors(1024);
        assert_eq!(descriptors(), before);
    }
    assert!(failed > 0);
}

#[test]
fn host_3_every_descriptor_is_closed_in_a_new_program() {
    let fake = granting();
    let name = "host_3_every_descriptor_is_closed_in_a_new_program";
    let Some(address) = alone(name, fake.address()) else { return };
    let keep = descriptors();
    let client = ready(&config(address));
    let theirs: Vec<i32> = descriptors().into_iter().filter(|fd| !keep.contains(fd)).collect();
    assert!(theirs.len() >= 4, "poll, waker and connection: {theirs:?}");
    for fd in theirs {
        // SAFETY: only asks.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
        assert_ne!(flags & libc::FD_CLOEXEC, 0, "{fd}");
    }
    drop(client);
}
