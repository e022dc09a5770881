//! The loop: one thread that owns every socket and the lock table.
//!
//! A turn reads first, ends of stream included, then looks at the timers, and sends last. So
//! a connection's end is known before anything is granted to it, as far as it can be, and a
//! turn's answers to one connection leave in one send.

use super::clock::{self, Alarm};
use super::connection::{Connection, Life, Peer};
use super::listener::Listener;
use super::notice::Notices;
use super::outputs::Outputs;
use super::penalties::Penalties;
use crate::core::{ConnectionId, Core, Deadlines, Held, NEVER, Refusals, Slots, Time, Turn};
use crate::secrets::Secret;
use crate::session::Session;
use crate::stats::Stats;
use lockclient::wire::{Key, MAX_FRAME};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use rustix::io::Errno;
use socket2::Socket;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

/// What one read takes at most.
pub(super) const READ: usize = 4096;
/// Timers are looked at this often at least, whatever happened to the alarm.
const SWEEP: Duration = Duration::from_secs(5);
/// Connections that one listener may accept before others have their turn.
const ACCEPTS: usize = 64;
/// How long to leave a listener alone when there is no descriptor for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long answers may still take to leave when the server stops.
const STOP: Duration = Duration::from_millis(500);
const STOP_POLL: Duration = Duration::from_millis(10);
const EVENTS: usize = 1024;
/// Places of the table that are looked at for one who asks, before serving goes on.
const PIECE: u32 = 4096;

const WAKE: Token = Token(usize::MAX);
const ALARM: Token = Token(usize::MAX - 1);
const LISTENERS: usize = usize::MAX / 2;

/// What other threads may ask of the loop.
#[derive(Debug)]
pub(crate) enum Command {
    /// Accept these secrets from now on, and no others. Connections that are served stay so.
    Secrets(Vec<Secret>),
    /// Send the numbers.
    Stats(Sender<Stats>),
    /// Send the locks whose key begins with `prefix`, at most `limit`, of a piece of the table
    /// that begins at `from`; and where the next piece begins.
    Inspect { prefix: String, from: u32, limit: usize, reply: Sender<(Vec<Held>, Option<u32>)> },
    /// End.
    Stop,
}

/// What a loop is made of.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) listeners: Vec<Listener>,
    pub(crate) core: Core,
    pub(crate) secrets: Vec<Secret>,
    pub(crate) max_connections: usize,
    pub(crate) max_waiters_per_connection: usize,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) commands: Receiver<Command>,
}

#[derive(Debug)]
struct Accepting {
    listener: Listener,
    /// Whether there may be a connection to accept.
    ready: bool,
}

#[derive(Debug)]
pub(crate) struct EventLoop {
    poll: Poll,
    events: Events,
    alarm: Alarm,
    commands: Receiver<Command>,
    listeners: Vec<Accepting>,
    accept_after: Time,
    /// When the timers are looked at though none is due.
    sweep_at: Time,
    max_connections: usize,
    idle_timeout: Option<Duration>,
    serials: u64,
    pub(super) stopping: bool,
    pub(super) connections: Vec<Option<Connection>>,
    free: Vec<u32>,
    pub(super) deadlines: Deadlines,
    /// For each connection's number what [`Slots`] says.
    earliest: Earliest,
    pub(super) core: Core,
    pub(super) outputs: Outputs,
    pub(super) secrets: Vec<Secret>,
    /// Connections to read from in the next turn, each once.
    pub(super) ready: Vec<u32>,
    /// An empty list, exchanged for another so that neither is allocated again.
    pub(super) spare: Vec<u32>,
    pub(super) undone: Vec<(u64, Key)>,
    pub(super) buffer: Box<[u8; READ]>,
    pub(super) output_bound: usize,
    /// This turn's moments, or the last one's.
    pub(super) turn: Turn,
    pub(super) stats: Stats,
    pub(super) notices: Notices,
    pub(super) penalties: Penalties,
    /// What was last said about admission, and what had been refused then.
    admitting: bool,
    refusals: Refusals,
}

/// By the connections' numbers, also those that are not in use.
#[derive(Debug, Default)]
struct Earliest(Vec<Time>);

impl Slots for Earliest {
    fn earliest(&mut self, slot: u32) -> &mut Time {
        &mut self.0[slot as usize]
    }

    fn count(&self) -> usize {
        self.0.len()
    }
}

