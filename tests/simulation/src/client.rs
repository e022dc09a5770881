//! A client process's background thread: the real engine and the real desk, driven in the order
//! in which the product's own thread drives them, with places at which it can be stopped.

use crate::faults::Kind;
use crate::record::Record;
use crate::time::{Clock, MICRO, SECOND, Time};
use crate::world::{Event, World, endpoint_name};
use lockclient::ReasonKind;
use lockclient::clock::{Mono, Now};
use lockclient::engine::{ConnId, Engine, ReleaseCall, ReleaseId, RequestId, SendResult, Settings};
use lockclient::ticket::{Desk, Slot};
use lockclient::wire::Key;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// The servers' secret, in runs that have one.
pub(crate) const SECRET: &[u8] = b"sixteen bytes or more of them";

/// What callers ask of the thread.
#[derive(Debug)]
pub(crate) enum Command {
    Acquire(Arc<Slot>, u32),
    Withdraw(Arc<Slot>, ReasonKind),
    Release(ReleaseCall, Option<u32>),
    Reclaim(Key, u64),
    Shutdown(Mono),
}

/// Where a turn is, or was when the thread was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Read,
    Obey,
    Time,
    Transmit,
    /// The batch is made, and not sent.
    Send,
    /// It is sent, and the engine does not know.
    Sent(SendResult),
    End,
}

/// A client process.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) engine: Engine,
    pub(crate) desk: Desk,
    pub(crate) clock: Clock,
    pub(crate) strict: bool,
    pub(crate) enforce: bool,
    /// Nobody on the machine runs before.
    pub(crate) frozen_until: Time,
    pub(crate) commands: Vec<Command>,
    /// By connection number.
    pub(crate) links: Vec<u32>,
    pub(crate) readable: VecDeque<u32>,
    pub(crate) drains: VecDeque<ConnId>,
    /// By the engine's slot: the request and its call.
    pub(crate) ids: Vec<Option<(RequestId, u32)>>,
    /// Who waits for a release, and its token.
    pub(crate) audiences: HashMap<ReleaseId, (u32, u64)>,
    /// The thread is stopped, and goes on here.
    pub(crate) stopped: Option<Step>,
    pub(crate) turn_at: Time,
    pub(crate) timer_at: Time,
    /// Callers to wake when the turn is over.
    pub(crate) told: Vec<u32>,
    /// Calls that were claimed for the batch.
    pub(crate) claims: Vec<u32>,
    pub(crate) batch: Vec<u8>,
    pub(crate) batch_link: u32,
    pub(crate) batch_now: Now,
    pub(crate) frames: Vec<crate::tap::Frame>,
    pub(crate) closing: Option<Mono>,
    /// It is being closed without a fault.
    pub(crate) orderly: bool,
    /// It cannot acquire anything: its secret is wrong, or its owners are few.
    pub(crate) hopeless: bool,
    pub(crate) ended: bool,
}

impl Client {
    pub(crate) fn link(&self, conn: ConnId) -> Option<u32> {
        self.links.get(conn.0 as usize).copied().filter(|link| *link != u32::MAX)
    }

    /// Whether new calls are refused.
    pub(crate) fn is_closed(&self) -> bool {
        self.closing.is_some() || self.ended
    }
}

impl World {
    /// Opens a client process.
    pub(crate) fn open_client(&mut self, first: bool) -> u16 {
        let number = self.clients.len() as u16;
        let plan = &self.plan;
        let drift = self.rng.between(0, 2 * plan.ppm.unsigned_abs()) as i64 - plan.ppm;
        let clock = Clock::new(self.rng.spread(1, 1_000_000 * SECOND), drift);
        let few = plan.few_owners && first;
        let first_owner =
            if few { u64::MAX - self.rng.below(400) } else { self.rng.spread(1, 1 << 40) };
        let secret = match plan.secret {
            true if plan.wrong_secret && first => Some(b"another secret, as it happens".to_vec()),
            true => Some(SECRET.to_vec()),
            false => None,
        };
        let (strict, enforce) = (plan.strict_deadline, plan.enforce_budget);
        let settings = Settings {
            endpoints: (0..plan.nodes).map(endpoint_name).collect(),
            secret,
            connections: plan.connections,
            connect_timeout: Duration::from_secs(2),
            response_grace: Duration::from_nanos(plan.grace),
            strict_deadline: strict,
            enforce_budget: enforce,
            busy_retry: plan.busy_retry,
            ordered_answers: plan.ordered_answers,
            idle_probe: Duration::from_secs(10),
            lane: if self.rng.one_in(6) { 2 } else { 1024 },
            first_owner,
            seed: self.rng.next(),
            log: true,
        };
        let engine = Engine::new(settings, clock.now(self.t));
        self.clients.push(Client {
            engine,
            desk: Desk::new(),
            clock,
            strict,
            enforce,
            frozen_until: 0,
            commands: Vec::new(),
            links: Vec::new(),
            readable: VecDeque::new(),
            drains: VecDeque::new(),
            ids: Vec::new(),
            audiences: HashMap::new(),
            stopped: None,
            turn_at: Time::MAX,
            timer_at: Time::MAX,
            told: Vec::new(),
            claims: Vec::new(),
            batch: Vec::new(),
            batch_link: 0,
            batch_now: Now::default(),
            frames: Vec::new(),
            closing: None,
            orderly: false,
            hopeless: few || plan.secret && plan.wrong_secret && first,
            ended: false,
        });
        self.log.add(self.t, Record::Open { client: number, strict, enforce, first_owner });
        self.wake_thread(number);
        number
    }

