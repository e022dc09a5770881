//! Servers as processes of their own, on free ports.

use std::io::{self, BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(10);

/// A running server. Ended when dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    /// `lockd`, which takes a free port by itself.
    ///
    /// # Errors
    /// It does not start.
    pub fn lockd(program: &Path, arguments: &[&str]) -> io::Result<Server> {
        let mut command = Command::new(program);
        command.args(["--listen", "127.0.0.1:0", "--log", "error"]).args(arguments);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("LOCKD_")) {
            command.env_remove(name);
        }
        Server::announced(command)
    }

    /// The echo server of `c/echo.c`, for so many connections.
    ///
    /// # Errors
    /// It does not start.
    pub fn echo(program: &Path, connections: usize) -> io::Result<Server> {
        let mut command = Command::new(program);
        command.arg(connections.to_string());
        Server::announced(command)
    }

    /// Redis, without persistence. It cannot take a free port by itself.
    ///
    /// # Errors
    /// It does not start.
    pub fn redis(program: &Path) -> io::Result<Server> {
        let mut last = io::Error::other("not tried");
        for _ in 0..5 {
            // Free just now. Should another take it, Redis ends, and the next try has another.
            let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
            let child = Command::new(program)
                .args(["--bind", "127.0.0.1", "--port", &address.port().to_string()])
                .args(["--save", "", "--appendonly", "no", "--loglevel", "warning"])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn()?;
            let mut server = Server { child, address };
            match server.accepts() {
                Ok(()) => return Ok(server),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// A server that says where it listens.
    fn announced(mut command: Command) -> io::Result<Server> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        // A server that fails ends, and its output with it.
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line)?;
        let address = line.trim_end().strip_prefix("listening on ").and_then(|at| at.parse().ok());
        match address {
            Some(address) => Ok(Server { child, address }),
            None => {
                let _ = child.kill();
                child.wait()?;
                Err(io::Error::other(format!("{command:?} does not listen: {line:?}")))
            }
        }
    }

    fn accepts(&mut self) -> io::Result<()> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Err(io::Error::other(format!("the server ended: {status}")));
            }
            match TcpStream::connect(self.address) {
                Ok(_) => return Ok(()),
                Err(error) if begun.elapsed() > PATIENCE => return Err(error),
                Err(_) => thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