impl EventLoop {
    pub(crate) fn new(setup: Setup) -> io::Result<(EventLoop, Arc<Waker>)> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKE)?);
        let alarm = Alarm::new(poll.registry(), ALARM)?;
        let mut listeners = Vec::new();
        for (number, mut listener) in setup.listeners.into_iter().enumerate() {
            listener.register(poll.registry(), Token(LISTENERS + number))?;
            listeners.push(Accepting { listener, ready: false });
        }
        let this = EventLoop {
            poll,
            events: Events::with_capacity(EVENTS),
            alarm,
            commands: setup.commands,
            listeners,
            accept_after: Time::default(),
            sweep_at: Time::default(),
            max_connections: setup.max_connections,
            idle_timeout: setup.idle_timeout,
            serials: 0,
            stopping: false,
            connections: Vec::new(),
            free: Vec::new(),
            deadlines: Deadlines::default(),
            earliest: Earliest::default(),
            core: setup.core,
            outputs: Outputs::default(),
            secrets: setup.secrets,
            ready: Vec::new(),
            spare: Vec::new(),
            undone: Vec::new(),
            buffer: Box::new([0; READ]),
            output_bound: setup.max_waiters_per_connection.saturating_mul(MAX_FRAME),
            turn: Turn::begin(clock::now()),
            stats: Stats::default(),
            notices: Notices::default(),
            penalties: Penalties::new(setup.max_connections),
            admitting: true,
            refusals: Refusals::default(),
        };
        Ok((this, waker))
    }

    /// Runs until it is told to stop.
    pub(crate) fn run(mut self) -> io::Result<()> {
        while !self.stopping {
            self.turn()?;
        }
        self.listeners.clear();
        self.let_all_go();
        let end = clock::now().after(STOP);
        // Once more at least: what has arrived by now is answered.
        loop {
            self.turn()?;
            let done = self.ready.is_empty() && !self.has_pending_answers();
            if done || self.turn.now() >= end {
                break;
            }
        }
        for connection in self.connections.iter().flatten() {
            // The peer reads what is on its way, then the end. That it may have gone is no matter.
            let _ = connection.socket.shutdown(std::net::Shutdown::Write);
        }
        self.core.stop(clock::now())
    }

    fn turn(&mut self) -> io::Result<()> {
        let accepting = self.accept_after <= self.turn.now()
            && self.listeners.iter().any(|accepting| accepting.ready);
        let busy = accepting || !self.ready.is_empty();
        let timeout = if busy {
            Some(Duration::ZERO)
        } else if self.stopping {
            Some(STOP_POLL)
        } else {
            None
        };
        let mut woken = self.take_all(timeout)?;
        let looked = clock::now();
        if self.core.next_deadline().is_some_and(|deadline| deadline <= looked) {
            // This process may have stood still since. Whoever ended before the moment up to which
            // timers are looked at has to be seen first.
            woken |= self.take_all(Some(Duration::ZERO))?;
        }
        self.turn = Turn::begin(looked);
        self.accept_all();
        self.read_all();
        self.core.advance_in(self.turn, &mut self.outputs);
        self.end_overdue();
        self.write_all();
        self.say_limits();
        if woken {
            self.obey();
        }
        if self.sweep_at <= self.turn.now() {
            self.sweep_at = self.turn.now().after(SWEEP);
        }
        let wanted = [self.core.next_deadline(), self.deadlines.next(), self.accept_again()];
        let next = wanted.into_iter().flatten().fold(self.sweep_at, Time::min);
        self.alarm.set(next)
    }

    /// Takes everything that is ready, however much it is; the number of connections bounds how
    /// often one poll can be full. Returns whether another thread wants something.
    fn take_all(&mut self, mut timeout: Option<Duration>) -> io::Result<bool> {
        let mut woken = false;
        for _ in 0..=self.connections.len() / EVENTS + 1 {
            self.wait(timeout)?;
            woken |= self.take_events();
            if self.events.iter().count() < EVENTS {
                break;
            }
            timeout = Some(Duration::ZERO);
        }
        Ok(woken)
    }

    /// Waits until something is ready.
    fn wait(&mut self, mut timeout: Option<Duration>) -> io::Result<()> {
        loop {
            match self.poll.poll(&mut self.events, timeout) {
                // A process that was stopped and goes on comes by here, with its leases over and
                // its peers gone. It has to see the peers first: timers before them would grant
                // locks to the dead.
                Err(error) if error.kind() == ErrorKind::Interrupted => {
                    timeout = Some(Duration::ZERO);
                }
                result => return result,
            }
        }
    }

    /// Takes note of what is ready. Returns whether another thread wants something.
    fn take_events(&mut self) -> bool {
        let mut woken = false;
        for event in &self.events {
            match event.token() {
                WAKE => woken = true,
                ALARM => self.alarm.went_off(),
                Token(number) if number >= LISTENERS => {
                    if let Some(accepting) = self.listeners.get_mut(number - LISTENERS) {
                        accepting.ready = true;
                    }
                }
                Token(number) => {
                    let Some(Some(connection)) = self.connections.get_mut(number) else { continue };
                    if event.is_read_closed() || event.is_error() {
                        connection.ending = true;
                    }
                    if event.is_readable() || connection.ending {
                        connection.readable = true;
                        if connection.wants_read() && !connection.queued {
                            connection.queued = true;
                            self.ready.push(number as u32);
                        }
                    }
                    if event.is_writable() && !connection.writable {
                        connection.writable = true;
                        self.outputs.queue(number as u32);
                    }
                }
            }
        }
        woken
    }

    fn accept_all(&mut self) {
        if self.accept_after > self.turn.now() {
            return;
        }
        for number in 0..self.listeners.len() {
            let mut accepted = 0;
            while self.listeners[number].ready && accepted < ACCEPTS {
                accepted += 1;
                match self.listeners[number].listener.accept() {
                    Ok((socket, peer)) => self.open(socket, peer),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        self.listeners[number].ready = false;
                    }
                    Err(error) if is_shortage(&error) => {
                        if let Some(unsaid) = self.notices.shortage.due(self.turn.now()) {
                            tracing::warn!(%error, unsaid, "cannot accept; trying again soon");
                        }
                        self.accept_after = self.turn.now().after(ACCEPT_PAUSE);
                        return;
                    }
                    // The connection ended before it was accepted.
                    Err(_) => {}
                }
            }
        }
    }

    /// When to accept again, if it is put off.
    fn accept_again(&self) -> Option<Time> {
        (self.accept_after > self.turn.now()).then_some(self.accept_after)
    }

    fn open(&mut self, socket: Socket, peer: Peer) {
        if self.connections.len() - self.free.len() >= self.max_connections {
            self.stats.refused += 1;
            if let Some(unsaid) = self.notices.refused.due(self.turn.now()) {
                let max = self.max_connections;
                tracing::warn!(%peer, max, unsaid, "too many connections: this one is closed");
            }
            return;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.earliest.0.push(NEVER);
            // Never more than `max_connections`, which is below 2^32.
            (self.connections.len() - 1) as u32
        });
        let interest = Interest::READABLE | Interest::WRITABLE;
        let source = socket.as_raw_fd();
        let token = Token(number as usize);
        let mut nonce = [0; 32];
        let secure = !self.secrets.is_empty();
        if self.poll.registry().register(&mut SourceFd(&source), token, interest).is_err()
            || (secure && getrandom::fill(&mut nonce).is_err())
        {
            self.free.push(number);
            return;
        }
        self.serials += 1;
        self.stats.accepted += 1;
        self.outputs.open(number);
        let nonce = secure.then_some(nonce);
        let session = Session::new(ConnectionId(number), nonce, self.turn.now(), &mut self.outputs);
        tracing::debug!(%peer, number, "connection accepted");
        let (serial, idle) = (self.serials, self.idle_timeout);
        let connection = Connection::new(socket, peer, session, serial, idle, self.turn.now());
        self.connections[number as usize] = Some(connection);
        self.schedule(number);
    }

    /// Forgets a connection whose waiters have left and whose grants are settled.
    pub(super) fn close(&mut self, number: u32) {
        self.let_go(number);
        if let Some(connection) = self.connections[number as usize].take() {
            tracing::debug!(peer = %connection.peer, number, "connection closed");
            self.outputs.close(number);
            self.free.push(number);
        }
    }

    /// The connection's last answer is held back no longer, if it is.
    pub(super) fn let_go(&mut self, number: u32) {
        if let Some(connection) = &self.connections[number as usize]
            && let Life::Held { .. } = connection.life
            && let Some(address) = connection.peer.0
        {
            self.penalties.let_go(address.ip());
        }
    }

    /// Answers are held back no longer: there is no later.
    fn let_all_go(&mut self) {
        for number in 0..self.connections.len() as u32 {
            let connection = &self.connections[number as usize];
            if connection.as_ref().is_some_and(|it| matches!(it.life, Life::Held { .. })) {
                self.end(number, true, usize::MAX);
            }
        }
    }

    /// Makes sure that the connection's next deadline is noticed.
    pub(super) fn schedule(&mut self, number: u32) {
        if let Some(connection) = &self.connections[number as usize]
            && let Some(deadline) = connection.next_deadline()
        {
            self.deadlines.schedule(number, deadline, connection.serial, &mut self.earliest);
        }
    }

    fn end_overdue(&mut self) {
        while let Some(due) = self.deadlines.pop_due(self.turn.looked(), &mut self.earliest) {
            let Some(connection) = &mut self.connections[due.slot as usize] else { continue };
            let waits = self.core.waiters_of(ConnectionId(due.slot)) > 0;
            if connection.is_idle() && (waits || self.outputs.get(due.slot).pending() > 0) {
                // It need not say anything while it waits, nor before it has its answer.
                connection.heard = self.turn.now();
            }
            if connection.is_about_to_send() {
                connection.progress = self.turn.now();
            }
            if connection.serial != due.stamp || !connection.is_overdue(self.turn.looked()) {
                self.schedule(due.slot);
                continue;
            }
            if let Life::Held { .. } = connection.life {
                self.end(due.slot, true, usize::MAX);
                continue;
            }
            self.stats.overdue += 1;
            if let Some(unsaid) = self.notices.overdue.due(self.turn.now()) {
                let (peer, what) = (connection.peer, connection.overdue_for());
                tracing::warn!(%peer, what, unsaid, "peer took too long: connection closed");
            }
            match connection.life {
                Life::Open if !connection.paused => self.end(due.slot, true, usize::MAX),
                _ => self.break_off(due.slot),
            }
        }
    }

    /// Says when acquires begin to be refused, and when no longer.
    fn say_limits(&mut self) {
        let (admitting, refusals) = (self.core.is_admitting(), self.core.refusals());
        if admitting != self.admitting
            && let Some(unsaid) = self.notices.admission.due(self.turn.now())
        {
            let stats = self.core.stats();
            let (held, waiters) = (stats.held, stats.waiters);
            if admitting {
                tracing::info!(held, waiters, unsaid, "acquires are admitted again");
            } else {
                tracing::warn!(held, waiters, unsaid, "at 90 % of a limit: acquires refused");
            }
        }
        let refused = refusals.full_queue - self.refusals.full_queue;
        if refused > 0
            && let Some(unsaid) = self.notices.full_queue.due(self.turn.now())
        {
            tracing::warn!(refused, unsaid, "a queue is full: acquires refused");
        }
        let refused = refusals.tokenless - self.refusals.tokenless;
        if refused > 0
            && let Some(unsaid) = self.notices.tokenless.due(self.turn.now())
        {
            tracing::warn!(refused, unsaid, "no token can be issued any more: waiters refused");
        }
        self.admitting = admitting;
        self.refusals = refusals;
    }

    fn obey(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Stats(reply) => {
                    // Whoever asked may have gone.
                    let _ = reply.send(self.stats());
                }
                Command::Inspect { prefix, from, limit, reply } => {
                    let prefix = prefix.as_bytes();
                    let _ =
                        reply.send(self.core.inspect(prefix, from, PIECE, limit, self.turn.now()));
                }
                Command::Secrets(secrets) => self.secrets = secrets,
                Command::Stop => self.stopping = true,
            }
        }
    }

    fn stats(&self) -> Stats {
        Stats {
            locks: self.core.stats(),
            connections: self.connections.len() - self.free.len(),
            ..self.stats
        }
    }

    fn has_pending_answers(&mut self) -> bool {
        let mut open = (0..self.connections.len() as u32)
            .filter(|number| self.connections[*number as usize].is_some());
        open.any(|number| self.outputs.get(number).pending() > 0)
    }
}

/// Whether nothing is wrong with the connection, only with what this process may use.
fn is_shortage(error: &io::Error) -> bool {
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    error.raw_os_error().is_some_and(|code| shortages.contains(&Errno::from_raw_os_error(code)))
}
