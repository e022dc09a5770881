//! Status codes: integers on both sides, never an enum that C could give a wrong value.

use super::boundary::boundary;
use super::last_error::Message;
use crate::{ConfigError, Error, Failure, KeyError, Outcome, Released};
use std::ffi::{CStr, c_char};

/// What became of a call: one of the LOCKCLIENT_* numbers below. 0 is success, positive numbers
/// are what became of a request, negative ones what was wrong with the call. Numbers are never
/// reused for another meaning; treat one that you do not know as LOCKCLIENT_INDETERMINATE.
pub type lockclient_status = i32;

/// Acquired, released, done.
pub const LOCKCLIENT_OK: lockclient_status = 0;
/// Acquire: definite. The server said that the wait ended without a grant, or, with a wait of 0,
/// that the lock is held. Next: try again later, or give up.
pub const LOCKCLIENT_TIMED_OUT: lockclient_status = 1;
/// Acquire: definite. The server is at capacity; nothing waits there for you. Next: back off with
/// jitter before you try again, or see lockclient_config_set_busy_retry; with that, the server said
/// so the last time that it was asked, and the acquire ended before it was asked again, be it by a
/// cancel, a shutdown or its deadline.
pub const LOCKCLIENT_BUSY: lockclient_status = 2;
/// Release: the token holds nothing (any more): released before, its lease has ended, or it never
/// was the current one. Next: whatever was done after the lease's end was not protected by it;
/// lockclient_last_error says when an earlier try of this same release may have done the work.
pub const LOCKCLIENT_NOT_HELD: lockclient_status = 3;
/// Acquire: definite. The deadline came before a byte was sent; lockclient_last_error says why, as
/// far as it is known. Next: as LOCKCLIENT_TIMED_OUT, and look at the connection. Also the answer
/// of lockclient_wait_ready when no node serves yet.
pub const LOCKCLIENT_NOT_SENT: lockclient_status = 4;
/// Acquire: definite. Cancelled, or the client was shut down, before a byte was sent. Next:
/// nothing; the lock is not held.
pub const LOCKCLIENT_CANCELLED: lockclient_status = 5;
/// Ticket: there is no result yet. Next: wait for the descriptor, or poll again later.
pub const LOCKCLIENT_PENDING: lockclient_status = 6;
/// Unknown. Acquire: the server may have granted the lock, without you having a token for it. Do
/// NOT enter the critical section; the lock, if it was granted, ends with its lease. Next: a new
/// acquire, which waits for that end if need be. Release: it may or may not have been released; do
/// not count on it. Next: release the same token again, or let the lease end.
pub const LOCKCLIENT_INDETERMINATE: lockclient_status = 16;

/// A NULL where none is allowed, a setting out of its range, a text that is no endpoint, or a
/// configuration without an endpoint. Next: fix the call.
pub const LOCKCLIENT_E_INVALID_ARGUMENT: lockclient_status = -1;
/// The key is empty, longer than 128 bytes, not UTF-8, or has a space, a newline or a carriage
/// return; lockclient_last_error says which. Nothing was sent. Next: fix the key.
pub const LOCKCLIENT_E_BAD_KEY: lockclient_status = -2;
/// A wait above 255 s, a lease of 0 or above 255 s, or a work budget above 250 s. Nothing was
/// sent. Next: fix the duration; nothing is ever clamped.
pub const LOCKCLIENT_E_UNSUPPORTED_DURATION: lockclient_status = -3;
/// The work budget is more than the lease. Nothing was sent. Next: ask for a longer lease, or do
/// less under the lock.
pub const LOCKCLIENT_E_INSUFFICIENT_LEASE: lockclient_status = -4;
/// The client was shut down before the call. Nothing was sent.
pub const LOCKCLIENT_E_CLOSED: lockclient_status = -5;
/// No endpoint accepts the secret, or one is required and the client has none. Nothing was sent.
/// Next: fix the secret; the client keeps trying in the background, so it recovers by itself when
/// the servers are what was wrong.
pub const LOCKCLIENT_E_AUTH: lockclient_status = -6;
/// This client has used up its 2^64 request numbers, for ever. Nothing was sent. Next: open
/// another client.
pub const LOCKCLIENT_E_OWNER_EXHAUSTED: lockclient_status = -7;
/// The handle was made before this process was forked from its parent, and works in the parent
/// alone. In the child nothing was sent. A ticket that was started before the fork is the
/// parent's: what becomes of it is seen there. Next: open a client of the child's own.
pub const LOCKCLIENT_E_FORKED: lockclient_status = -8;
/// Too much waits in this client already. Nothing was sent. Next: let some of it finish first.
pub const LOCKCLIENT_E_QUEUE_FULL: lockclient_status = -9;
/// The operating system refused a thread, a descriptor or memory, or kept another caller from
/// running for a second while that one had the client's queue, or the client's background thread
/// has ended; lockclient_last_error says which. Nothing was sent. Next: free the resource and try
/// again; after the end of the thread, open another client.
pub const LOCKCLIENT_E_SYSTEM: lockclient_status = -10;
/// A blocking call on this client from inside its own log callback. Nothing was sent, and nothing
/// was freed. Next: make the call from another thread.
pub const LOCKCLIENT_E_WOULD_DEADLOCK: lockclient_status = -11;
/// The ticket's result was taken before: a grant is handed out once. Next: free the ticket.
pub const LOCKCLIENT_E_TAKEN: lockclient_status = -12;
/// A bug in this library; lockclient_last_error says what it knows. The outcome of the request, if there
/// was one, is unknown. Next: treat it as LOCKCLIENT_INDETERMINATE, and report it.
pub const LOCKCLIENT_E_PANIC: lockclient_status = -99;

