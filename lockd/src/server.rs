//! A running server.

use crate::admin::{Admin, Bound};
use crate::config::Config;
use crate::core::{Core, Held, Limits};
use crate::net::{self, Address, Command, EventLoop, Listener, Setup};
use crate::state::State;
use crate::stats::Stats;
use mio::Waker;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a question to the loop may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// A server that runs on a thread of its own in this process.
///
/// Dropping it stops it and waits for its thread.
#[derive(Debug)]
pub struct Server {
    listening: Vec<Address>,
    addresses: Vec<SocketAddr>,
    handle: Handle,
    thread: Option<JoinHandle<io::Result<()>>>,
    metrics: Option<SocketAddr>,
    admin: Vec<Admin>,
}

/// Tells a server something from another thread.
#[derive(Debug, Clone)]
pub struct Handle {
    commands: Sender<Command>,
    waker: Arc<Waker>,
    config: Arc<Config>,
}

impl Handle {
    /// Asks the server to stop: it closes its listeners, sends the answers that are decided, and
    /// closes its connections, within a second. Does not wait for it.
    pub fn stop(&self) {
        self.send(Command::Stop);
    }

    /// Reads the secret files again. From then on the secrets that they hold now are accepted and
    /// no others; connections that are served already stay so. Returns how many there are.
    ///
    /// # Errors
    /// A file that cannot be read or does not hold a secret: then everything stays as it was.
    pub fn reload_secrets(&self) -> io::Result<usize> {
        let secrets = self.config.all_secrets()?;
        let count = secrets.len();
        self.send(Command::Secrets(secrets));
        Ok(count)
    }

    /// The numbers, unless the server has stopped or does not answer within a second.
    pub(crate) fn stats(&self) -> Option<Stats> {
        let (reply, receiver) = channel();
        self.send(Command::Stats(reply));
        receiver.recv_timeout(PATIENCE).ok()
    }

    /// A piece of the list of locks, and where the next begins.
    pub(crate) fn inspect(
        &self,
        prefix: &str,
        from: u32,
        limit: usize,
    ) -> Option<(Vec<Held>, Option<u32>)> {
        let (reply, receiver) = channel();
        self.send(Command::Inspect { prefix: prefix.into(), from, limit, reply });
        receiver.recv_timeout(PATIENCE).ok()
    }

    fn send(&self, command: Command) {
        // A server that has stopped needs no telling; one that cannot be woken looks within 5 s.
        if self.commands.send(command).is_ok() {
            let _ = self.waker.wake();
        }
    }
}

impl Server {
    /// Binds every address and starts to serve.
    ///
    /// # Errors
    /// An address that cannot be bound, a limit out of range, a bad secret file, or a resource
    /// that the operating system does not give. The message says which.
    pub fn start(config: Config) -> io::Result<Server> {
        let limits = config.limits()?;
        let secrets = config.all_secrets()?;
        let core = make_core(&config, limits)?;
        let mut listeners = Vec::new();
        for name in &config.listen {
            listeners.extend(Listener::bind(name)?);
        }
        if listeners.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no address to listen on"));
        }
        let metrics = config.metrics_listen.as_deref().map(Bound::metrics).transpose()?;
        let metrics_address = metrics.as_ref().and_then(Bound::address);
        let admin = config.admin_socket.as_deref().map(Bound::admin).transpose()?;
        let listening: Vec<Address> =
            listeners.iter().map(|listener| listener.address().clone()).collect();
        let tcp = |address: &Address| match address {
            Address::Tcp(address) => Some(*address),
            Address::Unix(_) => None,
        };
        let addresses = listening.iter().filter_map(tcp).collect();
        let (commands, receiver) = channel();
        let (event_loop, waker) = EventLoop::new(Setup {
            listeners,
            core,
            secrets,
            max_connections: config.max_connections,
            max_waiters_per_connection: config.max_waiters_per_connection,
            idle_timeout: config.idle_timeout,
            commands: receiver,
        })?;
        let thread =
            std::thread::Builder::new().name("lockd".into()).spawn(move || event_loop.run())?;
        let handle = Handle { commands, waker, config: Arc::new(config) };
        let mut server = Server {
            listening,
            addresses,
            handle,
            thread: Some(thread),
            metrics: metrics_address,
            admin: Vec::new(),
        };
        for bound in [metrics, admin].into_iter().flatten() {
            server.admin.push(bound.serve(server.handle.clone())?);
        }
        Ok(server)
    }

    /// Where its numbers are served, if they are.
    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// The first TCP address that it listens on, with the port that was chosen.
    ///
    /// # Panics
    /// If it listens on none.
    pub fn addr(&self) -> SocketAddr {
        *self.addresses.first().expect("a TCP address to listen on was configured")
    }

    /// Every TCP address that it listens on.
    pub fn addrs(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Everything that it listens on.
    pub fn listening(&self) -> &[Address] {
        &self.listening
    }

    /// The numbers after the turn in which it was asked. All zero if the server has stopped.
    pub fn stats(&self) -> Stats {
        let (reply, receiver) = channel();
        self.handle.send(Command::Stats(reply));
        receiver.recv().unwrap_or_default()
    }

    /// A handle for other threads.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Stops it and waits until it has stopped.
    ///
    /// # Errors
    /// What ended it before it was told to stop.
    pub fn stop(self) -> io::Result<()> {
        self.handle.stop();
        self.wait()
    }

    /// Waits until it has stopped.
    ///
    /// # Errors
    /// What ended it, unless it was told to stop.
    pub fn wait(mut self) -> io::Result<()> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(io::Error::other("the server's thread panicked")),
            None => Ok(()),
        }
    }
}

/// The table, with what earlier runs left behind.
fn make_core(config: &Config, limits: Limits) -> io::Result<Core> {
    let mut quarantine = config.quarantine;
    let mut core = match &config.state_dir {
        Some(path) => {
            let (state, past) = State::open(path, config.first_token)?;
            match past.stopped {
                None => tracing::info!(first_token = past.first_token, "new state directory"),
                Some(clean) => tracing::info!(
                    clean_stop = clean,
                    first_token = past.first_token,
                    quarantine_seconds = past.quarantine.as_secs_f64(),
                    "state read"
                ),
            }
            quarantine = quarantine.max(past.quarantine);
            Core::with_journal(limits, past.first_token, Box::new(state))
        }
        None => {
            tracing::warn!(
                "no state directory: tokens begin at {} again, so a token of before this start \
                 may equal a new one; a resource that compares tokens cannot tell their holders \
                 apart",
                config.first_token
            );
            Core::new(limits, config.first_token, u64::MAX)
        }
    };
    if !quarantine.is_zero() {
        tracing::info!(seconds = quarantine.as_secs_f64(), "in quarantine: nothing is granted yet");
        core.quarantine(net::now().after(quarantine));
    }
    Ok(core)
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.handle.stop();
            // Its result has nowhere to go; a panic has been reported where it happened.
            let _ = thread.join();
        }
    }
}
