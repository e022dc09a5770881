//! What was wrong with a call.

use crate::input::{BudgetError, InsufficientLease, UnsupportedDuration};
use crate::outcome::Failure;
use crate::wire::KeyError;
use std::io;

/// What was wrong with a call, as against what became of a request ([`crate::Outcome`]).
///
/// An acquire ends with one of these only if no byte of it can have been sent. The one exception
/// is [`Error::Forked`] of a ticket that was started before the fork: that one is the parent's.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The key cannot be used.
    #[error(transparent)]
    BadKey(#[from] KeyError),
    /// A duration that the protocol cannot carry.
    #[error(transparent)]
    UnsupportedDuration(#[from] UnsupportedDuration),
    /// The work budget does not fit in the lease.
    #[error(transparent)]
    InsufficientLease(#[from] InsufficientLease),
    /// The client has no endpoint.
    #[error("the client has no endpoint")]
    NoEndpoint,
    /// The client was closed before the call.
    #[error("the client is closed")]
    Closed,
    /// No endpoint accepts the secret, or one is required.
    #[error("no endpoint accepts this client: {0}")]
    Auth(Failure),
    /// This client has used up its owners, for ever.
    #[error("the client has used up its owners")]
    OwnerExhausted,
    /// The handle was made before the process forked: it works in the parent alone.
    #[error("the handle belongs to the process that forked this one")]
    Forked,
    /// Too much waits in the client already.
    #[error("the client's queue is full")]
    QueueFull,
    /// The system refused a thread, a descriptor or memory, or the background thread has ended.
    #[error("the system refused: {0}")]
    System(#[from] io::Error),
    /// A blocking call from inside this client's log callback.
    #[error("a blocking call from inside the log callback")]
    WouldDeadlock,
    /// The ticket's result was taken before.
    #[error("the ticket's result was taken before")]
    Taken,
}

impl From<BudgetError> for Error {
    fn from(error: BudgetError) -> Error {
        match error {
            BudgetError::Unsupported(error) => error.into(),
            BudgetError::Insufficient(error) => error.into(),
        }
    }
}
