//! The seam between key management and whatever protects packets.

use crate::filter::{Filter, FilterStatus};
use crate::path_mtu::Fit;
use crate::trace::Trace;
use crypto::Suite;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

pub use crate::rule::{Rule, RuleId};
pub use crate::sa::{Encapsulation, InboundSa, Limits, OutboundSa, Path, SaId, Spi, Usage};
pub use crate::traffic::{PacketSummary, TrafficSelectors};

/// What a plane tells key management.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A packet met a trap without an SA.
    Acquire {
        /// The rule it met.
        rule: RuleId,
        /// The packet.
        packet: PacketSummary,
    },
    /// Others have removed something of this plane from the system: [`DataPlane::resync`] puts it back.
    Disturbed,
    /// A network card has room again that SAs wait for: [`DataPlane::use_room`] gives it to them.
    Room,
    /// An SA reached a limit of volume or of sequence numbers.
    Expiring {
        /// The SA.
        sa: SaId,
        /// Whether it is no longer used.
        hard: bool,
    },
    /// An authentic ESP packet came from another address or port (RFC 7296 §2.23).
    PeerMoved {
        /// The inbound SA it came on.
        sa: SaId,
        /// Where it came from.
        remote: SocketAddr,
    },
}

/// What has been put right of a plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resynced {
    /// SAs that were missing.
    pub sas: usize,
    /// Policies that were missing.
    pub policies: usize,
    /// SAs that have gone into a network card or out of one.
    pub moved: usize,
}

/// A plane cannot do what it is asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
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
        /// What was asked for.
        what: String,
        /// Where there is none.
        why: String,
    },
    /// The system refused.
    #[error("{what}: {why}")]
    System {
        /// What was asked of it.
        what: String,
        /// Its answer.
        why: String,
    },
}

/// Where packets are protected. A call returns once the change is in force.
pub trait DataPlane {
    /// Requires that the rule's traffic be protected. Rules are matched in ascending order of [`RuleId`].
    fn add_rule(&mut self, rule: Rule) -> Result<(), PlaneError>;
    /// Adds several rules at once; returns those that cannot be added, and why.
    fn add_rules(&mut self, rules: Vec<Rule>) -> Vec<(RuleId, PlaneError)> {
        let add = |rule: Rule| (rule.id, self.add_rule(rule));
        rules.into_iter().map(add).filter_map(|(id, added)| Some((id, added.err()?))).collect()
    }
    /// Gives a rule another name that is free, and so another place among the rules; its SAs go on to serve it. Unknown
    /// names are ignored.
    fn rename_rule(&mut self, rule: RuleId, to: RuleId);
    /// Has packets of a rule ask for an SA from now on where they meet none ([`Rule::trap`]). Unknown names are ignored.
    fn set_trap(&mut self, rule: RuleId);
    /// Has the system know a rule's SAs by a number of the operator's choice, where it has one for them (reqid): to be called
    /// before the rule has SAs.
    ///
    /// # Errors
    /// Where the number cannot be had, or there is no such rule.
    fn set_reqid(&mut self, rule: RuleId, reqid: u32) -> Result<(), PlaneError> {
        let _ = (rule, reqid);
        Ok(())
    }
    /// Forgets a rule; its traffic is no longer this plane's concern.
    fn remove_rule(&mut self, rule: RuleId);
    /// Tells of a peer's address, which may lie in the remote side of a rule: its IKE messages must get in before any SA
    /// tells where it is. To be called once the rules are there.
    fn expect_peer(&mut self, peer: IpAddr) {
        let _ = peer;
    }
    /// Receives on an SA from now on.
    fn add_inbound(&mut self, sa: InboundSa) -> Result<(), PlaneError>;
    /// Sends on an SA from now on: the rule's traffic that its selectors cover takes the SA added or promoted last.
    fn add_outbound(&mut self, sa: OutboundSa) -> Result<(), PlaneError>;
    /// Starts to use an outbound SA that was added in standby.
    fn promote(&mut self, sa: SaId) -> Result<(), PlaneError>;
    /// Has an outbound SA in standby go on after that sequence number, with which its key has been used before.
    ///
    /// # Errors
    /// Where the plane cannot, or there is no such SA.
    fn resume(&mut self, sa: SaId, used: u64) -> Result<(), PlaneError> {
        Err(PlaneError::System {
            what: format!("going on with SA {} after packet {used}", sa.0),
            why: "this data plane always begins with the first one".to_owned(),
        })
    }
    /// The last sequence number that an outbound SA has used; `None` where there is no such SA.
    fn last_sequence(&mut self, sa: SaId) -> Option<u64> {
        let _ = sa;
        None
    }
    /// Moves an SA of either direction to another path.
    fn relocate(&mut self, sa: SaId, path: Path) -> Result<(), PlaneError>;
    /// Forgets an SA of either direction and wipes its keys. Returns what it has done in all, to the last packet; `None` if
    /// there is no such SA.
    fn remove(&mut self, sa: SaId) -> Option<Usage>;
    /// What an SA has done so far; `None` if there is no such SA.
    fn usage(&mut self, sa: SaId) -> Option<Usage>;
    /// Has the crypto facility know what was done so far for SAs that others serve: it asks the rest by itself.
    fn tell_work(&mut self) {}
    /// How long the packets of an SA that sends may be; `None` if there is no such SA, or the plane cannot tell.
    fn fit(&mut self, sa: SaId) -> Option<Fit> {
        let _ = sa;
        None
    }
    /// Puts right what others have changed of this plane in the system, and moves SAs to where they are wanted.
    ///
    /// # Errors
    /// Where the system refuses something; the rest is put right all the same.
    fn resync(&mut self) -> Result<Resynced, PlaneError> {
        Ok(Resynced::default())
    }
    /// Puts SAs into network cards that have had no room for them before, and have it now.
    fn use_room(&mut self) {}
    /// Looks whether devices have gone that it relies on: the host's links, addresses or routes have changed.
    fn network_changed(&mut self) {}
    /// Replaces what happens to traffic that is no tunnel's.
    ///
    /// # Errors
    /// Where the plane has no filter or the system refuses; what was in force stays in force.
    fn set_filter(&mut self, filter: Arc<Filter>) -> Result<(), PlaneError> {
        let _ = filter;
        Err(PlaneError::System {
            what: "setting the filter".to_owned(),
            why: "this data plane has none".to_owned(),
        })
    }
    /// The filter in force, and what it has done; `None` where the plane has none.
    fn filter(&mut self) -> Option<FilterStatus> {
        None
    }
    /// What would become of a packet; `None` where the plane cannot tell.
    fn trace(&mut self, packet: &PacketSummary) -> Option<Trace> {
        let _ = packet;
        None
    }
}
