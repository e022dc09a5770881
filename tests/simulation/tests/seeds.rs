//! Seeds that found something before, then new ones for a time: `SIMULATION_SECONDS` says how
//! long, and nothing ends before every kind of fault and every outcome has occurred.

use lockclient_simulation::{Batch, Kind, Orders, Skip, explain, regressions, run, run_batch};
use std::time::Duration;

/// What the plain test run takes.
const SECONDS: u64 = 10;

#[test]
fn seeds_that_found_something_hold() {
    for orders in regressions() {
        let report = run(&orders);
        assert!(report.violation.is_none(), "{}", explain(&orders));
    }
}

#[test]
fn every_predicate_holds_whatever_goes_wrong() {
    let seconds = std::env::var("SIMULATION_SECONDS").ok();
    let seconds = seconds.map_or(SECONDS, |seconds| seconds.parse().expect("a number of seconds"));
    let time = Duration::from_secs(seconds);
    let acquires = 2_000;
    let patience = time * 10 + Duration::from_secs(300);
    let batch = Batch { acquires, patience, ..Batch::new(1, time) };
    let summary = run_batch(&batch);
    println!("{summary}");
    if let Some(report) = &summary.failed {
        let (seed, acquires) = (report.seed, batch.acquires);
        let skip = Skip::default();
        panic!("{}", explain(&Orders { seed, acquires, skip, only: None, keep: false }));
    }
    assert_eq!(summary.missing(), [""; 0], "never occurred");
    assert!(summary.definite() >= 0.5, "{:.3} ended in a definite outcome", summary.definite());
}

#[test]
fn what_never_occurs_is_missed() {
    let skip = Skip { kinds: vec![Kind::ServerKill], single: Vec::new() };
    let time = Duration::from_secs(600);
    let batch = Batch { skip, seeds: 40, acquires: 500, ..Batch::new(1, time) };
    let missing = run_batch(&batch).missing();
    assert!(missing.contains(&Kind::ServerKill.text()), "{missing:?}");
}
