//! The userspace plane as key management sees it: rules and SAs are added, changed and removed.

use super::{SaForm, Userspace, device_mtu};
use crate::device::Device;
use esp::encap::inner_mtu;
use esp::plane::{
    DataPlane, InboundSa, OutboundSa, Path, PlaneError, Rule, RuleId, SaEntry, SaId, Usage,
};
use floor::refused;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long packets under way on the SA before are waited for: key management does nothing else meanwhile.
const PATIENCE: Duration = Duration::from_millis(100);

/// After a wait in vain, removals of SAs do not wait for so long.
const STALLED_FOR: Duration = Duration::from_secs(1);

/// The shortest time between two devices: one that fails at once keeps key management busy otherwise.
const REPLACED_EVERY: Duration = Duration::from_secs(1);

impl DataPlane for Userspace {
    fn add_rule(&mut self, rule: Rule) -> Result<(), PlaneError> {
        self.appear()?;
        let id = rule.id;
        // The datapath first: it knows the packets that the routes bring. The routes last: they change where traffic
        // goes.
        self.datapath.add_rule(rule.clone())?;
        self.ledger.enter_rule(rule.clone(), ());
        self.sync_workers().and_then(|()| self.route(&rule)).inspect_err(|_| self.remove_rule(id))
    }

    fn renumber_rule(&mut self, rule: RuleId, to: RuleId) {
        if !self.ledger.renumber_rule(rule, to) {
            return;
        }
        self.datapath.renumber_rule(rule, to);
        if let Some(device) = &mut self.device {
            device.routing.rename(rule, to);
        }
    }

    fn set_trap(&mut self, rule: RuleId) {
        self.ledger.set_trap(rule);
        // Packets already in the device waited for no tunnel, and ask for none.
        if let Err(error) = self.sync_workers() {
            tracing::error!(%error, "packets that wait for a tunnel are not seen");
        }
        self.datapath.set_trap(rule);
    }

    fn remove_rule(&mut self, rule: RuleId) {
        if let Some(device) = &mut self.device {
            device.routing.remove(rule);
        }
        self.ledger.strike_rule(rule);
        self.datapath.remove_rule(rule);
        self.let_workers_rest();
    }

    fn add_inbound(&mut self, sa: InboundSa) -> Result<(), PlaneError> {
        self.admit_peer(sa.path.remote.ip());
        let entry = SaEntry::inbound(&sa, SaForm { suite: sa.suite, mode: sa.mode });
        // Before the SA is in force.
        self.config.workers.begin()?;
        let claimed = self.receivers.claim(sa.spi.0);
        claimed.and_then(|()| self.datapath.add_inbound(sa)).inspect_err(|_| {
            if self.ledger.receiver(entry.spi).is_none() {
                self.receivers.disclaim(entry.spi.0);
            }
            self.let_workers_rest();
        })?;
        self.ledger.enter_sa(entry);
        Ok(())
    }

    fn add_outbound(&mut self, sa: OutboundSa) -> Result<(), PlaneError> {
        let form = SaForm { suite: sa.suite, mode: sa.mode };
        self.lower_device_mtu(form, &sa.path);
        if let Some(device) = &mut self.device {
            device.routing.refresh(sa.rule);
        }
        let (entry, standby) = (SaEntry::outbound(&sa, form), sa.standby);
        // Before the SA is in force.
        self.config.workers.begin()?;
        self.datapath.add_outbound(sa).inspect_err(|_| self.let_workers_rest())?;
        self.ledger.enter_sa(entry);
        if !standby {
            self.wait_for_packets_under_way();
        }
        Ok(())
    }

    fn promote(&mut self, sa: SaId) -> Result<(), PlaneError> {
        self.datapath.promote(sa)?;
        self.ledger.promote(sa)?;
        self.wait_for_packets_under_way();
        Ok(())
    }

    fn relocate(&mut self, sa: SaId, path: Path) -> Result<(), PlaneError> {
        if let Some(form) = self.ledger.sa(sa).filter(|sa| !sa.receives()).map(|sa| sa.extra) {
            self.lower_device_mtu(form, &path);
        }
        self.admit_peer(path.remote.ip());
        self.datapath.relocate(sa, path)
    }

    fn remove(&mut self, sa: SaId) -> Option<Usage> {
        let struck = self.ledger.strike_sa(sa)?;
        if struck.receives() {
            self.receivers.disclaim(struck.spi.0);
        }
        let usage = self.datapath.remove(sa);
        let sent = !struck.receives() && usage.is_some_and(|usage| usage.packets > 0);
        // Before the workers may rest.
        if sent && !self.has_just_stalled() {
            self.wait_for_packets_under_way();
        }
        self.let_workers_rest();
        usage
    }

    fn usage(&mut self, sa: SaId) -> Option<Usage> {
        // Asked now and then, as long as there is an SA.
        self.datapath.age_paths(Instant::now());
        self.datapath.usage(sa)
    }
}

