//! Unsent acquires, in call order, a line for each class.
//!
//! An acquire that ends while it stands here leaves its id behind; ids are looked at when they
//! reach the front, and the lines are compacted when dead ids are the greater part.

use super::api::Class;
use super::slab::Id;
use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(super) struct Queue {
    lines: [VecDeque<(u64, Id)>; 3],
}

impl Queue {
    /// A new call, behind all the others. `seq` grows from call to call.
    pub(super) fn push(&mut self, class: Class, seq: u64, id: Id) {
        self.lines[class as usize].push_back((seq, id));
    }

    /// SND-6: an acquire that comes back takes the place that its call has.
    pub(super) fn restore(&mut self, class: Class, seq: u64, id: Id) {
        let line = &mut self.lines[class as usize];
        // Searched by halves: tens of thousands may come back at once.
        let at = line.partition_point(|(other, _)| *other < seq);
        line.insert(at, (seq, id));
    }

    /// The oldest acquire of a class that `waits`; ids that no longer do are dropped.
    pub(super) fn front(&mut self, class: Class, waits: impl Fn(Id) -> bool) -> Option<(u64, Id)> {
        let line = &mut self.lines[class as usize];
        while let Some(&(seq, id)) = line.front() {
            if waits(id) {
                return Some((seq, id));
            }
            line.pop_front();
        }
        None
    }

    pub(super) fn pop(&mut self, class: Class) {
        self.lines[class as usize].pop_front();
    }

    pub(super) fn compact(&mut self, live: usize, waits: impl Fn(Id) -> bool) {
        for line in &mut self.lines {
            if line.len() > 64 + 2 * live {
                line.retain(|(_, id)| waits(*id));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snd_6_what_comes_back_keeps_its_place() {
        let mut queue = Queue::default();
        for seq in [3, 4, 6] {
            queue.push(Class::Try, seq, seq);
        }
        for seq in [5, 1, 2, 7] {
            queue.restore(Class::Try, seq, seq);
        }
        let mut order = Vec::new();
        while let Some((seq, _)) = queue.front(Class::Try, |id| id != 4) {
            order.push(seq);
            queue.pop(Class::Try);
        }
        assert_eq!(order, [1, 2, 3, 5, 6, 7]);
    }

    #[test]
    fn con_7_calls_that_have_ended_do_not_pile_up_behind_one_that_waits() {
        let mut queue = Queue::default();
        // Many end at once, and then one after the other.
        (0..500).for_each(|seq| queue.push(Class::Try, seq, seq));
        for seq in 500..1_000 {
            queue.compact(1, |id| id == 0);
            queue.push(Class::Try, seq, seq);
        }
        assert_eq!(queue.front(Class::Try, |id| id == 0), Some((0, 0)));
        let line = &queue.lines[Class::Try as usize];
        assert!(line.len() < 100, "{}", line.len());
    }
}
