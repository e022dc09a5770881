//! An acquire in two halves.

use crate::client::Client;
use crate::error::Error;
use crate::lock::Lock;
use crate::outcome::{Grant, Outcome};
use std::os::fd::RawFd;

/// An acquire in flight. Dropping it cancels what has no result, and releases a grant that was not
/// taken. It keeps its client open.
///
/// Usable from many threads at once; the result is handed out once.
#[derive(Debug)]
#[must_use = "dropping it cancels the acquire"]
pub struct Ticket {
    client: Client,
}

impl Ticket {
    /// Blocks until the acquire has ended, and takes its result.
    ///
    /// # Errors
    /// [`Error::Taken`] if the result was taken before, [`Error::WouldDeadlock`] from inside the
    /// log callback, and what the acquire itself met.
    pub fn wait(&self) -> Result<Outcome<Lock>, Error> {
        todo!()
    }

    /// Takes the result if there is one. Never blocks.
    ///
    /// # Errors
    /// As [`Ticket::wait`], without [`Error::WouldDeadlock`].
    pub fn poll(&self) -> Result<Option<Outcome<Lock>>, Error> {
        todo!()
    }

    /// Gives the acquire up. Never blocks; afterwards there is a result. What was not sent is
    /// cancelled; of what may have been sent the outcome is unknown, unless its answer was there
    /// already.
    pub fn cancel(&self) {
        todo!()
    }

    /// As [`Ticket::wait`], with the bare grant.
    pub(crate) fn wait_grant(&self) -> Result<Outcome<Grant>, Error> {
        todo!()
    }

    /// As [`Ticket::poll`], with the bare grant.
    pub(crate) fn poll_grant(&self) -> Result<Option<Outcome<Grant>>, Error> {
        todo!()
    }

    /// As [`Ticket::cancel`]. The only error is [`Error::Forked`].
    pub(crate) fn try_cancel(&self) -> Result<(), Error> {
        todo!()
    }

    /// A descriptor of the ticket's own, readable as long as there is a result to take.
    /// Made at the first call.
    pub(crate) fn fd(&self) -> Result<RawFd, Error> {
        todo!()
    }
}
