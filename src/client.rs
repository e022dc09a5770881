//! The client's handle.

use crate::config::Config;
use crate::error::Error;
use crate::handle::Ticket;
use crate::lock::Lock;
use crate::outcome::{Acquire, Grant, Outcome, Released, Shutdown, Token};
use crate::stats::Stats;
use crate::wire::Key;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

/// A client of the lock service: one background thread that owns every socket, and handles that
/// any thread may use.
///
/// When the last handle, lock and ticket is gone the client ends by itself, in the background,
/// with up to 5 s for the releases that are still under way.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {}

impl Client {
    pub(crate) fn open(config: &Config) -> Result<Client, Error> {
        todo!()
    }

    /// Blocks until some node serves, for at most `timeout`; says whether one does. For checks at
    /// start-up.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`], [`Error::WouldDeadlock`], [`Error::System`].
    pub fn wait_ready(&self, timeout: Duration) -> Result<bool, Error> {
        todo!()
    }

    /// Asks for the lock of `key` and blocks until there is an outcome: at the latest
    /// `max(deadline, sent + wait) + response_grace` after the call, see [`Config::response_grace`].
    ///
    /// `key` is 1..=128 bytes without space, newline and carriage return.
    ///
    /// # Errors
    /// The input cannot be used, or the client cannot; nothing was sent.
    pub fn acquire(&self, key: &str, options: &Acquire) -> Result<Outcome<Lock>, Error> {
        todo!()
    }

    /// Asks for the lock of `key` without blocking: the ticket has the outcome.
    ///
    /// # Errors
    /// As [`Client::acquire`], without [`Error::WouldDeadlock`].
    pub fn start(&self, key: &str, options: &Acquire) -> Result<Ticket, Error> {
        todo!()
    }

    /// Gives the lock of `key` back by its token, and waits for the answer, up to 5 s.
    ///
    /// # Errors
    /// The key cannot be used, or the client cannot; nothing was sent.
    pub fn release(&self, key: &str, token: Token) -> Result<Released, Error> {
        todo!()
    }

    /// Enqueues the release of a token and returns: nobody waits for the answer, which must come
    /// within 5 s, or the lease's end is the safety net. At most 1,024 are under way at once.
    ///
    /// # Errors
    /// As [`Client::release`], without [`Error::WouldDeadlock`]; [`Error::QueueFull`].
    pub fn release_start(&self, key: &str, token: Token) -> Result<(), Error> {
        todo!()
    }

    /// Ends the client: wakes every blocked caller (unsent calls are cancelled, of sent ones the
    /// outcome is unknown), lets the releases under way finish, and closes the connections. Returns
    /// by `timeout`, give or take 100 ms, and may be repeated. Later calls are [`Error::Closed`].
    ///
    /// No log callback starts once it has returned.
    ///
    /// # Errors
    /// [`Error::Forked`], and [`Error::WouldDeadlock`] from inside the log callback.
    pub fn shutdown(&self, timeout: Duration) -> Result<Shutdown, Error> {
        todo!()
    }

    /// Counts since the client was opened. All zero in a forked child.
    #[must_use]
    pub fn stats(&self) -> Stats {
        todo!()
    }

    /// As [`Client::acquire`], with a key of bytes and the bare grant.
    pub(crate) fn acquire_grant(
        &self,
        key: &[u8],
        options: &Acquire,
    ) -> Result<Outcome<Grant>, Error> {
        todo!()
    }

    /// As [`Client::start`], with a key of bytes. Once it has a result it is also handed out, by
    /// `tag`, by [`Client::next_completed`], until the ticket is dropped.
    pub(crate) fn start_tagged(
        &self,
        key: &[u8],
        options: &Acquire,
        tag: u64,
    ) -> Result<Ticket, Error> {
        todo!()
    }

    /// As [`Client::release`], with a key of bytes.
    pub(crate) fn release_bytes(&self, key: &[u8], token: Token) -> Result<Released, Error> {
        todo!()
    }

    /// As [`Client::release`], with a checked key.
    pub(crate) fn release_key(&self, key: &Key, token: Token) -> Result<Released, Error> {
        todo!()
    }

    /// As [`Client::release_start`], with a key of bytes.
    pub(crate) fn release_start_bytes(&self, key: &[u8], token: Token) -> Result<(), Error> {
        todo!()
    }

    /// A guard was dropped. Never blocks, never panics; does nothing in a forked child.
    pub(crate) fn release_dropped(&self, key: &Key, token: Token) {
        todo!()
    }

    /// A descriptor that is readable while a tagged ticket with a result was not fetched. Made at
    /// the first call; the client's own.
    pub(crate) fn completion_fd(&self) -> Result<RawFd, Error> {
        todo!()
    }

    /// The tag of a ticket that has a result and was neither fetched nor dropped; each comes once.
    pub(crate) fn next_completed(&self) -> Result<Option<u64>, Error> {
        todo!()
    }

    /// Whether this process is a fork of the one that opened the client.
    pub(crate) fn is_forked(&self) -> bool {
        todo!()
    }
}
