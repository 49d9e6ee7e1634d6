//! The optional capabilities of both planes together: of the one that serves a rule or SA, or of the one that has them.

use super::guard::Guard;
use super::table_watch::WatchedTable;
use super::{KernelPlane, PlaneKind, Planes};
use esp::families::Families;
use esp::filter::{Filter, FilterStatus};
use esp::path_mtu::Fit;
use esp::plane::{
    BulkRules, Capabilities, CryptoAccounting, DataPlane, EarlyPackets, FamilySwitching,
    FilterReader, FilterWork, Filtering, Maintenance, ManualKeying, Notice, PacketSummary, PathMtu,
    PeerExceptions, PlaneError, Preparation, ReplayCounters, Restored, Resynced, Rule, RuleId,
    SaId, Spi,
};
use esp::trace::{DecidedBy, OneWayTrace, Trace};
use host::Routes;
use policy::Binding;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl<U: DataPlane, K: KernelPlane> Capabilities for Planes<U, K> {
    fn bulk_rules(&mut self) -> Option<&mut dyn BulkRules> {
        Some(self)
    }

    fn preparation(&mut self) -> Option<&mut dyn Preparation> {
        Some(self)
    }

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

    fn crypto_accounting(&mut self) -> Option<&mut dyn CryptoAccounting> {
        Some(self)
    }

    fn binding_of(&self, tunnel: &str) -> Binding {
        self.config.report.binding_of(tunnel)
    }
}

impl<U: DataPlane, K: KernelPlane> BulkRules for Planes<U, K> {
    fn add_rules(&mut self, rules: Vec<Rule>) -> Vec<(RuleId, PlaneError)> {
        // First: whatever becomes of the rules, their traffic does not leave in the clear.
        self.guard(&rules);
        let add = |rule: Rule| {
            let id = rule.id;
            self.place_rule(rule).err().map(|error| (id, error))
        };
        let refused = rules.into_iter().filter_map(add).collect();
        self.guard.iter_mut().for_each(Guard::let_go);
        refused
    }

    fn remove_rules(&mut self, rules: &[RuleId]) {
        for rule in rules {
            self.unplaced.remove(rule);
            self.moved.remove(rule);
            self.mate.take_if(|mate| mate.rule == *rule);
            let Some((removed, place)) = self.rules.remove(rule) else { continue };
            self.config.report.forget(&removed.tunnel);
            self.config.report.routed(*rule, None);
            self.peers.remove(rule);
            if place == PlaneKind::Userspace {
                self.userspace.remove_rule(*rule);
            }
            if let Some(kernel) = &mut self.kernel {
                kernel.remove_rule(*rule);
            }
        }
        self.report_userspace();
        // Last, and also of rules that no plane has taken.
        if let Some(guard) = &mut self.guard {
            guard.uncover(rules);
        }
    }
}

impl<U: DataPlane, K: KernelPlane> FamilySwitching for Planes<U, K> {
    /// Both, also where one refuses.
    fn set_families(&mut self, families: Families) -> Result<(), PlaneError> {
        let of_userspace = self.userspace.family_switching().set_families(families);
        match &mut self.kernel {
            Some(kernel) => of_userspace.and(kernel.family_switching().set_families(families)),
            None => of_userspace,
        }
    }
}

impl<U: DataPlane, K: KernelPlane> Preparation for Planes<U, K> {
    fn prepare(&mut self, rule: &Rule) -> bool {
        let Some(guard) = &mut self.guard else { return true };
        let notice = self.notice.clone();
        let ready = move || notice.iter().for_each(|notice| notice(Notice::Prepared));
        guard.prepare(rule, self.config.guarded(&rule.tunnel), ready)
    }
}

impl<U: DataPlane, K: KernelPlane> ManualKeying for Planes<U, K> {
    fn set_reqid(&mut self, rule: RuleId, reqid: u32) -> Result<(), PlaneError> {
        let place = self.place(rule)?;
        self.plane(place).manual_keying().set_reqid(rule, reqid)
    }

    fn resume(&mut self, sa: SaId, used: u64) -> Result<(), PlaneError> {
        self.plane_of(sa)?.manual_keying().resume(sa, used)
    }

    fn allow(&mut self, sa: SaId, last: u64) -> Result<(), PlaneError> {
        self.plane_of(sa)?.manual_keying().allow(sa, last)
    }

    fn last_sequence(&mut self, sa: SaId) -> Option<u64> {
        self.plane_of(sa).ok()?.manual_keying().last_sequence(sa)
    }

    fn retire(&mut self, sa: SaId) -> Option<u64> {
        let last = self.plane_of(sa).ok()?.manual_keying().retire(sa)?;
        self.sas.remove(&sa);
        self.mate.take_if(|mate| mate.id == sa);
        Some(last)
    }
}

