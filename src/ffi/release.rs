//! Giving locks back.

use super::boundary::status;
use super::client::lockclient;
use super::handle::Handle;
use super::key;
use super::status::{lockclient_status, released};
use crate::Token;
use std::ffi::c_char;

/// Gives a lock back by its token, and blocks until the server has answered, for up to 5 s;
/// reconnects and retries are included.
///
/// It is safe to repeat. Do it as soon as the protected work is done, and let the resource itself
/// check the token: a lock whose lease has ended may be another's by now.
///
/// Threads: any, many at once; not from inside the client's own log callback.
///
/// @param client   An open client; it need not be the one that acquired the lock.
/// @param key      The lock's key, as in lockclient_acquire.
/// @param key_len  Its length in bytes, or LOCKCLIENT_NUL_TERMINATED.
/// @param token    The grant's token, exactly. 0 is never one: LOCKCLIENT_NOT_HELD.
/// @retval LOCKCLIENT_OK                  Released.
/// @retval LOCKCLIENT_NOT_HELD            The token holds nothing (any more).
/// @retval LOCKCLIENT_INDETERMINATE       No answer within 5 s, or the client was shut down: the
///                                        lease's end is the safety net. Release it again, or wait.
/// @retval LOCKCLIENT_E_INVALID_ARGUMENT  A NULL.
/// @retval LOCKCLIENT_E_BAD_KEY           The key cannot be used.
/// @retval LOCKCLIENT_E_CLOSED            The client was shut down before the call.
/// @retval LOCKCLIENT_E_AUTH              No endpoint accepts the secret, or one is required.
/// @retval LOCKCLIENT_E_OWNER_EXHAUSTED   The client has used up its request numbers.
/// @retval LOCKCLIENT_E_FORKED            The client is the parent process's: nothing was sent.
/// @retval LOCKCLIENT_E_SYSTEM            The background thread has ended.
/// @retval LOCKCLIENT_E_WOULD_DEADLOCK    Called from inside the log callback.
/// @retval LOCKCLIENT_E_PANIC             A bug in this library; unknown.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockclient_release(
    client: *mut lockclient,
    key: *const c_char,
    key_len: usize,
    token: u64,
) -> lockclient_status {
    status(|| {
        // SAFETY: the header's contract: NULL or an open client.
        let handle = unsafe { lockclient::borrow(client) }?;
        // SAFETY: the header's contract: NULL, or as many readable bytes as it says.
        let key = unsafe { key::bytes(key, key_len) }?;
        released(handle.client().release_bytes(key, Token::new(token))?)
    })
}

/// Gives a lock back by its token without waiting: enqueues the release and returns. For event
/// loops and destructors.
///
/// The release is sent, and sent again after a lost connection, for up to 5 s. Nobody is told how
/// it ended; lockclient_get_stats counts it (`released`, `not_held`, `unconfirmed`), and
/// lockclient_shutdown says whether some stayed unconfirmed. As many may be under way at once as
/// lockclient_config_set_queue_limit says, 65,536 if it was not called.
///
/// Threads: any, the log callback included. Never blocks.
///
/// @param client   An open client; it need not be the one that acquired the lock.
/// @param key      The lock's key, as in lockclient_acquire. Copied.
/// @param key_len  Its length in bytes, or LOCKCLIENT_NUL_TERMINATED.
/// @param token    The grant's token, exactly.
/// @retval LOCKCLIENT_OK                  Enqueued.
/// @retval LOCKCLIENT_E_INVALID_ARGUMENT  A NULL.
/// @retval LOCKCLIENT_E_BAD_KEY           The key cannot be used.
/// @retval LOCKCLIENT_E_CLOSED            The client was shut down before the call: the lease's end
///                                        is the safety net.
/// @retval LOCKCLIENT_E_FORKED            The client is the parent process's.
/// @retval LOCKCLIENT_E_QUEUE_FULL        Too many are under way: call again later, or use
///                                        lockclient_release.
/// @retval LOCKCLIENT_E_SYSTEM            The background thread has ended.
/// @retval LOCKCLIENT_E_PANIC             A bug in this library; unknown.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockclient_release_start(
    client: *mut lockclient,
    key: *const c_char,
    key_len: usize,
    token: u64,
) -> lockclient_status {
    status(|| {
        // SAFETY: the header's contract: NULL or an open client.
        let handle = unsafe { lockclient::borrow(client) }?;
        // SAFETY: the header's contract: NULL, or as many readable bytes as it says.
        let key = unsafe { key::bytes(key, key_len) }?;
        Ok(handle.client().release_start_bytes(key, Token::new(token))?)
    })
}
