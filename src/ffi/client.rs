//! `lockclient`: the handle, from open to close.

use super::boundary::{status, value_or};
use super::config::lockclient_config;
use super::handle::{Handle, out, room_for};
use super::status::{Ended, LOCKCLIENT_INDETERMINATE, LOCKCLIENT_NOT_SENT, lockclient_status};
use crate::{Client, Error, Shutdown};
use std::ffi::c_int;
use std::time::Duration;

/// A client: one background thread that owns every socket, and a handle for it. Opaque; opened by
/// lockclient_open, freed by lockclient_close. Any number of threads may use one at once, and many
/// clients in one process share nothing.
pub struct lockclient {
    client: Client,
}

/// About what a client allocates until it is open.
const CLIENT_SIZE: usize = 256 * 1024;

impl Handle for lockclient {
    const NAME: &'static str = "client";
}

impl lockclient {
    pub(super) fn client(&self) -> &Client {
        &self.client
    }
}

/// How a shutdown ended, for C.
fn ended(how: Shutdown) -> Result<(), Ended> {
    match how {
        Shutdown::Clean => Ok(()),
        Shutdown::Unconfirmed => Err(Ended::because(
            LOCKCLIENT_INDETERMINATE,
            c"A release was not confirmed: its lock is held until its lease ends, at the latest.",
        )),
    }
}

/// Opens a client: starts its background thread and begins to connect. Does not wait for a
/// connection: servers that cannot be reached show in lockclient_wait_ready and in the calls.
///
/// Open it after fork and after daemonizing, not before: a child cannot use its parent's client.
///
/// Threads: any.
///
/// @param config  The settings, with at least one endpoint. Copied: it may be freed at once.
/// @param out     Gets the client, to be freed with lockclient_close; NULL on any failure.
/// @retval LOCKCLIENT_OK                  `*out` is a client.
/// @retval LOCKCLIENT_E_INVALID_ARGUMENT  A NULL, or the configuration has no endpoint.
/// @retval LOCKCLIENT_E_SYSTEM            No thread, descriptor or memory; nothing is left behind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockclient_open(
    config: *const lockclient_config,
    out: *mut *mut lockclient,
) -> lockclient_status {
    status(|| {
        // SAFETY: the header's contract: NULL, or room for one pointer.
        let out = unsafe { self::out(out) }?;
        // SAFETY: the header's contract: NULL or a live configuration.
        let config = unsafe { lockclient_config::borrow(config) }?;
        room_for(CLIENT_SIZE)?;
        let client = config.settings().open()?;
        *out = lockclient { client }.give()?;
        Ok(())
    })
}

/// Blocks until some node serves. For checks at start-up; calls do not need it. Says what the
/// client's background thread knows, and returns at once when that is LOCKCLIENT_OK or
/// LOCKCLIENT_E_AUTH.
///
/// Threads: any, many at once; not from inside the client's own log callback.
///
/// @param client      An open client.
/// @param timeout_ms  Milliseconds, any number; 0 only looks.
/// @retval LOCKCLIENT_OK                  A node serves now.
/// @retval LOCKCLIENT_NOT_SENT            None did within the time.
/// @retval LOCKCLIENT_E_INVALID_ARGUMENT  `client` is NULL.
/// @retval LOCKCLIENT_E_AUTH              No endpoint accepts the secret, or one is required, as of
///                                        the last attempt at each; the client keeps trying.
/// @retval LOCKCLIENT_E_CLOSED            Shut down, before the call or during it.
/// @retval LOCKCLIENT_E_FORKED            The client is the parent process's.
/// @retval LOCKCLIENT_E_WOULD_DEADLOCK    Called from inside the log callback.
/// @retval LOCKCLIENT_E_SYSTEM            The background thread has ended.
/// @retval LOCKCLIENT_E_PANIC             A bug in this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockclient_wait_ready(
    client: *mut lockclient,
    timeout_ms: u64,
) -> lockclient_status {
    status(|| {
        // SAFETY: the header's contract: NULL or an open client.
        let handle = unsafe { lockclient::borrow(client) }?;
        match handle.client.wait_ready(Duration::from_millis(timeout_ms))? {
            true => Ok(()),
            false => Err(Ended::because(LOCKCLIENT_NOT_SENT, c"No node serves yet.")),
        }
    })
}

