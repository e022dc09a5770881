//! `lockclient_stats`.

use super::boundary::status;
use super::client::lockclient;
use super::handle::Handle;
use super::status::{Ended, lockclient_status};
use crate::{Error, Stats};
use std::mem;
use std::ptr;

/// Counts since the client was opened, and three readings of now (`*_now`). Later versions may add
/// fields at the end.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct lockclient_stats {
    /// Acquires that were granted.
    pub acquired: u64,
    /// Acquires that the server ended: the wait was over.
    pub timed_out: u64,
    /// Acquires that the server refused: at capacity.
    /// Also those that were cancelled, or ran out of time, before they were tried again.
    pub busy: u64,
    /// Acquires whose deadline came before a byte was sent.
    pub not_sent: u64,
    /// Acquires that were cancelled before a byte was sent.
    pub cancelled: u64,
    /// Acquires whose outcome is unknown.
    pub indeterminate: u64,
    /// Releases that the server confirmed.
    pub released: u64,
    /// Releases of a token that held nothing (any more).
    pub not_held: u64,
    /// Releases without an answer.
    pub unconfirmed: u64,
    /// Grants that could not be handed over and whose release was enqueued.
    pub compensations: u64,
    /// Grants that could not be handed over when the room for such releases was full.
    pub compensations_dropped: u64,
    /// Grants that came too late for somebody: after their deadline or with too little of their
    /// lease left, or for a caller who had cancelled, freed the ticket or closed the client.
    pub late_grants: u64,
    /// Connections that were made.
    pub connects: u64,
    /// Connections that could not be made.
    pub connects_failed: u64,
    /// Connections that ended.
    pub connections_closed: u64,
    /// Acquires that wait unsent.
    pub queued_now: u64,
    /// Acquires that were sent and not answered.
    pub in_flight_now: u64,
    /// Connections that are open.
    pub connections_now: u64,
}

impl From<Stats> for lockclient_stats {
    fn from(stats: Stats) -> lockclient_stats {
        lockclient_stats {
            acquired: stats.acquired,
            timed_out: stats.timed_out,
            busy: stats.busy,
            not_sent: stats.not_sent,
            cancelled: stats.cancelled,
            indeterminate: stats.indeterminate,
            released: stats.released,
            not_held: stats.not_held,
            unconfirmed: stats.unconfirmed,
            compensations: stats.compensations,
            compensations_dropped: stats.compensations_dropped,
            late_grants: stats.late_grants,
            connects: stats.connects,
            connects_failed: stats.connects_failed,
            connections_closed: stats.connections_closed,
            queued_now: stats.queued_now,
            in_flight_now: stats.in_flight_now,
            connections_now: stats.connections_now,
        }
    }
}

/// Reads the client's counts. The background thread keeps them, so the last call's may be missing
/// for a moment. Works after lockclient_shutdown too.
///
/// Threads: any, the log callback included. Never blocks.
///
/// @param client    A client.
/// @param out       Gets the counts; zeroed on any failure.
/// @param out_size  sizeof(lockclient_stats): at most so many bytes are filled, and the rest of them
///                  zeroed, so that programs compiled against another version's header work.
/// @retval LOCKCLIENT_OK                  Filled.
/// @retval LOCKCLIENT_E_INVALID_ARGUMENT  A NULL.
/// @retval LOCKCLIENT_E_FORKED            The client is the parent process's.
/// @retval LOCKCLIENT_E_PANIC             A bug in this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockclient_get_stats(
    client: *mut lockclient,
    out: *mut lockclient_stats,
    out_size: usize,
) -> lockclient_status {
    status(|| {
        if out.is_null() {
            return Err(Ended::null("out"));
        }
        // SAFETY: the header's contract: room for `out_size` bytes.
        unsafe { ptr::write_bytes(out.cast::<u8>(), 0, out_size) };
        // SAFETY: the header's contract: NULL or a live client.
        let client = unsafe { lockclient::borrow(client) }?.client();
        if client.is_forked() {
            return Err(Error::Forked.into());
        }
        let stats = lockclient_stats::from(client.stats());
        let size = out_size.min(mem::size_of::<lockclient_stats>());
        // SAFETY: `stats` has no padding and is at least `size` long; so is the room behind `out`,
        // which is the caller's and cannot overlap a local.
        unsafe { ptr::copy_nonoverlapping((&raw const stats).cast::<u8>(), out.cast(), size) };
        Ok(())
    })
}
