//! What a client is opened with.

use crate::client::Client;
use crate::endpoint::{EndpointError, normalize};
use crate::error::Error;
use crate::log::{LogFn, LogLevel};
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

/// The most endpoints that a client may have.
const MAX_ENDPOINTS: usize = 64;

/// A setting that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The endpoint's text is not `host:port`, `[v6]:port` or `unix:/path`.
    #[error("{text:?} is not an endpoint: {why}")]
    Endpoint {
        /// What was given.
        text: String,
        /// What is wrong with it.
        why: EndpointError,
    },
    /// The endpoint was added before; the text is the normalized one.
    #[error("the endpoint {0} was added before")]
    DuplicateEndpoint(String),
    /// There are 64 endpoints already.
    #[error("more than 64 endpoints")]
    TooManyEndpoints,
    /// The secret's length, in bytes, is outside 16..=256.
    #[error("a secret of {0} bytes; 16 to 256 are allowed")]
    SecretLength(usize),
    /// A duration is out of its range.
    #[error("{what} of {given:?} is outside {least:?}..={most:?}")]
    Duration {
        /// Which setting.
        what: &'static str,
        /// What was given.
        given: Duration,
        /// The least that is allowed.
        least: Duration,
        /// The most that is allowed.
        most: Duration,
    },
    /// A number is out of its range.
    #[error("{what} of {given} is outside {least}..={most}")]
    Number {
        /// Which setting.
        what: &'static str,
        /// What was given.
        given: u64,
        /// The least that is allowed.
        least: u64,
        /// The most that is allowed.
        most: u64,
    },
}

/// The settings of a client. A builder: each setter checks its value and gives the settings back.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = lockclient::Config::new().endpoint("127.0.0.1:7420")?.connections(2)?;
/// # let _ = config;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Config {
    pub(crate) endpoints: Vec<String>,
    pub(crate) secret: Option<Vec<u8>>,
    pub(crate) connections: u32,
    pub(crate) connect_timeout: Duration,
    pub(crate) response_grace: Duration,
    pub(crate) strict_deadline: bool,
    pub(crate) enforce_budget: bool,
    pub(crate) busy_retry: bool,
    pub(crate) ordered_answers: bool,
    pub(crate) idle_probe: Duration,
    pub(crate) queue_limit: usize,
    pub(crate) log: Option<LogFn>,
}

impl Default for Config {
    fn default() -> Config {
        Config::new()
    }
}

impl Config {
    /// The defaults, with no endpoint: at least one has to be added before a client can be opened.
    #[must_use]
    pub fn new() -> Config {
        Config {
            endpoints: Vec::new(),
            secret: None,
            connections: 4,
            connect_timeout: Duration::from_secs(2),
            response_grace: Duration::from_millis(500),
            strict_deadline: false,
            enforce_budget: false,
            busy_retry: false,
            ordered_answers: true,
            idle_probe: Duration::from_secs(10),
            queue_limit: 65_536,
            log: None,
        }
    }

    /// Adds an endpoint: `host:port`, `[v6]:port`, or `unix:/path` for a server on this machine that
    /// listens on a socket file. They are dialled in the order in which they were added, and no other
    /// address ever is. At most 64.
    ///
    /// A path is absolute and has at most 107 bytes of UTF-8 without NUL. It is taken as it is: two
    /// paths that lead to one file are two endpoints.
    ///
    /// # Errors
    /// The text is not an endpoint, it was added before, or there are 64 already.
    pub fn endpoint(mut self, endpoint: &str) -> Result<Config, ConfigError> {
        self.add_endpoint(endpoint)?;
        Ok(self)
    }

    /// The secret that servers and this client prove to each other that they know. 16 to 256
    /// random bytes; a guessable one can be found offline by whoever the client dials. Without
    /// one, a server that asks for a proof is an authentication failure.
    ///
    /// # Errors
    /// The length is out of range.
    pub fn secret(mut self, bytes: &[u8]) -> Result<Config, ConfigError> {
        self.set_secret(bytes)?;
        Ok(self)
    }

    /// The most connections to the serving node, 1..=64, 4 if not set. A connection that is closed
    /// for one request's sake takes its other requests with it, so more of them part callers better.
    ///
    /// # Errors
    /// The number is out of range.
    pub fn connections(mut self, per_client: u32) -> Result<Config, ConfigError> {
        self.set_connections(per_client)?;
        Ok(self)
    }