    pub(crate) fn now(&self, client: u16) -> Now {
        self.clients[usize::from(client)].clock.now(self.t)
    }

    /// Has the thread's next turn come, after the time that waking it takes.
    pub(crate) fn wake_thread(&mut self, number: u16) {
        let at = self.t + if self.plan.wake == 0 { 0 } else { self.rng.below(self.plan.wake) };
        let client = &mut self.clients[usize::from(number)];
        if client.turn_at > at && client.stopped.is_none() && !client.ended {
            client.turn_at = at;
            self.push(at, Event::Turn { client: number });
        }
    }

    /// Something happened on a connection.
    pub(crate) fn wake_client(&mut self, number: u32) {
        let link = &mut self.links[number as usize];
        if !link.client_open {
            return;
        }
        let client = link.client;
        if !std::mem::replace(&mut link.client_ready, true) {
            self.clients[usize::from(client)].readable.push_back(number);
        }
        let at = &mut self.clients[usize::from(client)];
        if at.stopped.is_none() && at.turn_at > self.t {
            at.turn_at = self.t;
            self.push(self.t, Event::Turn { client });
        }
    }

    pub(crate) fn turn(&mut self, number: u16) {
        let client = &mut self.clients[usize::from(number)];
        if client.turn_at > self.t || client.stopped.is_some() || client.ended {
            return;
        }
        client.turn_at = Time::MAX;
        if client.frozen_until > self.t {
            client.turn_at = client.frozen_until;
            let at = client.frozen_until;
            self.push(at, Event::Turn { client: number });
            return;
        }
        if self.faults.happens(Kind::Stall) {
            let time = self.faults.duration(Kind::Stall);
            // A stopped process, or a thread that got no turn.
            if self.faults.rng(Kind::Stall).one_in(3) {
                self.freeze(number, time);
            }
            self.stop(number, Step::Read, Kind::Stall, time);
            return;
        }
        self.run_thread(number, Step::Read);
    }

    pub(crate) fn timer(&mut self, number: u16) {
        let client = &mut self.clients[usize::from(number)];
        if client.timer_at > self.t || client.ended {
            return;
        }
        client.timer_at = Time::MAX;
        if client.stopped.is_none() && client.turn_at > self.t {
            client.turn_at = self.t;
            self.turn(number);
        }
    }

    /// Nobody of the process runs for a while.
    pub(crate) fn freeze(&mut self, number: u16, time: Time) {
        let until = self.t + time;
        let client = &mut self.clients[usize::from(number)];
        client.frozen_until = client.frozen_until.max(until);
    }

    pub(crate) fn stop(&mut self, number: u16, step: Step, kind: Kind, time: Time) {
        self.log.add(self.t, Record::Fault { kind, on: u32::from(number), time });
        self.clients[usize::from(number)].stopped = Some(step);
        self.push(self.t + time, Event::Resume { client: number });
    }

    pub(crate) fn resume(&mut self, number: u16) {
        let client = &mut self.clients[usize::from(number)];
        if client.frozen_until > self.t {
            let at = client.frozen_until;
            self.push(at, Event::Resume { client: number });
            return;
        }
        if let Some(step) = client.stopped.take()
            && !client.ended
        {
            self.run_thread(number, step);
        }
    }

    pub(crate) fn run_thread(&mut self, number: u16, from: Step) {
        let mut step = from;
        loop {
            let next = match step {
                Step::Read => {
                    self.client_read(number);
                    self.tell(number);
                    Step::Obey
                }
                Step::Obey => {
                    self.obey(number);
                    Step::Time
                }
                Step::Time => {
                    self.time_passes(number);
                    Step::Transmit
                }
                Step::Transmit => {
                    if self.make_batch(number) {
                        Step::Send
                    } else {
                        Step::End
                    }
                }
                Step::Send => Step::Sent(self.send_batch(number)),
                Step::Sent(result) => {
                    self.batch_sent(number, result);
                    Step::Transmit
                }
                Step::End => break,
            };
            step = next;
            if self.faults.happens(Kind::StallInTurn) {
                let time = self.faults.duration(Kind::StallInTurn);
                self.stop(number, step, Kind::StallInTurn, time);
                return;
            }
        }
        self.tell(number);
        self.end_if_closed(number);
        self.set_timer(number);
    }

    pub(crate) fn set_timer(&mut self, number: u16) {
        let client = &mut self.clients[usize::from(number)];
        if client.ended {
            return;
        }
        let next = [client.engine.next_timeout(), client.desk.next_timeout(), client.closing];
        if let Some(next) = next.into_iter().flatten().min() {
            // A poll's time-out is never early, and its clock has a resolution.
            let at = client.clock.when_mono(next.0).max(self.t + MICRO);
            if at < client.timer_at {
                client.timer_at = at;
                self.push(at, Event::Timer { client: number });
            }
        }
        let client = &mut self.clients[usize::from(number)];
        if !client.readable.is_empty() || !client.commands.is_empty() {
            self.wake_thread(number);
        }
    }

    /// Wakes the callers whose calls have changed.
    pub(crate) fn tell(&mut self, number: u16) {
        self.clients[usize::from(number)].desk.tell();
        let mut told = std::mem::take(&mut self.clients[usize::from(number)].told);
        for call in told.drain(..) {
            self.notify(call);
        }
        self.clients[usize::from(number)].told = told;
    }
}
