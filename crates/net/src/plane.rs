//! The data plane of a process without a device: the datapath, and the news of its rules and SAs for sockets.

use crate::mailbox::Mailbox;
use crate::routes::Routes;
use esp::datapath::Datapath;
use esp::plane::{
    Capabilities, DataPlane, EarlyPackets, Encapsulation, Filtering, InboundSa, ManualKeying,
    OutboundSa, Path, PathMtu, PlaneError, ReplayCounters, Rule, RuleId, SaEntry, SaId, Usage,
};
use policy::Mode;
use std::fmt;
use std::sync::Arc;

/// The data plane behind the sockets of a [`Network`](crate::Network). When it is dropped, all of them fail.
pub struct InProcess {
    datapath: Datapath,
    routes: Arc<Routes>,
    mailbox: Arc<Mailbox>,
    /// Packets start the tunnels.
    traps: bool,
}

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcess").field("datapath", &self.datapath).finish_non_exhaustive()
    }
}

impl InProcess {
    pub(crate) fn new(
        datapath: Datapath,
        routes: Arc<Routes>,
        mailbox: Arc<Mailbox>,
        traps: bool,
    ) -> Self {
        Self { datapath, routes, mailbox, traps }
    }

    /// The dropped packets by reason.
    pub fn counters(&self) -> std::collections::BTreeMap<&'static str, u64> {
        self.datapath.counters()
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        self.mailbox.close();
    }
}

/// Only what a UDP socket can carry, between the sockets of this process and the peer.
fn is_possible(mode: Mode, path: &Path) -> Result<(), PlaneError> {
    let why = match (mode, path.encapsulation) {
        (Mode::Transport, _) => {
            "sockets over a tunnel need tunnel mode, but the policy has transport mode"
        }
        (_, Encapsulation::Udp) => return Ok(()),
        (_, Encapsulation::Ah) => "AH needs a raw socket, which this process has not; use ESP",
        (_, Encapsulation::Native) => {
            "the peer has no NAT traversal (RFC 3948), and ESP outside of UDP needs a raw socket, which this process \
             has not; turn on NAT traversal at the peer"
        }
    };
    let what = format!("an SA between {} and {}", path.local.ip(), path.remote.ip());
    Err(PlaneError::System { what, why: why.to_owned() })
}

impl DataPlane for InProcess {
    fn add_rule(&mut self, rule: Rule) -> Result<(), PlaneError> {
        let rule = Rule { trap: rule.trap || self.traps, ..rule };
        self.datapath.add_rule(rule.clone())?;
        self.routes.add_rule(rule);
        Ok(())
    }

    fn renumber_rule(&mut self, rule: RuleId, to: RuleId) {
        self.datapath.renumber_rule(rule, to);
        self.routes.renumber_rule(rule, to);
    }

    fn set_trap(&mut self, rule: RuleId) {
        self.datapath.set_trap(rule);
    }

    fn remove_rule(&mut self, rule: RuleId) {
        self.datapath.remove_rule(rule);
        self.routes.remove_rule(rule);
    }

    fn add_inbound(&mut self, sa: InboundSa) -> Result<(), PlaneError> {
        is_possible(sa.mode, &sa.path)?;
        self.datapath.add_inbound(sa)
    }

    fn add_outbound(&mut self, sa: OutboundSa) -> Result<(), PlaneError> {
        is_possible(sa.mode, &sa.path)?;
        let serving = SaEntry::outbound(&sa, Arc::clone(&sa.selectors));
        self.datapath.add_outbound(sa)?;
        self.routes.add_outbound(serving);
        Ok(())
    }

    fn promote(&mut self, sa: SaId) -> Result<(), PlaneError> {
        self.datapath.promote(sa)?;
        self.routes.promote(sa);
        Ok(())
    }

    fn relocate(&mut self, sa: SaId, path: Path) -> Result<(), PlaneError> {
        is_possible(Mode::Tunnel, &path)?;
        self.datapath.relocate(sa, path)
    }

    fn remove(&mut self, sa: SaId) -> Option<Usage> {
        self.routes.remove_outbound(sa);
        self.datapath.remove(sa)
    }

    fn usage(&mut self, sa: SaId) -> Option<Usage> {
        self.datapath.usage(sa)
    }
}

impl Capabilities for InProcess {
    fn manual_keying(&mut self) -> Option<&mut dyn ManualKeying> {
        self.datapath.manual_keying()
    }

    fn replay_counters(&mut self) -> Option<&mut dyn ReplayCounters> {
        self.datapath.replay_counters()
    }

    fn filtering(&mut self) -> Option<&mut dyn Filtering> {
        self.datapath.filtering()
    }

    fn path_mtu(&mut self) -> Option<&mut dyn PathMtu> {
        self.datapath.path_mtu()
    }

    fn early_packets(&mut self) -> Option<&mut dyn EarlyPackets> {
        self.datapath.early_packets()
    }
}
