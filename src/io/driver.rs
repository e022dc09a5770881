//! The background thread: readiness in, bytes out, and the engine's effects.

mod dialing;

use super::commands::{Answer, Audience, Command, PATIENTLY};
use super::dial::{Dial, Dialer};
use super::links::{Link, Links};
use super::pause::Pause;
use super::shared::Shared;
use super::sys;
use super::waker::WakeReceiver;
use crate::clock::{Mono, Now};
use crate::engine::{ConnId, Effect, Engine, ReleaseOutcome, SendResult, Settings, Table};
use crate::outcome::Shutdown;
use crate::reason::{Reason, ReasonKind};
use crate::sync::{Arc as SyncArc, Ordering};
use crate::ticket::{Desk, Readiness, Reclaim, Reply, Slot};
use mio::event::Event;
use mio::{Events, Interest, Poll, Token};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

/// The token of the waker; connections have their ids, which count up from 1.
const WAKE: Token = Token(usize::MAX);

/// One read takes at most this much.
const BUFFER: usize = 64 * 1024;

/// Reads of one connection in one turn, so that no server keeps the thread from the others.
const READS: usize = 8;

/// Reads of one connection when it must be read to its end before something is decided.
const DRAIN_READS: usize = 256;

/// Turns without a sleep after which descriptors are looked at again.
const TURNS: u32 = 16;

/// The longest sleep: a thread whose descriptors were closed behind its back is not told.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);

/// The longest sleep while something is to be tried again, because a caller holds what it takes.
const RETRY: Duration = Duration::from_millis(10);

/// The thread's own.
#[derive(Debug)]
pub(super) struct Driver {
    shared: Arc<Shared>,
    engine: Engine,
    desk: Desk,
    poll: Poll,
    receiver: WakeReceiver,
    /// A descriptor that was found to be ours in this period is taken to be so to its end
    /// (HOST-3). A sleep ends it, and so do some turns without one.
    period: u64,
    /// Turns since the period began.
    turns: u32,
    /// The last period in which any descriptor was looked at.
    looked: u64,
    links: Links,
    dialer: Dialer,
    /// Connections that may have more to read.
    readable: VecDeque<ConnId>,
    /// Connections that the engine wants read to their end.
    drains: VecDeque<ConnId>,
    /// What callers have asked for, and was not done yet.
    batch: VecDeque<Command>,
    /// What is just being given to the engine: if that panics, somebody still waits for it.
    admitting: Option<SyncArc<Slot>>,
    asking: Option<Audience>,
    audiences: Table<Audience>,
    /// Ends of releases that their callers are still to be told.
    answers: Vec<(SyncArc<Answer>, Option<ReleaseOutcome>)>,
    hopefuls: Vec<SyncArc<Reply<Readiness>>>,
    buffer: Box<[u8]>,
    pause: Pause,
    closing: Option<Closing>,
}

/// A shutdown under way.
#[derive(Debug, Clone, Copy)]
struct Closing {
    deadline: Mono,
    /// Releases that had stayed without an answer before.
    unconfirmed: u64,
}

impl Driver {
    pub(super) fn new(
        settings: Settings,
        shared: Arc<Shared>,
        receiver: WakeReceiver,
    ) -> io::Result<Driver> {
        let poll = Poll::new()?;
        let mut receiver = receiver;
        sys::mark_epoll(poll.as_raw_fd(), shared.commands.mark())?;
        poll.registry().register(receiver.source()?, WAKE, Interest::READABLE)?;
        Ok(Driver {
            engine: Engine::new(settings, sys::now()),
            desk: Desk::new(),
            poll,
            receiver,
            period: 1,
            turns: 0,
            looked: 0,
            links: Links::default(),
            dialer: Dialer::new(&shared.endpoints),
            readable: VecDeque::new(),
            drains: VecDeque::new(),
            batch: VecDeque::new(),
            admitting: None,
            asking: None,
            audiences: Table::default(),
            answers: Vec::new(),
            hopefuls: Vec::new(),
            buffer: vec![0; BUFFER].into_boxed_slice(),
            pause: Pause::default(),
            closing: None,
            shared,
        })
    }

