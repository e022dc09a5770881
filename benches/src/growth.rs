//! What acquires in flight cost one thread, as their number grows from 1 to 100,000. Run it with
//! `benches/growth.sh`, which builds what it needs.

use clap::Parser;
use lockclient_load::Server;
use serde_json::Value;
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

/// Locks that the acquires wait for.
const KEYS: u64 = 100;

/// Measures what acquires in flight cost as their number grows, each number in a process of its
/// own: until all are sent, in memory, and until all were granted and given back.
#[derive(Debug, Parser)]
#[command(name = "growth", max_term_width = 100)]
struct Arguments {
    /// Numbers of acquires in flight
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "N",
        default_values_t = [1, 10, 100, 1_000, 10_000, 100_000]
    )]
    tickets: Vec<u64>,
    /// Runs of each number; the medians are printed
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: usize,
    /// Directory with the programs
    #[arg(long, value_name = "DIR")]
    programs: PathBuf,
    /// The server
    #[arg(long, value_name = "FILE")]
    lockd: PathBuf,
}

fn run_once(arguments: &Arguments, tickets: u64) -> io::Result<Value> {
    let room = (2 * tickets).max(1000).to_string();
    let options = ["--max-waiters", "--max-waiters-per-key", "--max-waiters-per-connection"];
    let options: Vec<&str> = options.iter().flat_map(|name| [*name, room.as_str()]).collect();
    let server = Server::lockd(&arguments.lockd, &options)?;
    let mut command = Command::new(arguments.programs.join("growth-c"));
    command.arg(server.address().to_string()).arg(tickets.to_string()).arg(KEYS.to_string());
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!("{command:?}: {}", output.status)));
    }
    serde_json::from_slice(&output.stdout).map_err(io::Error::other)
}

fn run(arguments: &Arguments) -> io::Result<()> {
    println!("Acquires in flight from one thread, for {KEYS} locks that another client holds.");
    println!("For each acquire, medians of {} runs; processor time is", arguments.rounds);
    println!("of the client's whole process.\n");
    println!(
        "{:>9}{:>12}{:>14}{:>15}{:>9}{:>16}{:>15}",
        "tickets", "start, ns", "longest, us", "sent, cpu ns", "bytes", "given back, ns", "cpu ns"
    );
    for &tickets in &arguments.tickets {
        let mut rounds = Vec::new();
        for _ in 0..arguments.rounds.max(1) {
            rounds.push(run_once(arguments, tickets)?);
        }
        let median = |name: &str| {
            let mut all: Vec<u64> = rounds.iter().filter_map(|run| run[name].as_u64()).collect();
            all.sort_unstable();
            all[all.len() / 2]
        };
        let each = |name: &str| median(name) / tickets;
        println!(
            "{tickets:>9}{:>12}{:>14.1}{:>15}{:>9}{:>16}{:>15}",
            each("start_ns"),
            median("longest_start_ns") as f64 / 1000.0,
            each("in_flight_cpu_ns"),
            each("bytes"),
            each("taken_ns"),
            each("taken_cpu_ns"),
        );
    }
    Ok(())
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
