//! Many seeds on every core, and what they covered.

use crate::faults::{Kind, Skip};
use crate::run::{Report, run};
use crate::world::{Orders, Outcomes};
use rustix::time::{ClockId, clock_gettime};
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What to run.
#[derive(Debug, Clone)]
pub struct Batch {
    /// The first seed; the others follow.
    pub first: u64,
    /// Seeds at most.
    pub seeds: u64,
    /// Time at least, unless the seeds are used up.
    pub time: Duration,
    /// Time at most: it goes on until everything is covered.
    pub patience: Duration,
    /// Acquires of each seed.
    pub acquires: u32,
    /// Check one predicate alone.
    pub only: Option<&'static str>,
    /// Kinds of faults to leave out.
    pub skip: Skip,
    /// Threads.
    pub threads: usize,
}

impl Batch {
    /// All predicates, on every core, for a time.
    pub fn new(first: u64, time: Duration) -> Batch {
        Batch {
            first,
            seeds: u64::MAX,
            time,
            patience: time * 10,
            acquires: 4_000,
            only: None,
            skip: Skip::default(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// What was run.
#[derive(Debug, Clone)]
pub struct Summary {
    /// Seeds.
    pub seeds: u64,
    /// Acquires.
    pub acquires: u64,
    /// How they ended.
    pub outcomes: Outcomes,
    /// How often each kind of fault happened.
    pub happened: Vec<u64>,
    /// Processor time of all threads.
    pub processor: Duration,
    /// Time.
    pub time: Duration,
    /// The first run that went wrong.
    pub failed: Option<Report>,
}

impl Summary {
    fn add(&mut self, report: &Report) {
        self.seeds += 1;
        self.acquires += u64::from(report.acquires);
        for (sum, count) in self.outcomes.0.iter_mut().zip(report.outcomes.0) {
            *sum += count;
        }
        for (sum, count) in self.happened.iter_mut().zip(&report.happened) {
            *sum += count;
        }
    }

    /// The kinds of faults and the outcomes that never occurred.
    pub fn missing(&self) -> Vec<&'static str> {
        let faults = Kind::ALL.iter().filter(|kind| self.happened[**kind as usize] == 0);
        let outcomes = Outcomes::NAMES.iter().zip(self.outcomes.0).filter(|(_, count)| *count == 0);
        faults.map(|kind| kind.text()).chain(outcomes.map(|(name, _)| *name)).collect()
    }

    /// The share of calls that ended in a definite outcome.
    pub fn definite(&self) -> f64 {
        let all: u64 = self.outcomes.0.iter().sum();
        let unknown = self.outcomes.0[Outcomes::INDETERMINATE];
        if all == 0 { 0.0 } else { (all - unknown) as f64 / all as f64 }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.acquires as f64 / self.processor.as_secs_f64().max(1e-9);
        writeln!(
            f,
            "{} acquires over {} seeds in {:.1} s: {rate:.0} per second of a core",
            self.acquires,
            self.seeds,
            self.time.as_secs_f64(),
        )?;
        writeln!(f, "{:.1} % ended in a definite outcome", 100.0 * self.definite())?;
        for (name, count) in Outcomes::NAMES.iter().zip(self.outcomes.0) {
            writeln!(f, "{count:>12} {name}")?;
        }
        for kind in Kind::ALL {
            writeln!(f, "{:>12} {}", self.happened[*kind as usize], kind.text())?;
        }
        Ok(())
    }
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Runs seeds until the time is over, everything is covered, or something is wrong.
pub fn run_batch(batch: &Batch) -> Summary {
    let start = Instant::now();
    let next = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    let summary = Mutex::new(Summary {
        seeds: 0,
        acquires: 0,
        outcomes: Outcomes::default(),
        happened: vec![0; Kind::ALL.len()],
        processor: Duration::ZERO,
        time: Duration::ZERO,
        failed: None,
    });
    let work = || {
        while !over.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= batch.seeds {
                break;
            }
            let before = processor_time();
            let report = run(&Orders {
                seed: batch.first.wrapping_add(number),
                acquires: batch.acquires,
                skip: batch.skip.clone(),
                only: batch.only,
                keep: false,
            });
            let used = processor_time().saturating_sub(before);
            let Ok(mut summary) = summary.lock() else { break };
            summary.add(&report);
            summary.processor += used;
            let passed = start.elapsed();
            let enough = passed >= batch.time && summary.missing().is_empty();
            if report.violation.is_some() {
                // Of several the first seed, so that the same batch tells the same.
                if summary.failed.as_ref().is_none_or(|other| report.seed < other.seed) {
                    summary.failed = Some(report);
                }
                over.store(true, Ordering::Relaxed);
            } else if enough || passed >= batch.patience {
                over.store(true, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..batch.threads {
            scope.spawn(work);
        }
    });
    let mut summary = summary.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    summary.time = start.elapsed();
    summary
}