    /// The time limit of connecting, resolving the name included: 10 ms to 60 s, 2 s if not set.
    ///
    /// # Errors
    /// The duration is out of range.
    pub fn connect_timeout(mut self, limit: Duration) -> Result<Config, ConfigError> {
        self.set_connect_timeout(limit)?;
        Ok(self)
    }

    /// How long after its deadline, and after the wait that its server was asked for (what was left
    /// of the deadline, rounded up to whole seconds), an acquire that was sent may still be answered
    /// "timed out" or "busy" before its connection is closed and its outcome is unknown: 50 ms to
    /// 60 s, 500 ms if not set. It never makes a late grant count.
    ///
    /// # Errors
    /// The duration is out of range.
    pub fn response_grace(mut self, grace: Duration) -> Result<Config, ConfigError> {
        self.set_response_grace(grace)?;
        Ok(self)
    }

    /// Ends every acquire at its deadline exactly, without the response grace and without waiting
    /// out the server's whole seconds. An ordinary timeout is then often an unknown outcome. Off if
    /// not set.
    #[must_use]
    pub fn strict_deadline(mut self, on: bool) -> Config {
        self.strict_deadline = on;
        self
    }

    /// Gives a grant back, with an unknown outcome for its caller, when less than the acquire's
    /// `min_work_budget` of its lease provably remains. Off if not set.
    #[must_use]
    pub fn enforce_budget(mut self, on: bool) -> Config {
        self.enforce_budget = on;
        self
    }

    /// Tries again, with backoff and inside the same deadline, when the server says that it is
    /// busy. Never for a wait of 0. Off if not set. What ends it between two tries, be it a cancel
    /// or a shutdown, ends it [`crate::Outcome::Busy`], the last answer.
    #[must_use]
    pub fn busy_retry(mut self, on: bool) -> Config {
        self.busy_retry = on;
        self
    }

    /// Whether the server's answers leave in the order in which they were decided, which lets the
    /// client prove more of a lease's remainder. On if not set.
    #[must_use]
    pub fn ordered_answers(mut self, on: bool) -> Config {
        self.ordered_answers = on;
        self
    }

    /// How often an idle connection is probed: 1 s to 1 h, 10 s if not set.
    ///
    /// # Errors
    /// The duration is out of range.
    pub fn idle_probe(mut self, every: Duration) -> Result<Config, ConfigError> {
        check_duration("idle_probe", every, Duration::from_secs(1)..=Duration::from_secs(3600))?;
        self.idle_probe = every;
        Ok(self)
    }

    /// The most acquires that may wait unsent, 1..=1,048,576, 65,536 if not set, and as many
    /// releases by `release_start` that may be under way. One more is [`Error::QueueFull`]. The lane
    /// of releases of grants that could not be handed over has as many places, of its own, and at
    /// least 1,024.
    ///
    /// # Errors
    /// The number is out of range.
    pub fn queue_limit(mut self, limit: usize) -> Result<Config, ConfigError> {
        check_number("queue_limit", limit as u64, 1..=1_048_576)?;
        self.queue_limit = limit;
        Ok(self)
    }

    /// Gets the client's log lines. The callback runs on a thread of its own, one line at a time,
    /// with no lock held; when it is slow, lines are lost and their number is logged. Blocking
    /// calls on this client from inside it are refused ([`Error::WouldDeadlock`]). None starts
    /// after [`Client::shutdown`] has returned.
    #[must_use]
    pub fn log(mut self, log: impl Fn(LogLevel, &str) + Send + Sync + 'static) -> Config {
        self.log = Some(Arc::new(log));
        self
    }

    /// Opens a client. Connects in the background: an endpoint that cannot be reached shows in
    /// [`Client::wait_ready`] and in the calls, not here.
    ///
    /// # Errors
    /// [`Error::NoEndpoint`], or the system refused a thread, a descriptor or memory.
    pub fn open(&self) -> Result<Client, Error> {
        Client::open(self)
    }

    pub(crate) fn add_endpoint(&mut self, text: &str) -> Result<(), ConfigError> {
        let endpoint =
            normalize(text).map_err(|why| ConfigError::Endpoint { text: text.to_owned(), why })?;
        if self.endpoints.contains(&endpoint) {
            return Err(ConfigError::DuplicateEndpoint(endpoint));
        }
        if self.endpoints.len() == MAX_ENDPOINTS {
            return Err(ConfigError::TooManyEndpoints);
        }
        self.endpoints.push(endpoint);
        Ok(())
    }

