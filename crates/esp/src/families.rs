//! The address families that tunnels may use: IPsec of IPv4 and of IPv6 can be switched off separately.
//!
//! While a family is off, no tunnel carries packets of that family, and no tunnel runs between addresses of it. The
//! rules stay: the traffic that they cover is dropped, never sent in the clear.

#![forbid(unsafe_code)]

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// For each address family, whether tunnels may use it. The default is both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Families {
    /// Tunnels may use IPv4.
    pub ipv4: bool,
    /// Tunnels may use IPv6.
    pub ipv6: bool,
}

impl Family {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Ipv4, Self::Ipv6];

    /// The family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::Ipv4 } else { Self::Ipv6 }
    }

    /// The name in commands and configurations: `ipv4` or `ipv6`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
        })
    }
}

impl Default for Families {
    fn default() -> Self {
        Self { ipv4: true, ipv6: true }
    }
}

impl Families {
    /// Returns `true` if tunnels may use the family.
    pub fn has(self, family: Family) -> bool {
        match family {
            Family::Ipv4 => self.ipv4,
            Family::Ipv6 => self.ipv6,
        }
    }

    /// Returns `true` if tunnels may use the family of this address.
    pub fn has_address(self, address: IpAddr) -> bool {
        self.has(Family::of(address))
    }

    /// The same with one family switched on or off.
    #[must_use]
    pub fn with(self, family: Family, on: bool) -> Self {
        match family {
            Family::Ipv4 => Self { ipv4: on, ..self },
            Family::Ipv6 => Self { ipv6: on, ..self },
        }
    }
}

/// The [`Families`] of a datapath, for all of its threads.
#[derive(Debug, Default)]
pub(crate) struct FamilySwitch {
    /// A bit for each family that is off.
    off: AtomicU8,
}

impl FamilySwitch {
    const IPV4: u8 = 1;
    const IPV6: u8 = 2;

    pub(crate) fn set(&self, families: Families) {
        let ipv4 = if families.ipv4 { 0 } else { Self::IPV4 };
        let ipv6 = if families.ipv6 { 0 } else { Self::IPV6 };
        self.off.store(ipv4 | ipv6, Relaxed);
    }

    /// The families that are on.
    pub(crate) fn get(&self) -> Families {
        let off = self.off.load(Relaxed);
        Families { ipv4: off & Self::IPV4 == 0, ipv6: off & Self::IPV6 == 0 }
    }

    /// Returns `true` if packets of this family may not pass by an SA between addresses of the family of `outer`.
    #[inline]
    pub(crate) fn blocks(&self, ipv6: bool, outer: IpAddr) -> bool {
        let off = self.off.load(Relaxed);
        off != 0 && off & (Self::bit(ipv6) | Self::bit(outer.is_ipv6())) != 0
    }

    /// Returns `true` if packets of this family may not pass by any SA.
    pub(crate) fn blocks_all(&self, ipv6: bool) -> bool {
        self.off.load(Relaxed) & Self::bit(ipv6) != 0
    }

    fn bit(ipv6: bool) -> u8 {
        if ipv6 { Self::IPV6 } else { Self::IPV4 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn the_family_of_the_packet_and_that_of_the_tunnel_both_count() {
        let (four, six) = (IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST));
        let switch = FamilySwitch::default();
        let blocked = || {
            [(false, four), (false, six), (true, four), (true, six)]
                .map(|(ipv6, outer)| switch.blocks(ipv6, outer))
        };
        assert_eq!(blocked(), [false; 4]);
        switch.set(Families::default().with(Family::Ipv6, false));
        assert_eq!(blocked(), [false, true, true, true]);
        assert_eq!([false, true].map(|ipv6| switch.blocks_all(ipv6)), [false, true]);
        switch.set(Families::default().with(Family::Ipv4, false));
        assert_eq!(blocked(), [true, true, true, false]);
        switch.set(Families::default());
        assert_eq!(blocked(), [false; 4]);
    }

    #[test]
    fn one_family_is_switched_at_a_time() {
        let off = Families::default().with(Family::Ipv4, false);
        assert_eq!(Family::ALL.map(|family| off.has(family)), [false, true]);
        assert!(off.has_address(IpAddr::V6(Ipv6Addr::LOCALHOST)));
        assert_eq!(off.with(Family::Ipv4, true), Families::default());
    }
}
