//! The background thread as the driver runs it, with a server in the place of its sockets.

use super::Clock;
use crate::clock::Mono;
use crate::engine::{ConnId, Effect, Engine, ReleaseId, ReleaseOutcome, SendResult, Settings};
use crate::io::commands::{Audience, Command, Commands, PATIENTLY};
use crate::io::waker::WakeReceiver;
use crate::reason::{Reason, ReasonKind};
use crate::sync::Arc;
use crate::ticket::{Desk, Readiness, Reply};
use crate::wire::{ClientFrame, Decoder, FromClient, PROBE_KEY, ServerFrame};
use shuttle::rand::{Rng, thread_rng};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

/// What the server and the thread can tell at the end.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Keys of acquires of which a byte has come.
    pub(super) seen: BTreeSet<Vec<u8>>,
    /// Tokens, and the keys that they were granted for.
    pub(super) granted: BTreeMap<u64, Vec<u8>>,
    /// Tokens that were released.
    pub(super) freed: BTreeSet<u64>,
    /// Tokens whose connection had been closed.
    pub(super) undelivered: BTreeSet<u64>,
    pub(super) died: bool,
    /// The shutdown's time was over before everything was done.
    pub(super) cut_short: bool,
}

pub(super) struct Background {
    commands: Arc<Commands>,
    receiver: WakeReceiver,
    clock: Clock,
    /// Steps until the thread dies.
    die_at: Option<u32>,
    engine: Engine,
    desk: Desk,
    /// Open connections, and what their server has read.
    links: HashMap<ConnId, Decoder<FromClient>>,
    /// Answers on their way.
    answers: VecDeque<(ConnId, Vec<u8>, Option<u64>)>,
    drains: VecDeque<ConnId>,
    batch: VecDeque<Command>,
    audiences: HashMap<ReleaseId, Audience>,
    hopefuls: Vec<Arc<Reply<Readiness>>>,
    closing: Option<Mono>,
    found: Found,
}

/// The thread has died.
struct Dead;

impl Background {
    pub(super) fn new(
        commands: Arc<Commands>,
        receiver: WakeReceiver,
        clock: Clock,
        die_at: Option<u32>,
    ) -> Background {
        let settings = Settings {
            endpoints: vec!["a:1".to_owned()],
            secret: None,
            connections: 2,
            connect_timeout: Duration::from_secs(2),
            response_grace: Duration::from_millis(500),
            strict_deadline: false,
            enforce_budget: false,
            busy_retry: false,
            ordered_answers: true,
            idle_probe: Duration::from_secs(10),
            lane: 16,
            first_owner: 1,
            seed: 1,
            log: false,
        };
        Background {
            engine: Engine::new(settings, clock.now()),
            commands,
            receiver,
            clock,
            die_at,
            desk: Desk::new(),
            links: HashMap::new(),
            answers: VecDeque::new(),
            drains: VecDeque::new(),
            batch: VecDeque::new(),
            audiences: HashMap::new(),
            hopefuls: Vec::new(),
            closing: None,
            found: Found::default(),
        }
    }

    pub(super) fn run(mut self) -> Found {
        self.found.died = self.turns().is_err();
        self.finish();
        self.found
    }

    fn turns(&mut self) -> Result<(), Dead> {
        loop {
            self.sleep();
            self.step()?;
            self.read()?;
            self.tell();
            self.step()?;
            self.obey()?;
            self.time()?;
            self.transmit()?;
            self.tell();
            self.step()?;
            if self.has_ended() {
                return Ok(());
            }
        }
    }

    /// One of the places at which the thread may die.
    fn step(&mut self) -> Result<(), Dead> {
        match &mut self.die_at {
            Some(0) => return Err(Dead),
            Some(left) => *left -= 1,
            None => {}
        }
        Ok(())
    }

    /// Sleeps until something is to be done; what is due by then is made to be now.
    fn sleep(&mut self) {
        if !self.answers.is_empty() || !self.commands.may_sleep(self.engine.queued()) {
            return;
        }
        let next = [self.engine.next_timeout(), self.desk.next_timeout(), self.closing];
        let next = next.into_iter().flatten().min();
        while !self.receiver.is_woken() {
            match next {
                Some(next) if next <= self.clock.mono() || thread_rng().gen_bool(0.1) => {
                    self.clock.set(next);
                    break;
                }
                _ => shuttle::thread::yield_now(),
            }
        }
        self.commands.woken();
    }

