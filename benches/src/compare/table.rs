//! The figures, as a table.

use crate::plan::{Contender, Scenario};
use lockclient_load::Found;
use std::fmt;

/// A contender in a scenario: one figure of each kind for each round.
pub(crate) struct Cell {
    pub(crate) scenario: Scenario,
    pub(crate) contender: Contender,
    pub(crate) found: Vec<Found>,
    pub(crate) syscalls: Option<f64>,
}

impl Cell {
    pub(crate) fn new(scenario: Scenario, contender: Contender) -> Cell {
        Cell { scenario, contender, found: Vec::new(), syscalls: None }
    }

    /// The median, least and most over the rounds.
    pub(crate) fn over_rounds(&self, figure: impl Fn(&Found) -> f64) -> Spread {
        Spread::of(self.found.iter().map(figure).collect())
    }

    /// The same of ratios to another's figure in the same round.
    pub(crate) fn ratio(&self, to: &Cell, figure: impl Fn(&Found) -> f64) -> Spread {
        let pairs = self.found.iter().zip(&to.found);
        Spread::of(pairs.map(|(mine, its)| figure(mine) / figure(its)).collect())
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.scenario, self.contender.name())
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    fn of(mut all: Vec<f64>) -> Spread {
        all.sort_by(f64::total_cmp);
        let middle = all.len() / 2;
        let median = match all.len() % 2 {
            0 => (all[middle - 1] + all[middle]) / 2.0,
            _ => all[middle],
        };
        Spread { median, least: all[0], most: all[all.len() - 1] }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{:.2} ({:.2}-{:.2})", self.median, self.least, self.most);
        f.pad(&text)
    }
}

pub(crate) fn rate(found: &Found) -> f64 {
    found.pairs as f64 / found.seconds
}

pub(crate) fn per_pair(count: u64, found: &Found) -> f64 {
    count as f64 / found.pairs as f64
}

/// Both sides' processor time for a pair, in nanoseconds.
pub(crate) fn processor(found: &Found) -> f64 {
    per_pair(found.client_cpu_ns + found.server_cpu_ns, found)
}

pub(crate) fn print(cells: &[Cell]) {
    println!("Medians over the rounds. p50, p99, p99.9 and processor time: microseconds a pair.");
    println!("Ratios are to raw in the same round: median (least-most).");
    for group in cells.chunk_by(|one, next| one.scenario == next.scenario) {
        let raw = group.iter().find(|cell| cell.contender == Contender::Raw);
        println!("\n{}", group[0].scenario);
        if group[0].scenario.hold_us > 0 {
            hand_over(group, raw);
            continue;
        }
        println!(
            "  {:<18}{:>9}{:>9}{:>9}{:>10}{:>8}{:>8}{:>9}{:>9}{:>21}{:>21}{:>21}",
            "",
            "p50",
            "p99",
            "p99.9",
            "pairs/s",
            "client",
            "server",
            "switches",
            "syscalls",
            "p50 ratio",
            "pairs/s ratio",
            "processor ratio",
        );
        for cell in group {
            let us = |figure: &dyn Fn(&Found) -> f64| cell.over_rounds(figure).median / 1000.0;
            print!(
                "  {:<18}{:>9.1}{:>9.1}{:>9.1}{:>10.0}{:>8.2}{:>8.2}{:>9.2}{:>9}",
                cell.contender.name(),
                us(&|found| found.p50_ns as f64),
                us(&|found| found.p99_ns as f64),
                us(&|found| found.p999_ns as f64),
                cell.over_rounds(rate).median,
                us(&|found| per_pair(found.client_cpu_ns, found)),
                us(&|found| per_pair(found.server_cpu_ns, found)),
                cell.over_rounds(|found| per_pair(found.client_switches, found)).median,
                cell.syscalls.map_or("-".to_owned(), |count| format!("{count:.2}")),
            );
            match raw {
                Some(raw) if cell.contender != Contender::Raw => println!(
                    "{:>21}{:>21}{:>21}",
                    cell.ratio(raw, |found| found.p50_ns as f64),
                    cell.ratio(raw, rate),
                    cell.ratio(raw, processor),
                ),
                _ => println!(),
            }
        }
    }
}

/// From the holder's call of release to the return of the one who waits: at the least the way of
/// the release to the server and the way of the grant back, which is one round trip.
fn hand_over(group: &[Cell], raw: Option<&Cell>) {
    let Some(raw) = raw else { return };
    let round_trip = |found: &Found| found.p50_ns as f64 / 2.0;
    println!("  {:<18}{:>9}{:>9}{:>21}", "", "p50", "p99", "p50 ratio");
    println!(
        "  {:<18}{:>9.1}{:>9.1}",
        "raw round trip",
        raw.over_rounds(round_trip).median / 1000.0,
        raw.over_rounds(|found| found.p99_ns as f64 / 2.0).median / 1000.0,
    );
    for cell in group.iter().filter(|cell| cell.contender != Contender::Raw) {
        let pairs = cell.found.iter().zip(&raw.found);
        let ratios = pairs.map(|(mine, raw)| mine.hand_over_p50_ns as f64 / round_trip(raw));
        println!(
            "  {:<18}{:>9.1}{:>9.1}{:>21}",
            cell.contender.name(),
            cell.over_rounds(|found| found.hand_over_p50_ns as f64).median / 1000.0,
            cell.over_rounds(|found| found.hand_over_p99_ns as f64).median / 1000.0,
            Spread::of(ratios.collect()),
        );
    }
}
