//! From an endpoint to addresses: names are looked up on threads of their own, one for each
//! endpoint at most (CON-1), and of several addresses the next is tried when one fails.

use super::commands::{Command, PATIENTLY};
use super::shared::Shared;
use super::socket::Socket;
use super::sys;
use crate::endpoint::literal;
use crate::engine::ConnId;
use crate::quiet::Quiet;
use socket2::SockAddr;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Looking up a name runs what the host has configured for it.
const STACK: usize = 2 * 1024 * 1024;

/// More addresses of one name than this are not tried.
const MOST_ADDRESSES: usize = 16;

/// A connection that is being made.
#[derive(Debug)]
pub(super) struct Dial {
    pub(super) endpoint: u16,
    /// Not tried yet; the next one is last. Empty and without a socket: the name is looked up.
    addresses: Vec<SockAddr>,
    /// The attempt under way.
    pub(super) attempt: Option<(SockAddr, Socket)>,
    /// How the last attempt failed.
    pub(super) error: io::Error,
}

impl Dial {
    /// Whether there is an address to try.
    pub(super) fn has_addresses(&self) -> bool {
        !self.addresses.is_empty()
    }

    /// The next address.
    pub(super) fn next(&mut self) -> Option<SockAddr> {
        self.addresses.pop()
    }
}

#[derive(Debug)]
struct Target {
    name: Arc<str>,
    /// What the name spells out, if it is an address or a path.
    literal: Option<SockAddr>,
    /// The address to begin with: it worked last, or those before it did not.
    first: Option<SockAddr>,
    /// A thread looks the name up.
    busy: bool,
    /// Who waits for it.
    waiting: Vec<ConnId>,
}

/// What is known of the endpoints' addresses.
#[derive(Debug)]
pub(super) struct Dialer {
    targets: Vec<Target>,
}

impl Dialer {
    pub(super) fn new(endpoints: &[Arc<str>]) -> Dialer {
        let target = |name: &Arc<str>| Target {
            name: name.clone(),
            literal: literal(name),
            first: None,
            busy: false,
            waiting: Vec::new(),
        };
        Dialer { targets: endpoints.iter().map(target).collect() }
    }

    /// Begins a dial. It has its addresses at once, or gets them through [`Dialer::resolved`].
    pub(super) fn begin(
        &mut self,
        conn: ConnId,
        endpoint: u16,
        shared: &Arc<Shared>,
    ) -> io::Result<Dial> {
        let error = io::Error::from(ErrorKind::AddrNotAvailable);
        let mut dial = Dial { endpoint, addresses: Vec::new(), attempt: None, error };
        let Some(target) = self.targets.get_mut(usize::from(endpoint)) else { return Ok(dial) };
        if let Some(address) = &target.literal {
            dial.addresses.push(address.clone());
            return Ok(dial);
        }
        if !target.busy {
            look_up(target.name.clone(), endpoint, shared.clone())?;
            target.busy = true;
        }
        target.waiting.push(conn);
        Ok(dial)
    }

    /// A name was looked up: who waited for it.
    pub(super) fn resolved(&mut self, endpoint: u16) -> Vec<ConnId> {
        let Some(target) = self.targets.get_mut(usize::from(endpoint)) else { return Vec::new() };
        target.busy = false;
        std::mem::take(&mut target.waiting)
    }

    /// Gives a dial its addresses, the one to begin with last.
    pub(super) fn supply(&self, dial: &mut Dial, addresses: &[SocketAddr]) {
        let target = self.targets.get(usize::from(dial.endpoint));
        let first = target.and_then(|target| target.first.as_ref());
        let addresses = addresses.iter().take(MOST_ADDRESSES);
        let mut addresses: Vec<SockAddr> = addresses.map(|address| (*address).into()).collect();
        if let Some(at) = addresses.iter().position(|address| Some(address) == first) {
            addresses.rotate_left(at);
        }
        addresses.reverse();
        dial.addresses = addresses;
    }

    /// An address worked: the next dial begins with it.
    pub(super) fn worked(&mut self, endpoint: u16, address: SockAddr) {
        if let Some(target) = self.targets.get_mut(usize::from(endpoint)) {
            target.first = Some(address);
        }
    }

    /// The dial was given up: the next one begins behind the address that took too long.
    pub(super) fn given_up(&mut self, conn: ConnId, dial: &Dial) {
        let Some(target) = self.targets.get_mut(usize::from(dial.endpoint)) else { return };
        target.waiting.retain(|other| *other != conn);
        if dial.attempt.is_some() {
            target.first = dial.addresses.last().cloned();
        }
    }
}

fn look_up(name: Arc<str>, endpoint: u16, shared: Arc<Shared>) -> io::Result<()> {
    // Nobody waits for this thread: a name server that does nothing keeps nothing from ending.
    sys::spawn("lockclient-name", STACK, move || {
        let _quiet = Quiet::enter();
        let ask = || name.to_socket_addrs().map(Iterator::collect);
        let result = catch_unwind(AssertUnwindSafe(ask));
        let result = result.unwrap_or_else(|_| Err(io::Error::other("the look-up panicked")));
        // If the client has ended meanwhile nobody wants to know.
        let _ = shared.commands.push_last(Command::Resolved(endpoint, result), PATIENTLY);
    })
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(count: u16) -> Vec<SocketAddr> {
        (1..=count).map(|port| SocketAddr::from(([127, 0, 0, 1], port))).collect()
    }

    fn dial() -> Dial {
        let error = io::Error::from(ErrorKind::AddrNotAvailable);
        Dial { endpoint: 0, addresses: Vec::new(), attempt: None, error }
    }

    fn order(dialer: &Dialer, addresses: &[SocketAddr]) -> Vec<u16> {
        let mut dial = dial();
        dialer.supply(&mut dial, addresses);
        std::iter::from_fn(|| dial.next())
            .filter_map(|address| Some(address.as_socket()?.port()))
            .collect()
    }

    #[test]
    fn addresses_are_tried_in_turn_from_the_one_that_worked() {
        let mut dialer = Dialer::new(&["name:1".into()]);
        let three = addresses(3);
        assert_eq!(order(&dialer, &three), [1, 2, 3]);
        dialer.worked(0, three[1].into());
        assert_eq!(order(&dialer, &three), [2, 3, 1]);
        // The name has changed meanwhile.
        assert_eq!(order(&dialer, &three[2..]), [3]);
        assert_eq!(order(&dialer, &addresses(40)).len(), MOST_ADDRESSES);
    }

    #[test]
    fn a_dial_that_took_too_long_leaves_its_address_for_last() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let poll = mio::Poll::new().unwrap();
        let socket = Socket::connect(&address.into(), poll.registry(), mio::Token(0), 0).unwrap();
        let mut dialer = Dialer::new(&["name:1".into()]);
        let mut dial = dial();
        let three = addresses(3);
        dialer.supply(&mut dial, &three);
        let first = dial.next().unwrap();
        dial.attempt = Some((first, socket));
        dialer.given_up(ConnId(1), &dial);
        assert_eq!(order(&dialer, &three), [2, 3, 1]);
    }
}
