//! This crate has the facts about a host that decide whether the packets of a tunnel pass, as values: its addresses, its
//! routes, the settings of its kernel and its packet filter. Nothing in this crate reads a file or a socket.
//!
//! ```text
//! Questions ──► host::facts::collect, host::firewall::read (Linux) ──► HostFacts ──► judged elsewhere
//!                                                                        └─ firewall: Firewall::fate(hook, packet)
//! ```
//!
//! # Example
//!
//! ```
//! use host_facts::firewall::{Fate, Firewall, Hook, Packet};
//! use policy::AddressRange;
//!
//! let rules = r#"{"nftables": [
//!     {"chain": {"family": "ip", "table": "local", "name": "in", "type": "filter", "hook": "input", "prio": 0,
//!                "policy": "drop"}}
//! ]}"#;
//! let one = |last| AddressRange::from(std::net::IpAddr::from([10, 2, 0, last]));
//! let packet = Packet {
//!     arrives: None,
//!     leaves: None,
//!     source: one(1),
//!     destination: one(2),
//!     protocol: None,
//!     established: false,
//!     guessed: false,
//! };
//! let Fate::Dropped(place) = Firewall::parse(rules).fate(Hook::Input, &packet) else { panic!("it passes") };
//! assert_eq!(place.to_string(), "the policy of the chain ip local in");
//! ```
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | Which rules of nftables are understood? | `firewall.rs`; its expressions: `firewall/expression.rs` |
//! | What is known of addresses and routes? | `route.rs` |
//! | How does a range of addresses become prefixes? | `prefix.rs` |
#![forbid(unsafe_code)]

pub mod firewall;
mod prefix;
mod route;

pub use prefix::{Prefix, prefixes};
pub use route::{Attachment, Family, RouteLookup};

use firewall::Firewall;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The facts to collect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Questions {
    /// Addresses to which packets without a mark, and packets with this one, go.
    pub destinations: BTreeSet<IpAddr>,
    /// The mark of packets that must not enter a tunnel.
    pub mark: u32,
    /// Devices whose settings matter, beside those by which the packets leave.
    pub devices: BTreeSet<String>,
}

/// The facts about a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// The addresses of this host.
    pub attachments: Vec<Attachment>,
    /// The routes to the destinations, without the mark and with it; `None`: no route leads there. A destination that
    /// is absent is unknown.
    pub routes: BTreeMap<(IpAddr, bool), Option<RouteLookup>>,
    /// Whether the kernel forwards packets that arrive on a device, or, with the name `all`, at all. Settings that
    /// cannot be read are absent.
    pub forwarding: BTreeMap<(Family, String), bool>,
    /// The reverse path filter of each device: the larger one of the device's value and that of all devices.
    pub rp_filter: BTreeMap<String, u8>,
    /// The packet filter. It is collected apart, because that takes longer.
    pub firewall: Firewall,
}

impl HostFacts {
    /// The addresses of this host.
    pub fn own(&self) -> impl Iterator<Item = IpAddr> {
        self.attachments.iter().map(|attachment| attachment.address)
    }
}