/// Ends the client without freeing anything: wakes every blocked caller, cancels what was not
/// sent, gives up what was (LOCKCLIENT_INDETERMINATE), waits for the releases that are under way,
/// and closes the connections. Returns by `timeout_ms`, give or take 100 ms, whatever the network
/// does. May be called again, also while another thread is in it.
///
/// Afterwards new requests are LOCKCLIENT_E_CLOSED. Tickets keep their results, and
/// lockclient_next_completed and lockclient_get_stats still work.
///
/// Threads: any, while others use the client; not from inside the client's own log callback.
///
/// @param client      An open client.
/// @param timeout_ms  Milliseconds, any number; with 0 nothing is waited for.
/// @retval LOCKCLIENT_OK                  Ended; every release was answered.
/// @retval LOCKCLIENT_INDETERMINATE       Ended; a release was not confirmed: its lock stays held
///                                        until its lease ends, at the latest.
/// @retval LOCKCLIENT_E_INVALID_ARGUMENT  `client` is NULL.
/// @retval LOCKCLIENT_E_FORKED            The client is the parent process's; it is undisturbed.
/// @retval LOCKCLIENT_E_WOULD_DEADLOCK    Called from inside the log callback; nothing has changed.
/// @retval LOCKCLIENT_E_PANIC             A bug in this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockclient_shutdown(
    client: *mut lockclient,
    timeout_ms: u64,
) -> lockclient_status {
    status(|| {
        // SAFETY: the header's contract: NULL or an open client.
        let handle = unsafe { lockclient::borrow(client) }?;
        ended(handle.client.shutdown(Duration::from_millis(timeout_ms))?)
    })
}

/// Shuts the client down as lockclient_shutdown does, then frees it. Tickets outlive it and are
/// freed on their own.
///
/// To end a client that other threads are using: lockclient_shutdown first, which makes their calls
/// return; join them; then this.
///
/// Threads: any, but alone: no other call may use the client now or later. Not from inside the
/// client's own log callback.
///
/// @param client      A client. After LOCKCLIENT_E_INVALID_ARGUMENT, LOCKCLIENT_E_WOULD_DEADLOCK and
///                    LOCKCLIENT_E_PANIC it was not freed; after anything else it is gone.
/// @param timeout_ms  Milliseconds, any number, as in lockclient_shutdown.
/// @retval LOCKCLIENT_OK                  Freed; every release was answered.
/// @retval LOCKCLIENT_INDETERMINATE       Freed; a release was not confirmed: its lock stays held
///                                        until its lease ends, at the latest.
/// @retval LOCKCLIENT_E_INVALID_ARGUMENT  `client` is NULL.
/// @retval LOCKCLIENT_E_FORKED            In a forked child: this process's copy was freed; the
///                                        parent's client is undisturbed.
/// @retval LOCKCLIENT_E_WOULD_DEADLOCK    Called from inside the log callback: nothing was freed.
/// @retval LOCKCLIENT_E_PANIC             A bug in this library: nothing was freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockclient_close(
    client: *mut lockclient,
    timeout_ms: u64,
) -> lockclient_status {
    status(|| {
        // SAFETY: the header's contract: NULL or an open client.
        let handle = unsafe { lockclient::borrow(client) }?;
        let how = match handle.client.shutdown(Duration::from_millis(timeout_ms)) {
            Err(Error::WouldDeadlock) => return Err(Error::WouldDeadlock.into()),
            how => how,
        };
        // SAFETY: the header's contract: nobody else uses the client now or later.
        drop(unsafe { lockclient::take(client) });
        ended(how?)
    })
}

/// A descriptor that tells an event loop that tickets of this client have results: readable as
/// long as some ticket with a result was neither fetched with lockclient_next_completed nor freed.
///
/// One descriptor, however many tickets. Wait for readability, then call
/// lockclient_next_completed until it returns NULL. Do not read it, write it or close it.
///
/// Threads: any.
///
/// @param client  A client.
/// @return the descriptor, the same at each call, close-on-exec; the client's own, valid until
///         lockclient_close. -1 on failure (`client` is NULL, a forked
///         child, no descriptor left): lockclient_last_error says which.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockclient_completion_fd(client: *mut lockclient) -> c_int {
    value_or(-1, || {
        // SAFETY: the header's contract: NULL or a live client.
        Ok(unsafe { lockclient::borrow(client) }?.client.completion_fd()?)
    })
}
