//! The event log: hashed, checked, and, if wanted, kept for reading.

use crate::ledger::Ledger;
use crate::predicates::{PREDICATES, Predicate};
use crate::record::{LogHash, Record};
use crate::time::{SECOND, Time};
use std::collections::VecDeque;
use std::hash::Hasher;

/// Records that are kept for reading.
const KEPT: usize = 400;

/// A predicate that did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The predicate's name.
    pub predicate: &'static str,
    /// What it says.
    pub text: &'static str,
    /// How it was broken.
    pub why: String,
    /// When, in true time.
    pub at: Time,
}

/// The log of a run.
#[derive(Debug)]
pub(crate) struct Log {
    /// What follows from it so far.
    pub ledger: Ledger,
    /// The first violation.
    pub violation: Option<Violation>,
    hash: LogHash,
    predicates: Vec<&'static Predicate>,
    kept: Option<VecDeque<(Time, Record)>>,
}

impl Log {
    /// An empty log. `only` restricts the check to one predicate; `keep` keeps the last records.
    pub(crate) fn new(ledger: Ledger, only: Option<&str>, keep: bool) -> Log {
        let wanted = |predicate: &&Predicate| only.is_none_or(|only| only == predicate.name);
        Log {
            ledger,
            violation: None,
            hash: LogHash::default(),
            predicates: PREDICATES.iter().filter(wanted).collect(),
            kept: keep.then(VecDeque::new),
        }
    }

    /// Adds a record.
    pub(crate) fn add(&mut self, t: Time, record: Record) {
        if self.violation.is_some() {
            return;
        }
        self.hash.add(t, &record);
        if let Some(kept) = &mut self.kept {
            if kept.len() == KEPT {
                kept.pop_front();
            }
            kept.push_back((t, record));
        }
        for predicate in &self.predicates {
            if let Err(why) = (predicate.check)(&self.ledger, t, &record) {
                let Predicate { name, text, .. } = **predicate;
                self.violation = Some(Violation { predicate: name, text, why, at: t });
                return;
            }
        }
        self.ledger.apply(t, &record);
    }

    /// The log's hash.
    pub(crate) fn hash(&self) -> u64 {
        self.hash.finish()
    }

    /// The last `count` records, a line each.
    pub(crate) fn last(&self, count: usize) -> Vec<String> {
        let Some(kept) = &self.kept else { return Vec::new() };
        let skip = kept.len().saturating_sub(count);
        kept.iter().skip(skip).map(|(t, record)| line(*t, record)).collect()
    }
}

fn line(t: Time, record: &Record) -> String {
    format!("{:6}.{:09} {record:?}", t / SECOND, t % SECOND)
}
