//! `lockclient_config`.

use super::boundary::{boundary, status, value_or};
use super::handle::Handle;
use super::status::{Ended, LOCKCLIENT_E_INVALID_ARGUMENT, lockclient_status};
use crate::sync::Mutex;
use crate::{Config, ConfigError};
use std::ffi::{CStr, c_char};
use std::time::Duration;
use std::{ptr, slice};

/// The settings of clients. Opaque; made by lockclient_config_new, freed by lockclient_config_free.
/// A client copies them when it is opened.
pub struct lockclient_config {
    settings: Mutex<Config>,
}

impl Handle for lockclient_config {
    const NAME: &'static str = "config";
}

impl lockclient_config {
    /// A copy, as it is now.
    pub(super) fn settings(&self) -> Config {
        self.settings.lock().clone()
    }

    /// Replaces the settings, unless the change fails.
    pub(super) fn change(
        &self,
        with: &dyn Fn(Config) -> Result<Config, ConfigError>,
    ) -> Result<(), Ended> {
        let mut settings = self.settings.lock();
        *settings = with(settings.clone())?;
        Ok(())
    }
}

/// Runs a setter of the Rust API on what C holds.
unsafe fn set(
    config: *mut lockclient_config,
    with: &dyn Fn(Config) -> Result<Config, ConfigError>,
) -> lockclient_status {
    status(|| {
        // SAFETY: the header's contract: NULL or a live configuration.
        unsafe { lockclient_config::borrow(config) }?.change(with)
    })
}

/// Makes a configuration with the defaults and no endpoint; at least one has to be added.
///
/// Threads: any. A configuration is plain data: it may be made before a fork and used after it, in
/// the parent and in the child.
///
/// @return the configuration, to be freed with lockclient_config_free, or NULL if there is no
///         memory.
#[unsafe(no_mangle)]
pub extern "C" fn lockclient_config_new() -> *mut lockclient_config {
    value_or(ptr::null_mut(), || lockclient_config { settings: Mutex::new(Config::new()) }.give())
}

/// Frees a configuration. Clients that were opened with it stay as they are. A secret in it is
/// freed, not wiped.
///
/// Threads: any, but no other call may use the configuration now or later.
///
/// @param config  A configuration; NULL does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockclient_config_free(config: *mut lockclient_config) {
    boundary((), || {
        // SAFETY: the header's contract: NULL, or a live configuration that nobody else uses.
        drop(unsafe { lockclient_config::take(config) });
    });
}

/// Adds a server. Servers are dialled in the order in which they were added, and no other address
/// ever is, whatever a server says about its leader.
///
/// Threads: any.
///
/// @param config     A configuration.
/// @param host_port  "host:port", "192.0.2.1:port" or "[2001:db8::1]:port", or "unix:/path" for a
///                   server on this machine that listens on a socket file; NUL-terminated UTF-8,
///                   copied. Names are looked up each time that the server is dialled. A path is
///                   absolute, has at most 107 bytes and is taken as it is: two paths that lead to
///                   one file are two servers.
/// @retval LOCKCLIENT_OK                  Added.
/// @retval LOCKCLIENT_E_INVALID_ARGUMENT  A NULL, not an endpoint, added before, or there are 64
///                                        already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockclient_config_add_endpoint(
    config: *mut lockclient_config,
    host_port: *const c_char,
) -> lockclient_status {
    status(|| {
        // SAFETY: the header's contract: NULL or a live configuration.
        let config = unsafe { lockclient_config::borrow(config) }?;
        if host_port.is_null() {
            return Err(Ended::null("host_port"));
        }
        // SAFETY: the header's contract: a NUL-terminated text that stays as it is.
        let text = unsafe { CStr::from_ptr(host_port) }.to_str().map_err(|_| {
            Ended::because(LOCKCLIENT_E_INVALID_ARGUMENT, c"the endpoint is not valid UTF-8")
        })?;
        config.change(&|settings| settings.endpoint(text))
    })
}