/// A call that ended otherwise than well: the number for C, and the text.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: lockclient_status,
    pub(super) message: Message,
}

impl Ended {
    /// With the status's own sentence.
    pub(super) fn new(status: lockclient_status) -> Ended {
        Ended { status, message: describe(status).1.into() }
    }

    pub(super) fn because(status: lockclient_status, why: impl Into<Message>) -> Ended {
        Ended { status, message: why.into() }
    }

    /// The status's own sentence, and what exactly happened.
    #[inline(never)]
    fn detailed(status: lockclient_status, why: &Failure) -> Ended {
        let sentence = describe(status).1.to_string_lossy();
        Ended::because(status, format!("{sentence}: {why}"))
    }
}

impl From<Error> for Ended {
    #[cold]
    #[inline(never)]
    fn from(error: Error) -> Ended {
        let status = match &error {
            Error::BadKey(_) => LOCKCLIENT_E_BAD_KEY,
            Error::UnsupportedDuration(_) => LOCKCLIENT_E_UNSUPPORTED_DURATION,
            Error::InsufficientLease(_) => LOCKCLIENT_E_INSUFFICIENT_LEASE,
            Error::NoEndpoint => LOCKCLIENT_E_INVALID_ARGUMENT,
            Error::Closed => LOCKCLIENT_E_CLOSED,
            Error::Auth(_) => LOCKCLIENT_E_AUTH,
            Error::OwnerExhausted => LOCKCLIENT_E_OWNER_EXHAUSTED,
            Error::Forked => LOCKCLIENT_E_FORKED,
            Error::QueueFull => LOCKCLIENT_E_QUEUE_FULL,
            Error::System(_) => LOCKCLIENT_E_SYSTEM,
            Error::WouldDeadlock => LOCKCLIENT_E_WOULD_DEADLOCK,
            Error::Taken => LOCKCLIENT_E_TAKEN,
        };
        Ended::because(status, error.to_string())
    }
}

impl From<KeyError> for Ended {
    fn from(error: KeyError) -> Ended {
        Error::BadKey(error).into()
    }
}

impl From<ConfigError> for Ended {
    #[cold]
    #[inline(never)]
    fn from(error: ConfigError) -> Ended {
        Ended::because(LOCKCLIENT_E_INVALID_ARGUMENT, error.to_string())
    }
}

/// The grant, or how the acquire ended without one.
pub(super) fn granted<T>(outcome: Outcome<T>) -> Result<T, Ended> {
    Err(match outcome {
        Outcome::Acquired(grant) => return Ok(grant),
        Outcome::TimedOut => Ended::new(LOCKCLIENT_TIMED_OUT),
        Outcome::Busy => Ended::new(LOCKCLIENT_BUSY),
        Outcome::NotSent(why) => Ended::detailed(LOCKCLIENT_NOT_SENT, &why),
        Outcome::Cancelled => Ended::new(LOCKCLIENT_CANCELLED),
        Outcome::Indeterminate(why) => Ended::detailed(LOCKCLIENT_INDETERMINATE, &why),
    })
}

