//! Every connection's answers, and which connections have some to send.

use crate::core::{Answers, ConnectionId};
use crate::outbox::Outbox;
use lockclient::wire::ServerFrame;

/// Buffers that grew beyond this are not kept for others.
const KEPT_BUFFER: usize = 16 * 1024;
const KEPT_BUFFERS: usize = 256;

#[derive(Debug, Default)]
struct Output {
    outbox: Outbox,
    queued: bool,
}

/// Takes the answers of a turn; they leave at its end.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    outputs: Vec<Output>,
    /// Connections to look at when answers leave, each once.
    queued: Vec<u32>,
    /// Empty buffers: idle connections hold none.
    buffers: Vec<Vec<u8>>,
}

impl Answers for Outputs {
    fn answer(&mut self, to: ConnectionId, frame: ServerFrame<'_>) {
        let output = &mut self.outputs[to.0 as usize];
        if output.outbox.wants_buffer()
            && let Some(buffer) = self.buffers.pop()
        {
            output.outbox.give_buffer(buffer);
        }
        output.outbox.push(frame);
        if !output.queued {
            output.queued = true;
            self.queued.push(to.0);
        }
    }
}

impl Outputs {
    /// A connection begins under this number.
    pub(crate) fn open(&mut self, number: u32) {
        let number = number as usize;
        if number >= self.outputs.len() {
            self.outputs.resize_with(number + 1, Output::default);
        }
    }

    /// The connection has ended: what is left of its answers goes nowhere.
    pub(crate) fn close(&mut self, number: u32) {
        self.outputs[number as usize].outbox = Outbox::default();
    }

    pub(crate) fn get(&mut self, number: u32) -> &mut Outbox {
        &mut self.outputs[number as usize].outbox
    }

    /// Has the connection looked at when answers leave.
    pub(crate) fn queue(&mut self, number: u32) {
        let output = &mut self.outputs[number as usize];
        if !output.queued {
            output.queued = true;
            self.queued.push(number);
        }
    }

    /// Exchanges the list of connections to look at for an empty one.
    pub(crate) fn take_queued(&mut self, empty: &mut Vec<u32>) {
        std::mem::swap(&mut self.queued, empty);
        for number in &*empty {
            self.outputs[*number as usize].queued = false;
        }
    }

    /// Everything was sent: the buffer may serve another connection.
    pub(crate) fn recycle(&mut self, number: u32) {
        let output = &mut self.outputs[number as usize];
        if let Some(buffer) = output.outbox.take_buffer()
            && buffer.capacity() <= KEPT_BUFFER
            && self.buffers.len() < KEPT_BUFFERS
        {
            self.buffers.push(buffer);
        }
    }
}
