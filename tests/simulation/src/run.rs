//! One seed, from its beginning to its end, and what is told of it.

use crate::faults::Kind;
use crate::log::Violation;
use crate::plan::Plan;
use crate::record::Record;
use crate::world::{Orders, Outcomes, World};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How a run went.
#[derive(Debug, Clone)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// Calls made.
    pub acquires: u32,
    /// The hash of its log.
    pub hash: u64,
    /// What was wrong.
    pub violation: Option<Violation>,
    /// How its calls ended.
    pub outcomes: Outcomes,
    /// How often each kind of fault happened.
    pub happened: Vec<u64>,
    /// Each fault that happened, if they were kept.
    pub trail: Vec<(Kind, u32)>,
    /// The last records, if they were kept.
    pub last: Vec<String>,
}

/// Runs a seed. A panic anywhere in it is a violation too.
pub fn run(orders: &Orders) -> Report {
    let mut world = World::new(orders);
    let end = catch_unwind(AssertUnwindSafe(|| world.run()));
    // What comes after a violation is written to no log, and may not fit together any more.
    if let Err(panic) = end
        && world.log.violation.is_none()
    {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let at = world.time();
        world.log.add(at, Record::Panic);
        if let (Some(violation), Some(text)) = (&mut world.log.violation, text) {
            text.clone_into(&mut violation.why);
        }
    }
    let violation = world.log.violation.take();
    Report {
        seed: orders.seed,
        acquires: world.acquires(),
        hash: world.log.hash(),
        violation,
        outcomes: world.outcomes(),
        happened: world.faults().happened.to_vec(),
        trail: world.faults().trail.clone().unwrap_or_default(),
        last: world.log.last(80),
    }
}

/// Faults that are told one by one.
const TOLD: usize = 60;

/// Runs that a shrink may use up.
const TRIES: u32 = 400;

/// Leaves out faults as long as the same predicate is still broken.
pub fn shrink(orders: &Orders) -> (Orders, Report) {
    let mut best = Orders { keep: true, ..orders.clone() };
    let mut report = run(&best);
    let Some(predicate) = report.violation.as_ref().map(|violation| violation.predicate) else {
        return (best, report);
    };
    let mut tries = 0;
    let mut attempt = |best: &mut Orders, report: &mut Report, orders: Orders| {
        tries += 1;
        if tries > TRIES {
            return false;
        }
        let again = run(&orders);
        let same = again.violation.as_ref().is_some_and(|other| other.predicate == predicate);
        if same {
            (*best, *report) = (orders, again);
        }
        same
    };
    // A shorter run is easier to read; it ends sooner, and so its faults do.
    while best.acquires > 1 {
        let shorter = Orders { acquires: best.acquires / 2, ..best.clone() };
        if !attempt(&mut best, &mut report, shorter) {
            break;
        }
    }
    for kind in Kind::ALL {
        let mut skip = best.skip.clone();
        skip.kinds.push(*kind);
        let fewer = Orders { skip, ..best.clone() };
        attempt(&mut best, &mut report, fewer);
    }
    let mut size = report.trail.len().div_ceil(2);
    while size > 0 {
        let mut from = 0;
        while from < report.trail.len() {
            let to = report.trail.len().min(from + size);
            let mut skip = best.skip.clone();
            skip.single.extend_from_slice(&report.trail[from..to]);
            // What is left out makes room for the next.
            let fewer = Orders { skip, ..best.clone() };
            if !attempt(&mut best, &mut report, fewer) {
                from = to;
            }
        }
        size = if size == 1 { 0 } else { size.div_ceil(2) };
    }
    (best, report)
}

/// All that is known of a run that went wrong.
pub fn explain(asked: &Orders) -> String {
    let (orders, report) = shrink(asked);
    let mut text = String::new();
    let plan = Plan::new(orders.seed, orders.acquires);
    let _ = fmt::Write::write_fmt(&mut text, format_args!("{plan:#?}\n"));
    let mut say = |line: &str| {
        text.push_str(line);
        text.push('\n');
    };
    say("the last records:");
    for line in &report.last {
        say(line);
    }
    say("the faults that matter:");
    for (kind, number) in report.trail.iter().take(TOLD) {
        say(&format!("  {kind:?} number {number}: {}", kind.text()));
    }
    if report.trail.len() > TOLD {
        say(&format!("  and {} more", report.trail.len() - TOLD));
    }
    if report.trail.is_empty() {
        say("  none: it takes no fault");
    }
    if let Some(violation) = &report.violation {
        say(&format!("broken at {} ns: {}", violation.at, violation.predicate));
        say(&format!("  {}", violation.text));
        say(&format!("  {}", violation.why));
    }
    say(&format!("replay it with SEED={} ACQUIRES={}", asked.seed, asked.acquires));
    text
}
