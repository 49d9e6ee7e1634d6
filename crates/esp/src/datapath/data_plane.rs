//! The datapath as key management sees it: rules and SAs are added, changed and removed.

use super::{Datapath, Installed, Shared, lock};
use crate::discard::Discard;
use crate::families::Families;
use crate::filter::{Filter, FilterCounts, FilterStatus};
use crate::inbound::Inbound;
use crate::outbound::Outbound;
use crate::path_mtu::Fit;
use crate::plane::{
    Capabilities, DataPlane, EarlyPackets, Encapsulation, FamilySwitching, Filtering, InboundSa,
    ManualKeying, OutboundSa, PacketSummary, Path, PathMtu, PlaneError, ReplayCounters, Rule,
    RuleId, SaId, Spi, Usage,
};
use crate::sequence::Sequence;
use crate::spd::Service;
use crate::trace::Trace;
use crypto::{CipherError, Suite};
use policy::Mode;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Below it SPIs are reserved; with 0, UDP encapsulation would turn ESP into IKE (RFC 3948 §2.2).
const FIRST_SPI: u32 = 256;

impl DataPlane for Datapath {
    fn add_rule(&mut self, rule: Rule) -> Result<(), PlaneError> {
        let _one_at_a_time = lock(&self.0.installed);
        self.0.spd.insert(rule);
        Ok(())
    }

    fn renumber_rule(&mut self, rule: RuleId, to: RuleId) {
        let _one_at_a_time = lock(&self.0.installed);
        self.0.spd.rename(rule, to);
    }

    fn set_trap(&mut self, rule: RuleId) {
        let _one_at_a_time = lock(&self.0.installed);
        if let Some(rule) = self.0.spd.rule(rule) {
            self.0.spd.insert(Rule { trap: true, ..rule });
        }
    }

    fn remove_rule(&mut self, rule: RuleId) {
        let _one_at_a_time = lock(&self.0.installed);
        if let Some(entry) = self.0.spd.remove(rule) {
            while entry.service.release().is_some() {
                self.0.counters.count(Discard::NoPolicy);
            }
        }
    }

    fn add_inbound(&mut self, sa: InboundSa) -> Result<(), PlaneError> {
        let shared = &*self.0;
        let mut installed = lock(&shared.installed);
        name_is_free(&installed, sa.id)?;
        spi_is_lawful(sa.id, sa.spi)?;
        may_travel(sa.suite, &sa.path)?;
        let sad = shared.sad(sa.suite);
        if sad.has(sa.spi, sa.path.local.ip()) {
            return Err(PlaneError::SpiInUse(sa.spi));
        }
        let (id, spi, path) = (sa.id, sa.spi, sa.path);
        let provider = shared.settings.crypto.provider(sa.suite);
        shared.enter_path(&path, id, None);
        let families = Arc::clone(&shared.families);
        let sa = Inbound::new(sa, provider, shared.room(&path), families).map_err(|error| {
            shared.leave_path(&path, id, None);
            no_cipher(spi, error)
        })?;
        let frozen = shared.frozen.load(Relaxed);
        if frozen {
            sa.freeze();
        }
        let sa = Arc::new(sa);
        sad.insert(Arc::clone(&sa));
        installed.insert(id, Installed::Inbound(Arc::clone(&sa)));
        drop(installed);
        // Nobody has announced one that is keyed by hand.
        match (sa.suite.is_ah(), id.is_manual()) {
            (false, false) if frozen => {}
            (false, false) => shared.open_early(&sa),
            // ESP with the SPI of an SA for AH is no packet of this SA.
            (true, false) => self.expect_no_sa(spi),
            (_, true) => {}
        }
        Ok(())
    }

    fn add_outbound(&mut self, sa: OutboundSa) -> Result<(), PlaneError> {
        let shared = &*self.0;
        let mut installed = lock(&shared.installed);
        let service = shared.spd.service(sa.rule).ok_or(PlaneError::NoSuchRule(sa.rule))?;
        let standby = sa.standby;
        let sa = shared.install_outbound(&mut installed, sa, &service)?;
        if !standby {
            shared.serve(&service, &sa);
        }
        Ok(())
    }

    fn promote(&mut self, sa: SaId) -> Result<(), PlaneError> {
        let shared = &*self.0;
        let installed = lock(&shared.installed);
        let Some(Installed::Outbound { sa, service }) = installed.get(&sa) else {
            return Err(PlaneError::NoSuchSa(sa));
        };
        shared.serve(service, sa);
        Ok(())
    }

