//! Places for requests, of which there are few: whoever takes long to say what is wanted must not keep
//! one from somebody who asks.

use socket2::Socket;
use std::net::Shutdown;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Requests that are served at once.
const REQUESTS: usize = 16;
/// How long one that was cut off may take to leave. It has nothing left to wait for.
const PATIENCE: Duration = Duration::from_secs(1);

/// All the places.
#[derive(Debug, Default)]
pub(super) struct Places {
    taken: Mutex<Taken>,
    left: Condvar,
}

#[derive(Debug, Default)]
struct Taken {
    /// Who came first is first.
    guests: Vec<Guest>,
    next: u64,
}

#[derive(Debug)]
struct Guest {
    number: u64,
    socket: Arc<Socket>,
    /// Whether the request has not been read yet.
    asking: bool,
}

impl Places {
    /// A place for the request that comes on `socket`. If all are taken, whoever has been asking
    /// for longest is cut off; if nobody is, there is none.
    pub(super) fn take(self: &Arc<Places>, socket: Arc<Socket>) -> Option<Place> {
        let mut taken = self.taken();
        if taken.guests.len() >= REQUESTS {
            let slowest = taken.guests.iter_mut().find(|guest| guest.asking)?;
            slowest.asking = false;
            // Makes its thread's `read` return. That it has gone by itself is as good.
            let _ = slowest.socket.shutdown(Shutdown::Both);
            let full = |taken: &mut Taken| taken.guests.len() >= REQUESTS;
            let waited = self.left.wait_timeout_while(taken, PATIENCE, full);
            let (after, result) = waited.unwrap_or_else(PoisonError::into_inner);
            if result.timed_out() {
                return None;
            }
            taken = after;
        }
        let number = taken.next;
        taken.next += 1;
        taken.guests.push(Guest { number, socket, asking: true });
        Some(Place { places: self.clone(), number })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place, until this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    number: u64,
}

impl Place {
    /// The request has been read: the place is kept until it is answered.
    pub(super) fn asked(&self) {
        let mut taken = self.places.taken();
        if let Some(guest) = taken.guests.iter_mut().find(|guest| guest.number == self.number) {
            guest.asking = false;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken().guests.retain(|guest| guest.number != self.number);
        self.places.left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Type};
    use std::io::Read;

    fn pair() -> (Arc<Socket>, Socket) {
        let (ours, theirs) = Socket::pair(Domain::UNIX, Type::STREAM, None).unwrap();
        theirs.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        (Arc::new(ours), theirs)
    }

    #[test]
    fn who_has_been_asking_for_longest_gives_way_and_who_is_being_answered_stays() {
        let places = Arc::new(Places::default());
        let mut peers = Vec::new();
        let mut threads = Vec::new();
        for number in 0..REQUESTS + 3 {
            let (socket, peer) = pair();
            let place = places.take(socket.clone()).expect("a place");
            peers.push(peer);
            if number == 0 {
                place.asked();
            }
            threads.push(std::thread::spawn(move || {
                let count = (&*socket).read(&mut [0]).unwrap();
                drop(place);
                count
            }));
        }
        // The first is being answered; the three after it were cut off for the last three.
        for (number, (mut peer, thread)) in peers.into_iter().zip(threads).enumerate() {
            let cut_off = (1..=3).contains(&number);
            if cut_off {
                assert_eq!(peer.read(&mut [0]).unwrap(), 0, "{number}");
            } else {
                assert_eq!(peer.send(b"?").unwrap(), 1, "{number}");
            }
            assert_eq!(thread.join().unwrap(), usize::from(!cut_off), "{number}");
        }
        assert!(places.taken().guests.is_empty());
    }

    #[test]
    fn when_all_are_being_answered_there_is_no_place() {
        let places = Arc::new(Places::default());
        let mut taken: Vec<Place> =
            (0..REQUESTS).map(|_| places.take(pair().0).expect("a place")).collect();
        taken.iter().for_each(Place::asked);
        assert!(places.take(pair().0).is_none());
        taken.pop();
        assert!(places.take(pair().0).is_some());
    }
}
