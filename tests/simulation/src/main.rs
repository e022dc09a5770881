//! `SEED=1234 simulation` replays a seed and explains it if it fails.
//! `simulation SECONDS [FIRST-SEED]` runs seeds for a time; without a first seed the clock gives
//! one. `ACQUIRES` says how many acquires a seed has, `THREADS` on how many threads seeds run.

use lockclient_simulation::{Batch, Orders, Skip, explain, regressions, run, run_batch};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const USAGE: &str = "usage: SEED=N simulation | simulation SECONDS [FIRST-SEED]";

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn main() -> ExitCode {
    let acquires = variable("ACQUIRES").map_or(10_000, |acquires| acquires as u32);
    if let Some(seed) = variable("SEED") {
        let orders = Orders { seed, acquires, skip: Skip::default(), only: None, keep: false };
        return replay(&orders);
    }
    let mut words = std::env::args().skip(1).map(|word| word.parse::<u64>());
    let Some(Ok(seconds)) = words.next() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let first = match words.next() {
        Some(Ok(first)) => first,
        Some(Err(_)) => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
        None => {
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_nanos() as u64)
        }
    };
    for orders in regressions() {
        if run(&orders).violation.is_some() {
            return replay(&orders);
        }
    }
    let time = Duration::from_secs(seconds);
    let mut batch = Batch { acquires, patience: time, ..Batch::new(first, time) };
    if let Some(threads) = variable("THREADS") {
        batch.threads = threads as usize;
    }
    println!("from seed {first}");
    let summary = run_batch(&batch);
    print!("{summary}");
    match summary.failed {
        None => ExitCode::SUCCESS,
        Some(report) => {
            let skip = Skip::default();
            replay(&Orders { seed: report.seed, acquires, skip, only: None, keep: false })
        }
    }
}

fn replay(orders: &Orders) -> ExitCode {
    let report = run(orders);
    if report.violation.is_some() {
        println!("{}", explain(orders));
        return ExitCode::FAILURE;
    }
    println!("seed {}: no violation, log hash {:016x}", orders.seed, report.hash);
    ExitCode::SUCCESS
}