    fn relocate(&mut self, sa: SaId, path: Path) -> Result<(), PlaneError> {
        let shared = &*self.0;
        match lock(&shared.installed).get(&sa) {
            Some(Installed::Inbound(sa)) => {
                may_travel(sa.suite, &path)?;
                shared.leave_path(&sa.path(), sa.id, None);
                shared.enter_path(&path, sa.id, None);
                sa.relocate(path, shared.room(&path));
            }
            Some(Installed::Outbound { sa, .. }) => {
                may_travel(sa.suite, &path)?;
                shared.leave_path(&sa.path(), sa.id, Some(sa.spi));
                shared.enter_path(&path, sa.id, Some(sa.spi));
                sa.relocate(path, shared.room(&path));
            }
            None => return Err(PlaneError::NoSuchSa(sa)),
        }
        Ok(())
    }

    fn remove(&mut self, sa: SaId) -> Option<Usage> {
        let shared = &*self.0;
        let mut installed = lock(&shared.installed);
        let removed = installed.remove(&sa)?;
        match &removed {
            Installed::Inbound(sa) => {
                shared.sad(sa.suite).remove(sa);
                sa.close();
                shared.leave_path(&sa.path(), sa.id, None);
            }
            Installed::Outbound { sa, service } => {
                service.withdraw(sa.id);
                shared.spd.changed();
                sa.close();
                shared.leave_path(&sa.path(), sa.id, Some(sa.spi));
                if sa.mode == Mode::Transport {
                    shared.count_transports(|count| _ = count.fetch_sub(1, Relaxed));
                }
            }
        }
        shared.settings.crypto.attribute(removed.operated());
        Some(removed.usage(shared.epoch))
    }

    fn usage(&mut self, sa: SaId) -> Option<Usage> {
        Some(lock(&self.0.installed).get(&sa)?.usage(self.0.epoch))
    }
}

impl Capabilities for Datapath {
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

    fn family_switching(&mut self) -> Option<&mut dyn FamilySwitching> {
        Some(self)
    }
}

impl FamilySwitching for Datapath {
    fn set_families(&mut self, families: Families) -> Result<(), PlaneError> {
        let _one_at_a_time = lock(&self.0.installed);
        self.0.families.set(families);
        self.0.spd.changed();
        Ok(())
    }
}

impl Datapath {
    fn outbound(&self, sa: SaId) -> Option<Arc<Outbound>> {
        match lock(&self.0.installed).get(&sa)? {
            Installed::Outbound { sa, .. } => Some(Arc::clone(sa)),
            Installed::Inbound(_) => None,
        }
    }
}

impl Shared {
    /// Adds an SA that sends, in standby whatever it says, to those of a rule.
    pub(super) fn install_outbound(
        &self,
        installed: &mut BTreeMap<SaId, Installed>,
        sa: OutboundSa,
        service: &Arc<Service>,
    ) -> Result<Arc<Outbound>, PlaneError> {
        name_is_free(installed, sa.id)?;
        spi_is_lawful(sa.id, sa.spi)?;
        may_travel(sa.suite, &sa.path)?;
        let (id, spi, path) = (sa.id, sa.spi, sa.path);
        let transports = sa.mode == Mode::Transport;
        let provider = self.settings.crypto.provider(sa.suite);
        self.spd.enable_port_matching(&sa.selectors);
        self.enter_path(&path, id, Some(spi));
        let sa = Outbound::new(sa, provider, self.room(&path)).map_err(|error| {
            self.leave_path(&path, id, Some(spi));
            no_cipher(spi, error)
        })?;
        if self.frozen.load(Relaxed) {
            sa.freeze();
        }
        let sa = Arc::new(sa);
        if transports {
            self.count_transports(|count| _ = count.fetch_add(1, Relaxed));
        }
        let service = Arc::clone(service);
        installed.insert(id, Installed::Outbound { sa: Arc::clone(&sa), service });
        Ok(sa)
    }
}

impl ManualKeying for Datapath {
    /// No other program sees the SAs of this plane, so that their number has no meaning.
    fn set_reqid(&mut self, _rule: RuleId, _reqid: u32) -> Result<(), PlaneError> {
        Ok(())
    }

    fn resume(&mut self, sa: SaId, used: u64) -> Result<(), PlaneError> {
        match lock(&self.0.installed).get(&sa) {
            // A number above the highest would mark the SA as closed, which it is not.
            Some(Installed::Outbound { .. }) if used > Sequence::HIGHEST => {
                Err(PlaneError::System {
                    what: format!("going on with SA {} after packet {used}", sa.0),
                    why: format!("the highest sequence number is {}", Sequence::HIGHEST),
                })
            }
            Some(Installed::Outbound { sa, .. }) => {
                sa.resume(used);
                Ok(())
            }
            _ => Err(PlaneError::NoSuchSa(sa)),
        }
    }