/// Sets the secret that servers and clients prove to each other that they know. It keeps strangers
/// out; it does not encrypt. Without one, a server that asks for a proof is a
/// LOCKCLIENT_E_AUTH; with one, a server that does not prove itself is never sent a request.
///
/// Threads: any.
///
/// @param config  A configuration.
/// @param secret  The bytes, copied. They may be any; random ones cannot be guessed.
/// @param len     Their number, 16..=256.
/// @retval LOCKCLIENT_OK                  Set.
/// @retval LOCKCLIENT_E_INVALID_ARGUMENT  A NULL, or `len` is out of its range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockclient_config_set_secret(
    config: *mut lockclient_config,
    secret: *const u8,
    len: usize,
) -> lockclient_status {
    status(|| {
        // SAFETY: the header's contract: NULL or a live configuration.
        let config = unsafe { lockclient_config::borrow(config) }?;
        if secret.is_null() {
            return Err(Ended::null("secret"));
        }
        if len > 256 {
            return Err(ConfigError::SecretLength(len).into());
        }
        // SAFETY: the header's contract: `len` readable bytes that stay as they are; few enough.
        let bytes = unsafe { slice::from_raw_parts(secret, len) };
        config.change(&|settings| settings.secret(bytes))
    })
}

/// Sets the most connections to the serving node. Requests share them, and a connection that has
/// to be closed for one request's sake makes its other requests LOCKCLIENT_INDETERMINATE, so more
/// of them part callers better. They are opened as they are needed.
///
/// Threads: any.
///
/// @param config      A configuration.
/// @param per_client  1..=64; 4 if not set.
/// @retval LOCKCLIENT_OK                  Set.
/// @retval LOCKCLIENT_E_INVALID_ARGUMENT  `config` is NULL, or the number is out of its range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockclient_config_set_connections(
    config: *mut lockclient_config,
    per_client: u32,
) -> lockclient_status {
    // SAFETY: the header's contract is the one of `set`.
    unsafe { set(config, &|settings| settings.connections(per_client)) }
}

/// Sets the time limit of making a connection, the look-up of the server's name included.
///
/// Threads: any.
///
/// @param config  A configuration.
/// @param ms      Milliseconds, 10..=60000; 2000 if not set.
/// @retval LOCKCLIENT_OK                  Set.
/// @retval LOCKCLIENT_E_INVALID_ARGUMENT  `config` is NULL, or the time is out of its range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockclient_config_set_connect_timeout_ms(
    config: *mut lockclient_config,
    ms: u64,
) -> lockclient_status {
    // SAFETY: the header's contract is the one of `set`.
    unsafe { set(config, &|settings| settings.connect_timeout(Duration::from_millis(ms))) }
}

/// Sets how long after its deadline, and after the wait that its server was asked for (what was left
/// of the deadline, rounded up to whole seconds), an acquire that was sent may still be answered
/// LOCKCLIENT_TIMED_OUT or LOCKCLIENT_BUSY, before its connection is closed and it ends as
/// LOCKCLIENT_INDETERMINATE. A grant that comes after the deadline is never handed out, whatever
/// this is.
///
/// Threads: any.
///
/// @param config  A configuration.
/// @param ms      Milliseconds, 50..=60000; 500 if not set.
/// @retval LOCKCLIENT_OK                  Set.
/// @retval LOCKCLIENT_E_INVALID_ARGUMENT  `config` is NULL, or the time is out of its range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockclient_config_set_response_grace_ms(
    config: *mut lockclient_config,
    ms: u64,
) -> lockclient_status {
    // SAFETY: the header's contract is the one of `set`.
    unsafe { set(config, &|settings| settings.response_grace(Duration::from_millis(ms))) }
}

/// Ends every acquire at its deadline exactly, without the response grace and without waiting out
/// the server's whole seconds. An ordinary timeout is then often LOCKCLIENT_INDETERMINATE, and takes
/// the connection's other requests with it.
///
/// Threads: any.
///
/// @param config  A configuration.
/// @param on      false if not set.
/// @retval LOCKCLIENT_OK                  Set.
/// @retval LOCKCLIENT_E_INVALID_ARGUMENT  `config` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockclient_config_set_strict_deadline(
    config: *mut lockclient_config,
    on: bool,
) -> lockclient_status {
    // SAFETY: the header's contract is the one of `set`.
    unsafe { set(config, &|settings| Ok(settings.strict_deadline(on))) }
}

