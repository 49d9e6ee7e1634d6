//! The policy and the SAs that a packet would meet in the kernel.

#![forbid(unsafe_code)]

use super::{Installed, Xfrm};
use crate::policies::priority;
use esp::plane::{PacketSummary, RuleId, SaId};
use esp::trace::{DecidedBy, KernelPolicy, OneWayTrace, SaFacts};
use std::cmp::Reverse;

impl Xfrm {
    /// Predicts the treatment of a packet about which this rule decides; `leaves`: the packet leaves this side.
    pub(super) fn trace_by(
        &self,
        id: RuleId,
        packet: &PacketSummary,
        leaves: bool,
    ) -> Option<OneWayTrace> {
        let ruled = self.ledger.rule(id)?;
        let of_rule = self.ledger.of_rule(id);
        let mut sas: Vec<(Reverse<u64>, SaFacts)> = of_rule
            .filter(|sa| sa.receives() != leaves)
            .filter_map(|sa| match leaves {
                // The youngest is asked first, one in standby not at all.
                true => Some((Reverse(sa.turn()?), sa.facts(sa.id, packet))),
                false => Some((Reverse(0), sa.facts(sa.id, packet))),
            })
            .filter(|(_, sa)| leaves || sa.carries)
            .collect();
        sas.sort_by_key(|(turn, _)| *turn);
        let sas: Vec<SaFacts> = sas.into_iter().map(|(_, sa)| sa).collect();
        let unserved = leaves && !sas.iter().any(|sa| sa.carries);
        let priority = priority(id).ok()? + u32::from(unserved);
        let rule = &ruled.rule;
        let decided_by = DecidedBy::Tunnel {
            rule: rule.id,
            tunnel: rule.tunnel.clone(),
            trap: rule.trap,
            kernel: Some(KernelPolicy { priority, binding: ruled.binding }),
        };
        Some(OneWayTrace { decided_by, sas, behind: Vec::new(), otherwise: Vec::new() })
    }
}

impl Installed {
    fn facts(&self, id: SaId, packet: &PacketSummary) -> SaFacts {
        let PacketSummary { protocol, source, destination } = *packet;
        let form = &self.form;
        let (local, remote) =
            if form.inbound { (destination, source) } else { (source, destination) };
        SaFacts {
            id,
            spi: form.spi,
            suite: form.suite,
            mode: form.mode,
            path: form.path,
            // The kernel finds out.
            inner_mtu: 0,
            carries: self.selectors.covers(protocol, local, remote),
        }
    }
}