impl Userspace {
    /// Waits until no packet is under way on an SA that no longer sends: the peer may be about to remove it.
    fn wait_for_packets_under_way(&mut self) {
        if !self.shared.under_way.wait_until_sent(PATIENCE) {
            self.stalled_at = Some(Instant::now());
        }
    }

    /// Returns `true` if a worker has just been waited for in vain. Thousands of SAs may be removed at once.
    fn has_just_stalled(&self) -> bool {
        self.stalled_at.is_some_and(|at| at.elapsed() < STALLED_FOR)
    }

    /// Makes device and routing, if they are not there.
    pub(super) fn appear(&mut self) -> Result<(), PlaneError> {
        if self.device.is_some() {
            return Ok(());
        }
        let Self { host, config, mtu, receivers, shared, journal, ledger, .. } = self;
        let device =
            Device::start(&host.settings, config, *mtu, receivers, shared, &mut journal.lock());
        self.device = Some(device.inspect_err(|_| {
            config.workers.detach();
            match ledger.rules().next().is_none() {
                true => {
                    receivers.release_raw();
                    journal.lock().undo_device();
                }
                // The routes that the device before has left hold their traffic.
                false => journal.lock().undo_settings(),
            }
        })?);
        Ok(())
    }

    /// Returns `true` if the device should be there and is not, or nobody reads it: somebody has deleted it, it has
    /// failed, or it could not be made again then.
    pub(super) fn lacks_device(&mut self) -> Result<bool, PlaneError> {
        if self.shared.failed.load(Ordering::SeqCst) {
            return Ok(true);
        }
        let name = &self.host.settings.device;
        match &mut self.device {
            Some(device) => device
                .routing
                .device_is_there(name)
                .map(|there| !there)
                .map_err(|e| refused(format!("looking for {name}"), &e)),
            None => Ok(self.ledger.rules().next().is_some()),
        }
    }

    /// Makes the device again, with the routes of all rules, and has new workers serve it.
    pub(super) fn replace_device(&mut self) -> Result<(), PlaneError> {
        let now = Instant::now();
        if self.replaced_at.is_some_and(|at| now.saturating_duration_since(at) < REPLACED_EVERY) {
            return Err(PlaneError::System {
                what: format!("reading from {}", self.host.settings.device),
                why: "the device has failed twice in a second".to_owned(),
            });
        }
        self.replaced_at = Some(now);
        if let Some(device) = self.device.take() {
            self.lost += device.give_way(&self.config, &mut self.journal.lock());
        }
        // Its workers have ended.
        self.shared.failed.store(false, Ordering::SeqCst);
        self.appear()?;
        let rules: Vec<Rule> = self.ledger.rules().map(|entry| entry.rule.clone()).collect();
        let mut routed = Ok(());
        for rule in &rules {
            routed = routed.and(self.route(rule));
        }
        match routed {
            Ok(()) => self.sweep(),
            // The blackholes of the device before stay, and the next attempt makes another device.
            Err(_) => self.shared.failed.store(true, Ordering::SeqCst),
        }
        routed.and_then(|()| self.sync_workers())
    }

    fn sweep(&mut self) {
        let swept = self.device.as_mut().map(|device| device.routing.sweep());
        if let Some(Err(error)) = swept {
            tracing::warn!(%error, "routes of former tunnels stay");
        }
    }

    /// The first rules are there: removes the routes and routing rules that a crashed daemon has left.
    pub fn remove_stale_routes(&mut self) {
        self.sweep();
        self.journal.lock().undo_left_routes();
    }

    /// Has the workers work or rest, as there is something for them. Where the kernel has all tunnels, nothing of this
    /// plane is to be seen on the host.
    fn sync_workers(&mut self) -> Result<(), PlaneError> {
        if self.ledger.sas().next().is_none() && !self.ledger.rules().any(|entry| entry.rule.trap) {
            self.config.workers.rest();
            if self.host.beside_kernel && self.ledger.rules().next().is_none() {
                self.receivers.release_raw();
                match self.device.take() {
                    Some(device) => self.lost += device.end(&self.config, &mut self.journal.lock()),
                    None => self.journal.lock().undo_device(),
                }
            }
            return Ok(());
        }
        self.config.workers.begin()
    }

    /// Something that the workers may have had work with is gone.
    fn let_workers_rest(&mut self) {
        if let Err(error) = self.sync_workers() {
            tracing::error!(%error, "no worker runs");
        }
    }

    fn route(&mut self, rule: &Rule) -> Result<(), PlaneError> {
        let Some(device) = &mut self.device else { return Ok(()) };
        device.routing.add(rule)?;
        device.routing.admit_hosts(rule, &mut self.journal.lock());
        Ok(())
    }

    pub(super) fn admit_peer(&mut self, peer: IpAddr) {
        if let Some(device) = &mut self.device {
            device.routing.admit_peer(peer, &mut self.journal.lock());
        }
    }

    /// Lowers the device's MTU if packets of the SA would not fit the outer one.
    fn lower_device_mtu(&mut self, SaForm { suite, mode }: SaForm, path: &Path) {
        if self.config.settings.mtu.is_some() {
            return;
        }
        let outer = self.config.settings.outer.mtu().into();
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