    /// Runs until the client is closed.
    pub(super) fn run(&mut self) -> io::Result<Shutdown> {
        let mut events = Events::with_capacity(256);
        loop {
            if !self.pause.is_worth_it(&self.shared.commands) {
                self.poll(&mut events)?;
            }
            self.read();
            if self.has_news() {
                self.tell();
            }
            let now = sys::now();
            self.obey(now);
            self.time(now);
            self.transmit();
            self.tell();
            if let Some(end) = self.end() {
                return Ok(end);
            }
        }
    }

    /// Sleeps until something is ready or due, and marks what is ready.
    fn poll(&mut self, events: &mut Events) -> io::Result<()> {
        let sleep = self.sleep_time();
        self.look()?;
        match self.poll.poll(events, sleep) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        self.turns += 1;
        if sleep != Some(Duration::ZERO) {
            self.shared.commands.woken();
            if self.shared.commands.is_broken() {
                return Err(sys::gone());
            }
            self.turns = TURNS;
        }
        if self.turns == TURNS {
            self.turns = 0;
            self.period += 1;
        }
        if events.is_empty() {
            self.look()?;
        }
        for event in &*events {
            if event.token() == WAKE {
                self.receiver.clear()?;
            } else {
                self.ready(event);
            }
        }
        events.clear();
        Ok(())
    }

    /// Looks whether our descriptors are still ours, unless one was looked at in this period.
    fn look(&mut self) -> io::Result<()> {
        if self.looked == self.period {
            return Ok(());
        }
        self.looked = self.period;
        if self.receiver.is_ours() && self.is_whole() { Ok(()) } else { Err(sys::gone()) }
    }

    /// A socket was used, which had itself looked at. After an error nothing is taken for granted.
    fn used<T>(&mut self, result: &io::Result<T>) {
        self.looked = if result.is_ok() { self.period } else { 0 };
    }

    /// How long the poll may wait.
    fn sleep_time(&mut self) -> Option<Duration> {
        if !self.readable.is_empty() || !self.shared.commands.may_sleep(self.engine.queued()) {
            return Some(Duration::ZERO);
        }
        let next = [
            self.engine.next_timeout(),
            self.desk.next_timeout(),
            self.closing.map(|closing| closing.deadline),
        ];
        let now = sys::mono();
        let next = next.into_iter().flatten().min();
        let longest = if self.desk.is_behind() { RETRY } else { LONGEST_SLEEP };
        let sleep = next.map_or(longest, |next| next.since(now)).min(longest);
        if sleep.is_zero() {
            self.shared.commands.woken();
        }
        Some(sleep)
    }

    /// A connection's socket has become ready for something.
    fn ready(&mut self, event: &Event) {
        let conn = ConnId(event.token().0 as u64);
        if matches!(self.links.get(conn), Some(Link::Dialing(_))) {
            self.progress(conn);
            self.effects();
        }
        let Some(socket) = self.links.open(conn) else { return };
        socket.ending |= event.is_read_closed() || event.is_error();
        if event.is_writable() {
            self.engine.writable(conn);
        }
        if (event.is_readable() || socket.ending) && !self.readable.contains(&conn) {
            self.readable.push_back(conn);
        }
    }

    /// Reads what is readable. Before timers and sends: an answer that has come counts.
    fn read(&mut self) {
        for _ in 0..self.readable.len() {
            let Some(conn) = self.readable.pop_front() else { return };
            if self.feed(conn, READS) {
                self.readable.push_back(conn);
            }
            self.drain();
        }
    }

