//! Programs to run, and programs that count.

use lockclient_load::{Extent, Load, Pinned, Server};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex, MutexGuard};
use std::{env, fs};

/// Names what is left out on a machine that does not permit it, separated by commas.
const SKIP: &str = "LOCKCLIENT_GATE_SKIP";

/// Whether the environment says to leave `what` out; says so where it is seen.
pub(crate) fn is_skipped(what: &str) -> bool {
    let skip = env::var(SKIP).unwrap_or_default();
    let skipped = skip.split(',').any(|word| word.trim() == what);
    if skipped {
        // Not with a macro: the test harness keeps what these print to itself.
        let _ = writeln!(std::io::stderr(), "NOT CHECKED: {what}, because {SKIP} says so");
    }
    skipped
}

/// Each at its time.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    // Another test that failed leaves nothing behind that could matter here.
    TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Where cargo puts what it builds with this program.
fn built() -> PathBuf {
    let this = env::current_exe().expect("this program");
    this.parent().expect("its directory").to_owned()
}

/// The load generator in Rust.
pub(crate) fn rust() -> PathBuf {
    env!("CARGO_BIN_EXE_load-rust").into()
}

/// The load generator in C, linked with the shared library that cargo has just built.
pub(crate) fn c() -> PathBuf {
    static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gate");
        fs::create_dir_all(&directory).expect("a directory");
        let library = built().join("liblockclient.so");
        let output = Command::new("make")
            .arg("--no-print-directory")
            .arg("-C")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("c"))
            .arg(format!("OUT={}", directory.display()))
            .arg(format!("LIBRARY={}", library.display()))
            .arg("lockclient")
            .env_remove("MAKEFLAGS")
            .output()
            .expect("make");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        directory.join("load-c")
    });
    PROGRAM.clone()
}

/// A server. How fast it is does not matter here: the one that was built last serves.
pub(crate) fn lockd() -> Server {
    let deps = built();
    let target = deps.ancestors().nth(2).expect("the target directory");
    let newest = ["debug", "release"]
        .map(|profile| target.join(profile).join("lockd"))
        .into_iter()
        .filter_map(|path| Some((fs::metadata(&path).ok()?.modified().ok()?, path)))
        .max();
    let (_, path) = newest.expect("there is no lockd yet: cargo build -p lockd makes one");
    Server::lockd(&path, &[]).expect("a server")
}

/// A program that counts, and its total for a whole run.
pub(crate) struct Counter {
    /// What [`SKIP`] calls it.
    pub(crate) what: &'static str,
    words: &'static [&'static str],
    total: fn(&str) -> Option<u64>,
}

#[cfg(not(debug_assertions))]
pub(crate) const INSTRUCTIONS: Counter = Counter {
    what: "instructions",
    words: &["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--fair-sched=try"],
    total: |text| {
        let line = text.lines().find(|line| line.contains("Collected :"))?;
        line.split_whitespace().last()?.parse().ok()
    },
};

pub(crate) const SYSCALLS: Counter = Counter {
    what: "syscalls",
    words: &["strace", "-f", "-c"],
    total: |text| {
        let line = text.lines().rfind(|line| line.ends_with(" total"))?;
        line.split_whitespace().nth(3)?.parse().ok()
    },
};

impl Counter {
    /// The count for each pair. Two runs of different lengths: what start and end cost is in both,
    /// and not in their difference.
    pub(crate) fn per_pair(&self, program: &Path, threads: usize, pairs: [u64; 2]) -> f64 {
        // On one processor: who runs when then varies least.
        let _pinned = Pinned::new().expect("a processor");
        let server = lockd();
        let [short, long] = pairs.map(|measured| {
            let extent = Extent::Pairs { warm_up: 10, measured, windows: 1 };
            // One thread pauses, so that the background thread sleeps before every request: whether
            // it already does would else depend on who runs first.
            let hold_us = if threads == 1 { 1000 } else { 0 };
            let load = Load { threads, keys: 0, hold_us, extent };
            let mut command = load.command(self.words, program, &server);
            let output = command.output().unwrap_or_else(|error| {
                panic!("{}: {error}; {} leaves this out", self.words[0], self.way_out())
            });
            let text = String::from_utf8_lossy(&output.stderr);
            (self.total)(&text).filter(|_| output.status.success()).unwrap_or_else(|| {
                panic!(
                    "{command:?} cannot count here ({}); where the machine does not permit it, {} \
                     leaves this out:\n{text}",
                    output.status,
                    self.way_out()
                )
            })
        });
        // With 64 threads each number is rounded up to a multiple of 64.
        let done = pairs.map(|pairs| pairs.next_multiple_of(threads as u64));
        (long as f64 - short as f64) / (done[1] - done[0]) as f64
    }

    fn way_out(&self) -> String {
        format!("{SKIP}={}", self.what)
    }
}

/// Fails if a count is above its bound, and says what it was in any case.
pub(crate) fn check(what: &str, program: &Path, threads: usize, counted: f64, bound: f64) {
    let name = program.file_name().expect("a program").to_string_lossy();
    let text = format!("{what} of a pair, {name} with {threads} thread(s): {counted:.2}");
    let _ = writeln!(std::io::stderr(), "{text} (bound {bound})");
    assert!(counted <= bound, "{text}, more than the bound of {bound} in tests/gate/bounds.rs");
}