/// Nothing if the lock was released, or how the release ended otherwise.
pub(super) fn released(outcome: Released) -> Result<(), Ended> {
    match outcome {
        Released::Released => Ok(()),
        Released::NotHeld { retried: false } => Err(Ended::new(LOCKCLIENT_NOT_HELD)),
        Released::NotHeld { retried: true } => Err(Ended::because(
            LOCKCLIENT_NOT_HELD,
            c"The token holds nothing any more; the release was sent more than once, and an earlier \
              try may have released the lock.",
        )),
        Released::Unconfirmed(why) => Err(Ended::detailed(LOCKCLIENT_INDETERMINATE, &why)),
    }
}

/// A status's name and sentence.
fn describe(status: lockclient_status) -> (&'static CStr, &'static CStr) {
    match status {
        LOCKCLIENT_OK => (c"LOCKCLIENT_OK", c"Done."),
        LOCKCLIENT_TIMED_OUT => (c"LOCKCLIENT_TIMED_OUT", c"The lock was not granted in time."),
        LOCKCLIENT_BUSY => (c"LOCKCLIENT_BUSY", c"The server is at capacity."),
        LOCKCLIENT_NOT_HELD => (
            c"LOCKCLIENT_NOT_HELD",
            c"The token holds nothing: it was released, or its lease ended.",
        ),
        LOCKCLIENT_NOT_SENT => {
            (c"LOCKCLIENT_NOT_SENT", c"The deadline came before anything was sent")
        }
        LOCKCLIENT_CANCELLED => {
            (c"LOCKCLIENT_CANCELLED", c"The request was cancelled before anything was sent.")
        }
        LOCKCLIENT_PENDING => (c"LOCKCLIENT_PENDING", c"There is no result yet."),
        LOCKCLIENT_INDETERMINATE => {
            (c"LOCKCLIENT_INDETERMINATE", c"It is unknown what became of the request")
        }
        LOCKCLIENT_E_INVALID_ARGUMENT => {
            (c"LOCKCLIENT_E_INVALID_ARGUMENT", c"An argument cannot be used.")
        }
        LOCKCLIENT_E_BAD_KEY => (c"LOCKCLIENT_E_BAD_KEY", c"The key cannot be used."),
        LOCKCLIENT_E_UNSUPPORTED_DURATION => {
            (c"LOCKCLIENT_E_UNSUPPORTED_DURATION", c"A duration is out of its range.")
        }
        LOCKCLIENT_E_INSUFFICIENT_LEASE => {
            (c"LOCKCLIENT_E_INSUFFICIENT_LEASE", c"The work budget is more than the lease.")
        }
        LOCKCLIENT_E_CLOSED => (c"LOCKCLIENT_E_CLOSED", c"The client is closed."),
        LOCKCLIENT_E_AUTH => (c"LOCKCLIENT_E_AUTH", c"No endpoint accepts this client's secret."),
        LOCKCLIENT_E_OWNER_EXHAUSTED => {
            (c"LOCKCLIENT_E_OWNER_EXHAUSTED", c"The client has used up its request numbers.")
        }
        LOCKCLIENT_E_FORKED => {
            (c"LOCKCLIENT_E_FORKED", c"The handle belongs to the process that forked this one.")
        }
        LOCKCLIENT_E_QUEUE_FULL => {
            (c"LOCKCLIENT_E_QUEUE_FULL", c"Too much waits in the client already.")
        }
        LOCKCLIENT_E_SYSTEM => {
            (c"LOCKCLIENT_E_SYSTEM", c"The operating system refused a resource.")
        }
        LOCKCLIENT_E_WOULD_DEADLOCK => {
            (c"LOCKCLIENT_E_WOULD_DEADLOCK", c"A blocking call from inside the log callback.")
        }
        LOCKCLIENT_E_TAKEN => (c"LOCKCLIENT_E_TAKEN", c"The ticket's result was taken before."),
        LOCKCLIENT_E_PANIC => (c"LOCKCLIENT_E_PANIC", c"There is a bug in this library."),
        _ => (c"LOCKCLIENT_?", c"This is no status of this library."),
    }
}

