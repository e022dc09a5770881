//! Who waits: one record a waiter, in its key's queue and in its connection's list at once.
//!
//! Both are linked through the records, so a waiter leaves from any place at a fixed cost and
//! nothing is allocated while the number of waiters stays below its highest.

use super::deadlines::{NEVER, Slots};
use super::pages::Pages;
use super::time::Time;

const NONE: u32 = u32::MAX;

/// A list of waiters, by the numbers of their records.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Queue {
    head: u32,
    tail: u32,
    len: u32,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue { head: NONE, tail: NONE, len: 0 }
    }
}

impl Queue {
    /// Waiters in the list.
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// Who came first.
    pub(crate) fn head(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }
}

#[derive(Debug, Clone, Copy)]
struct Links {
    before: u32,
    after: u32,
}

const UNLINKED: Links = Links { before: NONE, after: NONE };

/// A request that waits for its turn, in one cache line.
#[derive(Debug, Clone)]
#[repr(align(64))]
pub(crate) struct Waiter {
    pub(crate) owner: u64,
    pub(crate) wait_end: Time,
    /// The waiter's number in order of arrival; 0 while the record is free.
    pub(crate) arrival: u64,
    /// The earliest deadline that the record has in the heap of wait ends.
    earliest: Time,
    /// The slot of the lock it waits for.
    pub(crate) lock: u32,
    pub(crate) connection: u32,
    in_queue: Links,
    in_connection: Links,
    pub(crate) lease: u8,
    /// How long it may wait, in seconds.
    wait: u8,
}

const _: () = assert!(size_of::<Waiter>() == 64, "one cache line");

#[derive(Debug, Default)]
pub(crate) struct Waiters {
    records: Pages<Waiter>,
    free: Vec<u32>,
    arrivals: u64,
    connections: Vec<Queue>,
}

impl Waiters {
    /// Waiters in all.
    pub(crate) fn len(&self) -> usize {
        self.records.len() - self.free.len()
    }

    /// Waiters of one connection.
    pub(crate) fn of_connection(&self, connection: u32) -> usize {
        self.connections.get(connection as usize).map_or(0, Queue::len)
    }

    /// The first waiter of a connection.
    pub(crate) fn first_of_connection(&self, connection: u32) -> Option<u32> {
        self.connections.get(connection as usize).and_then(Queue::head)
    }

    /// Puts a waiter at the tail of `queue` and gives its number. Sets its arrival number.
    pub(crate) fn join(&mut self, queue: &mut Queue, mut waiter: Waiter) -> u32 {
        let connection = waiter.connection as usize;
        self.arrivals += 1;
        waiter.arrival = self.arrivals;
        let number = match self.free.pop() {
            Some(number) => {
                let record = self.records.get_mut(number);
                // What the heap has of the one before it is still there.
                waiter.earliest = record.earliest;
                *record = waiter;
                number
            }
            None => self.records.push(waiter),
        };
        if connection >= self.connections.len() {
            self.connections.resize(connection + 1, Queue::default());
        }
        append(queue, &mut self.records, number, |waiter| &mut waiter.in_queue);
        let list = &mut self.connections[connection];
        append(list, &mut self.records, number, |waiter| &mut waiter.in_connection);
        number
    }

    /// Takes a waiter out of `queue`, the one it is in, and frees its record.
    pub(crate) fn leave(&mut self, queue: &mut Queue, number: u32) -> Waiter {
        unlink(queue, &mut self.records, number, |waiter| &mut waiter.in_queue);
        let list = &mut self.connections[self.records.get(number).connection as usize];
        unlink(list, &mut self.records, number, |waiter| &mut waiter.in_connection);
        self.free.push(number);
        let record = self.records.get_mut(number);
        let waiter = record.clone();
        record.arrival = 0;
        waiter
    }

    pub(crate) fn get(&self, number: u32) -> &Waiter {
        self.records.get(number)
    }
}

