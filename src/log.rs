//! Log lines for the host.

use std::sync::Arc;

/// How much a log line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i32)]
pub enum LogLevel {
    /// Something failed for good.
    Error = 1,
    /// Something failed, and the client goes on.
    Warn = 2,
    /// What an operator may want to know.
    Info = 3,
    /// What helps to find a fault.
    Debug = 4,
}

/// A log callback.
pub(crate) type LogFn = Arc<dyn Fn(LogLevel, &str) + Send + Sync>;
