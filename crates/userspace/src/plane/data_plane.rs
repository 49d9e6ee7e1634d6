//! The plane as key management knows it: rules come, change and go, and so do their SAs.

use super::{Userspace, device_mtu};
use crate::device::Device;
use crate::refusal::refused;
use crypto::Suite;
use esp::encap::inner_mtu;
use esp::filter::{Always, Direction, Filter, FilterStatus};
use esp::path_mtu::Fit;
use esp::plane::{
    DataPlane, InboundSa, OutboundSa, PacketSummary, Path, PlaneError, Rule, RuleId, SaId, Usage,
};
use esp::trace::{DecidedBy, Trace};
use policy::Mode;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

impl DataPlane for Userspace {
    fn add_rule(&mut self, rule: Rule) -> Result<(), PlaneError> {
        if self.rules.contains_key(&rule.id) {
            self.add_guarded_rule(rule)?;
            self.rebuild_guard();
            return Ok(());
        }
        self.appear()?;
        let guarded = self.guard(std::slice::from_ref(&rule)).map_err(|e| {
            refused(format!("guarding the traffic of {} with nftables", rule.tunnel), &e)
        });
        match guarded {
            Ok(()) => self.add_guarded_rule(rule),
            Err(error) => self.sync_workers().and(Err(error)),
        }
    }

    /// As one by one, but with nftables asked once.
    fn add_rules(&mut self, rules: Vec<Rule>) -> Vec<(RuleId, PlaneError)> {
        if rules.is_empty() {
            return Vec::new();
        }
        // Which of them nftables does not take shows one by one.
        let guarded = self.appear().is_ok() && self.guard(&rules).is_ok();
        let add = |rule: Rule| {
            let id = rule.id;
            let added = if guarded { self.add_guarded_rule(rule) } else { self.add_rule(rule) };
            Some((id, added.err()?))
        };
        rules.into_iter().filter_map(add).collect()
    }

    fn rename_rule(&mut self, rule: RuleId, to: RuleId) {
        let Some(renamed) = self.rules.remove(&rule) else { return };
        self.datapath.rename_rule(rule, to);
        if let Some(device) = &mut self.device {
            device.routing.rename(rule, to);
        }
        self.rules.insert(to, Rule { id: to, ..renamed });
    }

    fn set_trap(&mut self, rule: RuleId) {
        if let Some(rule) = self.rules.get_mut(&rule) {
            rule.trap = true;
        }
        // What has waited in the device until now has waited for nothing, and asks for nothing.
        if let Err(error) = self.sync_workers() {
            tracing::error!(%error, "packets that wait for a tunnel are not seen");
        }
        self.datapath.set_trap(rule);
    }

    fn remove_rule(&mut self, rule: RuleId) {
        if let Some(device) = &mut self.device {
            device.routing.remove(rule);
        }
        if self.rules.remove(&rule).is_some() {
            self.rebuild_guard();
        }
        self.datapath.remove_rule(rule);
        if let Err(error) = self.sync_workers() {
            tracing::error!(%error, "no worker runs");
        }
    }

    /// Lets the packets of a peer in that the kernel would drop because its own address lies in the remote side of a
    /// rule.
    fn expect_peer(&mut self, peer: IpAddr) {
        self.admit_peer(peer);
    }

    fn add_inbound(&mut self, sa: InboundSa) -> Result<(), PlaneError> {
        self.admit_peer(sa.path.remote.ip());
        let (id, spi) = (sa.id, sa.spi);
        self.expect_work(id)?;
        let port = Arc::clone(&self.port);
        port.claim(spi.0).and_then(|()| self.datapath.add_inbound(sa)).inspect_err(|_| {
            if !self.receiving.values().any(|other| *other == spi) {
                port.disclaim(spi.0);
            }
            self.forget(id);
        })?;
        self.receiving.insert(id, spi);
        Ok(())
    }

    fn add_outbound(&mut self, sa: OutboundSa) -> Result<(), PlaneError> {
        let (id, rule, path, form) = (sa.id, sa.rule, sa.path, (sa.suite, sa.mode));
        self.lower_device_mtu(form, &path);
        if let Some(device) = &mut self.device {
            device.routing.refresh(rule);
        }
        self.expect_work(id)?;
        self.datapath.add_outbound(sa).inspect_err(|_| self.forget(id))?;
        self.outbound.insert(id, form);
        Ok(())
    }

    fn promote(&mut self, sa: SaId) -> Result<(), PlaneError> {
        self.datapath.promote(sa)
    }

    fn resume(&mut self, sa: SaId, used: u64) -> Result<(), PlaneError> {
        self.datapath.resume(sa, used)
    }

    fn last_sequence(&mut self, sa: SaId) -> Option<u64> {
        self.datapath.last_sequence(sa)
    }

    fn relocate(&mut self, sa: SaId, path: Path) -> Result<(), PlaneError> {
        if let Some(form) = self.outbound.get(&sa) {
            self.lower_device_mtu(*form, &path);
        }
        self.admit_peer(path.remote.ip());
        self.datapath.relocate(sa, path)
    }

    fn remove(&mut self, sa: SaId) -> Option<Usage> {
        self.outbound.remove(&sa);
        if let Some(spi) = self.receiving.remove(&sa) {
            self.port.disclaim(spi.0);
        }
        let usage = self.datapath.remove(sa);
        self.forget(sa);
        usage
    }

    fn usage(&mut self, sa: SaId) -> Option<Usage> {
        // Asked now and then, as long as there is an SA.
        self.datapath.age_paths(Instant::now());
        self.datapath.usage(sa)
    }

