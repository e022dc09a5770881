//! What is made at most once, and then there without a lock.

use crate::sync::Mutex;
use std::io;
use std::sync::OnceLock;
use std::time::Duration;

/// How long whoever wants it made waits for somebody else who is just making it, and whom the
/// system may have stopped at it (HOST-6).
const BRIEFLY: Duration = Duration::from_millis(10);

/// A cell that is filled at most once. To look into it never waits.
pub(super) struct Once<T> {
    value: OnceLock<T>,
    making: Mutex<()>,
}

impl<T> Once<T> {
    pub(super) fn new() -> Once<T> {
        Once { value: OnceLock::new(), making: Mutex::new(()) }
    }

    pub(super) fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// What is in it, made now if nothing is.
    pub(super) fn get_or_make(&self, make: impl FnOnce() -> io::Result<T>) -> io::Result<&T> {
        // Under this lock nobody waits for the cell's own.
        let _making = self.making.try_lock_for(BRIEFLY).ok_or(io::ErrorKind::TimedOut)?;
        if let Some(value) = self.get() {
            return Ok(value);
        }
        let made = make()?;
        Ok(self.value.get_or_init(|| made))
    }
}