    /// Reads a connection to its end where the engine wants to know what is there.
    fn drain(&mut self) {
        while let Some(conn) = self.drains.pop_front() {
            self.feed(conn, DRAIN_READS);
            self.engine.drained(conn, sys::now());
            self.effects();
        }
    }

    /// Reads a connection at most so often. Whether there may be more.
    fn feed(&mut self, conn: ConnId, reads: usize) -> bool {
        for _ in 0..reads {
            let Some(socket) = self.links.open(conn) else { return false };
            let ending = socket.ending;
            let result = socket.receive(&mut self.buffer, self.period);
            self.used(&result);
            let now = sys::now();
            match result {
                Ok(None) => return false,
                Ok(Some(0)) => self.engine.ended(conn, Reason::new(ReasonKind::Eof), now),
                Ok(Some(count)) => {
                    self.engine.received(conn, &self.buffer[..count], now);
                    self.effects();
                    // A short read has taken all there was; what comes later is a new event.
                    if count < self.buffer.len() && !ending {
                        return false;
                    }
                    continue;
                }
                Err(error) => self.engine.ended(conn, broken(&error), now),
            }
            self.effects();
            return false;
        }
        true
    }

    /// Does what callers have asked for.
    fn obey(&mut self, now: Now) {
        self.shared.commands.take(&mut self.batch, self.engine.queued());
        while let Some(command) = self.batch.pop_front() {
            match command {
                Command::Acquire(slot) => {
                    let slot = self.admitting.insert(slot);
                    let id = self.engine.acquire(slot.call().clone(), now);
                    if let Some(slot) = self.admitting.take() {
                        self.desk.admit(id, slot);
                    }
                }
                Command::Withdraw(slot, kind) => {
                    if let Some(id) = self.desk.withdraw(&slot) {
                        self.engine.withdraw(id, Reason::new(kind));
                    }
                }
                Command::Release(call, audience) => {
                    self.asking = Some(audience);
                    let id = self.engine.release(call, now);
                    match (id, self.asking.take()) {
                        (_, None | Some(Audience::Nobody)) => {}
                        (Some(id), Some(audience)) => {
                            self.audiences.insert(id.0, audience);
                        }
                        (None, Some(audience)) => self.inform(audience, None),
                    }
                }
                Command::Reclaim(reclaim) => self.reclaim(reclaim),
                Command::WaitReady(reply) => self.hopefuls.push(reply),
                Command::Shutdown(deadline) => self.close(deadline),
                Command::Resolved(endpoint, result) => self.resolved(endpoint, result),
                #[cfg(test)]
                Command::Run(script) => script.run(),
            }
            self.effects();
        }
        self.drain();
    }

    fn reclaim(&mut self, reclaim: Reclaim) {
        self.engine.reclaim(reclaim.key, reclaim.token, sys::now());
    }

    fn close(&mut self, deadline: Mono) {
        match &mut self.closing {
            // Whoever gives it the most time decides.
            Some(closing) => closing.deadline = closing.deadline.max(deadline),
            None => {
                let unconfirmed = self.unconfirmed();
                self.closing = Some(Closing { deadline, unconfirmed });
                self.engine.shutdown(sys::now());
            }
        }
    }

    fn unconfirmed(&self) -> u64 {
        let counters = self.engine.counters();
        counters.unconfirmed
            + counters.compensations_dropped
            + self.shared.lost.load(Ordering::Relaxed)
    }

    /// Does what is due by itself.
    fn time(&mut self, now: Now) {
        while let Some(reclaim) = self.desk.lapsed(now.mono) {
            self.engine.reclaim(reclaim.key, reclaim.token, now);
        }
        if self.closing.is_some() {
            // Whoever took one after the end could not give it back (REL-6).
            while let Some(reclaim) = self.desk.recall() {
                self.engine.reclaim(reclaim.key, reclaim.token, now);
            }
        }
        self.engine.timeout(now);
        self.effects();
        self.drain();
    }

