//! The userspace plane's optional capabilities.

use super::Userspace;
use esp::families::Families;
use esp::filter::{Always, Direction, Filter, FilterStatus};
use esp::path_mtu::Fit;
use esp::plane::{
    Capabilities, DataPlane, EarlyPackets, FamilySwitching, Filtering, Maintenance, ManualKeying,
    PacketSummary, PathMtu, PeerExceptions, PlaneError, ReplayCounters, Restored, Resynced, RuleId,
    SaId, Spi,
};
use esp::trace::{DecidedBy, Trace};
use floor::refused;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

impl Capabilities for Userspace {
    fn manual_keying(&mut self) -> Option<&mut dyn ManualKeying> {
        Some(self)
    }

    fn replay_counters(&mut self) -> Option<&mut dyn ReplayCounters> {
        Some(self)
    }

    fn filtering(&mut self) -> Option<&mut dyn Filtering> {
        Some(self)
    }

    fn path_mtu(&mut self) -> Option<&mut dyn PathMtu> {
        Some(self)
    }

    fn early_packets(&mut self) -> Option<&mut dyn EarlyPackets> {
        Some(self)
    }

    fn peer_exceptions(&mut self) -> Option<&mut dyn PeerExceptions> {
        Some(self)
    }

    fn maintenance(&mut self) -> Option<&mut dyn Maintenance> {
        Some(self)
    }

    fn family_switching(&mut self) -> Option<&mut dyn FamilySwitching> {
        Some(self)
    }
}

impl FamilySwitching for Userspace {
    fn set_families(&mut self, families: Families) -> Result<(), PlaneError> {
        self.datapath.set_families(families)
    }
}

impl Maintenance for Userspace {
    /// All SAs are in this process.
    fn resync(&mut self) -> Result<Resynced, PlaneError> {
        Ok(Resynced::default())
    }

    fn use_room(&mut self) {}

    fn network_changed(&mut self) {}

    fn restore(&mut self) -> Result<Restored, PlaneError> {
        let outcome = self.restore_parts();
        self.fault = outcome.as_ref().err().map(ToString::to_string);
        outcome
    }

    fn fault(&mut self, sa: SaId) -> Option<String> {
        self.fault.clone().filter(|_| self.ledger.sa(sa).is_some())
    }

    fn unserved(&mut self) -> BTreeMap<String, u64> {
        self.config.workers.discard_unread();
        self.datapath.unserved()
    }
}

impl Userspace {
    fn restore_parts(&mut self) -> Result<Restored, PlaneError> {
        let mut restored = Restored::default();
        if self.lacks_device()? {
            self.replace_device()?;
            restored.device = true;
        }
        let Some(device) = &mut self.device else { return Ok(restored) };
        let name = &self.host.settings.device;
        let fault = |e| refused(format!("restoring the routes to the tunnel device {name}"), &e);
        (restored.rules, restored.routes) = device.routing.restore_routes().map_err(fault)?;
        Ok(restored)
    }
}

impl ManualKeying for Userspace {
    fn set_reqid(&mut self, rule: RuleId, reqid: u32) -> Result<(), PlaneError> {
        self.datapath.set_reqid(rule, reqid)
    }

    fn resume(&mut self, sa: SaId, used: u64) -> Result<(), PlaneError> {
        self.datapath.resume(sa, used)
    }

    fn allow(&mut self, sa: SaId, last: u64) -> Result<(), PlaneError> {
        self.datapath.allow(sa, last)
    }

    fn last_sequence(&mut self, sa: SaId) -> Option<u64> {
        self.datapath.last_sequence(sa)
    }

    fn retire(&mut self, sa: SaId) -> Option<u64> {
        let last = self.datapath.retire(sa)?;
        self.remove(sa);
        Some(last)
    }
}

impl ReplayCounters for Userspace {
    fn skip(&mut self, sa: SaId, count: u64) -> Result<(), PlaneError> {
        self.datapath.skip(sa, count)
    }
}

impl PathMtu for Userspace {
    fn fit(&mut self, sa: SaId) -> Option<Fit> {
        let fit = self.datapath.fit(sa)?;
        Some(Fit { inner_mtu: fit.inner_mtu.min(self.mtu.into()), ..fit })
    }
}

impl EarlyPackets for Userspace {
    fn expect_sa(&mut self, spi: Spi, peer: IpAddr) {
        self.datapath.expect_sa(spi, peer);
    }

    fn expect_no_sa(&mut self, spi: Spi) {
        self.datapath.expect_no_sa(spi);
    }
}

impl PeerExceptions for Userspace {
    /// Lets the packets of a peer in that the kernel would drop because its own address lies in the remote side of a
    /// rule.
    fn expect_peer(&mut self, peer: IpAddr) {
        self.admit_peer(peer);
    }
}

/// The filter of the packets that come to the device. The host's is [`Floor`](floor::Floor)'s.
impl Filtering for Userspace {
    fn set_filter(&mut self, filter: Arc<Filter>) -> Result<(), PlaneError> {
        self.datapath.set_filter(filter)
    }

    fn filter_status(&mut self) -> Option<FilterStatus> {
        self.datapath.filter_status()
    }

    fn trace(&mut self, packet: &PacketSummary) -> Option<Trace> {
        let mut trace = self.datapath.trace(packet)?;
        for (one_way, way) in
            [(&mut trace.leaving, Direction::Out), (&mut trace.arriving, Direction::In)]
        {
            let by_tunnel = matches!(one_way.decided_by, DecidedBy::Tunnel { .. });
            let always = Always::of(packet, way, self.host.natt_port);
            if let Some(always) = always.filter(|a| !(by_tunnel && a.yields_to_tunnels())) {
                one_way.decided_by = DecidedBy::Always(always);
                one_way.sas.clear();
            }
        }
        Some(trace)
    }
}
