//! `lockclient_grant`, and the acquire that blocks for one.

use super::boundary::status;
use super::client::lockclient;
use super::handle::{Handle, Zeroed, out};
use super::key;
use super::status::{granted, lockclient_status};
use crate::{Acquire, Grant};
use std::ffi::c_char;
use std::time::Duration;

/// The lease that most programs want, in milliseconds.
pub const LOCKCLIENT_DEFAULT_LEASE_MS: u64 = 30_000;

const _: () = assert!(LOCKCLIENT_DEFAULT_LEASE_MS as u128 == crate::DEFAULT_LEASE.as_millis());

/// A lock that was granted. Plain data: nothing happens when it goes. All zero unless the call
/// returned LOCKCLIENT_OK.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct lockclient_grant {
    /// The fencing token; never 0, and greater with every grant. Pass it to what the lock protects,
    /// which refuses a token smaller than the greatest that it has seen: a holder that was paused
    /// past its lease is stopped by that, and by nothing else. It is also what releases the lock.
    pub token: u64,
    /// The request's correlation id: for logs, and nothing else.
    pub owner: u64,
    /// What provably remained of the lease when the call returned, in milliseconds: at least 1. A
    /// lower bound, whatever the network did. Count it down with CLOCK_BOOTTIME, and take off
    /// another 0.1 % for the difference between two machines' clocks.
    pub remaining_ms: u64,
    /// Zero. For later versions.
    pub reserved: [u64; 5],
}

// SAFETY: integers.
unsafe impl Zeroed for lockclient_grant {}

impl From<Grant> for lockclient_grant {
    fn from(grant: Grant) -> lockclient_grant {
        let remaining = grant.remaining_at_delivery().as_millis();
        lockclient_grant {
            token: grant.token().get(),
            owner: grant.owner(),
            remaining_ms: u64::try_from(remaining).unwrap_or(u64::MAX),
            reserved: [0; 5],
        }
    }
}

/// What C asks for. Any number of milliseconds is a duration; what cannot be asked for is refused
/// where fractions of a second are rounded up.
pub(super) fn asked(wait_ms: u64, lease_ms: u64, min_work_budget_ms: u64) -> Acquire {
    Acquire::new(Duration::from_millis(wait_ms), Duration::from_millis(min_work_budget_ms))
        .lease(Duration::from_millis(lease_ms))
}

/// Acquires a lock, and blocks until there is an outcome.
///
/// The deadline is the call's start plus `wait_ms` (5 s for a wait of 0), and nothing extends it:
/// the client's own queue, connecting, failing over to another server and waiting for the answer all
/// count, and a grant that comes later is not handed over. The call returns by then plus 100 ms. For
/// a request that was sent it may take longer to learn that there is none: by the response grace
/// (500 ms unless configured), during which a server may still say that it timed out, and before
/// that by up to a second, since what is left of the deadline is rounded up to whole seconds when it
/// is sent to the server. lockclient_config_set_strict_deadline does without both. A request of
/// which a byte may have been sent is never sent again.
///
/// Fractions of a second are rounded up to whole seconds, in all three durations; then the ranges
/// are checked. Nothing is clamped, and there is no value for "for ever".
///
/// Threads: any, many at once; not from inside the client's own log callback.
///
/// @param client              An open client.
/// @param key                 The lock's name: 1..=128 bytes of UTF-8 without space, newline and
///                            carriage return. Read during the call alone.
/// @param key_len             Its length in bytes, or LOCKCLIENT_NUL_TERMINATED.
/// @param wait_ms             How long to wait, up to 255000. 0 is one immediate attempt, which has
///                            5 s to reach a server and is answered at once.
/// @param lease_ms            How long the server lets the lock be held, 1..=255000; then it is
///                            another's to take. LOCKCLIENT_DEFAULT_LEASE_MS is a good value.
/// @param min_work_budget_ms  How long the work under the lock takes at the worst, the commit or
///                            the rollback and a pause of the process included; up to 250000, and at
///                            most the lease. Not sent; it is checked against the lease, and see
///                            lockclient_config_set_enforce_budget.
/// @param out                 Gets the grant; zeroed on any other outcome.
/// @retval LOCKCLIENT_OK             The lock is held, for at least `out->remaining_ms`. Release it
///                                   by `out->token`.
/// @retval LOCKCLIENT_TIMED_OUT      It is not: the server said so.
/// @retval LOCKCLIENT_BUSY           It is not: the server is at capacity.
/// @retval LOCKCLIENT_NOT_SENT       It is not: nothing was sent by the deadline.
/// @retval LOCKCLIENT_CANCELLED      It is not: the client was shut down first.
/// @retval LOCKCLIENT_INDETERMINATE  Unknown. Do NOT enter the critical section.
/// @retval LOCKCLIENT_E_INVALID_ARGUMENT      A NULL.
/// @retval LOCKCLIENT_E_BAD_KEY               The key cannot be used.
/// @retval LOCKCLIENT_E_UNSUPPORTED_DURATION  A duration is out of its range.
/// @retval LOCKCLIENT_E_INSUFFICIENT_LEASE    The work budget is more than the lease.
/// @retval LOCKCLIENT_E_CLOSED                The client was shut down before the call.
/// @retval LOCKCLIENT_E_AUTH                  No endpoint accepts the secret, or one is required.
/// @retval LOCKCLIENT_E_OWNER_EXHAUSTED       The client has used up its request numbers.
/// @retval LOCKCLIENT_E_FORKED                The client is the parent process's.
/// @retval LOCKCLIENT_E_QUEUE_FULL            Too much waits in the client already.
/// @retval LOCKCLIENT_E_SYSTEM                The background thread has ended.
/// @retval LOCKCLIENT_E_WOULD_DEADLOCK        Called from inside the log callback.
/// @retval LOCKCLIENT_E_PANIC                 A bug in this library: as LOCKCLIENT_INDETERMINATE.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockclient_acquire(
    client: *mut lockclient,
    key: *const c_char,
    key_len: usize,
    wait_ms: u64,
    lease_ms: u64,
    min_work_budget_ms: u64,
    out: *mut lockclient_grant,
) -> lockclient_status {
    status(|| {
        // SAFETY: the header's contract: NULL, or room for one grant.
        let out = unsafe { self::out(out) }?;
        // SAFETY: the header's contract: NULL or an open client.
        let handle = unsafe { lockclient::borrow(client) }?;
        // SAFETY: the header's contract: NULL, or as many readable bytes as it says.
        let key = unsafe { key::bytes(key, key_len) }?;
        let asked = asked(wait_ms, lease_ms, min_work_budget_ms);
        *out = granted(handle.client().acquire_grant(key, &asked)?)?.into();
        Ok(())
    })
}