    /// Sends what there is to send. The only place that does.
    fn transmit(&mut self) {
        while self.engine.may_transmit() {
            // DL-3, GR-2: waits are computed, and leases measured, from just before the send.
            let now = sys::now();
            let Some((conn, bytes)) = self.engine.poll_transmit(now, &mut self.desk) else { break };
            let socket = self.links.open(conn).ok_or_else(sys::gone);
            let result = socket.and_then(|socket| socket.send(bytes, self.period));
            self.used(&result);
            let result = match result {
                Ok(accepted) => SendResult::Accepted(accepted),
                Err(error) => SendResult::Failed(broken(&error)),
            };
            self.engine.transmitted(conn, result, &mut self.desk);
            self.effects();
            self.drain();
        }
        self.effects();
        self.drain();
    }

    /// Carries out what the engine has decided.
    fn effects(&mut self) {
        while let Some(effect) = self.engine.poll_effect() {
            match effect {
                Effect::Dial { conn, endpoint } => self.dial(conn, endpoint),
                Effect::Close { conn } => match self.links.remove(conn) {
                    Some(Link::Open(socket)) => socket.close(self.poll.registry()),
                    Some(Link::Dialing(dial)) => {
                        self.dialer.given_up(conn, &dial);
                        if let Some((_, socket)) = dial.attempt {
                            socket.close(self.poll.registry());
                        }
                    }
                    None => {}
                },
                Effect::HalfClose { conn } => {
                    if let Some(socket) = self.links.open(conn) {
                        socket.half_close(self.period);
                    }
                }
                Effect::Drain { conn } => self.drains.push_back(conn),
                Effect::Acquire { id, outcome } => {
                    if let Some(reclaim) = self.desk.complete(id, outcome) {
                        self.reclaim(reclaim);
                    }
                }
                Effect::Release { id, outcome } => {
                    if let Some(audience) = self.audiences.remove(id.0) {
                        self.inform(audience, Some(outcome));
                    }
                }
                Effect::Unclaim { id } => self.desk.retry(id),
                Effect::Log(event) => {
                    if let Some(log) = &self.shared.log {
                        log.push(event);
                    }
                }
            }
        }
    }

    fn inform(&mut self, audience: Audience, outcome: Option<ReleaseOutcome>) {
        match audience {
            Audience::Nobody => {}
            Audience::Count => {
                self.shared.started.fetch_sub(1, Ordering::Relaxed);
            }
            Audience::Caller(reply) => {
                self.answers.push((reply, outcome));
            }
        }
    }

    /// Whether somebody waits to be told something.
    fn has_news(&self) -> bool {
        !self.answers.is_empty() || self.desk.has_news()
    }

    /// Tells callers what has become of their requests, after the counts.
    fn tell(&mut self) {
        if self.has_news() {
            self.pause.hope();
        }
        self.publish();
        for (reply, outcome) in self.answers.drain(..) {
            self.desk.reply(&reply, outcome);
        }
        self.desk.tell();
        if !self.hopefuls.is_empty() {
            let known = self.readiness();
            self.hopefuls.retain(|reply| {
                if let Some(readiness) = known {
                    reply.give(readiness);
                }
                // Whoever has given up has let go of its half.
                known.is_none() && SyncArc::strong_count(reply) > 1
            });
        }
    }

    fn publish(&self) {
        self.shared.board.publish(&self.engine.counters());
        self.shared.last_error.store(self.engine.last_error().pack(), Ordering::Relaxed);
        self.shared.readiness.publish(self.readiness());
    }

    /// Whether a node serves, or none accepts the secret; `None`: neither.
    fn readiness(&self) -> Option<Readiness> {
        match self.engine.is_ready() {
            true => Some(Readiness::Ready),
            false => self.engine.locked_out().map(Readiness::Auth),
        }
    }

