//! The `lockd` program, run as a child process.

use super::LONG;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A running `lockd`; it is killed when this is dropped.
pub(crate) struct Lockd {
    pub(crate) child: Child,
    pub(crate) stdout: Option<BufReader<ChildStdout>>,
    pub(crate) address: SocketAddr,
}

impl Lockd {
    /// The program on a free port, its standard output piped.
    pub(crate) fn command(arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockd"));
        command.args(["--listen", "127.0.0.1:0"]).args(arguments).stdout(Stdio::piped());
        command
    }

    /// Starts it and waits until it listens.
    pub(crate) fn start(arguments: &[&str]) -> Lockd {
        Lockd::of(Lockd::command(arguments).stderr(Stdio::null()).spawn().expect("lockd"))
    }

    /// Waits until the program, whose standard output is piped, listens.
    pub(crate) fn of(mut child: Child) -> Lockd {
        let mut stdout = BufReader::new(child.stdout.take().expect("stdout"));
        let address = listening_line(&mut stdout);
        Lockd { child, stdout: Some(stdout), address }
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status().expect("kill");
        assert!(sent.success());
    }

    /// Stops it where it stands.
    pub(crate) fn freeze(&self) {
        self.signal("STOP");
        self.expect_frozen();
    }

    /// Returns once every thread of it has stopped.
    pub(crate) fn expect_frozen(&self) {
        let end = Instant::now() + LONG;
        let tasks = format!("/proc/{}/task", self.child.id());
        let stopped = |task: std::io::Result<std::fs::DirEntry>| {
            let stat = std::fs::read_to_string(task.expect("task").path().join("stat"));
            // The state follows the name, which is in parentheses.
            stat.expect("stat").rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
        };
        while !std::fs::read_dir(&tasks).expect("tasks").all(stopped) {
            assert!(Instant::now() < end, "it does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until it has ended.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let end = Instant::now() + LONG;
        loop {
            if let Some(status) = self.child.try_wait().expect("wait") {
                return status;
            }
            assert!(Instant::now() < end, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Lockd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A pipe that takes nothing more.
pub(crate) fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    rustix::io::ioctl_fionbio(&writer, true).expect("non-blocking");
    while writer.write(&[b'x'; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).expect("blocking");
    (reader, writer)
}

/// Reads the line that says where it listens.
pub(crate) fn listening_line(stdout: &mut impl BufRead) -> SocketAddr {
    let mut line = String::new();
    stdout.read_line(&mut line).expect("a line");
    let address = line.strip_prefix("listening on ").expect("a listening line");
    address.trim_end().parse().expect("an address")
}
