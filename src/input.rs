//! What a caller may ask for, checked once at the edge: nothing deeper checks again.

use std::time::Duration;

/// The lease of an acquire that names none.
pub const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// A duration that the protocol cannot carry. Nothing was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} of {given:?} is outside {least}..={most} s")]
pub struct UnsupportedDuration {
    /// Which parameter: `wait`, `lease` or `min_work_budget`.
    pub what: &'static str,
    /// What was asked for, before rounding up to whole seconds.
    pub given: Duration,
    /// The least that is allowed, in seconds.
    pub least: u8,
    /// The most that is allowed, in seconds.
    pub most: u8,
}

/// The work budget does not fit in the lease. Nothing was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("min_work_budget of {budget} s is more than the lease of {lease} s")]
pub struct InsufficientLease {
    /// The budget, in whole seconds.
    pub budget: u8,
    /// The lease, in whole seconds.
    pub lease: u8,
}

/// Rounds `given` up to whole seconds and checks the range.
fn whole_seconds(
    what: &'static str,
    given: Duration,
    least: u8,
    most: u8,
) -> Result<u8, UnsupportedDuration> {
    // 255 s are 2.55e11 ns: u128 nanoseconds cannot overflow, and neither can what is left of them.
    let seconds = given.as_nanos().div_ceil(1_000_000_000);
    match u8::try_from(seconds) {
        Ok(seconds) if (least..=most).contains(&seconds) => Ok(seconds),
        _ => Err(UnsupportedDuration { what, given, least, most }),
    }
}

/// How long an acquire may take: 0..=255 whole seconds, 0 being one immediate attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait(u8);

impl Wait {
    /// Rounds up to whole seconds and checks.
    ///
    /// # Errors
    /// More than 255 s.
    pub fn new(wait: Duration) -> Result<Wait, UnsupportedDuration> {
        whole_seconds("wait", wait, 0, 255).map(Wait)
    }

    /// Whole seconds.
    pub fn seconds(self) -> u8 {
        self.0
    }
}

/// How long the server lets a grant live: 1..=255 whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease(u8);

impl Lease {
    /// Rounds up to whole seconds and checks.
    ///
    /// # Errors
    /// Zero, or more than 255 s.
    pub fn new(lease: Duration) -> Result<Lease, UnsupportedDuration> {
        whole_seconds("lease", lease, 1, 255).map(Lease)
    }

    /// Whole seconds.
    pub fn seconds(self) -> u8 {
        self.0
    }

    /// What provably remains of this lease when it began no earlier than `elapsed` ago (GR-2):
    /// the two clocks' rates may differ by 0.1 %, and a millisecond covers their resolution.
    #[must_use]
    pub fn proven_remaining(self, elapsed: Duration) -> Duration {
        Duration::from_secs(u64::from(self.0))
            .saturating_sub(elapsed)
            .saturating_sub(elapsed / 1000)
            .saturating_sub(Duration::from_millis(1))
    }
}

/// The time that the work under the lock needs: 0..=250 whole seconds, never more than the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkBudget(u8);

/// Why a work budget was refused. Nothing was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    /// More than 250 s.
    #[error(transparent)]
    Unsupported(#[from] UnsupportedDuration),
    /// More than the lease.
    #[error(transparent)]
    Insufficient(#[from] InsufficientLease),
}

impl WorkBudget {
    /// Rounds up to whole seconds and checks, against `lease` too.
    ///
    /// # Errors
    /// More than 250 s, or more than the lease.
    pub fn new(budget: Duration, lease: Lease) -> Result<WorkBudget, BudgetError> {
        let seconds = whole_seconds("min_work_budget", budget, 0, 250)?;
        if seconds > lease.0 {
            return Err(InsufficientLease { budget: seconds, lease: lease.0 }.into());
        }
        Ok(WorkBudget(seconds))
    }

    /// The budget.
    pub fn duration(self) -> Duration {
        Duration::from_secs(u64::from(self.0))
    }
}
