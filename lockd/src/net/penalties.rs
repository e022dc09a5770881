//! What an address pays that fails to authenticate again and again.
//!
//! Each failure costs a second, and who owes [`CREDIT`] gets the answer to a further failure late.
//! Nothing else is late: a client with a stale secret may share its address with many good ones,
//! so who proves to know a secret is let in whatever the address owes. A network of IPv6 addresses
//! that one customer is usually given counts as one address.

use crate::core::Time;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// What one failure costs.
const COST: Duration = Duration::from_secs(1);
/// The most that an address may owe: so many failures at once cost it nothing yet.
const CREDIT: Duration = Duration::from_secs(20);
/// Addresses that are remembered.
const REMEMBERED: usize = 1024;
/// Answers to one address that may be held back at the same time.
const HELD_FOR_ONE: usize = 16;
/// Answers to all addresses that may be: each of them keeps a connection from others.
const HELD_FOR_ALL: usize = 256;
/// Nor may they take more than this part of all connections.
const HELD_PART: usize = 8;

#[derive(Debug)]
pub(super) struct Penalties {
    /// When each address owes nothing any more.
    paid_off: HashMap<IpAddr, Time>,
    /// Answers that are held back, for each address that has any.
    held: HashMap<IpAddr, usize>,
    held_for_all: usize,
    most_held: usize,
}

impl Penalties {
    /// For a server with so many connections at the most.
    pub(super) fn new(max_connections: usize) -> Penalties {
        Penalties {
            paid_off: HashMap::new(),
            held: HashMap::new(),
            held_for_all: 0,
            most_held: HELD_FOR_ALL.min(max_connections / HELD_PART),
        }
    }

    /// An attempt from `address` failed. Whether its answer has to be held back: then that counts
    /// until [`Penalties::let_go`].
    pub(super) fn failed(&mut self, address: IpAddr, now: Time) -> bool {
        let address = network(address);
        if self.paid_off.len() >= REMEMBERED && !self.paid_off.contains_key(&address) {
            self.make_room(now);
        }
        let paid_off = self.paid_off.entry(address).or_insert(now);
        let late = paid_off.since(now) > CREDIT - COST;
        *paid_off = (*paid_off).max(now).after(COST).min(now.after(CREDIT));
        late && self.hold(address)
    }

    /// An answer to `address` is held back no longer.
    pub(super) fn let_go(&mut self, address: IpAddr) {
        if let Some(held) = self.held.get_mut(&network(address)) {
            *held -= 1;
            self.held_for_all -= 1;
            if *held == 0 {
                self.held.remove(&network(address));
            }
        }
    }

    fn hold(&mut self, address: IpAddr) -> bool {
        let held = self.held.get(&address).copied().unwrap_or_default();
        if held >= HELD_FOR_ONE || self.held_for_all >= self.most_held {
            return false;
        }
        self.held.insert(address, held + 1);
        self.held_for_all += 1;
        true
    }

    /// Forgets those that owe nothing, or else the one that owes least.
    fn make_room(&mut self, now: Time) {
        self.paid_off.retain(|_, paid_off| *paid_off > now);
        if self.paid_off.len() >= REMEMBERED {
            let least = self.paid_off.iter().min_by_key(|(_, paid_off)| **paid_off);
            if let Some(address) = least.map(|(address, _)| *address) {
                self.paid_off.remove(&address);
            }
        }
    }
}

fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    fn at(seconds: u8) -> Time {
        Time::default().after_seconds(seconds)
    }

    fn penalties() -> Penalties {
        Penalties::new(10_000)
    }

    /// Whether the answer to a failure now is held back, and at once no longer.
    fn is_late(penalties: &mut Penalties, address: IpAddr, now: Time) -> bool {
        let late = penalties.failed(address, now);
        if late {
            penalties.let_go(address);
        }
        late
    }

    #[test]
    fn twenty_failures_are_free_and_then_one_a_second() {
        let mut penalties = penalties();
        for _ in 0..20 {
            assert!(!is_late(&mut penalties, HERE, at(50)));
        }
        assert!(is_late(&mut penalties, HERE, at(50)));
        assert!(!is_late(&mut penalties, THERE, at(50)), "others do not pay for it");
        assert!(!is_late(&mut penalties, HERE, at(51)));
        assert!(is_late(&mut penalties, HERE, at(51)));
    }

    #[test]
    fn however_often_it_failed_an_address_owes_nothing_twenty_seconds_later() {
        let mut penalties = penalties();
        for _ in 0..1000 {
            is_late(&mut penalties, HERE, at(50));
        }
        for _ in 0..20 {
            assert!(!is_late(&mut penalties, HERE, at(70)));
        }
        assert!(is_late(&mut penalties, HERE, at(70)));
    }

    #[test]
    fn few_answers_are_held_back_for_one_address_and_few_for_all() {
        let mut penalties = Penalties::new(10_000);
        let address = |number: u32| IpAddr::V4(number.into());
        let mut held = vec![0; 1000];
        for number in 0..1000u32 {
            for _ in 0..20 {
                assert!(!penalties.failed(address(number), at(1)));
            }
            for _ in 0..100 {
                held[number as usize] += usize::from(penalties.failed(address(number), at(1)));
            }
        }
        assert_eq!(held[..17], [&[16; 16][..], &[0]].concat());
        assert_eq!(held.iter().sum::<usize>(), 256);
        penalties.let_go(address(3));
        assert!(penalties.failed(address(999), at(1)), "there is room for one");
        assert!(!penalties.failed(address(999), at(1)));
        held[3] -= 1;
        held[999] += 1;
        for (number, count) in (0..).zip(&held) {
            for _ in 0..*count {
                penalties.let_go(address(number));
            }
        }
        assert_eq!((penalties.held.len(), penalties.held_for_all), (0, 0));
    }

    #[test]
    fn what_is_held_back_takes_an_eighth_of_the_connections_at_most() {
        for (connections, expected) in [(7, 0), (8, 1), (100, 12), (127, 15), (10_000, 16)] {
            let mut penalties = Penalties::new(connections);
            let held = (0..200).filter(|_| penalties.failed(HERE, at(1))).count();
            assert_eq!(held, expected, "of {connections} connections");
        }
    }

    #[test]
    fn a_network_of_ipv6_addresses_counts_as_one() {
        let mut penalties = penalties();
        for host in 0..20 {
            penalties.failed(IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 7, 0, 0, 0, host)), at(1));
        }
        let neighbour = |network| Ipv6Addr::new(0x2001, 0xdb8, 0, network, 9, 9, 9, 9).into();
        assert!(is_late(&mut penalties, neighbour(7), at(1)));
        assert!(!is_late(&mut penalties, neighbour(8), at(1)));
        assert!(penalties.held.is_empty());
    }

    #[test]
    fn an_ipv4_address_in_ipv6_clothes_is_the_same_address() {
        let mut penalties = penalties();
        for _ in 0..20 {
            penalties.failed(HERE, at(1));
        }
        let mapped = match HERE {
            IpAddr::V4(address) => IpAddr::V6(address.to_ipv6_mapped()),
            IpAddr::V6(_) => unreachable!("it is version 4"),
        };
        assert!(is_late(&mut penalties, mapped, at(1)));
    }

    #[test]
    fn however_many_addresses_fail_few_are_remembered_and_the_worst_among_them() {
        let mut penalties = penalties();
        for _ in 0..25 {
            penalties.failed(HERE, at(1));
        }
        for number in 0..5_000u32 {
            penalties.failed(IpAddr::V4(number.into()), at(1));
        }
        assert!(penalties.paid_off.len() <= REMEMBERED);
        penalties.let_go(HERE);
        assert!(penalties.failed(HERE, at(1)));
    }
}
