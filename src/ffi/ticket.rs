//! `lockclient_ticket`: an acquire in two halves.

use super::acquire::{asked, lockclient_grant};
use super::boundary::{boundary, status, value_or};
use super::client::lockclient;
use super::handle::{Handle, out};
use super::key;
use super::status::{Ended, LOCKCLIENT_PENDING, granted, lockclient_status};
use crate::{Acquire, Client, Ticket};
use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// An acquire in flight. Opaque; started by lockclient_acquire_start, freed by
/// lockclient_ticket_free, whatever became of it. Outlives its client.
pub struct lockclient_ticket {
    /// Set before anybody knows of the handle: the handle's address has to be known first.
    ticket: OnceLock<Ticket>,
    user: AtomicPtr<c_void>,
}

impl Handle for lockclient_ticket {
    const NAME: &'static str = "ticket";
}

impl lockclient_ticket {
    fn ticket(&self) -> Result<&Ticket, Ended> {
        self.ticket.get().ok_or_else(|| Ended::null(Self::NAME))
    }
}

/// Starts an acquire and returns: one thread may have many in flight.
///
/// Deadline, rounding and limits are those of lockclient_acquire. The result comes to
/// lockclient_ticket_wait, lockclient_ticket_poll, the ticket's descriptor and the client's
/// completion queue. A grant that is not taken by the deadline is given back, and the result is
/// LOCKCLIENT_INDETERMINATE: take results promptly.
///
/// Threads: any, many at once, the log callback included. Never blocks. If another thread fetches
/// completed tickets, it may get this one before the call has returned.
///
/// @param client              An open client.
/// @param key                 The lock's key, as in lockclient_acquire. Copied.
/// @param key_len             Its length in bytes, or LOCKCLIENT_NUL_TERMINATED.
/// @param wait_ms             As in lockclient_acquire.
/// @param lease_ms            As in lockclient_acquire.
/// @param min_work_budget_ms  As in lockclient_acquire.
/// @param out                 Gets the ticket, to be freed with lockclient_ticket_free; NULL on any
///                            failure.
/// @retval LOCKCLIENT_OK                      `*out` is a ticket.
/// @retval LOCKCLIENT_E_INVALID_ARGUMENT      A NULL.
/// @retval LOCKCLIENT_E_BAD_KEY               The key cannot be used.
/// @retval LOCKCLIENT_E_UNSUPPORTED_DURATION  A duration is out of its range.
/// @retval LOCKCLIENT_E_INSUFFICIENT_LEASE    The work budget is more than the lease.
/// @retval LOCKCLIENT_E_CLOSED                The client was shut down before the call.
/// @retval LOCKCLIENT_E_FORKED                The client is the parent process's.
/// @retval LOCKCLIENT_E_QUEUE_FULL            Too much waits in the client already.
/// @retval LOCKCLIENT_E_SYSTEM                No memory, or the background thread has ended.
/// @retval LOCKCLIENT_E_PANIC                 A bug in this library.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockclient_acquire_start(
    client: *mut lockclient,
    key: *const c_char,
    key_len: usize,
    wait_ms: u64,
    lease_ms: u64,
    min_work_budget_ms: u64,
    out: *mut *mut lockclient_ticket,
) -> lockclient_status {
    status(|| {
        // SAFETY: the header's contract: NULL, or room for one pointer.
        let out = unsafe { self::out(out) }?;
        // SAFETY: the header's contract: NULL or an open client.
        let handle = unsafe { lockclient::borrow(client) }?;
        // SAFETY: the header's contract: NULL, or as many readable bytes as it says.
        let key = unsafe { key::bytes(key, key_len) }?;
        let asked = asked(wait_ms, lease_ms, min_work_budget_ms);
        let raw =
            lockclient_ticket { ticket: OnceLock::new(), user: AtomicPtr::new(ptr::null_mut()) }
                .give()?;
        match start(handle.client(), key, &asked, raw) {
            Ok(()) => {
                // From here on another thread may have fetched it, and even have freed it.
                *out = raw;
                Ok(())
            }
            Err(ended) => {
                // SAFETY: `give` made it, and nobody else ever knew of it.
                drop(unsafe { lockclient_ticket::take(raw) });
                Err(ended)
            }
        }
    })
}

/// Starts the acquire of a handle. After an error nobody else knows of the handle.
fn start(
    client: &Client,
    key: &[u8],
    asked: &Acquire,
    raw: *mut lockclient_ticket,
) -> Result<(), Ended> {
    let ticket = client.prepare(key, asked, Some(raw.expose_provenance() as u64))?;
    let slot = ticket.slot().clone();
    // SAFETY: `give` made it, and nobody else knows of it yet. The borrow ends with the line: from
    // the next one on another thread may fetch the handle and free it.
    let _ = unsafe { lockclient_ticket::borrow(raw) }?.ticket.set(ticket);
    Ok(client.submit(slot)?)
}

