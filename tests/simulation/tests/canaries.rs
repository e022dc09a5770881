//! Each predicate catches the bug that was seeded for it, alone and soon. Built with
//! `--cfg canary`; without it there is nothing to catch.
#![cfg(canary)]

use lockclient_simulation::{Batch, Orders, PREDICATES, Skip, run, run_batch};
use std::sync::Mutex;
use std::time::Duration;

/// The processor time that a canary may take, and the time, on a machine that is busy.
const LIMIT: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(120);

/// The chosen bug is the whole process's.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

#[test]
fn every_predicate_catches_its_canary() {
    let _one = ONE_AT_A_TIME.lock();
    // One of them is a panic, which is expected and need not be told.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    for predicate in PREDICATES {
        lockclient::canary::choose(predicate.name);
        let only = Some(predicate.name);
        let batch = Batch { only, patience: PATIENCE, threads: 1, ..Batch::new(1, PATIENCE) };
        let summary = run_batch(&batch);
        let caught = summary.failed.as_ref().and_then(|report| report.violation.as_ref());
        let by = caught.map(|violation| violation.predicate);
        println!("{:>40}: {:?}, {} seeds", predicate.name, summary.processor, summary.seeds);
        if by != only || summary.processor > LIMIT {
            missed.push((predicate.name, by, summary.processor));
        }
    }
    lockclient::canary::choose("");
    std::panic::set_hook(hook);
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
fn the_log_hash_catches_its_canary() {
    let _one = ONE_AT_A_TIME.lock();
    lockclient::canary::choose("same_seed_same_log");
    let differs = (1..100).any(|seed| {
        let skip = Skip::default();
        let orders = Orders { seed, acquires: 1_000, skip, only: None, keep: false };
        run(&orders).hash != run(&orders).hash
    });
    lockclient::canary::choose("");
    assert!(differs);
}

#[test]
fn every_canary_has_its_predicate() {
    let known = |name: &str| {
        name == "same_seed_same_log" || PREDICATES.iter().any(|predicate| predicate.name == name)
    };
    let strange: Vec<_> = lockclient::canary::names().filter(|name| !known(name)).collect();
    assert!(strange.is_empty(), "{strange:?}");
    assert_eq!(lockclient::canary::names().count(), PREDICATES.len() + 1);
}
