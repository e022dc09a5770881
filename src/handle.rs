//! An acquire in two halves.

use crate::client::Client;
use crate::error::Error;
use crate::lock::Lock;
use crate::outcome::{Grant, Outcome};
use crate::sync::Arc;
use crate::ticket::Slot;
use std::os::fd::RawFd;

/// An acquire in flight. Dropping it cancels what has no result, and releases a grant that was not
/// taken. It keeps its client open.
///
/// Usable from many threads at once; the result is handed out once.
#[derive(Debug)]
#[must_use = "dropping it cancels the acquire"]
pub struct Ticket {
    client: Client,
    slot: Arc<Slot>,
}

impl Ticket {
    pub(crate) fn new(client: Client, slot: Arc<Slot>) -> Ticket {
        Ticket { client, slot }
    }

    pub(crate) fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }

    /// Blocks until the acquire has ended, and takes its result.
    ///
    /// # Errors
    /// [`Error::Taken`] if the result was taken before, [`Error::WouldDeadlock`] from inside the
    /// log callback, [`Error::Forked`], and what the acquire itself met.
    pub fn wait(&self) -> Result<Outcome<Lock>, Error> {
        Ok(self.guarded(self.wait_grant()?))
    }

    /// Takes the result if there is one. Never blocks.
    ///
    /// # Errors
    /// As [`Ticket::wait`], without [`Error::WouldDeadlock`].
    pub fn poll(&self) -> Result<Option<Outcome<Lock>>, Error> {
        Ok(self.poll_grant()?.map(|outcome| self.guarded(outcome)))
    }

    /// Gives the acquire up. Never blocks; afterwards there is a result. What was not sent is
    /// cancelled; of what may have been sent the outcome is unknown, unless its answer was there
    /// already. What was answered busy, and waits to be tried again, is busy.
    pub fn cancel(&self) {
        // A forked child's is the parent's to cancel.
        let _ = self.try_cancel();
    }

    /// As [`Ticket::wait`], with the bare grant.
    pub(crate) fn wait_grant(&self) -> Result<Outcome<Grant>, Error> {
        self.not_forked()?;
        self.client.not_from_the_log()?;
        self.client.wait(&self.slot)
    }

    /// As [`Ticket::poll`], with the bare grant.
    pub(crate) fn poll_grant(&self) -> Result<Option<Outcome<Grant>>, Error> {
        self.not_forked()?;
        self.client.expire(&self.slot);
        self.client.take(&self.slot).transpose()
    }

    /// As [`Ticket::cancel`]. The only error is [`Error::Forked`].
    pub(crate) fn try_cancel(&self) -> Result<(), Error> {
        self.not_forked()?;
        self.client.give_up(&self.slot);
        Ok(())
    }

    /// A descriptor of the ticket's own, readable as long as there is a result to take.
    /// Made at the first call.
    pub(crate) fn fd(&self) -> Result<RawFd, Error> {
        self.not_forked()?;
        Ok(self.slot.fd()?)
    }

    fn guarded(&self, outcome: Outcome<Grant>) -> Outcome<Lock> {
        outcome.map(|grant| Lock::new(self.client.clone(), self.slot.call().key, grant))
    }

    fn not_forked(&self) -> Result<(), Error> {
        if self.client.is_forked() { Err(Error::Forked) } else { Ok(()) }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.client.is_forked() {
            // What another thread was changing when the process forked is half changed for ever.
            std::mem::forget(self.slot.clone());
        } else {
            self.slot.unlist();
            self.client.give_up(&self.slot);
        }
    }
}
