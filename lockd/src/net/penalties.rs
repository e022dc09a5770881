//! How often an address may fail to authenticate.
//!
//! Each failure costs a second, and an address that owes more than [`CREDIT`] is not listened to
//! until it owes less. A network of IPv6 addresses that one customer is usually given counts as
//! one address.

use crate::core::Time;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// What one failure costs.
const COST: Duration = Duration::from_secs(1);
/// What an address may owe: so many failures at once.
const CREDIT: Duration = Duration::from_secs(20);
/// Addresses that are remembered.
const REMEMBERED: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Penalties {
    /// When each address owes nothing any more.
    paid_off: HashMap<IpAddr, Time>,
}

impl Penalties {
    /// An attempt from `address` failed.
    pub(super) fn failed(&mut self, address: IpAddr, now: Time) {
        let address = network(address);
        if self.paid_off.len() >= REMEMBERED && !self.paid_off.contains_key(&address) {
            self.make_room(now);
        }
        let paid_off = self.paid_off.entry(address).or_insert(now);
        *paid_off = (*paid_off).max(now).after(COST);
    }

    /// Whether `address` has failed too often.
    pub(super) fn applies(&self, address: IpAddr, now: Time) -> bool {
        self.paid_off
            .get(&network(address))
            .is_some_and(|paid_off| paid_off.since(now) > CREDIT - COST)
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

    #[test]
    fn twenty_failures_are_free_and_then_one_a_second() {
        let mut penalties = Penalties::default();
        for _ in 0..20 {
            assert!(!penalties.applies(HERE, at(50)));
            penalties.failed(HERE, at(50));
        }
        assert!(penalties.applies(HERE, at(50)));
        assert!(!penalties.applies(THERE, at(50)), "others do not pay for it");
        assert!(!penalties.applies(HERE, at(51)));
        penalties.failed(HERE, at(51));
        assert!(penalties.applies(HERE, at(51)));
        assert!(!penalties.applies(HERE, at(71)));
    }

    #[test]
    fn a_network_of_ipv6_addresses_counts_as_one() {
        let mut penalties = Penalties::default();
        for host in 0..20 {
            penalties.failed(IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 7, 0, 0, 0, host)), at(1));
        }
        let neighbour = |network| Ipv6Addr::new(0x2001, 0xdb8, 0, network, 9, 9, 9, 9).into();
        assert!(penalties.applies(neighbour(7), at(1)));
        assert!(!penalties.applies(neighbour(8), at(1)));
    }

    #[test]
    fn an_ipv4_address_in_ipv6_clothes_is_the_same_address() {
        let mut penalties = Penalties::default();
        for _ in 0..20 {
            penalties.failed(HERE, at(1));
        }
        let mapped = match HERE {
            IpAddr::V4(address) => IpAddr::V6(address.to_ipv6_mapped()),
            IpAddr::V6(_) => unreachable!("it is version 4"),
        };
        assert!(penalties.applies(mapped, at(1)));
    }

    #[test]
    fn however_many_addresses_fail_few_are_remembered_and_the_worst_among_them() {
        let mut penalties = Penalties::default();
        for _ in 0..25 {
            penalties.failed(HERE, at(1));
        }
        for number in 0..5_000u32 {
            penalties.failed(IpAddr::V4(number.into()), at(1));
        }
        assert!(penalties.paid_off.len() <= REMEMBERED);
        assert!(penalties.applies(HERE, at(1)));
    }
}
