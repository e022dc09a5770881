//! The steps of a client thread's turn: reading, commands, time, batches.

use crate::client::{Client, Command};
use crate::faults::Kind;
use crate::log::Log;
use crate::net::{Dial, Link};
use crate::record::{Decider, Record};
use crate::time::Time;
use crate::world::{CallInfo, Event, World};
use lockclient::clock::{Mono, Now};
use lockclient::engine::{Gate, RequestId, SendResult};
use lockclient::ticket::Desk;
use lockclient::{Reason, ReasonKind};

/// The desk, with an ear at it.
struct Ear<'a> {
    desk: &'a mut Desk,
    ids: &'a [Option<(RequestId, u32)>],
    calls: &'a mut [CallInfo],
    claims: &'a mut Vec<u32>,
    told: &'a mut Vec<u32>,
    log: &'a mut Log,
    t: Time,
    now: Now,
}

impl Ear<'_> {
    fn call(&self, id: RequestId) -> Option<u32> {
        let (known, call) = (*self.ids.get(id.slot())?)?;
        (known == id).then_some(call)
    }
}

impl Gate for Ear<'_> {
    fn claim(&mut self, id: RequestId, end: Mono) -> bool {
        let claimed = self.desk.claim(id, end);
        if claimed && let Some(call) = self.call(id) {
            self.claims.push(call);
            self.calls[call as usize].end = end.0;
            let Now { mono, boot } = self.now;
            self.log.add(self.t, Record::Claim { call, mono: mono.0, boot: boot.0 });
        }
        claimed
    }

    fn unclaim(&mut self, id: RequestId) {
        self.desk.unclaim(id);
        if let Some(call) = self.call(id) {
            self.calls[call as usize].end = 0;
            self.told.push(call);
            self.log.add(self.t, Record::Unclaim { call });
        }
    }
}

macro_rules! ear {
    ($world:ident, $client:ident) => {
        Ear {
            desk: &mut $client.desk,
            ids: &$client.ids,
            calls: &mut $world.calls,
            claims: &mut $client.claims,
            told: &mut $client.told,
            log: &mut $world.log,
            t: $world.t,
            now: $client.batch_now,
        }
    };
}

impl World {
    pub(crate) fn client_read(&mut self, number: u16) {
        for _ in 0..self.clients[usize::from(number)].readable.len() {
            let Some(link) = self.clients[usize::from(number)].readable.pop_front() else { break };
            self.links[link as usize].client_ready = false;
            self.feed(number, link);
            self.drain(number);
        }
    }

    /// Reads a connection until it would block.
    pub(crate) fn feed(&mut self, number: u16, link: u32) {
        let at = link as usize;
        let conn = self.links[at].conn;
        if let Dial::Done(good) = self.links[at].dial {
            self.links[at].dial = Dial::Reported;
            let mut nonce = [7; 32];
            nonce[..8].copy_from_slice(&self.rng.next().to_be_bytes());
            let result = match good {
                true => Ok(nonce),
                false => Err(Reason::new(ReasonKind::Connect).with_os_error(Some(111))),
            };
            let now = self.now(number);
            self.clients[usize::from(number)].engine.dialed(conn, result, now);
            self.effects(number);
        }
        loop {
            let now = self.now(number);
            let world = &mut *self;
            let link_ref: &mut Link = &mut world.links[at];
            if !link_ref.client_open || link_ref.dial != Dial::Reported {
                return;
            }
            let there = link_ref.down.readable().len();
            if there > 0 {
                let mut count = there.min(64 * 1024);
                if count > 1 && world.faults.happens(Kind::ShortRead) {
                    count = 1 + world.faults.rng(Kind::ShortRead).below(count as u64) as usize;
                }
                let Link { down, partial, client, .. } = link_ref;
                let bytes = &down.readable()[..count];
                let client_number = *client;
                crate::tap::read(partial, bytes, |record| {
                    let record = match record {
                        crate::tap::Heard::Answer { owner, answer, token, key } => Record::Read {
                            client: client_number,
                            link,
                            owner,
                            answer,
                            token,
                            key,
                            mono: now.mono.0,
                        },
                        crate::tap::Heard::Fatal => Record::Fatal { link },
                    };
                    world.log.add(world.t, record);
                });
                world.clients[usize::from(number)].engine.received(conn, bytes, now);
                link_ref.down.consume(count);
                if std::mem::take(&mut link_ref.server_blocked) {
                    self.links[at].server_blocked = true;
                    let later = self.t + self.plan.latency.0;
                    self.push(later, Event::ServerWritable { link });
                }
                self.effects(number);
                continue;
            }
            let reason = if link_ref.client_reset {
                Reason::new(ReasonKind::Io).with_os_error(Some(104))
            } else if link_ref.down.is_at_end() {
                Reason::new(ReasonKind::Eof)
            } else {
                return;
            };
            self.clients[usize::from(number)].engine.ended(conn, reason, now);
            self.effects(number);
            return;
        }
    }

