//! Sets: the fields of packets that are looked up, and the elements with their values.

#![forbid(unsafe_code)]

use super::matches::header_of;
use crate::netlink::Family;
use std::fmt;
use std::net::IpAddr;

/// A field of a packet, and the mask under which it is looked up in a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The source address.
    Source(IpAddr),
    /// The destination address.
    Destination(IpAddr),
    /// The source port, of any protocol with ports; type and code of ICMP.
    SourcePort(u16),
    /// The destination port, of any protocol with ports.
    DestinationPort(u16),
    /// The mark.
    Mark(u32),
}

impl Field {
    /// The type of its values in a set.
    fn kind(self) -> &'static str {
        match self {
            Self::Source(mask) | Self::Destination(mask) => match Family::of(mask) {
                Family::V4 => "ipv4_addr",
                Family::V6 => "ipv6_addr",
            },
            Self::SourcePort(_) | Self::DestinationPort(_) => "inet_service",
            Self::Mark(_) => "mark",
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Source(mask) => write!(f, "{} saddr & {mask}", header_of(Family::of(mask))),
            Self::Destination(mask) => write!(f, "{} daddr & {mask}", header_of(Family::of(mask))),
            Self::SourcePort(mask) => write!(f, "th sport & {mask:#x}"),
            Self::DestinationPort(mask) => write!(f, "th dport & {mask:#x}"),
            Self::Mark(mask) => write!(f, "meta mark & {mask:#x}"),
        }
    }
}

/// The fields that make an element of a set together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Key(Vec<Field>);

impl Key {
    /// The type of the set's elements.
    pub(super) fn kind(&self) -> String {
        joined(self.0.iter().map(|field| field.kind()))
    }
}

impl FromIterator<Field> for Key {
    fn from_iter<I: IntoIterator<Item = Field>>(fields: I) -> Self {
        Self(fields.into_iter().collect())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&joined(&self.0))
    }
}

/// A part of an element: the value of one field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// An address.
    Address(IpAddr),
    /// A port, or type and code of ICMP.
    Port(u16),
    /// A mark.
    Mark(u32),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "{address}"),
            Self::Port(port) => write!(f, "{port}"),
            Self::Mark(mark) => write!(f, "{mark:#x}"),
        }
    }
}

/// An element of a set: the values of its key's fields. Elements are ordered as their text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Element(String);

impl FromIterator<Value> for Element {
    fn from_iter<I: IntoIterator<Item = Value>>(values: I) -> Self {
        Self(joined(values))
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// As nftables writes what belongs together.
fn joined(parts: impl IntoIterator<Item = impl fmt::Display>) -> String {
    let parts: Vec<String> = parts.into_iter().map(|part| part.to_string()).collect();
    parts.join(" . ")
}