    fn fit(&mut self, sa: SaId) -> Option<Fit> {
        let fit = self.datapath.fit(sa)?;
        Some(Fit { inner_mtu: fit.inner_mtu.min(self.mtu.into()), ..fit })
    }

    fn set_filter(&mut self, filter: Arc<Filter>) -> Result<(), PlaneError> {
        self.enforcement.apply(&filter, &mut self.journal)?;
        self.rebuild_guard();
        self.datapath.set_filter(filter)
    }

    fn filter(&mut self) -> Option<FilterStatus> {
        Some(FilterStatus {
            filter: Arc::clone(self.enforcement.filter()),
            counts: self.enforcement.counts(),
            inbound_guard: self.inbound_guard(),
        })
    }

    fn trace(&mut self, packet: &PacketSummary) -> Option<Trace> {
        let mut trace = self.datapath.trace(packet)?;
        trace.inbound_guard = self.inbound_guard();
        for (course, way) in
            [(&mut trace.leaving, Direction::Out), (&mut trace.arriving, Direction::In)]
        {
            let by_tunnel = matches!(course.decided_by, DecidedBy::Tunnel { .. });
            let always = Always::of(packet, way, self.config.natt_port);
            if let Some(always) = always.filter(|a| !(by_tunnel && a.yields_to_tunnels())) {
                course.decided_by = DecidedBy::Always(always);
                course.sas.clear();
            }
        }
        Some(trace)
    }
}

impl Userspace {
    /// Makes device, routing and guard, if they are not there.
    pub(super) fn appear(&mut self) -> Result<(), PlaneError> {
        if self.device.is_some() {
            return Ok(());
        }
        let Self { config, mtu, port, shared, journal, .. } = self;
        let device = Device::start(config, *mtu, port, shared, journal);
        let guarded = device.and_then(|mut device| {
            device.start_guard(config, &self.enforcement, journal)?;
            Ok(device)
        });
        self.device = Some(guarded.inspect_err(|_| {
            config.workers.detach();
            journal.undo_device();
        })?);
        Ok(())
    }

    /// Has the workers work or rest, as there is something for them. Where the kernel has all tunnels, nothing of this plane
    /// is to be seen on the host.
    fn sync_workers(&mut self) -> Result<(), PlaneError> {
        if self.installed.is_empty() && !self.rules.values().any(|rule| rule.trap) {
            self.config.workers.rest();
            if self.config.beside_kernel
                && self.rules.is_empty()
                && let Some(device) = self.device.take()
            {
                self.lost += device.end(&self.config, &mut self.journal);
            }
            return Ok(());
        }
        self.config.workers.begin()
    }

    /// Has the workers begin before an SA is in force, and knows it from then on.
    fn expect_work(&mut self, sa: SaId) -> Result<(), PlaneError> {
        let first = self.installed.insert(sa);
        self.sync_workers().inspect_err(|_| {
            if first {
                self.installed.remove(&sa);
            }
        })
    }

    /// An SA is gone, or was refused.
    fn forget(&mut self, sa: SaId) {
        if self.datapath.usage(sa).is_none() {
            self.installed.remove(&sa);
        }
        if let Err(error) = self.sync_workers() {
            tracing::error!(%error, "no worker runs");
        }
    }

    /// Adds a rule, or one in the place of another, that the guard knows.
    fn add_guarded_rule(&mut self, rule: Rule) -> Result<(), PlaneError> {
        let id = rule.id;
        // The datapath first: what the routes bring it, it knows. The routes last: they change where traffic goes.
        self.datapath.add_rule(rule.clone())?;
        self.rules.insert(id, rule.clone());
        self.sync_workers().and_then(|()| self.route(&rule)).inspect_err(|_| self.remove_rule(id))
    }

    fn route(&mut self, rule: &Rule) -> Result<(), PlaneError> {
        let Some(device) = &mut self.device else { return Ok(()) };
        device.routing.add(rule)?;
        device.routing.admit_hosts(rule, &mut self.journal);
        Ok(())
    }

    /// Guards these rules, too: all of them or none.
    fn guard(&self, rules: &[Rule]) -> io::Result<()> {
        self.device.as_ref().map_or(Ok(()), |device| device.extend_guard(rules))
    }

    fn rebuild_guard(&self) {
        if let Some(device) = &self.device {
            device.rebuild_guard(&self.config, &self.enforcement, self.rules.values());
        }
    }

    fn admit_peer(&mut self, peer: IpAddr) {
        if let Some(device) = &mut self.device {
            device.routing.admit_peer(peer, &mut self.journal);
        }
    }

    /// Lowers the device's MTU if packets of the SA would not fit the outer one.
    fn lower_device_mtu(&mut self, (suite, mode): (Suite, Mode), path: &Path) {
        if self.config.mtu.is_some() {
            return;
        }
        let outer = self.config.outer.mtu().into();
        let fits = inner_mtu(outer, suite, mode, path.encapsulation, path.remote.is_ipv6());
        let mtu = device_mtu(fits);
        if mtu >= self.mtu {
            return;
        }
        let routing = self.device.as_mut().map(|device| &mut device.routing);
        match routing.map_or(Ok(()), |routing| routing.set_mtu(mtu)) {
            Ok(()) => {
                self.mtu = mtu;
                self.datapath.set_device_mtu(mtu.into());
            }
            Err(error) => tracing::warn!(%error, mtu, "lowering the device's MTU"),
        }
    }
}
