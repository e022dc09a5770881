//! The guard of a lock that is held.

use crate::client::Client;
use crate::error::Error;
use crate::outcome::{Grant, Released, Token};
use crate::wire::Key;
use std::fmt;
use std::time::Duration;

/// A lock that is held. Dropping it gives the lock back without waiting for the answer.
///
/// The lock ends with its lease at the latest, whether or not this value is alive: hand
/// [`Lock::token`] to what the lock protects, and look at [`Lock::remaining`] before long work.
/// It keeps its client open.
#[must_use = "dropping it gives the lock back"]
pub struct Lock {
    /// None once the guard has been dismantled: then there is nothing left to give back.
    client: Option<Client>,
    key: Key,
    grant: Grant,
}

impl Lock {
    pub(crate) fn new(client: Client, key: Key, grant: Grant) -> Lock {
        Lock { client: Some(client), key, grant }
    }

    /// The lock's key.
    #[must_use]
    pub fn key(&self) -> &str {
        self.key.as_str()
    }

    /// The fencing token.
    #[must_use]
    pub fn token(&self) -> Token {
        self.grant.token
    }

    /// The request's correlation id: for logs, and nothing else.
    #[must_use]
    pub fn owner(&self) -> u64 {
        self.grant.owner
    }

    /// What provably remains of the lease now: a lower bound, whatever the network did. Ask again
    /// rather than count an answer down: a clock that is 0.1 % slow would count too long by that.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.grant.remaining()
    }

    /// The grant as a value; the guard still gives the lock back when it is dropped.
    #[must_use]
    pub fn grant(&self) -> Grant {
        self.grant
    }

    /// Gives the lock back and waits for the answer, up to 5 s.
    ///
    /// After [`Released::Unconfirmed`] the token may be released again with [`Client::release`]:
    /// keep [`Lock::token`] for that.
    ///
    /// # Errors
    /// As [`Client::release`]. Inside the log callback, where it may not wait for the answer
    /// ([`Error::WouldDeadlock`]), the lock is given back as if the guard had been dropped.
    pub fn release(mut self) -> Result<Released, Error> {
        let Some(client) = self.client.take() else { return Err(Error::Closed) };
        let released = client.release_key(&self.key, self.grant.token);
        if matches!(released, Err(Error::WouldDeadlock)) {
            client.release_dropped(&self.key, self.grant.token);
        }
        released
    }

    /// The grant as a value, without the guard: the lock stays held until its token is released or
    /// its lease ends.
    #[must_use]
    pub fn into_grant(mut self) -> Grant {
        self.client = None;
        self.grant
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            client.release_dropped(&self.key, self.grant.token);
        }
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("key", &self.key).field("grant", &self.grant).finish()
    }
}