/// Blocks until the acquire has ended, and takes its result. Returns when lockclient_acquire would.
///
/// Threads: any; one that waits may be joined by others, but the result is handed out once. Not
/// from inside the client's own log callback.
///
/// @param ticket  A ticket.
/// @param out     Gets the grant; zeroed on any other outcome.
/// @retval LOCKCLIENT_OK             The lock is held; release it by `out->token`.
/// @retval LOCKCLIENT_TIMED_OUT      It is not: the server said so.
/// @retval LOCKCLIENT_BUSY           It is not: the server is at capacity.
/// @retval LOCKCLIENT_NOT_SENT       It is not: nothing was sent by the deadline.
/// @retval LOCKCLIENT_CANCELLED      It is not: cancelled, or the client was shut down, first.
/// @retval LOCKCLIENT_INDETERMINATE  Unknown. Do NOT enter the critical section.
/// @retval LOCKCLIENT_E_INVALID_ARGUMENT  A NULL.
/// @retval LOCKCLIENT_E_AUTH              No endpoint accepts the secret, or one is required.
/// @retval LOCKCLIENT_E_OWNER_EXHAUSTED   The client has used up its request numbers.
/// @retval LOCKCLIENT_E_FORKED            The ticket is the parent process's; its result is seen there.
/// @retval LOCKCLIENT_E_SYSTEM            The background thread ended before anything was sent.
/// @retval LOCKCLIENT_E_WOULD_DEADLOCK    Called from inside the log callback.
/// @retval LOCKCLIENT_E_TAKEN             The result was taken before.
/// @retval LOCKCLIENT_E_PANIC             A bug in this library: as LOCKCLIENT_INDETERMINATE.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockclient_ticket_wait(
    ticket: *mut lockclient_ticket,
    out: *mut lockclient_grant,
) -> lockclient_status {
    status(|| {
        // SAFETY: the header's contract: NULL, or room for one grant.
        let out = unsafe { self::out(out) }?;
        // SAFETY: the header's contract: NULL or a live ticket.
        let handle = unsafe { lockclient_ticket::borrow(ticket) }?;
        *out = granted(handle.ticket()?.wait_grant()?)?.into();
        Ok(())
    })
}

/// Takes the result if there is one. Never blocks.
///
/// Threads: any, the log callback included; the result is handed out once.
///
/// @param ticket  A ticket.
/// @param out     Gets the grant; zeroed on any other outcome.
/// @retval LOCKCLIENT_PENDING        There is no result yet.
/// @retval LOCKCLIENT_OK             The lock is held; release it by `out->token`.
/// @retval LOCKCLIENT_TIMED_OUT      It is not: the server said so.
/// @retval LOCKCLIENT_BUSY           It is not: the server is at capacity.
/// @retval LOCKCLIENT_NOT_SENT       It is not: nothing was sent by the deadline.
/// @retval LOCKCLIENT_CANCELLED      It is not: cancelled, or the client was shut down, first.
/// @retval LOCKCLIENT_INDETERMINATE  Unknown. Do NOT enter the critical section.
/// @retval LOCKCLIENT_E_INVALID_ARGUMENT  A NULL.
/// @retval LOCKCLIENT_E_AUTH              No endpoint accepts the secret, or one is required.
/// @retval LOCKCLIENT_E_OWNER_EXHAUSTED   The client has used up its request numbers.
/// @retval LOCKCLIENT_E_FORKED            The ticket is the parent process's; its result is seen there.
/// @retval LOCKCLIENT_E_SYSTEM            The background thread ended before anything was sent.
/// @retval LOCKCLIENT_E_TAKEN             The result was taken before.
/// @retval LOCKCLIENT_E_PANIC             A bug in this library: as LOCKCLIENT_INDETERMINATE.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockclient_ticket_poll(
    ticket: *mut lockclient_ticket,
    out: *mut lockclient_grant,
) -> lockclient_status {
    status(|| {
        // SAFETY: the header's contract: NULL, or room for one grant.
        let out = unsafe { self::out(out) }?;
        // SAFETY: the header's contract: NULL or a live ticket.
        let handle = unsafe { lockclient_ticket::borrow(ticket) }?;
        match handle.ticket()?.poll_grant()? {
            Some(outcome) => *out = granted(outcome)?.into(),
            None => return Err(Ended::new(LOCKCLIENT_PENDING)),
        }
        Ok(())
    })
}

