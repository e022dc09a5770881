//! Timers of many things: entries that are checked when they come up.
//!
//! What ends before its time leaves its entry behind. The owner compacts when dead entries are the
//! greater part, so that a timer that never fires costs a push and its share of one pass. Most
//! timers are set in the order in which they fire, because most callers wait equally long: those
//! stand in a line, which costs less than a heap; the others stand in a heap.

use crate::clock::Mono;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

/// Dead entries that are left alone.
const SLACK: usize = 64;

#[derive(Debug)]
pub(crate) struct Deadlines<T> {
    line: VecDeque<Entry<T>>,
    heap: BinaryHeap<Entry<T>>,
}

impl<T> Default for Deadlines<T> {
    fn default() -> Deadlines<T> {
        Deadlines { line: VecDeque::new(), heap: BinaryHeap::new() }
    }
}

impl<T> Deadlines<T> {
    pub(crate) fn push(&mut self, at: Mono, value: T) {
        let entry = Entry { at, value };
        if self.line.back().is_none_or(|last| last.at <= at) {
            self.line.push_back(entry);
        } else {
            self.heap.push(entry);
        }
    }

    /// Takes an entry whose time has come, the earliest first.
    pub(crate) fn pop_due(&mut self, now: Mono) -> Option<T> {
        self.earliest().filter(|entry| entry.at <= now)?;
        self.pop()
    }

    /// Takes the earliest entry.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let entry = if self.heap_is_first() { self.heap.pop() } else { self.line.pop_front() };
        entry.map(|entry| entry.value)
    }

    /// The time of the first entry that is alive; dead ones before it are dropped.
    pub(crate) fn next(&mut self, alive: impl Fn(&T) -> bool) -> Option<Mono> {
        loop {
            let entry = self.earliest()?;
            if alive(&entry.value) {
                return Some(entry.at);
            }
            self.pop();
        }
    }

    /// Drops dead entries once they outnumber `live` by far. Whether it did.
    pub(crate) fn compact(&mut self, live: usize, alive: impl Fn(&T) -> bool) -> bool {
        let many = self.len() > SLACK + 2 * live;
        if many {
            self.line.retain(|entry| alive(&entry.value));
            self.heap.retain(|entry| alive(&entry.value));
        }
        many
    }

    pub(crate) fn len(&self) -> usize {
        self.line.len() + self.heap.len()
    }

    fn earliest(&self) -> Option<&Entry<T>> {
        if self.heap_is_first() { self.heap.peek() } else { self.line.front() }
    }

    fn heap_is_first(&self) -> bool {
        self.heap
            .peek()
            .is_some_and(|entry| self.line.front().is_none_or(|line| entry.at < line.at))
    }
}

/// The earliest is the greatest, as the heap wants it.
#[derive(Debug)]
struct Entry<T> {
    at: Mono,
    value: T,
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Entry<T>) -> Ordering {
        other.at.cmp(&self.at)
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Entry<T>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Entry<T>) -> bool {
        self.at == other.at
    }
}

impl<T> Eq for Entry<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_in_the_order_of_their_times() {
        let mut deadlines = Deadlines::default();
        for at in [5, 3, 8, 8, 1, 9, 2, 7] {
            deadlines.push(Mono(at), at);
        }
        assert_eq!(deadlines.next(|at| *at > 2), Some(Mono(3)));
        let mut order = Vec::new();
        while let Some(at) = deadlines.pop_due(Mono(8)) {
            order.push(at);
        }
        assert_eq!(order, [3, 5, 7, 8, 8]);
        assert_eq!((deadlines.pop(), deadlines.pop()), (Some(9), None));
    }

    #[test]
    fn dead_entries_are_dropped_when_they_are_many() {
        let mut deadlines = Deadlines::default();
        for at in 0..SLACK as u64 {
            // Half in the line and half in the heap.
            deadlines.push(Mono(if at % 2 == 0 { 1_000 + at } else { at }), at);
        }
        deadlines.compact(0, |at| at % 10 == 0);
        assert_eq!(deadlines.len(), SLACK, "not many yet");
        deadlines.push(Mono(0), 0);
        deadlines.compact(0, |at| at % 10 < 2);
        assert_eq!(deadlines.len(), 15);
    }
}
