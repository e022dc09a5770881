//! System calls of the client, counted in runs of their own: counting slows what it counts.

use crate::plan::{Contender, Programs, Scenario};
use lockclient_load::Extent;
use std::io;
use std::process::{Command, Stdio};

/// Two lengths of run: what start and end cost is in both, and not in the difference.
const SHORT: u64 = 2_000;
const LONG: u64 = 6_000;

/// Who counts.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Counter {
    /// A counter in the kernel, which hardly disturbs.
    Perf,
    /// Stops the program at every call. Exact too, but threads meet in another rhythm.
    Strace,
    /// Neither is here, or neither is permitted.
    None,
}

const PERF: [&str; 6] = ["perf", "stat", "-x,", "-e", "raw_syscalls:sys_enter", "--"];
const STRACE: [&str; 4] = ["strace", "-f", "-c", "--"];

impl Counter {
    pub(crate) fn find() -> Counter {
        for counter in [Counter::Perf, Counter::Strace] {
            let mut command = Command::new(counter.words()[0]);
            command.args(&counter.words()[1..]).arg("true").stdin(Stdio::null());
            if command.output().is_ok_and(|output| counter.read(&output.stderr).is_some()) {
                return counter;
            }
        }
        Counter::None
    }

    fn words(self) -> &'static [&'static str] {
        match self {
            Counter::Perf => &PERF,
            Counter::Strace => &STRACE,
            Counter::None => &[],
        }
    }

    /// The total in its output.
    fn read(self, stderr: &[u8]) -> Option<u64> {
        let text = String::from_utf8_lossy(stderr);
        match self {
            Counter::Perf => {
                let line = text.lines().find(|line| line.contains("sys_enter"))?;
                line.split(',').next()?.parse().ok()
            }
            Counter::Strace => {
                let line = text.lines().rev().find(|line| line.ends_with(" total"))?;
                line.split_whitespace().nth(3)?.parse().ok()
            }
            Counter::None => None,
        }
    }

    /// System calls for each pair, if they can be counted.
    pub(crate) fn count(
        self,
        programs: &Programs,
        contender: Contender,
        scenario: &Scenario,
    ) -> io::Result<Option<f64>> {
        if matches!(self, Counter::None) || scenario.hold_us > 0 {
            return Ok(None);
        }
        let _pinned = scenario.pinned()?;
        let run = |pairs: u64| {
            let extent = Extent::Pairs { warm_up: 20, measured: pairs, windows: 1 };
            let load = scenario.load(contender, extent);
            let server = programs.server(contender, &load)?;
            let program = programs.load(contender);
            let output = load.command(self.words(), &program, &server).output()?;
            self.read(&output.stderr).filter(|_| output.status.success()).ok_or_else(|| {
                io::Error::other(format!(
                    "{:?}: {}",
                    program,
                    String::from_utf8_lossy(&output.stderr)
                ))
            })
        };
        let (short, long) = (run(SHORT)?, run(LONG)?);
        Ok(Some(long.saturating_sub(short) as f64 / (LONG - SHORT) as f64))
    }
}