    /// Some of the answers arrive, in their order.
    fn read(&mut self) -> Result<(), Dead> {
        let count = thread_rng().gen_range(0..=self.answers.len());
        for _ in 0..count {
            self.arrive();
            self.effects()?;
        }
        self.drain()
    }

    fn arrive(&mut self) {
        let Some((conn, bytes, token)) = self.answers.pop_front() else { return };
        if self.links.contains_key(&conn) {
            self.engine.received(conn, &bytes, self.clock.now());
        } else {
            self.found.undelivered.extend(token);
        }
    }

    fn drain(&mut self) -> Result<(), Dead> {
        while let Some(conn) = self.drains.pop_front() {
            // What has come by now is read; what is still on its way is not.
            while self.answers.front().is_some_and(|(at, ..)| *at == conn)
                && thread_rng().gen_bool(0.5)
            {
                self.arrive();
            }
            self.engine.drained(conn, self.clock.now());
            self.effects()?;
        }
        Ok(())
    }

    fn obey(&mut self) -> Result<(), Dead> {
        self.commands.take(&mut self.batch, self.engine.queued());
        let now = self.clock.now();
        while let Some(command) = self.batch.pop_front() {
            match command {
                Command::Acquire(slot) => {
                    let id = self.engine.acquire(slot.call().clone(), now);
                    self.desk.admit(id, slot);
                }
                Command::Withdraw(slot, kind) => {
                    if let Some(id) = self.desk.withdraw(&slot) {
                        self.engine.withdraw(id, Reason::new(kind));
                    }
                }
                Command::Release(call, audience) => match self.engine.release(call, now) {
                    Some(id) => drop(self.audiences.insert(id, audience)),
                    None => inform(audience, None),
                },
                Command::Reclaim(reclaim) => {
                    self.engine.reclaim(reclaim.key, reclaim.token, now);
                }
                Command::WaitReady(reply) => self.hopefuls.push(reply),
                Command::Shutdown(deadline) => {
                    let closing = self.closing.get_or_insert(deadline);
                    *closing = (*closing).max(deadline);
                    self.engine.shutdown(now);
                }
                Command::Resolved(..) | Command::Run(_) => {}
            }
            self.effects()?;
        }
        self.drain()
    }

    fn time(&mut self) -> Result<(), Dead> {
        let now = self.clock.now();
        while let Some(reclaim) = self.desk.lapsed(now.mono) {
            self.engine.reclaim(reclaim.key, reclaim.token, now);
        }
        if self.closing.is_some() {
            while let Some(reclaim) = self.desk.recall() {
                self.engine.reclaim(reclaim.key, reclaim.token, now);
            }
        }
        self.engine.timeout(now);
        self.effects()?;
        self.drain()
    }

    fn transmit(&mut self) -> Result<(), Dead> {
        loop {
            let now = self.clock.now();
            let Some((conn, bytes)) = self.engine.poll_transmit(now, &mut self.desk) else { break };
            let room = match thread_rng().gen_range(0..4) {
                0 => thread_rng().gen_range(0..=bytes.len()),
                _ => bytes.len(),
            };
            let taken = bytes[..room].to_vec();
            if let Some(decoder) = self.links.get(&conn) {
                self.found.seen.extend(begun(decoder.clone(), bytes, room));
            }
            self.serve(conn, &taken);
            // Between the send and the engine's knowledge of it.
            self.step()?;
            self.engine.transmitted(conn, SendResult::Accepted(room), &mut self.desk);
            self.engine.writable(conn);
            self.effects()?;
            self.drain()?;
        }
        self.effects()?;
        self.drain()
    }