impl Slots for Waiters {
    fn earliest(&mut self, slot: u32) -> &mut Time {
        &mut self.records.get_mut(slot).earliest
    }

    fn count(&self) -> usize {
        self.records.len()
    }
}

impl Waiter {
    /// A waiter that comes now and has not joined yet.
    pub(crate) fn new(
        connection: u32,
        lock: u32,
        owner: u64,
        (wait, lease): (u8, u8),
        now: Time,
    ) -> Waiter {
        Waiter {
            owner,
            wait_end: now.after_seconds(wait),
            arrival: 0,
            earliest: NEVER,
            lock,
            connection,
            in_queue: UNLINKED,
            in_connection: UNLINKED,
            lease,
            wait,
        }
    }

    /// When it came.
    pub(crate) fn since(&self) -> Time {
        self.wait_end.before_seconds(self.wait)
    }
}

type Which = fn(&mut Waiter) -> &mut Links;

fn append(queue: &mut Queue, records: &mut Pages<Waiter>, number: u32, which: Which) {
    *which(records.get_mut(number)) = Links { before: queue.tail, after: NONE };
    match queue.tail {
        NONE => queue.head = number,
        tail => which(records.get_mut(tail)).after = number,
    }
    queue.tail = number;
    queue.len += 1;
}

fn unlink(queue: &mut Queue, records: &mut Pages<Waiter>, number: u32, which: Which) {
    let Links { before, after } = *which(records.get_mut(number));
    match before {
        NONE => queue.head = after,
        before => which(records.get_mut(before)).after = after,
    }
    match after {
        NONE => queue.tail = before,
        after => which(records.get_mut(after)).before = before,
    }
    queue.len -= 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(waiters: &mut Waiters, queue: &mut Queue) -> Vec<u64> {
        std::iter::from_fn(|| queue.head().map(|head| waiters.leave(queue, head).owner)).collect()
    }

    #[test]
    fn a_queue_is_first_come_first_served_and_lets_anyone_leave() {
        let mut waiters = Waiters::default();
        let mut queue = Queue::default();
        let numbers: Vec<u32> = (1..=6)
            .map(|owner| {
                waiters.join(&mut queue, Waiter::new(0, 0, owner, (1, 1), Time::default()))
            })
            .collect();
        for at in [0, 3, 5] {
            waiters.leave(&mut queue, numbers[at]);
        }
        assert_eq!(queue.len(), 3);
        assert_eq!(drain(&mut waiters, &mut queue), [2, 3, 5]);
        assert_eq!((queue.len(), waiters.len(), waiters.of_connection(0)), (0, 0, 0));
    }

    #[test]
    fn a_connections_waiters_are_its_own_whatever_queue_they_are_in() {
        let mut waiters = Waiters::default();
        let mut queues = [Queue::default(), Queue::default()];
        for owner in 0..10u64 {
            let lock = (owner % 2) as u32;
            let connection = (owner / 5) as u32;
            let waiter = Waiter::new(connection, lock, owner, (1, 1), Time::default());
            waiters.join(&mut queues[lock as usize], waiter);
        }
        while let Some(number) = waiters.first_of_connection(0) {
            let lock = waiters.get(number).lock;
            waiters.leave(&mut queues[lock as usize], number);
        }
        assert_eq!((waiters.of_connection(0), waiters.of_connection(1)), (0, 5));
        assert_eq!(drain(&mut waiters, &mut queues[0]), [6, 8]);
        assert_eq!(drain(&mut waiters, &mut queues[1]), [5, 7, 9]);
    }

    #[test]
    fn records_are_used_again() {
        let mut waiters = Waiters::default();
        let mut queue = Queue::default();
        for _ in 0..5 {
            for owner in 0..50 {
                waiters.join(&mut queue, Waiter::new(3, 0, owner, (1, 1), Time::default()));
            }
            assert_eq!(drain(&mut waiters, &mut queue).len(), 50);
        }
        assert_eq!(waiters.count(), 50);
    }
}
