//! A min-heap of deadlines whose entries are checked when they come up, not when they go stale.
//!
//! The things with deadlines live in numbered slots, and slots are reused. An entry carries a
//! stamp (a lease's token, a waiter's arrival number); whoever takes an entry out compares it
//! with what is in the slot by then, so a stale entry can never end something newer.
//!
//! A slot needs no second entry while an earlier one of its own is in the heap: that one comes
//! up first and is then replaced. Taking and releasing one lock over and over therefore leaves
//! the heap alone, and the heap stays at about one entry a slot.

use super::time::Time;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// An entry that came up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) slot: u32,
    pub(crate) stamp: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    deadline: Time,
    stamp: u64,
    slot: u32,
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> Ordering {
        (self.deadline, self.stamp, self.slot).cmp(&(other.deadline, other.stamp, other.slot))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

const NONE: Time = Time::from_nanos(u64::MAX);

#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    heap: BinaryHeap<Reverse<Entry>>,
    /// For each slot the earliest deadline that it has in the heap; [`NONE`] if it has none.
    earliest: Vec<Time>,
}

impl Deadlines {
    /// Makes sure that something comes up for `slot` at `deadline` or before.
    pub(crate) fn schedule(&mut self, slot: u32, deadline: Time, stamp: u64) {
        let at = slot as usize;
        if at >= self.earliest.len() {
            self.earliest.resize(at + 1, NONE);
        }
        if self.earliest[at] <= deadline {
            return;
        }
        self.earliest[at] = deadline;
        self.heap.push(Reverse(Entry { deadline, stamp, slot }));
        if self.heap.len() > 2 * self.earliest.len() + 64 {
            self.compact();
        }
    }

    /// When the next entry comes up.
    pub(crate) fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse(entry)| entry.deadline)
    }

    /// Takes out the next entry whose deadline is `now` or before.
    ///
    /// If the slot holds something that the entry was not made for, or whose own deadline is
    /// still to come, the caller schedules it again.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<Due> {
        while let Some(&Reverse(entry)) = self.heap.peek() {
            if entry.deadline > now {
                return None;
            }
            self.heap.pop();
            // Any other entry of the slot was replaced by an earlier one.
            let earliest = &mut self.earliest[entry.slot as usize];
            if *earliest == entry.deadline {
                *earliest = NONE;
                return Some(Due { slot: entry.slot, stamp: entry.stamp });
            }
        }
        None
    }

    /// Entries in the heap, stale ones included.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// Drops the entries that an earlier one of their slot has replaced. It halves the heap at
    /// least, so its cost is spread over as many insertions.
    fn compact(&mut self) {
        let earliest = &self.earliest;
        self.heap.retain(|Reverse(entry)| earliest[entry.slot as usize] == entry.deadline);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u8) -> Time {
        Time::default().after_seconds(seconds)
    }

    #[test]
    fn entries_come_up_in_order_of_deadline_and_never_early() {
        let mut deadlines = Deadlines::default();
        deadlines.schedule(0, at(3), 10);
        deadlines.schedule(1, at(1), 11);
        deadlines.schedule(2, at(2), 12);
        assert_eq!(deadlines.next(), Some(at(1)));
        assert_eq!(deadlines.pop_due(at(0)), None);
        assert_eq!(deadlines.pop_due(at(3)), Some(Due { slot: 1, stamp: 11 }));
        assert_eq!(deadlines.pop_due(at(3)), Some(Due { slot: 2, stamp: 12 }));
        assert_eq!(deadlines.pop_due(at(3)), Some(Due { slot: 0, stamp: 10 }));
        assert_eq!(deadlines.pop_due(at(255)), None);
        assert_eq!(deadlines.next(), None);
    }

    #[test]
    fn a_later_deadline_of_the_same_slot_adds_no_entry() {
        let mut deadlines = Deadlines::default();
        for stamp in 0..1000 {
            deadlines.schedule(7, at(1).after_seconds((stamp % 200) as u8), stamp);
        }
        assert_eq!(deadlines.len(), 1);
        assert_eq!(deadlines.pop_due(at(1)), Some(Due { slot: 7, stamp: 0 }));
    }

    #[test]
    fn an_earlier_deadline_of_the_same_slot_comes_up_alone() {
        let mut deadlines = Deadlines::default();
        deadlines.schedule(0, at(9), 1);
        deadlines.schedule(0, at(2), 2);
        assert_eq!(deadlines.pop_due(at(2)), Some(Due { slot: 0, stamp: 2 }));
        assert_eq!(deadlines.pop_due(at(200)), None, "the replaced entry is dropped");
    }

    #[test]
    fn the_heap_stays_small_however_often_deadlines_shrink() {
        let mut deadlines = Deadlines::default();
        for round in 0..10_000u64 {
            deadlines.schedule(0, Time::from_nanos(1_000_000 - round), round);
        }
        assert!(deadlines.len() <= 2 + 64, "{} entries", deadlines.len());
        assert_eq!(deadlines.next(), Some(Time::from_nanos(1_000_000 - 9_999)));
    }

    #[test]
    fn replaced_entries_are_dropped_many_at_a_time() {
        let mut deadlines = Deadlines::default();
        // The third of three slots: up to twice their number and 64 are kept.
        for count in 1..=2 * 3 + 64 {
            deadlines.schedule(2, Time::from_nanos(1_000 - count), count);
            assert_eq!(deadlines.len() as u64, count, "looking through all for one would cost");
        }
        deadlines.schedule(2, Time::from_nanos(1), 0);
        assert_eq!(deadlines.len(), 1);
    }
}