    pub(crate) fn drain(&mut self, number: u16) {
        while let Some(conn) = self.clients[usize::from(number)].drains.pop_front() {
            if let Some(link) = self.clients[usize::from(number)].link(conn) {
                self.feed(number, link);
            }
            let now = self.now(number);
            self.clients[usize::from(number)].engine.drained(conn, now);
            self.effects(number);
        }
    }

    pub(crate) fn obey(&mut self, number: u16) {
        let at = usize::from(number);
        let mut commands = std::mem::take(&mut self.clients[at].commands);
        let now = self.now(number);
        for command in commands.drain(..) {
            let client = &mut self.clients[at];
            match command {
                Command::Acquire(slot, call) => {
                    let id = client.engine.acquire(slot.call().clone(), now);
                    if client.ids.len() <= id.slot() {
                        client.ids.resize(id.slot() + 1, None);
                    }
                    client.ids[id.slot()] = Some((id, call));
                    client.desk.admit(id, slot);
                }
                Command::Withdraw(slot, kind) => {
                    if let Some(id) = client.desk.withdraw(&slot) {
                        client.engine.withdraw(id, Reason::new(kind));
                    }
                }
                Command::Release(call, audience) => {
                    let token = call.token;
                    let id = client.engine.release(call, now);
                    if let (Some(id), Some(caller)) = (id, audience) {
                        client.audiences.insert(id, (caller, token));
                    }
                }
                Command::Reclaim(key, token) => client.engine.reclaim(key, token, now),
                Command::Shutdown(deadline) => {
                    client.closing.get_or_insert(deadline);
                    client.engine.shutdown(now);
                }
            }
            self.effects(number);
        }
        // What came while it worked waits for the next turn.
        let client = &mut self.clients[at];
        if client.commands.is_empty() {
            client.commands = commands;
        }
        self.drain(number);
    }

    pub(crate) fn time_passes(&mut self, number: u16) {
        let now = self.now(number);
        let at = usize::from(number);
        while let Some(reclaim) = self.clients[at].desk.lapsed(now.mono) {
            if let Some(call) = self.log.ledger.call_of(reclaim.token) {
                let mono = now.mono.0;
                self.log.add(self.t, Record::Decide { call, by: Decider::Lapse, mono });
            }
            self.clients[at].engine.reclaim(reclaim.key, reclaim.token, now);
        }
        self.clients[at].engine.timeout(now);
        self.effects(number);
        self.drain(number);
    }

    /// Makes the next batch. False: there is nothing to send.
    pub(crate) fn make_batch(&mut self, number: u16) -> bool {
        let at = usize::from(number);
        let now = self.now(number);
        let client = &mut self.clients[at];
        client.batch_now = now;
        let Client { engine, desk, ids, claims, told, .. } = client;
        let (calls, log, t) = (&mut self.calls, &mut self.log, self.t);
        let mut ear = Ear { desk, ids, calls, claims, told, log, t, now };
        let Some((conn, bytes)) = engine.poll_transmit(now, &mut ear) else {
            for _ in claims.drain(..) {
                let stray = Record::Stray { client: number, link: 0, owner: 0, verbatim: true };
                log.add(t, stray);
            }
            self.effects(number);
            self.drain(number);
            return false;
        };
        client.batch.clear();
        client.batch.extend_from_slice(bytes);
        client.batch_link = client.link(conn).unwrap_or(u32::MAX);
        self.tap_batch(number);
        true
    }

