//! The log callback.

use super::boundary::status;
use super::config::lockclient_config;
use super::handle::Handle;
use super::status::{Ended, lockclient_status};
use crate::LogLevel;
use std::ffi::{CString, c_char, c_void};

/// Log level: something failed for good.
pub const LOCKCLIENT_LOG_ERROR: i32 = 1;
/// Log level: something failed, and the client goes on.
pub const LOCKCLIENT_LOG_WARN: i32 = 2;
/// Log level: what an operator may want to know.
pub const LOCKCLIENT_LOG_INFO: i32 = 3;
/// Log level: what helps to find a fault.
pub const LOCKCLIENT_LOG_DEBUG: i32 = 4;

type Callback = unsafe extern "C" fn(user: *mut c_void, level: i32, message: *const c_char);

/// The host's function and the host's pointer.
#[derive(Clone, Copy)]
struct Sink {
    log: Callback,
    user: *mut c_void,
}

// SAFETY: the pointer is only handed back to the host, which was told that the callback runs on
// another thread and that the pointer must be fit for that.
unsafe impl Send for Sink {}
// SAFETY: as above; the callback may also be called for several clients at once, which the host was
// told too.
unsafe impl Sync for Sink {}

impl Sink {
    fn line(&self, level: LogLevel, message: &str) {
        let mut text = message.as_bytes().to_vec();
        text.retain(|&byte| byte != 0);
        let text = CString::new(text).unwrap_or_default();
        let level = match level {
            LogLevel::Error => LOCKCLIENT_LOG_ERROR,
            LogLevel::Warn => LOCKCLIENT_LOG_WARN,
            LogLevel::Info => LOCKCLIENT_LOG_INFO,
            LogLevel::Debug => LOCKCLIENT_LOG_DEBUG,
        };
        // SAFETY: the host promised a function that may be called with its pointer until the
        // client's shutdown has returned; the text lives longer than the call.
        unsafe { (self.log)(self.user, level, text.as_ptr()) };
    }
}

/// Sends the log lines of clients that are opened with this configuration to a function. Without
/// this there is no log, and nothing is ever printed.
///
/// The function runs on a thread of its own, for one line after the other, and with no lock held.
/// It may be slow: then lines are lost, and their number is logged, but no lock operation waits for
/// it. It may call any function of this library, but the blocking ones on its own client answer
/// LOCKCLIENT_E_WOULD_DEADLOCK. It must return: no longjmp, and no C++ exception may leave it. No
/// call of it starts once lockclient_shutdown or lockclient_close has returned; one that was running
/// and did not return within that call's time may still be running, and so may the destructors of
/// what the program keeps for that thread. It is not called in a forked child. With one configuration for several clients it may run for each of them at once.
///
/// Threads: any; a change does not reach clients that are open already.
///
/// @param config   A configuration.
/// @param log      The function. `level` is one of LOCKCLIENT_LOG_*, `message` one line of UTF-8
///                 without a newline, valid during the call.
/// @param user     Handed to the function as it is; may be NULL. It must stay valid as long as the
///                 function may run.
/// @retval LOCKCLIENT_OK                  Set.
/// @retval LOCKCLIENT_E_INVALID_ARGUMENT  `config` or `log` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockclient_config_set_log(
    config: *mut lockclient_config,
    log: Option<unsafe extern "C" fn(user: *mut c_void, level: i32, message: *const c_char)>,
    user: *mut c_void,
) -> lockclient_status {
    status(|| {
        // SAFETY: the header's contract: a live configuration.
        let config = unsafe { lockclient_config::borrow(config) }?;
        let log = log.ok_or_else(|| Ended::null("log"))?;
        let sink = Sink { log, user };
        config.change(&|settings| Ok(settings.log(move |level, message| sink.line(level, message))))
    })
}
