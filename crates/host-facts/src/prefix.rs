//! Ranges of addresses as prefixes, which routes and kernel policies name.

use policy::AddressRange;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address and how many of its leading bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Prefix {
    /// Its first address.
    pub address: IpAddr,
    /// Bits that count.
    pub length: u8,
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl Prefix {
    /// The one of that length, which is not more than the address has bits, that holds an address.
    pub fn holding(address: IpAddr, length: u8) -> Self {
        let address = match address {
            IpAddr::V4(a) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
                Ipv4Addr::from_bits(a.to_bits() & mask).into()
            }
            IpAddr::V6(a) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
                Ipv6Addr::from_bits(a.to_bits() & mask).into()
            }
        };
        Self { address, length }
    }

    /// Returns `true` if it holds an address.
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4() && Self::holding(address, self.length) == *self
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(a) => a.to_bits().into(),
        IpAddr::V6(a) => a.to_bits(),
    }
}

/// The fewest prefixes that hold a range's addresses and no others.
pub fn prefixes(range: &AddressRange) -> Vec<Prefix> {
    let (width, mut next, end) = match (range.start(), range.end()) {
        (IpAddr::V4(s), IpAddr::V4(e)) => (32, u128::from(s.to_bits()), u128::from(e.to_bits())),
        (s, e) => (128, bits(s), bits(e)),
    };
    let mut found = Vec::new();
    loop {
        // The largest block that begins here: limited by how `next` is aligned, and by what is left.
        let left = end - next;
        let aligned = if next == 0 { width } else { next.trailing_zeros().min(width) };
        let fits = if left == u128::MAX { width } else { (left + 1).ilog2() };
        let host_bits = aligned.min(fits);
        let address = if width == 32 {
            Ipv4Addr::from_bits(u32::try_from(next).expect("an IPv4 address has 32 bits")).into()
        } else {
            Ipv6Addr::from_bits(next).into()
        };
        let length = u8::try_from(width - host_bits).expect("a prefix has at most 128 bits");
        found.push(Prefix { address, length });
        let last = next + (1u128.checked_shl(host_bits).map_or(u128::MAX, |size| size - 1));
        if last >= end {
            return found;
        }
        next = last + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: &str, end: &str) -> AddressRange {
        AddressRange::new(start.parse().expect("address"), end.parse().expect("address"))
            .expect("range")
    }

    fn shown(start: &str, end: &str) -> Vec<String> {
        prefixes(&range(start, end)).iter().map(|p| p.to_string()).collect()
    }

    #[test]
    fn whole_families_are_one_prefix() {
        assert_eq!(shown("0.0.0.0", "255.255.255.255"), ["0.0.0.0/0"]);
        assert_eq!(shown("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), ["::/0"]);
    }

    #[test]
    fn subnets_and_hosts_are_one_prefix() {
        assert_eq!(shown("10.1.0.0", "10.1.255.255"), ["10.1.0.0/16"]);
        assert_eq!(shown("10.1.2.3", "10.1.2.3"), ["10.1.2.3/32"]);
        assert_eq!(shown("255.255.255.255", "255.255.255.255"), ["255.255.255.255/32"]);
        assert_eq!(shown("fd00::", "fd00::ffff:ffff:ffff:ffff"), ["fd00::/64"]);
    }

    #[test]
    fn ragged_ranges_are_split() {
        assert_eq!(
            shown("10.0.0.1", "10.0.0.6"),
            ["10.0.0.1/32", "10.0.0.2/31", "10.0.0.4/31", "10.0.0.6/32"]
        );
        assert_eq!(shown("0.0.0.1", "255.255.255.254").len(), 62);
        assert_eq!(shown("::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe").len(), 254);
    }

    #[test]
    fn an_address_lies_in_one_prefix_of_each_length() {
        for (address, length, prefix) in [
            ("10.1.2.3", 0, "0.0.0.0/0"),
            ("10.1.2.3", 9, "10.0.0.0/9"),
            ("10.1.2.3", 31, "10.1.2.2/31"),
            ("10.1.2.3", 32, "10.1.2.3/32"),
            ("fd00::1:ffff", 0, "::/0"),
            ("fd00::1:ffff", 113, "fd00::1:8000/113"),
            ("fd00::1:ffff", 128, "fd00::1:ffff/128"),
        ] {
            let holding = Prefix::holding(address.parse().expect("an address"), length);
            assert_eq!(holding.to_string(), prefix);
            assert!(holding.contains(address.parse().expect("an address")));
        }
        let network = Prefix::holding([10, 1, 2, 3].into(), 31);
        let others = ["10.1.2.4", "10.1.2.1", "::ffff:10.1.2.3", "fd00::1"];
        assert!(!others.iter().any(|a| network.contains(a.parse().expect("an address"))));
    }

    #[test]
    fn prefixes_hold_the_range_and_nothing_else() {
        let range = range("10.0.0.3", "10.0.3.17");
        let prefixes = prefixes(&range);
        for n in Ipv4Addr::new(10, 0, 0, 0).to_bits()..Ipv4Addr::new(10, 0, 4, 0).to_bits() {
            let address = IpAddr::from(Ipv4Addr::from_bits(n));
            let holders =
                prefixes.iter().filter(|p| Prefix::holding(address, p.length) == **p).count();
            assert_eq!(holders, usize::from(range.contains(address)), "{address}");
        }
    }
}
