//! Traffic selectors: the packets that a tunnel protects (RFC 4301 §4.4.1, RFC 7296 §3.13).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Inclusive range of addresses of one family, `start ≤ end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AddressRange {
    start: IpAddr,
    end: IpAddr,
}

impl AddressRange {
    /// `None` if the families differ or `start` is above `end`.
    pub fn new(start: IpAddr, end: IpAddr) -> Option<Self> {
        (start.is_ipv4() == end.is_ipv4() && start <= end).then_some(Self { start, end })
    }

    /// The first address.
    pub fn start(&self) -> IpAddr {
        self.start
    }

    /// The last address.
    pub fn end(&self) -> IpAddr {
        self.end
    }

    /// Returns `true` if the address lies in the range.
    #[inline]
    pub fn contains(&self, address: IpAddr) -> bool {
        // The addresses are compared as numbers, because this is asked for every packet.
        match (self.start, address, self.end) {
            (IpAddr::V4(start), IpAddr::V4(address), IpAddr::V4(end)) => {
                (start.to_bits()..=end.to_bits()).contains(&address.to_bits())
            }
            (IpAddr::V6(start), IpAddr::V6(address), IpAddr::V6(end)) => {
                (start.to_bits()..=end.to_bits()).contains(&address.to_bits())
            }
            _ => false,
        }
    }

    /// The number of addresses. That of all IPv6 addresses is one more than [`u128::MAX`], which is returned.
    pub fn count(&self) -> u128 {
        let span = match (self.start, self.end) {
            (IpAddr::V4(start), IpAddr::V4(end)) => (end.to_bits() - start.to_bits()).into(),
            (IpAddr::V6(start), IpAddr::V6(end)) => end.to_bits() - start.to_bits(),
            _ => unreachable!("a range is of one family"),
        };
        u128::saturating_add(span, 1)
    }

    /// The subnet that an address is in; `None` if the address has fewer bits than the prefix.
    pub fn subnet(address: IpAddr, prefix: u32) -> Option<Self> {
        let (start, end) = match address {
            IpAddr::V4(address) if prefix <= 32 => {
                let host = u32::MAX.checked_shr(prefix).unwrap_or(0);
                let bits = address.to_bits();
                (Ipv4Addr::from_bits(bits & !host).into(), Ipv4Addr::from_bits(bits | host).into())
            }
            IpAddr::V6(address) if prefix <= 128 => {
                let host = u128::MAX.checked_shr(prefix).unwrap_or(0);
                let bits = address.to_bits();
                (Ipv6Addr::from_bits(bits & !host).into(), Ipv6Addr::from_bits(bits | host).into())
            }
            _ => return None,
        };
        Some(Self { start, end })
    }

    /// The addresses both ranges hold.
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        if self.start.is_ipv4() != other.start.is_ipv4() {
            return None;
        }
        Self::new(self.start.max(other.start), self.end.min(other.end))
    }
}

/// A block of addresses of one family, in the order of family, length and address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    ipv6: bool,
    len: u8,
    bits: u128,
}

impl Prefix {
    /// The block around an address whose first `len` bits are the address'.
    pub fn new(address: IpAddr, len: u8) -> Self {
        let (ipv6, bits) = match address {
            IpAddr::V4(a) => (false, u128::from(a.to_bits()) << 96),
            IpAddr::V6(a) => (true, a.to_bits()),
        };
        let below = 128_u32.saturating_sub(len.into());
        Self { ipv6, len, bits: bits & u128::MAX.checked_shl(below).unwrap_or(0) }
    }

    /// The smallest block that holds a range.
    pub fn holding(range: &AddressRange) -> Self {
        let common = match (range.start, range.end) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
            _ => unreachable!("a range is of one family"),
        };
        Self::new(range.start, common as u8)
    }

    /// For each prefix length, the largest block first: the first and the last block that hold an address of the range.
    pub fn all_meeting(range: &AddressRange) -> impl Iterator<Item = (Self, Self)> + use<> {
        let (start, end) = (range.start, range.end);
        let longest = if start.is_ipv4() { 32 } else { 128 };
        (0..=longest).map(move |len| (Self::new(start, len), Self::new(end, len)))
    }

    /// Returns `true` if the addresses are of IPv6.
    pub fn is_ipv6(&self) -> bool {
        self.ipv6
    }

    /// The number of leading bits that all its addresses share.
    pub fn length(&self) -> u8 {
        self.len
    }

    /// These bits, from the highest one on; zeros below.
    pub fn bits(&self) -> u128 {
        self.bits
    }
}

