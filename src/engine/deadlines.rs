//! Timers of many things: a heap whose entries are checked when they come up.
//!
//! What ends before its time leaves its entry behind. The owner of the heap compacts it when dead
//! entries are the greater part, so that a timer that never fires costs a push and its share of
//! one pass.

use super::slab::Id;
use crate::clock::Mono;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

#[derive(Debug, Default)]
pub(super) struct Deadlines {
    heap: BinaryHeap<Reverse<(Mono, Id)>>,
}

impl Deadlines {
    pub(super) fn push(&mut self, at: Mono, id: Id) {
        self.heap.push(Reverse((at, id)));
    }

    pub(super) fn pop_due(&mut self, now: Mono) -> Option<Id> {
        self.heap.peek().filter(|Reverse((at, _))| *at <= now)?;
        self.heap.pop().map(|Reverse((_, id))| id)
    }

    /// The first entry whose id is alive; dead ones before it are dropped.
    pub(super) fn next(&mut self, alive: impl Fn(Id) -> bool) -> Option<Mono> {
        while let Some(&Reverse((at, id))) = self.heap.peek() {
            if alive(id) {
                return Some(at);
            }
            self.heap.pop();
        }
        None
    }

    /// Drops dead entries once they outnumber `live` by far.
    pub(super) fn compact(&mut self, live: usize, alive: impl Fn(Id) -> bool) {
        if self.heap.len() > 64 + 2 * live {
            self.heap.retain(|Reverse((_, id))| alive(*id));
        }
    }
}