    pub(crate) fn set_secret(&mut self, bytes: &[u8]) -> Result<(), ConfigError> {
        if !(16..=256).contains(&bytes.len()) {
            return Err(ConfigError::SecretLength(bytes.len()));
        }
        self.secret = Some(bytes.to_vec());
        Ok(())
    }

    pub(crate) fn set_connections(&mut self, per_client: u32) -> Result<(), ConfigError> {
        check_number("connections", u64::from(per_client), 1..=64)?;
        self.connections = per_client;
        Ok(())
    }

    pub(crate) fn set_connect_timeout(&mut self, limit: Duration) -> Result<(), ConfigError> {
        let range = Duration::from_millis(10)..=Duration::from_secs(60);
        check_duration("connect_timeout", limit, range)?;
        self.connect_timeout = limit;
        Ok(())
    }

    pub(crate) fn set_response_grace(&mut self, grace: Duration) -> Result<(), ConfigError> {
        let range = Duration::from_millis(50)..=Duration::from_secs(60);
        check_duration("response_grace", grace, range)?;
        self.response_grace = grace;
        Ok(())
    }
}

/// Without the secret.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("endpoints", &self.endpoints)
            .field("secret", &self.secret.as_ref().map(|_| "..."))
            .field("connections", &self.connections)
            .field("connect_timeout", &self.connect_timeout)
            .field("response_grace", &self.response_grace)
            .field("strict_deadline", &self.strict_deadline)
            .field("enforce_budget", &self.enforce_budget)
            .field("busy_retry", &self.busy_retry)
            .field("ordered_answers", &self.ordered_answers)
            .field("idle_probe", &self.idle_probe)
            .field("queue_limit", &self.queue_limit)
            .field("log", &self.log.is_some())
            .finish()
    }
}

fn check_duration(
    what: &'static str,
    given: Duration,
    range: RangeInclusive<Duration>,
) -> Result<(), ConfigError> {
    if range.contains(&given) {
        return Ok(());
    }
    Err(ConfigError::Duration { what, given, least: *range.start(), most: *range.end() })
}

fn check_number(
    what: &'static str,
    given: u64,
    range: RangeInclusive<u64>,
) -> Result<(), ConfigError> {
    if range.contains(&given) {
        return Ok(());
    }
    Err(ConfigError::Number { what, given, least: *range.start(), most: *range.end() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_normalized_and_kept_in_order() {
        let config = Config::new().endpoint("B.example:07420").unwrap();
        let config = config.endpoint("[0:0::1]:1").unwrap();
        assert_eq!(config.endpoints, ["b.example:7420", "[::1]:1"]);
        assert_eq!(
            config.endpoint("b.EXAMPLE:7420").unwrap_err(),
            ConfigError::DuplicateEndpoint("b.example:7420".to_owned())
        );
    }

    #[test]
    fn at_most_64_endpoints() {
        let mut config = Config::new();
        for port in 1..=64 {
            config = config.endpoint(&format!("localhost:{port}")).unwrap();
        }
        assert_eq!(config.endpoint("localhost:65").unwrap_err(), ConfigError::TooManyEndpoints);
    }

    #[test]
    fn ranges_are_checked_at_both_ends() {
        let ms = Duration::from_millis;
        assert!(Config::new().secret(&[0; 15]).is_err());
        assert!(Config::new().secret(&[0; 16]).is_ok());
        assert!(Config::new().secret(&[0; 256]).is_ok());
        assert!(Config::new().secret(&[0; 257]).is_err());
        assert!(Config::new().connections(0).is_err());
        assert!(Config::new().connections(64).is_ok());
        assert!(Config::new().connections(65).is_err());
        assert!(Config::new().connect_timeout(ms(9)).is_err());
        assert!(Config::new().connect_timeout(ms(60_001)).is_err());
        assert!(Config::new().response_grace(ms(49)).is_err());
        assert!(Config::new().response_grace(ms(50)).is_ok());
        assert!(Config::new().idle_probe(ms(999)).is_err());
        assert!(Config::new().queue_limit(0).is_err());
        assert!(Config::new().queue_limit(1_048_577).is_err());
    }

    #[test]
    fn debug_output_hides_the_secret() {
        let config = Config::new().secret(b"0123456789abcdef").unwrap();
        let shown = format!("{config:?}");
        assert!(!shown.contains("0123"), "{shown}");
        assert!(!shown.contains("48, 49"), "{shown}");
    }
}
