//! The predicted way of a packet, from the same SPD that packets meet.

#![forbid(unsafe_code)]

use crate::filter::{Always, DefaultAction, FilterRule};
use crate::sa::{Path, SaId, Spi};
use crate::traffic::RuleId;
use crypto::Suite;
use policy::{Binding, Mode};

mod description;

pub use description::{BadDescription, parse, protocol, protocol_name};

/// The predicted way of a packet, in both directions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// If it leaves this side.
    pub leaving: OneWayTrace,
    /// If it comes to this side.
    pub arriving: OneWayTrace,
    /// Cleartext that should have been protected is dropped (RFC 4301 §5.2).
    pub inbound_guard: bool,
}

/// The predicted way of a packet in one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OneWayTrace {
    /// The first that covers it.
    pub decided_by: DecidedBy,
    /// SAs of the tunnel, where one decides: for a packet that leaves, in the order in which they are asked; for one
    /// that arrives, those that it may come on.
    pub sas: Vec<SaFacts>,
    /// Others that cover it and are not asked: rules of the filter, then tunnels.
    pub behind: Vec<String>,
    /// The same for packets with a mark or an XFRM interface that the tunnel which decides does not take: by the other
    /// tunnels that cover them.
    pub otherwise: Vec<OneWayTrace>,
}

/// The rule, tunnel or default that decides about a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecidedBy {
    /// It passes before any rule is asked.
    Always(Always),
    /// A rule of the filter.
    Filter {
        /// Its place, from 0.
        place: usize,
        /// The rule.
        rule: FilterRule,
    },
    /// A tunnel.
    Tunnel {
        /// Its rule.
        rule: RuleId,
        /// Its name.
        tunnel: String,
        /// A packet without an SA asks for one.
        trap: bool,
        /// The kernel's policy that the packet meets, for a tunnel that is there.
        kernel: Option<KernelPolicy>,
    },
    /// This host itself sends it to the remote network of a tunnel, and no tunnel has its source. The guard drops it.
    RemoteNetwork {
        /// The name of the tunnel.
        tunnel: String,
    },
    /// Nothing covers it.
    Default(DefaultAction),
}

/// A policy in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelPolicy {
    /// As `ip xfrm policy` shows it.
    pub priority: u32,
    /// The mark and interface that the packet must have, beside addresses and ports.
    pub binding: Binding,
}

/// An SA that a packet may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaFacts {
    /// Its name.
    pub id: SaId,
    /// Its SPI.
    pub spi: Spi,
    /// Cipher.
    pub suite: Suite,
    /// Transport or tunnel mode.
    pub mode: Mode,
    /// Between which addresses, and how.
    pub path: Path,
    /// Octets of the longest packet that fits; 0: not enforced.
    pub inner_mtu: usize,
    /// It carries the packet: the peer may have agreed to less than the tunnel's traffic.
    pub carries: bool,
}
