//! IN-1 to IN-3: durations, rounded up and then checked.

use lockclient::{BudgetError, InsufficientLease, Lease, UnsupportedDuration, Wait, WorkBudget};
use std::time::Duration;

const NANO: Duration = Duration::from_nanos(1);

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn in_1_fractions_round_up_and_nothing_overflows_into_zero() {
    for (given, whole) in [
        (Duration::ZERO, 0),
        (NANO, 1),
        (seconds(1) - NANO, 1),
        (seconds(1), 1),
        (seconds(1) + NANO, 2),
        (Duration::from_millis(2_500), 3),
        (seconds(255) - NANO, 255),
        (seconds(255), 255),
    ] {
        assert_eq!(Wait::new(given).map(Wait::seconds), Ok(whole), "{given:?}");
    }
    // The largest durations there are: their nanoseconds do not fit in 64 bits.
    for given in [seconds(256), seconds(u64::MAX / 1_000_000_000), seconds(1 << 32), Duration::MAX]
    {
        assert!(Wait::new(given).is_err(), "{given:?}");
        assert!(Lease::new(given).is_err(), "{given:?}");
    }
}

#[test]
fn in_1_out_of_range_is_an_error_and_says_what_was_given() {
    let given = seconds(255) + NANO;
    let error = UnsupportedDuration { what: "wait", given, least: 0, most: 255 };
    assert_eq!(Wait::new(given), Err(error));
    let error = UnsupportedDuration { what: "lease", given, least: 1, most: 255 };
    assert_eq!(Lease::new(given), Err(error));
}

#[test]
fn in_2_a_wait_may_be_zero_and_a_lease_may_not() {
    assert_eq!(Wait::new(Duration::ZERO).map(Wait::seconds), Ok(0));
    assert!(Lease::new(Duration::ZERO).is_err());
    assert_eq!(Lease::new(NANO).map(Lease::seconds), Ok(1));
    assert_eq!(Lease::new(seconds(255)).map(Lease::seconds), Ok(255));
    assert_eq!(lockclient::DEFAULT_LEASE, seconds(30));
}

#[test]
fn in_3_a_budget_is_at_most_250_seconds_and_fits_in_the_normalized_lease() {
    let lease = |given| Lease::new(given).unwrap();
    let budget = |given, within| WorkBudget::new(given, lease(within)).map(WorkBudget::duration);
    assert_eq!(budget(Duration::ZERO, seconds(1)), Ok(Duration::ZERO));
    assert_eq!(budget(seconds(250), seconds(255)), Ok(seconds(250)));
    // Both are rounded before they are compared: 2.5 s of work fit in a lease of 2.1 s.
    let (work, within) = (Duration::from_millis(2_500), Duration::from_millis(2_100));
    assert_eq!(budget(work, within), Ok(seconds(3)));
    assert_eq!(
        budget(seconds(3) + NANO, seconds(3)),
        Err(BudgetError::Insufficient(InsufficientLease { budget: 4, lease: 3 }))
    );
    // Out of range comes before too long for the lease.
    let given = seconds(250) + NANO;
    let what = "min_work_budget";
    let error = UnsupportedDuration { what, given, least: 0, most: 250 };
    assert_eq!(budget(given, seconds(30)), Err(BudgetError::Unsupported(error)));
}
