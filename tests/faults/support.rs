//! What these tests say often.

use crate::common::{PATIENCE, seconds};
use lockclient::{Acquire, Client, Config, Lock, Outcome, ReasonKind};
use std::ops::Deref;
use std::time::{Duration, Instant};

/// A configuration with several endpoints.
pub(crate) fn endpoints<T: ToString>(addresses: impl IntoIterator<Item = T>) -> Config {
    addresses
        .into_iter()
        .fold(Config::new(), |config, address| config.endpoint(&address.to_string()).unwrap())
}

/// A client with one connection for everything, so that what shares it is known.
pub(crate) fn narrow(address: impl ToString) -> Config {
    endpoints([address]).connections(1).unwrap()
}

/// An acquire with a lease of so many seconds.
pub(crate) fn leasing(wait: u64, lease: u64) -> Acquire {
    Acquire::new(seconds(wait), Duration::ZERO).lease(seconds(lease))
}

/// An outcome in one word, for a child's lines.
pub(crate) fn word<T>(outcome: &Outcome<T>) -> &'static str {
    match outcome {
        Outcome::Acquired(_) => "acquired",
        Outcome::TimedOut => "timed-out",
        Outcome::Busy => "busy",
        Outcome::NotSent(_) => "not-sent",
        Outcome::Cancelled => "cancelled",
        Outcome::Indeterminate(_) => "indeterminate",
    }
}

/// Why an outcome is unknown; nothing else will do.
#[track_caller]
pub(crate) fn unknown(outcome: Outcome<Lock>) -> ReasonKind {
    match outcome {
        Outcome::Indeterminate(failure) => failure.kind(),
        other => panic!("{other:?}"),
    }
}

/// Why a request was not sent; nothing else will do.
#[track_caller]
pub(crate) fn unsent(outcome: Outcome<Lock>) -> ReasonKind {
    match outcome {
        Outcome::NotSent(failure) => failure.kind(),
        other => panic!("{other:?}"),
    }
}

/// Waits until an instant has come.
pub(crate) fn sleep_until(instant: Instant) {
    std::thread::sleep(instant.saturating_duration_since(Instant::now()));
}

/// A client that ends with its test. One that went on in the background, with a release to deliver,
/// would dial a port that may be another test's by then.
#[derive(Debug)]
pub(crate) struct Mortal(Client);

impl Deref for Mortal {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.0
    }
}

impl Drop for Mortal {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Duration::ZERO);
    }
}

/// A client, connected or not.
#[track_caller]
pub(crate) fn begin(config: &Config) -> Mortal {
    Mortal(config.open().unwrap())
}

/// A client that has a connection.
#[track_caller]
pub(crate) fn open(config: &Config) -> Mortal {
    let client = begin(config);
    assert!(client.wait_ready(PATIENCE).unwrap());
    client
}

/// Does `job` for every one of `items`, four at a time.
pub(crate) fn in_parallel<T: Send>(items: impl IntoIterator<Item = T>, job: impl Fn(T) + Sync) {
    let items = std::sync::Mutex::new(items.into_iter().collect::<Vec<_>>());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let next = items.lock().unwrap().pop();
                    let Some(item) = next else { return };
                    job(item);
                }
            });
        }
    });
}