/// The kinds of address ranges; each kind includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RangeKind {
    /// One address.
    Address,
    /// All addresses that begin with the same bits.
    Subnet,
    /// Any other.
    Range,
}

impl AddressRange {
    /// The kind of this range.
    pub fn kind(&self) -> RangeKind {
        match self.prefix_len() {
            None => RangeKind::Range,
            Some(_) if self.start == self.end => RangeKind::Address,
            Some(_) => RangeKind::Subnet,
        }
    }

    /// Number of leading bits that all its addresses share and that say which addresses it has; `None` where it is no
    /// subnet.
    fn prefix_len(&self) -> Option<u32> {
        let (start, end, bits) = match (self.start, self.end) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits().into(), b.to_bits().into(), 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits(), b.to_bits(), 128),
            _ => unreachable!("a range is of one family"),
        };
        // A prefix's two ends differ in the low bits only, all clear in one and all set in the other.
        let host: u128 = start ^ end;
        (host & host.wrapping_add(1) == 0 && start & host == 0).then(|| bits - host.count_ones())
    }
}

impl From<IpAddr> for AddressRange {
    fn from(address: IpAddr) -> Self {
        Self { start: address, end: address }
    }
}

/// Inclusive range of ports (for ICMP: type × 256 + code), `start ≤ end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortRange {
    start: u16,
    end: u16,
}

impl PortRange {
    /// Protocols with ports, and with types in the place of ports: ICMP, ICMPv6, Mobility Header (RFC 7296 §3.13.1).
    const PROTOCOLS: [u8; 8] = [6, 17, 33, 132, 136, 1, 58, 135];

    /// Every port.
    pub const ANY: Self = Self { start: 0, end: u16::MAX };

    /// `None` if `start` is above `end`.
    pub fn new(start: u16, end: u16) -> Option<Self> {
        (start <= end).then_some(Self { start, end })
    }

    /// The first port.
    pub fn start(&self) -> u16 {
        self.start
    }

    /// The last port.
    pub fn end(&self) -> u16 {
        self.end
    }

    /// Returns `true` if the port lies in the range.
    pub fn contains(&self, port: u16) -> bool {
        self.start <= port && port <= self.end
    }

    /// Returns `true` if a selector of this protocol may have these ports: only [`PortRange::ANY`] if the protocol has
    /// none.
    pub fn fits(&self, protocol: u8) -> bool {
        *self == Self::ANY || Self::PROTOCOLS.contains(&protocol)
    }

    /// The ports both ranges hold.
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        Self::new(self.start.max(other.start), self.end.min(other.end))
    }
}

/// One end of the traffic a tunnel protects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Selector {
    /// IP protocol number; 0 is any.
    pub protocol: u8,
    /// Addresses.
    pub addresses: AddressRange,
    /// Ports; [`PortRange::ANY`] where the protocol has none.
    pub ports: PortRange,
}

impl Selector {
    /// Every protocol and port of a range of addresses.
    pub fn all_of(addresses: AddressRange) -> Self {
        Self { protocol: 0, addresses, ports: PortRange::ANY }
    }

    /// Returns `true` if a packet's end lies in the selector; `port` is `None` where the packet shows none (a fragment,
    /// or a protocol without ports), which only a selector for all ports covers.
    #[inline]
    pub fn contains(&self, protocol: u8, address: IpAddr, port: Option<u16>) -> bool {
        (self.protocol == 0 || self.protocol == protocol)
            && self.addresses.contains(address)
            && port.map_or(self.ports == PortRange::ANY, |p| self.ports.contains(p))
    }

    /// The traffic both selectors hold (narrowing, RFC 7296 §2.9).
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        let protocol = match (self.protocol, other.protocol) {
            (0, p) | (p, 0) => p,
            (a, b) if a == b => a,
            _ => return None,
        };
        Some(Self {
            protocol,
            addresses: self.addresses.intersection(&other.addresses)?,
            ports: self.ports.intersection(&other.ports)?,
        })
    }
}

/// Returns `true` if each selector of `part` lies in one of `whole`.
pub fn covered(part: &[Selector], whole: &[Selector]) -> bool {
    part.iter().all(|p| whole.iter().any(|w| w.intersection(p) == Some(*p)))
}

impl fmt::Display for AddressRange {
    /// One address, a prefix where it is one, else both ends: `10.1.0.1`, `10.1.0.0/16`, `10.0.0.5-10.0.0.9`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.prefix_len() {
            _ if self.start == self.end => self.start.fmt(f),
            Some(length) => write!(f, "{}/{length}", self.start),
            None => write!(f, "{}-{}", self.start, self.end),
        }
    }
}