    /// Whether the client's end has come.
    fn end(&mut self) -> Option<Shutdown> {
        let closing = self.closing?;
        let drained = self.engine.is_drained() && self.shared.commands.end_if_idle();
        if !drained && sys::mono() < closing.deadline {
            return None;
        }
        self.engine.abort(Reason::new(ReasonKind::Closed));
        self.effects();
        self.tell();
        let clean = self.unconfirmed() == closing.unconfirmed;
        Some(if clean { Shutdown::Clean } else { Shutdown::Unconfirmed })
    }

    /// Whether the poll's descriptor is still ours.
    pub(super) fn is_whole(&self) -> bool {
        sys::is_marked(self.poll.as_raw_fd(), self.shared.commands.mark())
    }

    /// Ends everything that still waits, whatever the thread ends for.
    pub(super) fn finish(&mut self, end: Option<Shutdown>) {
        let mut end = end.unwrap_or(Shutdown::Unconfirmed);
        let mut left = std::mem::take(&mut self.batch);
        left.extend(self.admitting.take().map(Command::Acquire));
        let mut clean = self.refuse(left);
        let mut audiences = std::mem::take(&mut self.audiences);
        for audience in audiences.drain().chain(self.asking.take()) {
            self.inform(audience, None);
        }
        self.desk.abandon();
        self.answer();
        self.shared.readiness.publish(None);
        let mut ended = self.end_commands();
        self.end_hopes();
        clean &= ended == Some(true);
        if !clean {
            end = Shutdown::Unconfirmed;
        }
        for link in self.links.drain() {
            match link {
                Link::Open(socket) => socket.close(self.poll.registry()),
                Link::Dialing(Dial { attempt: Some((_, socket)), .. }) => {
                    socket.close(self.poll.registry());
                }
                Link::Dialing(_) => {}
            }
        }
        self.shared.end.give(end);
        // From here on nobody waits for this thread, which may have to wait for a caller (HOST-6).
        if let Some(log) = &self.shared.log {
            log.finish();
        }
        while ended.is_none() {
            ended = self.end_commands();
            self.end_hopes();
        }
        self.desk.list_the_rest();
    }

    /// Takes nothing any more, and ends what waits; says whether that is clean. None: a caller holds
    /// the queue.
    fn end_commands(&mut self) -> Option<bool> {
        let left = self.shared.commands.end(PATIENTLY)?;
        let clean = self.refuse(left);
        self.answer();
        self.desk.tell();
        Some(clean)
    }

    /// Tells those who wait for a server. After the commands' end, which says what for: they look.
    fn end_hopes(&mut self) {
        for reply in self.hopefuls.drain(..) {
            reply.give(Readiness::Closed);
        }
    }

    /// Ends what was asked of a thread that ends. False: that leaves a lock to its lease's end.
    fn refuse(&mut self, left: VecDeque<Command>) -> bool {
        let mut clean = true;
        for command in left {
            match command {
                Command::Acquire(slot) => self.desk.refuse(slot),
                Command::Withdraw(slot, _) => self.desk.see_to(&slot),
                Command::Release(_, audience) => {
                    self.shared.lost.fetch_add(1, Ordering::Relaxed);
                    self.inform(audience, None);
                    clean = false;
                }
                Command::WaitReady(reply) => self.hopefuls.push(reply),
                Command::Reclaim(_) => {
                    self.shared.lost.fetch_add(1, Ordering::Relaxed);
                    clean = false;
                }
                Command::Shutdown(_) | Command::Resolved(..) => {}
                #[cfg(test)]
                Command::Run(_) => {}
            }
        }
        clean
    }

    fn answer(&mut self) {
        for (reply, outcome) in self.answers.drain(..) {
            reply.give(outcome);
        }
    }
}

/// A socket's error, as a reason: a reset, a time-out, or whatever else the system says.
fn broken(error: &io::Error) -> Reason {
    Reason::new(ReasonKind::Io).with_os_error(error.raw_os_error())
}
