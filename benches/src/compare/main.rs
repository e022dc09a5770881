//! Compares lockclient with the least that is possible and with a lock on Redis. Run it with
//! `benches/compare.sh`, which builds what it needs.

mod counted;
mod plan;
mod record;
mod svg;
mod table;

use clap::Parser;
use plan::{Contender, Placement, Programs, Scenario};
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use table::Cell;

/// Measures what acquiring and releasing a free lock costs, all contenders interleaved.
///
/// One pair is an acquire and a release: two round trips. Contenders take turns within every round,
/// so that noise hits all of them alike; ratios are to `raw` in the same round.
#[derive(Debug, Parser)]
#[command(name = "compare", max_term_width = 100)]
struct Arguments {
    /// A run of at most two minutes: 1 and 64 threads, fewer and shorter rounds
    #[arg(long)]
    quick: bool,
    /// Only these contenders (raw stays)
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    contenders: Option<Vec<Contender>>,
    /// Numbers of threads, each on a key of its own
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = threads)]
    threads: Option<Vec<usize>>,
    /// Only one placement
    #[arg(long)]
    placement: Option<Placement>,
    /// Leave out threads that share keys, and hand-over
    #[arg(long)]
    uncontended: bool,
    /// Rounds
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Length of one measurement
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// Do not count system calls
    #[arg(long)]
    no_syscalls: bool,
    /// Where to write every round's figures
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Where to draw what threads on keys of their own get
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Directory with the programs
    #[arg(long, value_name = "DIR")]
    programs: PathBuf,
    /// The server
    #[arg(long, value_name = "FILE")]
    lockd: PathBuf,
}

/// What is measured, and for how long.
struct Plan {
    contenders: Vec<Contender>,
    scenarios: Vec<Scenario>,
    rounds: usize,
    seconds: f64,
}

impl Arguments {
    fn plan(&self) -> Plan {
        let usual: &[usize] = if self.quick { &[1, 64] } else { &[1, 2, 8, 64, 256] };
        let threads = self.threads.clone().unwrap_or_else(|| usual.to_vec());
        let mut scenarios = Vec::new();
        for placement in [Placement::Pinned, Placement::Free] {
            if self.placement.is_some_and(|only| only != placement) {
                continue;
            }
            scenarios.extend(threads.iter().map(|&threads| Scenario::own(placement, threads)));
            if !self.uncontended {
                scenarios.extend([8, 1].map(|keys| Scenario::shared(placement, 64, keys)));
                scenarios.push(Scenario::hand_over(placement));
            }
        }
        let named = self.contenders.as_ref();
        let contenders = Contender::ALL
            .into_iter()
            .filter(|&one| one == Contender::Raw || named.is_none_or(|named| named.contains(&one)))
            .collect();
        let rounds = self.rounds.unwrap_or(if self.quick { 3 } else { 5 });
        let seconds = self.seconds.unwrap_or(if self.quick { 0.35 } else { 1.0 });
        Plan { contenders, scenarios, rounds, seconds }
    }
}

fn threads(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=1000).contains(number));
    number.ok_or_else(|| "from 1 to 1000".to_owned())
}

fn run(arguments: &Arguments) -> io::Result<()> {
    let plan = arguments.plan();
    let machine = record::Machine::now();
    let programs = Programs::new(&arguments.programs, &arguments.lockd);
    let mut cells: Vec<Cell> = Vec::new();
    for &scenario in &plan.scenarios {
        for &contender in plan.contenders.iter().filter(|one| one.takes_part(&scenario)) {
            cells.push(Cell::new(scenario, contender));
        }
    }
    let (begun, all) = (Instant::now(), cells.len() * plan.rounds);
    for round in 0..plan.rounds {
        for (number, cell) in cells.iter_mut().enumerate() {
            let done = round * all / plan.rounds + number;
            progress(done, all, begun.elapsed(), &cell.to_string());
            cell.found.push(programs.measure(cell.contender, &cell.scenario, plan.seconds)?);
        }
    }
    if !arguments.no_syscalls {
        let counter = counted::Counter::find();
        for cell in &mut cells {
            progress(all, all, begun.elapsed(), &format!("system calls of {cell}"));
            cell.syscalls = counter.count(&programs, cell.contender, &cell.scenario)?;
        }
    }
    progress_ends();
    println!("{}", machine.describe());
    table::print(&cells);
    if let Some(path) = &arguments.json {
        fs::write(path, record::json(&machine, &cells))?;
        println!("\nEvery round's figures: {}", path.display());
    }
    if let Some(path) = arguments.svg.as_ref() {
        fs::write(path, svg::draw(&cells))?;
        println!("Picture: {}", path.display());
    }
    Ok(())
}

/// On a terminal one line that changes, else a line now and then.
fn progress(done: usize, all: usize, elapsed: Duration, what: &str) {
    let mut stderr = io::stderr().lock();
    let text = format!("{done}/{all} after {} s: {what}", elapsed.as_secs());
    let _ = match stderr.is_terminal() {
        true => write!(stderr, "\r\x1b[K{text}").and_then(|()| stderr.flush()),
        false if done.is_multiple_of(20) && done < all => writeln!(stderr, "{text}"),
        false => Ok(()),
    };
}

/// Makes room for what is printed next.
fn progress_ends() {
    if io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            progress_ends();
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