impl fmt::Display for Selector {
    /// Protocol and ports stand behind the addresses where they are not any: `10.1.0.0/16[tcp/443]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.addresses.fmt(f)?;
        if self.protocol == 0 && self.ports == PortRange::ANY {
            return Ok(());
        }
        match self.protocol {
            0 => f.write_str("[any"),
            1 => f.write_str("[icmp"),
            6 => f.write_str("[tcp"),
            17 => f.write_str("[udp"),
            58 => f.write_str("[icmpv6"),
            132 => f.write_str("[sctp"),
            number => write!(f, "[{number}"),
        }?;
        if self.ports != PortRange::ANY {
            write!(f, "/{}", self.ports.start)?;
            if self.ports.start != self.ports.end {
                write!(f, "-{}", self.ports.end)?;
            }
        }
        f.write_str("]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn address(ipv6: bool, bits: u128) -> IpAddr {
        match ipv6 {
            false => IpAddr::V4(Ipv4Addr::from_bits((bits >> 96) as u32)),
            true => IpAddr::V6(bits.into()),
        }
    }

    proptest! {
        #[test]
        fn a_range_is_found_by_what_meets_it(
            ipv6: bool, a: u128, span in 0..128_u32, at in 0.0..=1.0_f64, c: u128, wide in 0..128_u32,
        ) {
            let b = a.saturating_add(u128::MAX.checked_shr(span).unwrap_or(0));
            let inside = a.saturating_add(((b - a) as f64 * at) as u128);
            let inside = inside.clamp(a, b);
            let range = AddressRange::new(address(ipv6, a), address(ipv6, b)).expect("in order");
            let wanted = Prefix::holding(&range);
            let held_by = |asked: &AddressRange| {
                Prefix::all_meeting(asked).any(|(first, last)| (first..=last).contains(&wanted))
            };
            prop_assert!(held_by(&AddressRange::from(address(ipv6, inside))));
            let outside = address(ipv6, !a);
            let held = held_by(&AddressRange::from(outside));
            prop_assert!(held == (wanted.len == 0), "the highest bit differs");
            let d = c.saturating_add(u128::MAX.checked_shr(wide).unwrap_or(0));
            let asked = AddressRange::new(address(ipv6, c), address(ipv6, d)).expect("in order");
            prop_assert!(held_by(&asked) || range.intersection(&asked).is_none());
        }
    }

    #[test]
    fn addresses_are_counted() {
        let range = |address: &str, prefix| {
            AddressRange::subnet(address.parse().expect("an address"), prefix).expect("a subnet")
        };
        for (address, prefix, count) in [
            ("10.0.0.1", 32, 1),
            ("10.0.0.0", 8, 1 << 24),
            ("0.0.0.0", 0, 1 << 32),
            ("::1", 128, 1),
            ("fd00::", 32, 1 << 96),
            ("::", 0, u128::MAX),
        ] {
            assert_eq!(range(address, prefix).count(), count, "{address}/{prefix}");
        }
    }

    #[test]
    fn reads_like_what_people_write() {
        let range = |start: &str, end: &str| {
            let parse = |text: &str| text.parse().expect("an address");
            AddressRange::new(parse(start), parse(end)).expect("in order")
        };
        let all = |start, end| Selector::all_of(range(start, end)).to_string();
        assert_eq!(all("10.1.0.0", "10.1.255.255"), "10.1.0.0/16");
        assert_eq!(all("10.1.0.1", "10.1.0.1"), "10.1.0.1");
        assert_eq!(all("10.1.0.1", "10.1.0.2"), "10.1.0.1-10.1.0.2");
        assert_eq!(all("10.1.0.1", "10.1.0.6"), "10.1.0.1-10.1.0.6");
        assert_eq!(all("10.1.0.6", "10.1.0.9"), "10.1.0.6-10.1.0.9");
        assert_eq!(all("0.0.0.0", "255.255.255.255"), "0.0.0.0/0");
        assert_eq!(all("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), "::/0");
        assert_eq!(all("2001:db8::", "2001:db8::ffff"), "2001:db8::/112");
        let https = Selector {
            protocol: 6,
            ports: PortRange::new(443, 444).expect("in order"),
            ..Selector::all_of(range("10.0.0.0", "10.0.0.255"))
        };
        assert_eq!(https.to_string(), "10.0.0.0/24[tcp/443-444]");
    }
}