    /// Which frames are in the batch; who claimed them.
    pub(crate) fn tap_batch(&mut self, number: u16) {
        let client = &mut self.clients[usize::from(number)];
        let Some(link) = self.links.get_mut(client.batch_link as usize) else { return };
        let mono = client.batch_now.mono.0;
        let good = crate::tap::batch(
            &client.batch,
            link.begun.as_ref(),
            &mut client.claims,
            &mut client.frames,
        );
        for frame in &client.frames {
            if let Some(record) = frame.encoded(number, client.batch_link, mono) {
                self.log.add(self.t, record);
            }
        }
        if !good || !client.claims.is_empty() {
            client.claims.clear();
            let link = client.batch_link;
            let stray = Record::Stray { client: number, link, owner: 0, verbatim: good };
            self.log.add(self.t, stray);
        }
    }

    pub(crate) fn send_batch(&mut self, number: u16) -> SendResult {
        let client = &mut self.clients[usize::from(number)];
        let number_of_link = client.batch_link;
        let length = client.batch.len();
        let gone = SendResult::Failed(Reason::new(ReasonKind::Io).with_os_error(Some(32)));
        let Some(link) = self.links.get_mut(number_of_link as usize) else { return gone };
        if link.client_reset || !link.client_open || link.up.is_finished() {
            return gone;
        }
        let mut count = length.min(link.up.room());
        let mut later = None;
        if self.faults.happens(Kind::WouldBlock) {
            count = 0;
            later = Some(self.faults.duration(Kind::WouldBlock));
        } else if count > 1 && self.faults.happens(Kind::PartialWrite) {
            count = self.faults.rng(Kind::PartialWrite).between(1, count as u64 - 1) as usize;
            later = Some(self.faults.duration(Kind::PartialWrite));
        }
        if count < length {
            link.client_blocked = true;
        }
        if let Some(later) = later {
            self.push(self.t + later, Event::Writable { link: number_of_link });
        }
        if count > 0 {
            let arrives = self.flight(number_of_link);
            let client = &self.clients[usize::from(number)];
            let link = &mut self.links[number_of_link as usize];
            let arrives = link.up.send(&client.batch[..count], arrives);
            self.push(arrives, Event::Arrive { link: number_of_link, down: false });
        }
        let client = &self.clients[usize::from(number)];
        let link = &mut self.links[number_of_link as usize];
        for frame in &client.frames {
            if let Some(record) = frame.accepted(number, number_of_link, count) {
                self.log.add(self.t, record);
            }
        }
        link.begun = crate::tap::begun(&client.frames, &client.batch, count, link.begun.take());
        SendResult::Accepted(count)
    }

    pub(crate) fn batch_sent(&mut self, number: u16, result: SendResult) {
        let client = &mut self.clients[usize::from(number)];
        let Some(link) = self.links.get(client.batch_link as usize) else { return };
        let conn = link.conn;
        let mut ear = ear!(self, client);
        client.engine.transmitted(conn, result, &mut ear);
        self.effects(number);
        self.drain(number);
    }

    pub(crate) fn writable(&mut self, number: u32) {
        let link = &mut self.links[number as usize];
        if !link.client_open || link.up.room() == 0 {
            return;
        }
        link.client_blocked = false;
        let client = link.client;
        // The thread finds out in its next turn; that the engine knows a moment earlier changes
        // nothing, since it writes in a turn alone.
        self.clients[usize::from(client)].engine.writable(link.conn);
        self.wake_thread(client);
    }
}
