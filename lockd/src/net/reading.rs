//! The first half of a turn: bytes come in.

use super::clock;
use super::connection::Life;
use super::event_loop::{EventLoop, READ};
use crate::core::ConnectionId;
use crate::session::{Fault, Received};
use lockclient::wire::Key;
use std::io::{ErrorKind, Read};

impl EventLoop {
    /// Reads once from every connection that has something, or from some of them if that takes
    /// long.
    pub(super) fn read_all(&mut self) {
        let mut ready = std::mem::take(&mut self.spare);
        std::mem::swap(&mut self.ready, &mut ready);
        let mut done = 0;
        while let Some(number) = ready.get(done) {
            self.read_ready(*number);
            done += 1;
            if done < ready.len() && self.turn.is_stale(clock::now()) {
                break;
            }
        }
        // The others come first in the next turn.
        self.ready.splice(0..0, ready.drain(done..));
        ready.clear();
        self.spare = ready;
    }

    fn read_ready(&mut self, number: u32) {
        let Some(connection) = &mut self.connections[number as usize] else { return };
        connection.queued = false;
        match connection.life {
            Life::Open => self.read(number),
            Life::Held { .. } | Life::Draining { .. } => {}
            Life::Lingering { .. } => self.discard(number),
        }
    }

    /// Has the connection read from in the next turn if there may be something.
    pub(super) fn read_again(&mut self, number: u32) {
        if let Some(connection) = &mut self.connections[number as usize]
            && connection.wants_read()
            && !connection.queued
        {
            connection.queued = true;
            self.ready.push(number);
        }
    }

    fn read(&mut self, number: u32) {
        let Some(connection) = &mut self.connections[number as usize] else { return };
        if connection.paused {
            return;
        }
        let mark = self.outputs.get(number).mark();
        if !connection.unread.is_empty() {
            let mut unread = std::mem::take(&mut connection.unread);
            let Received { consumed, over } = self.receive(number, &unread);
            if let Some(fault) = over {
                return self.end_at_fault(number, fault, mark);
            }
            unread.drain(..consumed);
            if let Some(connection) = &mut self.connections[number as usize] {
                connection.unread = unread;
            }
            self.schedule(number);
            return self.read_again(number);
        }
        loop {
            let Some(connection) = &mut self.connections[number as usize] else { return };
            let count = match (&connection.socket).read(&mut self.buffer[..]) {
                Ok(0) => {
                    connection.session.end_of_stream(&mut self.outputs);
                    return self.end(number, false, mark);
                }
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    connection.readable = false;
                    break;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return self.break_off(number),
            };
            self.stats.bytes_in += count as u64;
            self.turn.has_read(clock::now());
            connection.heard = self.turn.now();
            let connection_ending = connection.ending;
            // A short read has taken all there was. Only an end may be left to see.
            connection.readable = count == READ || connection_ending;
            let received = connection.session.receive(
                &self.buffer[..count],
                self.turn.now(),
                &self.secrets,
                &mut self.core,
                &mut self.outputs,
            );
            if let Some(fault) = received.over {
                return self.end_at_fault(number, fault, mark);
            }
            connection.unread.extend_from_slice(&self.buffer[received.consumed..count]);
            if !connection_ending || count == READ || !connection.unread.is_empty() {
                break;
            }
        }
        self.schedule(number);
        self.read_again(number);
    }

    fn receive(&mut self, number: u32, bytes: &[u8]) -> Received {
        match &mut self.connections[number as usize] {
            Some(connection) => connection.session.receive(
                bytes,
                self.turn.now(),
                &self.secrets,
                &mut self.core,
                &mut self.outputs,
            ),
            None => Received { consumed: bytes.len(), over: None },
        }
    }

    /// The peer did something that ends its session.
    fn end_at_fault(&mut self, number: u32, fault: Fault, mark: usize) {
        if let Some(connection) = &self.connections[number as usize] {
            let peer = connection.peer;
            match fault {
                Fault::BadRequest => {
                    self.stats.bad_requests += 1;
                    if let Some(unsaid) = self.notices.bad_request.due(self.turn.now()) {
                        tracing::warn!(%peer, unsaid, "malformed frame: connection closed");
                    }
                }
                Fault::AuthFailed => {
                    self.stats.auth_failed += 1;
                    let late = !self.stopping
                        && peer
                            .0
                            .is_some_and(|from| self.penalties.failed(from.ip(), self.turn.now()));
                    if let Some(unsaid) = self.notices.auth_failed.due(self.turn.now()) {
                        tracing::warn!(%peer, late, unsaid, "authentication failed: connection closed");
                    }
                    if late {
                        return self.hold(number);
                    }
                }
            }
        }
        self.end(number, true, mark);
    }

    /// The session is over, but its peer is told so only after a while.
    fn hold(&mut self, number: u32) {
        let Some(connection) = &mut self.connections[number as usize] else { return };
        self.stats.auth_slowed += 1;
        connection.hold(self.turn.now());
        self.schedule(number);
    }

    /// Throws away what a peer sends after the end.
    fn discard(&mut self, number: u32) {
        let Some(connection) = &mut self.connections[number as usize] else { return };
        match (&connection.socket).read(&mut self.buffer[..]) {
            Ok(0) => self.close(number),
            Ok(_) => self.read_again(number),
            Err(error) if error.kind() == ErrorKind::WouldBlock => connection.readable = false,
            Err(error) if error.kind() == ErrorKind::Interrupted => self.read_again(number),
            Err(_) => self.close(number),
        }
    }

    /// The connection has ended, and answers that were decided are still written.
    ///
    /// Its waiters leave. Grants that were decided before `mark`, so not in answer to what was
    /// read together with the end, are undone if no byte was sent. Those after it get one attempt.
    /// `linger` says that the peer may still be sending.
    pub(super) fn end(&mut self, number: u32, linger: bool, mark: usize) {
        self.let_go(number);
        let Some(connection) = &mut self.connections[number as usize] else { return };
        connection.life = Life::Draining { linger };
        connection.progress = self.turn.now();
        connection.unread = Vec::new();
        self.core.disconnect(ConnectionId(number));
        self.undo_grants(number, mark);
        self.outputs.queue(number);
        self.schedule(number);
    }

    /// The connection is broken: nothing can be written any more.
    pub(super) fn break_off(&mut self, number: u32) {
        self.core.disconnect(ConnectionId(number));
        self.undo_grants(number, usize::MAX);
        self.close(number);
    }

    /// Undoes the grants before `mark` of which no byte has reached the kernel.
    pub(super) fn undo_grants(&mut self, number: u32, mark: usize) {
        let undone = &mut self.undone;
        self.outputs.get(number).withdraw_grants(mark, |token, key| {
            undone.push((token, Key::from_wire(key).expect("this server granted it")));
        });
        // In the order in which they were granted.
        for (token, key) in self.undone.drain(..) {
            self.core.undo(token, key.as_bytes(), self.turn.now(), &mut self.outputs);
        }
    }
}