impl<U: DataPlane, K: KernelPlane> ReplayCounters for Planes<U, K> {
    fn skip(&mut self, sa: SaId, count: u64) -> Result<(), PlaneError> {
        self.plane_of(sa)?.replay_counters().skip(sa, count)
    }
}

impl<U: DataPlane, K: KernelPlane> PathMtu for Planes<U, K> {
    fn fit(&mut self, sa: SaId) -> Option<Fit> {
        self.plane_of(sa).ok()?.path_mtu().fit(sa)
    }
}

impl<U: DataPlane, K: KernelPlane> EarlyPackets for Planes<U, K> {
    /// The kernel drops such packets.
    fn expect_sa(&mut self, spi: Spi, peer: IpAddr) {
        self.userspace.early_packets().expect_sa(spi, peer);
    }

    fn expect_no_sa(&mut self, spi: Spi) {
        self.userspace.early_packets().expect_no_sa(spi);
    }
}

impl<U: DataPlane, K: KernelPlane> PeerExceptions for Planes<U, K> {
    fn expect_peer(&mut self, peer: IpAddr) {
        self.userspace.peer_exceptions().expect_peer(peer);
    }
}

impl<U: DataPlane, K: KernelPlane> Maintenance for Planes<U, K> {
    fn resync(&mut self) -> Result<Resynced, PlaneError> {
        // Before the look at the kernel: a disturbance during it is reported again.
        self.config.disturbed.store(false, Ordering::SeqCst);
        self.kernel.as_mut().and_then(|kernel| kernel.maintenance()).resync()
    }

    fn use_room(&mut self) {
        self.kernel.as_mut().and_then(|kernel| kernel.maintenance()).use_room();
    }

    fn network_changed(&mut self) {
        self.kernel.as_mut().and_then(|kernel| kernel.maintenance()).network_changed();
        self.look_at_routes();
    }

    fn restore(&mut self) -> Result<Restored, PlaneError> {
        let of_tables = self.restore_tables();
        let of_userspace = self.restore_userspace();
        let of_kernel = self.kernel.as_mut().and_then(|kernel| kernel.maintenance()).restore();
        if of_userspace.is_ok() {
            self.place_the_rest();
        }
        let mut restored = of_tables?;
        restored += of_userspace?;
        restored += of_kernel?;
        Ok(restored)
    }

    fn fault(&mut self, sa: SaId) -> Option<String> {
        let of_plane = self.plane_of(sa).ok()?.maintenance().fault(sa);
        of_plane.or_else(|| self.guard_fault())
    }

    fn unserved(&mut self) -> BTreeMap<String, u64> {
        self.userspace.maintenance().unserved()
    }
}

impl<U: DataPlane, K: KernelPlane> CryptoAccounting for Planes<U, K> {
    fn count_work(&mut self) {
        self.kernel.as_mut().and_then(|kernel| kernel.crypto_accounting()).count_work();
    }
}

impl<U: DataPlane, K: KernelPlane> Filtering for Planes<U, K> {
    fn set_filter(&mut self, filter: Arc<Filter>) -> Result<(), PlaneError> {
        let outcome = self.begin_filter(filter)?.run();
        self.finish_filter(outcome)?.run()
    }

    fn begin_filter(&mut self, filter: Arc<Filter>) -> Result<FilterWork, PlaneError> {
        let work = match &mut self.floor {
            Some(floor) => floor.begin_filter(&filter)?,
            None => FilterWork::nothing(),
        };
        self.changing_filter = Some(filter);
        Ok(work)
    }

    /// The guard comes last: it opens for no traffic as long as the filter may be refused.
    fn finish_filter(&mut self, outcome: Result<(), PlaneError>) -> Result<FilterWork, PlaneError> {
        let filter = self.changing_filter.take();
        if self.watch.has(WatchedTable::Filter) {
            // Others have changed the table meanwhile.
            self.look_again();
        }
        let in_force = match &mut self.floor {
            Some(floor) => Some(floor.finish_filter(outcome)?),
            None => outcome.map(|()| filter.clone())?,
        };
        if let Some(in_force) = in_force {
            self.userspace.filtering().set_filter(in_force)?;
        }
        let of_record = self.record.as_mut().zip(filter.clone()).map(|(record, filter)| {
            record.replace_filter(filter);
            record.writing()
        });
        let of_guard = self.guard.as_mut().zip(filter).map(|(guard, f)| guard.set_filter(&f));
        Ok(FilterWork::new(move || {
            of_guard.into_iter().for_each(|written| written.wait());
            of_record.into_iter().for_each(|write| write());
            Ok(())
        }))
    }

    fn filter_status(&mut self) -> Option<FilterStatus> {
        self.filter_reader()()
    }

    fn filter_reader(&mut self) -> FilterReader {
        let Some(floor) = &self.floor else { return Box::new(|| None) };
        let (filter, counts) = (Arc::clone(floor.filter()), floor.filter_counter_reader());
        let inbound_guard = self.guard.as_ref().is_some_and(Guard::drops_cleartext);
        Box::new(move || Some(FilterStatus { filter, counts: counts(), inbound_guard }))
    }