    fn effects(&mut self) -> Result<(), Dead> {
        while let Some(effect) = self.engine.poll_effect() {
            self.step()?;
            match effect {
                Effect::Dial { conn, .. } => {
                    self.links.insert(conn, Decoder::default());
                    self.engine.dialed(conn, Ok([7; 32]), self.clock.now());
                }
                Effect::Close { conn } => drop(self.links.remove(&conn)),
                Effect::HalfClose { .. } | Effect::Log(_) => {}
                Effect::Drain { conn } => self.drains.push_back(conn),
                Effect::Acquire { id, outcome } => {
                    if let Some(reclaim) = self.desk.complete(id, outcome) {
                        let now = self.clock.now();
                        self.engine.reclaim(reclaim.key, reclaim.token, now);
                    }
                }
                Effect::Release { id, outcome } => {
                    if let Some(audience) = self.audiences.remove(&id) {
                        inform(audience, Some(outcome));
                    }
                }
                Effect::Unclaim { id } => self.desk.retry(id),
            }
        }
        Ok(())
    }

    fn tell(&mut self) {
        self.desk.tell();
        if self.engine.is_ready() {
            self.hopefuls.drain(..).for_each(|reply| reply.give(Readiness::Ready));
        }
    }

    fn has_ended(&mut self) -> bool {
        let Some(deadline) = self.closing else { return false };
        let drained = self.engine.is_drained() && self.commands.end_if_idle();
        if !drained && self.clock.mono() < deadline {
            return false;
        }
        self.found.cut_short = !drained;
        self.engine.abort(Reason::new(ReasonKind::Closed));
        let _ = self.effects();
        self.tell();
        true
    }

    /// As `Driver::finish`.
    fn finish(&mut self) {
        let mut left = std::mem::take(&mut self.batch);
        left.extend(self.commands.end(PATIENTLY).into_iter().flatten());
        for command in left {
            match command {
                Command::Acquire(slot) => self.desk.refuse(slot),
                Command::Withdraw(slot, _) => self.desk.see_to(&slot),
                Command::Release(_, audience) => inform(audience, None),
                Command::WaitReady(reply) => reply.give(Readiness::Closed),
                _ => {}
            }
        }
        self.desk.abandon();
        for audience in std::mem::take(&mut self.audiences).into_values() {
            inform(audience, None);
        }
        self.hopefuls.drain(..).for_each(|reply| reply.give(Readiness::Closed));
        self.desk.list_the_rest();
    }

    /// The server gets these bytes. Some requests it answers late, and some acquires never.
    fn serve(&mut self, conn: ConnId, mut bytes: &[u8]) {
        let Some(mut decoder) = self.links.remove(&conn) else { return };
        while let Some(frame) = decoder.next(&mut bytes).expect("the client's good frames") {
            let (mut answer, mut token) = (Vec::new(), None);
            match frame {
                ClientFrame::Acquire { owner, key, .. } => match thread_rng().gen_range(0..8) {
                    0 => {}
                    1 => ServerFrame::TimedOut { owner, key }.encode(&mut answer),
                    2 => ServerFrame::Busy { owner, key }.encode(&mut answer),
                    _ => {
                        let new = self.found.granted.len() as u64 + 1;
                        self.found.granted.insert(new, key.to_vec());
                        ServerFrame::Acquired { owner, token: new, key }.encode(&mut answer);
                        token = Some(new);
                    }
                },
                ClientFrame::Release { owner, token: 0, .. } => {
                    ServerFrame::NotHeld { owner, key: PROBE_KEY }.encode(&mut answer);
                }
                ClientFrame::Release { owner, token, key } => {
                    match self.found.freed.insert(token) {
                        true => ServerFrame::Released { owner, key }.encode(&mut answer),
                        false => ServerFrame::NotHeld { owner, key }.encode(&mut answer),
                    }
                }
                ClientFrame::Proof { .. } => panic!("there is no secret"),
            }
            if !answer.is_empty() {
                self.answers.push_back((conn, answer, token));
            }
        }
        self.links.insert(conn, decoder);
    }
}

/// The keys of the acquires of which a byte is among the first `room` of these.
fn begun(mut decoder: Decoder<FromClient>, bytes: &[u8], room: usize) -> Vec<Vec<u8>> {
    let (mut keys, mut rest) = (Vec::new(), bytes);
    while bytes.len() - rest.len() < room {
        match decoder.next(&mut rest).expect("the client's good frames") {
            Some(ClientFrame::Acquire { key, .. }) => keys.push(key.to_vec()),
            Some(_) => {}
            None => break,
        }
    }
    keys
}

fn inform(audience: Audience, outcome: Option<ReleaseOutcome>) {
    if let Audience::Caller(reply) = audience {
        reply.give(outcome);
    }
}