/// A descriptor of the ticket's own for poll, epoll and the like: readable once there is a result,
/// and as long as it was not taken. Do not read it, write it or close it. Programs with many
/// tickets use lockclient_completion_fd instead, which needs one descriptor for all.
///
/// Threads: any.
///
/// @param ticket  A ticket.
/// @return the descriptor, the same at each call, close-on-exec; the ticket's own, valid until the
///         ticket is freed. -1 on failure (`ticket` is NULL, a forked child, no descriptor left):
///         lockclient_last_error says which.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockclient_ticket_fd(ticket: *mut lockclient_ticket) -> c_int {
    value_or(-1, || {
        // SAFETY: the header's contract: NULL or a live ticket.
        Ok(unsafe { lockclient_ticket::borrow(ticket) }?.ticket()?.fd()?)
    })
}

/// Gives the acquire up. Afterwards there is a result, to be taken as any other: what was not sent
/// is LOCKCLIENT_CANCELLED; what may have been sent is LOCKCLIENT_INDETERMINATE, and its connection
/// is closed; a timeout or a refusal that had come already stands, also of one that waits to be
/// tried again; a grant that had come and was not taken is given back, LOCKCLIENT_INDETERMINATE.
/// Cancelling again, or after the result was taken, changes nothing.
///
/// Threads: any, also while another waits for the ticket, and the log callback. Never blocks.
///
/// @param ticket  A ticket.
/// @retval LOCKCLIENT_OK                  The result is decided now.
/// @retval LOCKCLIENT_E_INVALID_ARGUMENT  `ticket` is NULL.
/// @retval LOCKCLIENT_E_FORKED            The ticket is the parent process's; it goes on there.
/// @retval LOCKCLIENT_E_PANIC             A bug in this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockclient_ticket_cancel(
    ticket: *mut lockclient_ticket,
) -> lockclient_status {
    status(|| {
        // SAFETY: the header's contract: NULL or a live ticket.
        Ok(unsafe { lockclient_ticket::borrow(ticket) }?.ticket()?.try_cancel()?)
    })
}

/// Attaches a pointer of the program's own to a ticket; NULL at first. The library never looks at
/// what it points to.
///
/// Threads: any.
///
/// @param ticket  A ticket; NULL does nothing.
/// @param user    Any pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockclient_ticket_set_user(
    ticket: *mut lockclient_ticket,
    user: *mut c_void,
) {
    boundary((), || {
        // SAFETY: the header's contract: NULL or a live ticket.
        if let Some(handle) = unsafe { ticket.as_ref() } {
            handle.user.store(user, Ordering::Release);
        }
    });
}

/// The pointer that lockclient_ticket_set_user attached.
///
/// Threads: any.
///
/// @param ticket  A ticket.
/// @return the pointer; NULL if none was attached, or if `ticket` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockclient_ticket_user(ticket: *const lockclient_ticket) -> *mut c_void {
    boundary(ptr::null_mut(), || {
        // SAFETY: the header's contract: NULL or a live ticket.
        let handle = unsafe { ticket.as_ref() };
        handle.map_or(ptr::null_mut(), |handle| handle.user.load(Ordering::Acquire))
    })
}

/// Frees a ticket. An acquire without a result is cancelled as lockclient_ticket_cancel does, and a
/// grant that was not taken is given back by its token. Never blocks. In a forked child it frees
/// this process's copy and nothing else happens.
///
/// Threads: any, but alone: no other call may use the ticket now or later, and no other thread may
/// be about to fetch it from lockclient_next_completed.
///
/// @param ticket  A ticket; NULL does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockclient_ticket_free(ticket: *mut lockclient_ticket) {
    boundary((), || {
        // SAFETY: the header's contract: NULL, or a live ticket that nobody else uses.
        drop(unsafe { lockclient_ticket::take(ticket) });
    });
}

/// Fetches a ticket that has a result: each ticket once, in the order in which they got it. Its
/// result is still to be taken, with lockclient_ticket_poll, and the ticket still to be freed.
/// Never blocks. Tickets whose results were taken before are fetched as well; tickets that were
/// freed are not.
///
/// Threads: any. While one stands still inside this call (a debugger has stopped it, or a signal
/// handler of the program's), the others may get NULL; no ticket is lost over it.
///
/// @param client  A client, shut down or not.
/// @return a ticket that lockclient_acquire_start gave out, or NULL: none now, `client` is NULL, or
///         a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockclient_next_completed(
    client: *mut lockclient,
) -> *mut lockclient_ticket {
    value_or(ptr::null_mut(), || {
        // SAFETY: the header's contract: NULL or a live client.
        let handle = unsafe { lockclient::borrow(client) }?;
        let tag = handle.client().next_completed()?;
        Ok(tag.map_or(ptr::null_mut(), |tag| ptr::with_exposed_provenance_mut(tag as usize)))
    })
}