    fn allow(&mut self, sa: SaId, last: u64) -> Result<(), PlaneError> {
        let outbound = self.outbound(sa).ok_or(PlaneError::NoSuchSa(sa))?;
        outbound.allow(last);
        Ok(())
    }

    fn last_sequence(&mut self, sa: SaId) -> Option<u64> {
        Some(self.outbound(sa)?.last_sequence())
    }

    fn retire(&mut self, sa: SaId) -> Option<u64> {
        let outbound = self.outbound(sa)?;
        // Afterwards nobody claims a number.
        self.remove(sa)?;
        Some(outbound.last_sequence())
    }
}

impl ReplayCounters for Datapath {
    fn skip(&mut self, sa: SaId, count: u64) -> Result<(), PlaneError> {
        match lock(&self.0.installed).get(&sa) {
            Some(Installed::Inbound(sa)) => sa.skip(count),
            Some(Installed::Outbound { sa: outbound, .. }) if outbound.skip(count) => {}
            _ => return Err(PlaneError::NoSuchSa(sa)),
        }
        Ok(())
    }
}

impl EarlyPackets for Datapath {
    fn expect_sa(&mut self, spi: Spi, peer: IpAddr) {
        self.0.early.expect(spi, peer);
    }

    fn expect_no_sa(&mut self, spi: Spi) {
        for _packet in self.0.early.take(spi) {
            self.0.counters.count(Discard::UnknownSpi);
        }
    }
}

impl PathMtu for Datapath {
    fn fit(&mut self, sa: SaId) -> Option<Fit> {
        match lock(&self.0.installed).get(&sa)? {
            Installed::Inbound(_) => None,
            Installed::Outbound { sa, .. } => Some(sa.fit()),
        }
    }
}

impl Filtering for Datapath {
    /// Only packets that are given to `encapsulate` meet the rules; the defaults apply to none.
    fn set_filter(&mut self, filter: Arc<Filter>) -> Result<(), PlaneError> {
        let _one_at_a_time = lock(&self.0.installed);
        self.0.spd.set_filter(filter);
        Ok(())
    }

    fn filter_status(&mut self) -> Option<FilterStatus> {
        let filter = self.0.spd.filter();
        let counts = FilterCounts {
            rules: vec![Default::default(); filter.rules.len()],
            ..Default::default()
        };
        Some(FilterStatus { filter, counts, inbound_guard: false })
    }

    fn trace(&mut self, packet: &PacketSummary) -> Option<Trace> {
        Some(self.0.trace(packet))
    }
}

fn name_is_free(installed: &BTreeMap<SaId, Installed>, sa: SaId) -> Result<(), PlaneError> {
    if !installed.contains_key(&sa) {
        return Ok(());
    }
    Err(PlaneError::System {
        what: format!("adding SA {}", sa.0),
        why: "an SA of that name is installed; remove it first".into(),
    })
}

/// Refuses SPIs that are reserved. A manual SA may have a reserved SPI, but never 0, which is no SPI.
fn spi_is_lawful(sa: SaId, spi: Spi) -> Result<(), PlaneError> {
    if spi.0 >= FIRST_SPI || sa.is_manual() && spi.0 > 0 {
        return Ok(());
    }
    Err(PlaneError::System {
        what: format!("adding SPI {spi}"),
        why: format!("SPIs below {FIRST_SPI} are reserved (RFC 4303 §2.1)"),
    })
}

/// AH covers the addresses, which a NAT changes.
fn may_travel(suite: Suite, path: &Path) -> Result<(), PlaneError> {
    if !suite.is_ah() || path.encapsulation != Encapsulation::Udp {
        return Ok(());
    }
    Err(PlaneError::System {
        what: format!("sending {suite} between {} and {}", path.local.ip(), path.remote.ip()),
        why: "AH covers the addresses, so that it passes no NAT and never goes in UDP; use ESP"
            .into(),
    })
}

fn no_cipher(spi: Spi, error: CipherError) -> PlaneError {
    match error {
        CipherError::Unsupported { suite, .. } => PlaneError::Suite(suite),
        error @ CipherError::KeyLength { .. } => PlaneError::System {
            what: format!("making the cipher of SPI {spi}"),
            why: error.to_string(),
        },
    }
}
