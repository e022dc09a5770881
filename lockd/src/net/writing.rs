//! The second half of a turn: answers go out.

use super::connection::Life;
use super::event_loop::EventLoop;
use std::net::Shutdown;

impl EventLoop {
    /// Sends the turn's answers, a batch to each connection after the other, until all are sent
    /// or taken by no kernel buffer.
    pub(super) fn write_all(&mut self) {
        let mut writing = std::mem::take(&mut self.spare);
        loop {
            self.outputs.take_queued(&mut writing);
            if writing.is_empty() {
                break;
            }
            for number in writing.drain(..) {
                self.write(number);
            }
        }
        self.spare = writing;
    }

    fn write(&mut self, number: u32) {
        let Some(connection) = &mut self.connections[number as usize] else { return };
        if matches!(connection.life, Life::Held { .. }) {
            return;
        }
        let outbox = self.outputs.get(number);
        if connection.writable && outbox.pending() > 0 {
            match connection.send(outbox.batch()) {
                Ok(Some(count)) => {
                    outbox.accepted(count);
                    self.stats.bytes_out += count as u64;
                    connection.progress = self.turn.now();
                    if outbox.pending() > 0 {
                        return self.outputs.queue(number);
                    }
                }
                Ok(None) => connection.writable = false,
                Err(_) => return self.break_off(number),
            }
        }
        if let Life::Draining { linger } = connection.life {
            return self.drain(number, linger);
        }
        let pending = outbox.pending();
        if pending == 0 {
            self.outputs.recycle(number);
        }
        if connection.life == Life::Open && connection.paused != (pending > self.output_bound) {
            self.pause_or_resume(number);
        }
    }

    fn pause_or_resume(&mut self, number: u32) {
        let Some(connection) = &mut self.connections[number as usize] else { return };
        connection.paused = !connection.paused;
        if connection.paused {
            self.stats.paused += 1;
            connection.session.pause(self.turn.now());
            connection.progress = self.turn.now();
        } else {
            connection.session.resume(self.turn.now());
        }
        self.schedule(number);
        self.read_again(number);
    }

    /// A connection that has ended made an attempt to write what was left.
    fn drain(&mut self, number: u32, linger: bool) {
        if self.outputs.get(number).pending() > 0 {
            self.undo_grants(number, usize::MAX);
        }
        if self.outputs.get(number).pending() > 0 {
            return self.schedule(number);
        }
        let Some(connection) = &mut self.connections[number as usize] else { return };
        if !linger || connection.socket.shutdown(Shutdown::Write).is_err() {
            return self.close(number);
        }
        connection.linger(self.turn.now());
        self.schedule(number);
        self.read_again(number);
    }
}
