//! A min-heap of deadlines whose entries are checked when they come up, not when they go stale.
//!
//! The things with deadlines live in numbered slots, and slots are reused. An entry carries a
//! stamp (a lease's token, a waiter's arrival number); whoever takes an entry out compares it
//! with what is in the slot by then, so a stale entry can never end something newer.
//!
//! A slot needs no second entry while an earlier one of its own is in the heap: that one comes
//! up first and is then replaced. Taking and releasing one lock over and over therefore leaves
//! the heap alone, and the heap stays at about one entry a slot. The earliest deadline that a slot
//! has in the heap is kept in the slot's own record: whoever schedules has that at hand.

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

/// What a slot that has nothing in the heap keeps.
pub(crate) const NEVER: Time = Time::from_nanos(u64::MAX);

/// The slots' records.
pub(crate) trait Slots {
    /// Where the slot keeps the earliest deadline that it has in the heap. It is [`NEVER`] at
    /// first, and only [`Deadlines`] changes it.
    fn earliest(&mut self, slot: u32) -> &mut Time;

    /// The number of slots.
    fn count(&self) -> usize;
}

#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    heap: BinaryHeap<Reverse<Entry>>,
}

impl Deadlines {
    /// Makes sure that something comes up for `slot` at `deadline` or before.
    pub(crate) fn schedule(
        &mut self,
        slot: u32,
        deadline: Time,
        stamp: u64,
        slots: &mut impl Slots,
    ) {
        let earliest = slots.earliest(slot);
        if *earliest <= deadline {
            return;
        }
        *earliest = deadline;
        self.heap.push(Reverse(Entry { deadline, stamp, slot }));
        if self.heap.len() > 2 * slots.count() + 64 {
            self.compact(slots);
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
    pub(crate) fn pop_due(&mut self, now: Time, slots: &mut impl Slots) -> Option<Due> {
        while let Some(&Reverse(entry)) = self.heap.peek() {
            if entry.deadline > now {
                return None;
            }
            self.heap.pop();
            // Any other entry of the slot was replaced by an earlier one.
            let earliest = slots.earliest(entry.slot);
            if *earliest == entry.deadline {
                *earliest = NEVER;
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
    fn compact(&mut self, slots: &mut impl Slots) {
        self.heap.retain(|Reverse(entry)| *slots.earliest(entry.slot) == entry.deadline);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Slots for Vec<Time> {
        fn earliest(&mut self, slot: u32) -> &mut Time {
            &mut self[slot as usize]
        }

        fn count(&self) -> usize {
            self.len()
        }
    }

    fn at(seconds: u8) -> Time {
        Time::default().after_seconds(seconds)
    }

    #[test]
    fn entries_come_up_in_order_of_deadline_and_never_early() {
        let (mut deadlines, mut slots) = (Deadlines::default(), vec![NEVER; 8]);
        deadlines.schedule(0, at(3), 10, &mut slots);
        deadlines.schedule(1, at(1), 11, &mut slots);
        deadlines.schedule(2, at(2), 12, &mut slots);
        assert_eq!(deadlines.next(), Some(at(1)));
        assert_eq!(deadlines.pop_due(at(0), &mut slots), None);
        assert_eq!(deadlines.pop_due(at(3), &mut slots), Some(Due { slot: 1, stamp: 11 }));
        assert_eq!(deadlines.pop_due(at(3), &mut slots), Some(Due { slot: 2, stamp: 12 }));
        assert_eq!(deadlines.pop_due(at(3), &mut slots), Some(Due { slot: 0, stamp: 10 }));
        assert_eq!(deadlines.pop_due(at(255), &mut slots), None);
        assert_eq!(deadlines.next(), None);
    }

    #[test]
    fn a_later_deadline_of_the_same_slot_adds_no_entry() {
        let (mut deadlines, mut slots) = (Deadlines::default(), vec![NEVER; 8]);
        for stamp in 0..1000 {
            deadlines.schedule(7, at(1).after_seconds((stamp % 200) as u8), stamp, &mut slots);
        }
        assert_eq!(deadlines.len(), 1);
        assert_eq!(deadlines.pop_due(at(1), &mut slots), Some(Due { slot: 7, stamp: 0 }));
    }

    #[test]
    fn an_earlier_deadline_of_the_same_slot_comes_up_alone() {
        let (mut deadlines, mut slots) = (Deadlines::default(), vec![NEVER; 8]);
        deadlines.schedule(0, at(9), 1, &mut slots);
        deadlines.schedule(0, at(2), 2, &mut slots);
        assert_eq!(deadlines.pop_due(at(2), &mut slots), Some(Due { slot: 0, stamp: 2 }));
        assert_eq!(deadlines.pop_due(at(200), &mut slots), None, "the replaced entry is dropped");
    }

    #[test]
    fn the_heap_stays_small_however_often_deadlines_shrink() {
        let (mut deadlines, mut slots) = (Deadlines::default(), vec![NEVER; 8]);
        for round in 0..10_000u64 {
            deadlines.schedule(0, Time::from_nanos(1_000_000 - round), round, &mut slots);
        }
        assert!(deadlines.len() <= 2 * slots.len() + 64, "{} entries", deadlines.len());
        assert_eq!(deadlines.next(), Some(Time::from_nanos(1_000_000 - 9_999)));
    }

    #[test]
    fn replaced_entries_are_dropped_many_at_a_time() {
        let (mut deadlines, mut slots) = (Deadlines::default(), vec![NEVER; 3]);
        // The third of three slots: up to twice their number and 64 are kept.
        for count in 1..=2 * 3 + 64 {
            deadlines.schedule(2, Time::from_nanos(1_000 - count), count, &mut slots);
            assert_eq!(deadlines.len() as u64, count, "looking through all for one would cost");
        }
        deadlines.schedule(2, Time::from_nanos(1), 0, &mut slots);
        assert_eq!(deadlines.len(), 1);
    }
}
