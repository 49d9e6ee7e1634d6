//! Addresses of a host, and the routes that packets take.

use crate::prefix::Prefix;
use std::net::IpAddr;

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both, IPv4 first.
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];

    /// The family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// `ipv4` or `ipv6`, as in `/proc/sys/net`.
    pub fn directory(self) -> &'static str {
        match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        }
    }
}

/// The route that packets to an address take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteLookup {
    /// The device by which they leave.
    pub device: String,
    /// The address is this host's own.
    pub own: bool,
    /// The route is a default route.
    pub default: bool,
}

/// An address of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The address.
    pub address: IpAddr,
    /// Its network.
    pub network: Prefix,
    /// Its device.
    pub device: String,
}
