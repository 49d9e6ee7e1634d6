//! The seam between key management and whatever protects packets.

mod capabilities;
mod ledger;

use crypto::Suite;
use std::fmt;
use std::net::SocketAddr;

pub use crate::sa::{Encapsulation, InboundSa, Limits, OutboundSa, Path, SaId, Spi, Usage};
pub use crate::traffic::{PacketSummary, Rule, RuleId, TrafficSelectors};
pub use capabilities::{
    BulkRules, Capabilities, CryptoAccounting, EarlyPackets, FamilySwitching, FilterReader,
    FilterWork, Filtering, Maintenance, ManualKeying, PathMtu, PeerExceptions, Preparation,
    ReplayCounters, add_rules, remove_rules,
};
pub use ledger::{Ledger, RuleEntry, SaEntry};

/// A report of the plane to key management.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A packet met a trap without an SA.
    Acquire {
        /// The rule it met.
        rule: RuleId,
        /// The packet.
        packet: PacketSummary,
    },
    /// Another program has removed something of this plane from the system: [`Maintenance::resync`] puts it back.
    Disturbed,
    /// The guard has dropped a packet that was about to leave in the clear.
    Unprotected(PacketSummary),
    /// Others have removed or changed parts of this plane on the host: [`Maintenance::restore`] puts them back.
    HostChanged,
    /// The plane may be prepared now for a rule for which it was not yet: [`Preparation::prepare`] tells.
    Prepared,
    /// A network card has room again for SAs that wait for it: [`Maintenance::use_room`] moves them there.
    Room,
    /// An SA reached a limit of volume or of sequence numbers.
    Expiring {
        /// The SA.
        sa: SaId,
        /// The SA is no longer used.
        hard: bool,
    },
    /// An authentic ESP packet came from another address or port (RFC 7296 §2.23).
    PeerMoved {
        /// The inbound SA it came on.
        sa: SaId,
        /// The address and port that it came from.
        remote: SocketAddr,
    },
}

/// The result of [`Maintenance::resync`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resynced {
    /// SAs that were missing.
    pub sas: usize,
    /// Policies that were missing.
    pub policies: usize,
    /// SAs that were moved into a network card or out of one.
    pub moved: usize,
}

/// The result of [`Maintenance::restore`]: the parts of a plane that were missing on the host, and are there again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Restored {
    /// The network device was missing.
    pub device: bool,
    /// Routing rules that were missing.
    pub rules: usize,
    /// Routes that were missing, or preferred a source address that is no longer the right one.
    pub routes: usize,
    /// Tables of nftables that others had changed.
    pub tables: usize,
    /// SAs that were missing in the kernel.
    pub sas: usize,
    /// Policies that were missing in the kernel.
    pub policies: usize,
}

impl fmt::Display for Restored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, rules, routes, tables, sas, policies } = *self;
        let some = |n: usize, one: &str, many: &str| match n {
            0 => None,
            1 => Some(format!("1 {one}")),
            n => Some(format!("{n} {many}")),
        };
        let parts = [
            device.then(|| "the tunnel device".to_owned()),
            some(rules, "routing rule", "routing rules"),
            some(routes, "route", "routes"),
            some(tables, "nftables table", "nftables tables"),
            some(sas, "SA of the kernel", "SAs of the kernel"),
            some(policies, "policy of the kernel", "policies of the kernel"),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        f.write_str(&parts.join(", "))
    }
}

impl std::ops::AddAssign for Restored {
    fn add_assign(&mut self, more: Self) {
        self.device |= more.device;
        self.rules += more.rules;
        self.routes += more.routes;
        self.tables += more.tables;
        self.sas += more.sas;
        self.policies += more.policies;
    }
}

/// The refusal of a plane.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlaneError {
    /// The SPI is in use.
    #[error("SPI {0} is in use")]
    SpiInUse(Spi),
    /// The plane lacks the suite.
    #[error("no provider has {0}")]
    Suite(Suite),
    /// No such rule.
    #[error("no rule {0:?}")]
    NoSuchRule(RuleId),
    /// No such SA.
    #[error("no SA {0:?}")]
    NoSuchSa(SaId),
    /// There is no room for it.
    #[error("{what}: {why}")]
    Full {
        /// The action that was refused.
        what: String,
        /// The place that is full.
        why: String,
    },
    /// The system refused.
    #[error("{what}: {why}")]
    System {
        /// The action that was refused.
        what: String,
        /// The system's answer.
        why: String,
    },
}

policy::readable_debug!(PlaneError);

/// A plane that protects packets: the ten methods that every plane has. A call returns once the change is in force.
///
/// A plane that can do more says so through its [`Capabilities`]; one that cannot has an empty
/// `impl Capabilities for … {}`.
pub trait DataPlane: Capabilities {
    /// Requires protection for the rule's traffic. Rules are matched in ascending order of [`RuleId`]. A rule with the
    /// name of another one takes its place, with its SAs; traffic that both cover is protected or dropped all the time.
    fn add_rule(&mut self, rule: Rule) -> Result<(), PlaneError>;
    /// Gives a rule another name that is free, and so another place among the rules. Its SAs continue to serve it.
    /// Unknown names are ignored.
    fn renumber_rule(&mut self, rule: RuleId, to: RuleId);
    /// From now on, packets of a rule that meet no SA ask for one ([`Rule::trap`]). Unknown names are ignored.
    fn set_trap(&mut self, rule: RuleId);
    /// Removes a rule: the plane stops matching its traffic. Unknown names are ignored.
    fn remove_rule(&mut self, rule: RuleId);
    /// Receives on an SA from now on.
    fn add_inbound(&mut self, sa: InboundSa) -> Result<(), PlaneError>;
    /// Sends on an SA from now on: the rule's traffic that its selectors cover takes the SA added or promoted last.
    fn add_outbound(&mut self, sa: OutboundSa) -> Result<(), PlaneError>;
    /// Starts to use an outbound SA that was added in standby.
    fn promote(&mut self, sa: SaId) -> Result<(), PlaneError>;
    /// Moves an SA of either direction to another path.
    fn relocate(&mut self, sa: SaId, path: Path) -> Result<(), PlaneError>;
    /// Removes an SA of either direction and wipes its keys. Returns its final counters, which include its last packet;
    /// `None` if there is no such SA.
    fn remove(&mut self, sa: SaId) -> Option<Usage>;
    /// The present counters of an SA; `None` if there is no such SA.
    fn usage(&mut self, sa: SaId) -> Option<Usage>;
}