    fn trace(&mut self, packet: &PacketSummary) -> Option<Trace> {
        let Trace { leaving, arriving, .. } = self.userspace.filtering().trace(packet)?;
        let mut leaving = self.trace_one_way(packet, true, leaving);
        if matches!(leaving.decided_by, DecidedBy::Default(_))
            && let Some(tunnel) = self.claimed_as_own(packet)
        {
            leaving.decided_by = DecidedBy::RemoteNetwork { tunnel };
        }
        let arriving = self.trace_one_way(packet, false, arriving);
        // The kernel's policies are a guard of their own.
        let in_kernel = matches!(arriving.decided_by, DecidedBy::Tunnel { kernel: Some(_), .. });
        let guarded = self.guard.as_ref().is_some_and(Guard::drops_cleartext);
        Some(Trace { leaving, arriving, inbound_guard: guarded || in_kernel })
    }
}

impl<U: DataPlane, K: KernelPlane> Planes<U, K> {
    fn restore_userspace(&mut self) -> Result<Restored, PlaneError> {
        let restored = self.userspace.maintenance().restore()?;
        if restored.rules > 0
            && let Some(floor) = &mut self.floor
        {
            // A program that has removed the routing rules of the tunnels has removed those of bypassed traffic.
            floor.restore_routing_rules()?;
        }
        Ok(restored)
    }

    /// The tunnel to whose remote network this host itself sends a packet, if the guard drops it unless it is
    /// protected.
    fn claimed_as_own(&self, packet: &PacketSummary) -> Option<String> {
        self.guard.as_ref()?.table_in_force()?;
        let (address, port) = packet.destination;
        let remote = |rule: &Rule| {
            let selectors = &rule.selectors;
            // The protocol may be named on either side; the source's address alone does not count.
            let mut local = selectors.local.iter();
            local.any(|s| s.contains(packet.protocol, s.addresses.start(), packet.source.1))
                && selectors.remote.iter().any(|s| s.contains(packet.protocol, address, port))
        };
        // A packet's mark is not known.
        let guarded = |rule: &Rule| {
            self.config.guarded(&rule.tunnel).is_some_and(|properties| properties.mark.is_none())
        };
        let (rule, _) = self.rules.values().find(|(rule, _)| remote(rule) && guarded(rule))?;
        let own = Routes::open().and_then(|mut routes| routes.own()).unwrap_or_default();
        let ours = own.contains(&packet.source.0) && !own.contains(&address);
        ours.then(|| rule.tunnel.clone())
    }

    /// Predicts the way of a packet, whose mark and interface are not known: of those with one mark and interface, the
    /// first rule that covers it decides, in whichever plane it is. `elsewhere`: its way in userspace.
    pub(super) fn trace_one_way(
        &self,
        packet: &PacketSummary,
        leaves: bool,
        elsewhere: OneWayTrace,
    ) -> OneWayTrace {
        let PacketSummary { protocol, source, destination } = *packet;
        let (local, remote) = if leaves { (source, destination) } else { (destination, source) };
        let mut covering =
            self.rules.values().filter(|(rule, _)| rule.selectors.covers(protocol, local, remote));
        let traced = |(rule, place): &(Rule, PlaneKind)| match (place, &elsewhere.decided_by) {
            (PlaneKind::Kernel, _) => self.kernel.as_ref()?.trace_one_way(rule.id, packet, leaves),
            (PlaneKind::Userspace, DecidedBy::Tunnel { rule: decides, .. }) => {
                (*decides == rule.id).then(|| elsewhere.clone())
            }
            (PlaneKind::Userspace, _) => None,
        };
        let Some(first) = covering.next() else { return elsewhere };
        let mut trace = traced(first).unwrap_or_else(|| elsewhere.clone());
        let in_kernel = matches!(trace.decided_by, DecidedBy::Tunnel { kernel: Some(_), .. });
        // Where each is now, and not where it may be.
        let taken = |(rule, place): &(Rule, PlaneKind)| match place {
            PlaneKind::Kernel => self.config.binding(&rule.tunnel),
            PlaneKind::Userspace => Binding::ANY,
        };
        let mut asked = vec![taken(first)];
        for ruled in covering {
            let tunnel = &ruled.0.tunnel;
            // Packets of no interface come to a tunnel in userspace behind one that has an interface.
            let left = Binding { any_interface: false, ..taken(ruled) };
            if !asked.iter().any(|earlier| earlier.includes(left)) {
                asked.push(taken(ruled));
                trace.otherwise.extend(traced(ruled));
            } else if in_kernel {
                trace.behind.push(format!("tunnel {tunnel}"));
            }
        }
        trace
    }
}