/// Gives a grant back, as LOCKCLIENT_INDETERMINATE, when less than the acquire's
/// `min_work_budget_ms` of its lease provably remains on delivery.
///
/// Threads: any.
///
/// @param config  A configuration.
/// @param on      false if not set.
/// @retval LOCKCLIENT_OK                  Set.
/// @retval LOCKCLIENT_E_INVALID_ARGUMENT  `config` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockclient_config_set_enforce_budget(
    config: *mut lockclient_config,
    on: bool,
) -> lockclient_status {
    // SAFETY: the header's contract is the one of `set`.
    unsafe { set(config, &|settings| Ok(settings.enforce_budget(on))) }
}

/// Retries an acquire that a server refused as busy, with backoff and jitter, inside the same
/// deadline; never one with a wait of 0. What ends it between two tries, be it a cancel or a
/// shutdown, ends it LOCKCLIENT_BUSY, the last answer.
///
/// Threads: any.
///
/// @param config  A configuration.
/// @param on      false if not set: LOCKCLIENT_BUSY comes at once.
/// @retval LOCKCLIENT_OK                  Set.
/// @retval LOCKCLIENT_E_INVALID_ARGUMENT  `config` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockclient_config_set_busy_retry(
    config: *mut lockclient_config,
    on: bool,
) -> lockclient_status {
    // SAFETY: the header's contract is the one of `set`.
    unsafe { set(config, &|settings| Ok(settings.busy_retry(on))) }
}

/// Whether the server's answers on one connection leave in the order in which they were decided,
/// as the protocol promises. For a server that does not keep that promise set it to false: then
/// only the acquire's own sending proves when its lease began, and `remaining_ms` gets smaller.
///
/// Threads: any.
///
/// @param config  A configuration.
/// @param on      true if not set.
/// @retval LOCKCLIENT_OK                  Set.
/// @retval LOCKCLIENT_E_INVALID_ARGUMENT  `config` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockclient_config_set_ordered_answers(
    config: *mut lockclient_config,
    on: bool,
) -> lockclient_status {
    // SAFETY: the header's contract is the one of `set`.
    unsafe { set(config, &|settings| Ok(settings.ordered_answers(on))) }
}

/// Sets how often an idle connection is asked whether its server still serves.
///
/// Threads: any.
///
/// @param config  A configuration.
/// @param ms      Milliseconds, 1000..=3600000; 10000 if not set.
/// @retval LOCKCLIENT_OK                  Set.
/// @retval LOCKCLIENT_E_INVALID_ARGUMENT  `config` is NULL, or the time is out of its range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockclient_config_set_idle_probe_ms(
    config: *mut lockclient_config,
    ms: u64,
) -> lockclient_status {
    // SAFETY: the header's contract is the one of `set`.
    unsafe { set(config, &|settings| settings.idle_probe(Duration::from_millis(ms))) }
}

/// Sets the most acquires that may wait unsent in the client, and of releases by
/// lockclient_release_start that may be under way. One more is LOCKCLIENT_E_QUEUE_FULL, at once.
/// Releases of grants that could not be handed over have as much room, of their own, and at least
/// for 1024.
///
/// Threads: any.
///
/// @param config  A configuration.
/// @param limit   1..=1048576; 65536 if not set.
/// @retval LOCKCLIENT_OK                  Set.
/// @retval LOCKCLIENT_E_INVALID_ARGUMENT  `config` is NULL, or the number is out of its range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockclient_config_set_queue_limit(
    config: *mut lockclient_config,
    limit: usize,
) -> lockclient_status {
    // SAFETY: the header's contract is the one of `set`.
    unsafe { set(config, &|settings| settings.queue_limit(limit)) }
}