/// The name of a status, for logs.
///
/// Threads: any.
///
/// @param status  Any number.
/// @return the name as it is written in this header, for example "LOCKCLIENT_BUSY", or
///         "LOCKCLIENT_?" for a number that is none. Never NULL; static, not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn lockclient_status_name(status: lockclient_status) -> *const c_char {
    boundary(c"".as_ptr(), || describe(status).0.as_ptr())
}

/// What a status means, for people. lockclient_last_error says more about one call.
///
/// Threads: any.
///
/// @param status  Any number.
/// @return one English sentence, never NULL; static, not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn lockclient_status_text(status: lockclient_status) -> *const c_char {
    boundary(c"".as_ptr(), || describe(status).1.as_ptr())
}

/// Whether a status says for certain what became of the request.
///
/// Threads: any.
///
/// @param status  Any number.
/// @return false for LOCKCLIENT_INDETERMINATE, LOCKCLIENT_PENDING, LOCKCLIENT_E_PANIC,
///         LOCKCLIENT_E_FORKED, LOCKCLIENT_E_TAKEN and for numbers that are no status; true for
///         the others. Where it is false, do not enter the critical section, and do not rely on
///         the lock being free either.
#[unsafe(no_mangle)]
pub extern "C" fn lockclient_status_is_definite(status: lockclient_status) -> bool {
    boundary(false, || {
        matches!(
            status,
            LOCKCLIENT_OK..=LOCKCLIENT_CANCELLED
                | LOCKCLIENT_E_WOULD_DEADLOCK..=LOCKCLIENT_E_QUEUE_FULL
                | LOCKCLIENT_E_OWNER_EXHAUSTED..=LOCKCLIENT_E_INVALID_ARGUMENT
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const ALL: [lockclient_status; 21] = [
        LOCKCLIENT_OK,
        LOCKCLIENT_TIMED_OUT,
        LOCKCLIENT_BUSY,
        LOCKCLIENT_NOT_HELD,
        LOCKCLIENT_NOT_SENT,
        LOCKCLIENT_CANCELLED,
        LOCKCLIENT_PENDING,
        LOCKCLIENT_INDETERMINATE,
        LOCKCLIENT_E_INVALID_ARGUMENT,
        LOCKCLIENT_E_BAD_KEY,
        LOCKCLIENT_E_UNSUPPORTED_DURATION,
        LOCKCLIENT_E_INSUFFICIENT_LEASE,
        LOCKCLIENT_E_CLOSED,
        LOCKCLIENT_E_AUTH,
        LOCKCLIENT_E_OWNER_EXHAUSTED,
        LOCKCLIENT_E_FORKED,
        LOCKCLIENT_E_QUEUE_FULL,
        LOCKCLIENT_E_SYSTEM,
        LOCKCLIENT_E_WOULD_DEADLOCK,
        LOCKCLIENT_E_TAKEN,
        LOCKCLIENT_E_PANIC,
    ];

    #[test]
    fn every_status_has_a_name_and_a_sentence_of_its_own() {
        let names: HashSet<_> = ALL.iter().map(|&status| describe(status).0).collect();
        let texts: HashSet<_> = ALL.iter().map(|&status| describe(status).1).collect();
        assert_eq!((names.len(), texts.len()), (ALL.len(), ALL.len()));
        let unknown = describe(7);
        assert!(!names.contains(unknown.0) && !texts.contains(unknown.1));
    }

    #[test]
    fn what_is_definite_is_listed_and_unknown_numbers_are_not() {
        let vague = [
            LOCKCLIENT_INDETERMINATE,
            LOCKCLIENT_PENDING,
            LOCKCLIENT_E_PANIC,
            LOCKCLIENT_E_FORKED,
            LOCKCLIENT_E_TAKEN,
        ];
        for status in (-200..200).chain([i32::MIN, i32::MAX]) {
            let definite = ALL.contains(&status) && !vague.contains(&status);
            assert_eq!(lockclient_status_is_definite(status), definite, "{status}");
        }
    }
}
