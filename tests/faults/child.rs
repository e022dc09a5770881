//! Programs in a process of their own: this test program again, told by its environment which part
//! to play. A process can be stopped, and what it does to its sockets can be done badly.

use crate::cc;
use crate::common::PATIENCE;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::LazyLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The environment's name for the part.
const PART: &str = "LOCKCLIENT_TEST_PART";

/// Before each line of a child's own: the test harness prints lines too.
const MARK: &str = "child: ";

/// A child process.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

/// What the shim is to do, in its own words (`ffi-tests/shim.c`).
pub(crate) type Shim<'a> = &'a [(&'a str, String)];

/// Starts a child that plays `part`, with arguments.
pub(crate) fn start(part: &str, arguments: &[String]) -> Process {
    launch(command(part, arguments))
}

/// The same, with sockets that do badly.
pub(crate) fn start_shimmed(part: &str, arguments: &[String], shim: Shim<'_>) -> Process {
    static SHIM: LazyLock<PathBuf> = LazyLock::new(|| {
        cc::program("shim.so", &["shim.c"], &["-std=gnu11", "-shared", "-fPIC", "-ldl"])
    });
    let mut command = command(part, arguments);
    command.env("LD_PRELOAD", &*SHIM);
    command.envs(shim.iter().map(|(name, value)| (*name, value)));
    launch(command)
}

fn command(part: &str, arguments: &[String]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "child::a_child_plays_its_part", "--nocapture", "--quiet"]);
    command.env(PART, part).env("LOCKCLIENT_TEST_ARGUMENTS", arguments.join(" "));
    command
}

fn launch(mut command: Command) -> Process {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("a child");
    let stdout = BufReader::new(child.stdout.take().expect("its output"));
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in stdout.lines().map_while(Result::ok) {
            // The harness may have left its own line unfinished.
            let Some((_, line)) = line.split_once(MARK) else { continue };
            if sender.send(line.to_owned()).is_err() {
                return;
            }
        }
    });
    let stdin = child.stdin.take();
    Process { child, stdin, lines }
}

impl Process {
    /// Its next line, which must come.
    #[track_caller]
    pub(crate) fn line(&self) -> String {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(error) => panic!("no line of the child's: {error}"),
        }
    }

    /// Its next line, which must be this one.
    #[track_caller]
    pub(crate) fn expect(&self, expected: &str) {
        assert_eq!(self.line(), expected);
    }

    /// All its lines until it ends.
    #[track_caller]
    pub(crate) fn rest(&self) -> Vec<String> {
        self.rest_within(PATIENCE)
    }

    /// All its lines until it ends, which may take so long.
    #[track_caller]
    pub(crate) fn rest_within(&self, time: Duration) -> Vec<String> {
        let end = Instant::now() + time;
        let mut lines = Vec::new();
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Disconnected) => return lines,
                Err(RecvTimeoutError::Timeout) => panic!("it does not end; so far: {lines:?}"),
            }
        }
    }

    /// Tells it a line.
    pub(crate) fn tell(&mut self, line: &str) {
        let mut pipe = self.stdin.as_ref().expect("its input");
        let line = format!("{line}\n");
        let count = pipe.write(line.as_bytes()).expect("it listens");
        assert_eq!(count, line.len(), "a short line fits into a pipe");
    }

    /// Stops every thread of it, and returns once they have stopped.
    pub(crate) fn freeze(&self) {
        self.signal("STOP");
        let start = Instant::now();
        let tasks = format!("/proc/{}/task", self.child.id());
        let stopped = |task: std::io::Result<std::fs::DirEntry>| {
            let stat = std::fs::read_to_string(task.expect("a task").path().join("stat"));
            // The state follows the name, which is in parentheses. A task that has just ended runs
            // no more either.
            stat.map_or(true, |stat| stat.rsplit(") ").next().is_some_and(|s| s.starts_with('T')))
        };
        while !std::fs::read_dir(&tasks).expect("its tasks").all(stopped) {
            assert!(start.elapsed() < PATIENCE, "it does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status().expect("kill");
        assert!(sent.success());
    }

    /// Waits for its end, which must be a good one.
    #[track_caller]
    pub(crate) fn finish(mut self) {
        drop(self.stdin.take());
        let rest = self.rest();
        let status = self.child.wait().expect("its end");
        assert!(status.success(), "{status}; its last lines: {rest:?}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // If it has ended there is nothing to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In a child: says a line.
pub(crate) fn say(line: &str) {
    println!("\n{MARK}{line}");
}

/// In a child: the next line that it is told.
pub(crate) fn hear() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("a line");
    line.trim_end().to_owned()
}

type Part = fn(&[String]);

/// What a child can be.
fn parts() -> HashMap<&'static str, Part> {
    HashMap::from([
        ("echo", echo as Part),
        ("send_badly", crate::tools::send_badly),
        ("send_batch", crate::batches::send_batch),
        ("work_badly", crate::batches::work_badly),
        ("acquire_once", crate::deadlines::acquire_once),
        ("fill_socket", crate::deadlines::fill_socket),
        ("stand_still", crate::deadlines::stand_still),
        ("leave_a_copy", crate::closing::leave_a_copy),
        ("tell_the_end", crate::leases::tell_the_end),
        ("soak", crate::soak::soak),
    ])
}

fn echo(arguments: &[String]) {
    say(&arguments.join(","));
    say(&hear());
}

/// In a child this plays the part. Elsewhere it shows that a child does.
#[test]
fn a_child_plays_its_part() {
    if let Ok(part) = std::env::var(PART) {
        let arguments = std::env::var("LOCKCLIENT_TEST_ARGUMENTS").expect("arguments");
        let arguments: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
        parts()[&*part](&arguments);
        // Before the harness says more.
        std::process::exit(0);
    }
    let mut child = start_shimmed("echo", &["a".into(), "b".into()], &[]);
    child.expect("a,b");
    child.tell("over");
    child.expect("over");
    child.finish();
}
