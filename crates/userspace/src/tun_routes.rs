//! The packets that the kernel hands to the TUN device: the routes of every rule, in a table of their own.
//!
//! A rule's routes stand from the moment the rule is added, whether or not an SA serves it, so that its packets reach
//! the datapath, which drops what it cannot protect. Behind each route stands a blackhole for the same prefix with a
//! worse metric: the kernel removes the first when the device vanishes with a killed process, the second remains. The
//! next start, or a new device, puts its routes before it. So there is no moment without a route, and a socket without
//! a source address never gets the one of another route.

use esp::plane::{PlaneError, Rule, RuleId};
use floor::{plane_error, refused};
use host::journal::{Change, Journal};
use host::netlink::{Family, MarkRule, Netlink, Route, Target};
use host::{Prefix, lacks_family, prefixes};
use policy::Selector;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

mod wanted;

use wanted::{Released, WantedRoutes};

const DEVICE_METRIC: u32 = 10;
const BLACKHOLE_METRIC: u32 = 20;

/// A setting with which no interface filters strictly.
const LOOSE: &str = "net.ipv4.conf.all.rp_filter=2";

/// The numbers by which packets find the routes of the tunnels.
#[derive(Clone, Copy)]
pub(super) struct RoutingNumbers {
    /// Packets with this mark do not enter a tunnel.
    pub mark: u32,
    /// The table of the routes.
    pub table: u32,
    /// Priority of the routing rules that lead to the table.
    pub priority: u32,
}

/// The routes of all rules.
pub(super) struct TunRoutes {
    netlink: Netlink,
    device: u32,
    table: u32,
    mark: u32,
    priority: u32,
    families: Vec<Family>,
    wanted: WantedRoutes,
    loosened: BTreeSet<String>,
}

impl TunRoutes {
    /// Sends everything without the mark to `table`. Routes that a crashed daemon, or the device before, has left there
    /// stay until [`TunRoutes::sweep`].
    pub(super) fn start(
        mut netlink: Netlink,
        device: u32,
        RoutingNumbers { mark, table, priority }: RoutingNumbers,
        journal: &mut Journal,
    ) -> Result<Self, PlaneError> {
        journal.record(&Change::Table(table)).map_err(plane_error)?;
        journal.record(&Change::Rules { mark, table, priority }).map_err(plane_error)?;
        let mut families = Vec::new();
        for family in Family::BOTH {
            match netlink.add_rule(&MarkRule { family, mark, table, priority }) {
                Ok(()) => families.push(family),
                Err(e) if family == Family::V6 && lacks_family(&e) => {
                    tracing::info!("this host has no IPv6; tunnels carry IPv4 only");
                }
                Err(e) => {
                    return Err(refused(
                        format!(
                            "adding the routing rule {priority}: not fwmark {mark:#x} lookup {table}"
                        ),
                        &e,
                    ));
                }
            }
        }
        Ok(Self {
            netlink,
            device,
            table,
            mark,
            priority,
            families,
            wanted: WantedRoutes::default(),
            loosened: BTreeSet::new(),
        })
    }

    /// The routes of these rules, which another process has put. Nothing is changed on the host.
    pub(super) fn adopt<'a>(
        netlink: Netlink,
        device: u32,
        RoutingNumbers { mark, table, priority }: RoutingNumbers,
        families: Vec<Family>,
        rules: impl Iterator<Item = &'a Rule>,
    ) -> Self {
        let (wanted, loosened) = (WantedRoutes::default(), BTreeSet::new());
        let mut routes =
            Self { netlink, device, table, mark, priority, families, wanted, loosened };
        routes.look_at_addresses();
        for rule in rules {
            let prefixes = routes.prefixes(&rule.selectors.remote);
            routes.wanted.add(rule.id, &rule.selectors.local, &prefixes);
        }
        routes
    }

    /// The families of the host's routes.
    pub(super) fn families(&self) -> &[Family] {
        &self.families
    }

    /// Routes the remote addresses of a rule to the device, and no longer those of a former rule of its name. On error
    /// nothing of the rule remains.
    pub(super) fn add(&mut self, rule: &Rule) -> Result<(), PlaneError> {
        let prefixes = self.prefixes(&rule.selectors.remote);
        self.look_at_addresses();
        let former = self.wanted.add(rule.id, &rule.selectors.local, &prefixes);
        for prefix in &prefixes {
            if let Err(e) = self.put(*prefix) {
                self.remove(rule.id);
                return Err(refused(
                    format!("routing {prefix} to the tunnel device for {}", rule.tunnel),
                    &e,
                ));
            }
        }
        for prefix in former.difference(&prefixes) {
            self.release(*prefix, rule.id);
        }
        Ok(())
    }

    /// A rule goes on under another name.
    pub(super) fn rename(&mut self, rule: RuleId, to: RuleId) {
        self.wanted.rename(rule, to);
    }

    /// Withdraws the routes no other rule wants.
    pub(super) fn remove(&mut self, rule: RuleId) {
        self.look_at_addresses();
        for prefix in self.wanted.of(rule) {
            self.release(prefix, rule);
        }
    }

    /// Puts a rule's routes again: its source addresses may have come or gone since it was added, and the kernel
    /// deletes the routes that prefer an address which goes.
    pub(super) fn refresh(&mut self, rule: RuleId) {
        self.look_at_addresses();
        for prefix in self.wanted.of(rule) {
            if let Err(error) = self.put(prefix) {
                tracing::warn!(%error, "renewing the route to {prefix}");
            }
        }
    }

    /// Returns `true` if the device is there.
    pub(super) fn device_is_there(&mut self, name: &str) -> io::Result<bool> {
        Ok(self.netlink.link_index(name)? == Some(self.device))
    }

    /// Removes the routes that no rule wants: those that a crashed daemon, or the device before, has left.
    pub(super) fn sweep(&mut self) -> io::Result<()> {
        for family in self.families.clone() {
            for route in self.netlink.routes(family, self.table)? {
                if !self.wanted.contains(&route.prefix) {
                    self.netlink.delete_route(&route)?;
                }
            }
        }
        Ok(())
    }

    /// Puts back the routing rules and routes that others have removed, and the routes whose source address has come
    /// back or gone. Returns their numbers. Routes that could not be withdrawn go.
    pub(super) fn restore_routes(&mut self) -> io::Result<(usize, usize)> {
        let Self { mark, table, priority, .. } = *self;
        let mut rules = 0;
        for family in self.families.clone() {
            let rule = MarkRule { family, mark, table, priority };
            if !self.netlink.has_rule(&rule)? {
                self.netlink.add_rule(&rule)?;
                rules += 1;
            }
        }
        let mut there = BTreeMap::new();
        for family in &self.families {
            let (routes, unwanted): (Vec<_>, Vec<_>) = (self.netlink.routes(*family, table)?)
                .into_iter()
                .partition(|route| self.wanted.contains(&route.prefix));
            unwanted.iter().try_for_each(|route| self.netlink.delete_route(route))?;
            there.extend(routes.into_iter().map(|r| ((r.prefix, r.metric), r.target)));
        }
        self.look_at_addresses();
        let mut missing = Vec::new();
        for prefix in self.wanted.prefixes() {
            let routes = self.routes_for(prefix).into_iter();
            missing.extend(routes.filter(|r| there.get(&(r.prefix, r.metric)) != Some(&r.target)));
        }
        if !missing.is_empty() {
            // A device that is down has no routes.
            self.netlink.set_up(self.device)?;
        }
        missing.iter().try_for_each(|route| self.netlink.put_route(route))?;
        Ok((rules, missing.len()))
    }

    /// Lowers the device's MTU.
    pub(super) fn set_mtu(&mut self, mtu: u16) -> io::Result<()> {
        self.netlink.set_mtu(self.device, mtu)
    }

    /// The number of packets that the device had no room for.
    pub(super) fn dropped(&mut self) -> io::Result<u64> {
        self.netlink.dropped(self.device)
    }

    /// Lets the protected packets of a peer in whose own address is routed to the device. The reverse path of such a
    /// packet is the device, not the interface it arrives on, and strict reverse path filtering would drop it.
    pub(super) fn admit_peer(&mut self, peer: IpAddr, journal: &mut Journal) {
        // The kernel filters reverse paths of IPv4 only.
        let IpAddr::V4(_) = peer else { return };
        // However many rules there are: every SA asks.
        if !(0..=32).any(|length| self.wanted.contains(&Prefix::holding(peer, length))) {
            return;
        }
        let interface = match self.netlink.egress(peer, self.mark) {
            Ok(Some(index)) => self.netlink.link(index).map(|(name, _)| name),
            Ok(None) => return,
            Err(e) => Err(e),
        };
        match interface {
            Ok(name) if self.loosened.contains(&name) => {}
            Ok(name) => {
                if let Err(error) = loosen(&name, journal) {
                    tracing::warn!(
                        %error,
                        interface = name,
                        "cannot loosen rp_filter; packets of {peer} may be dropped; set it on this host (sysctl -w {LOOSE}), or \
                         for this container (--sysctl {LOOSE})"
                    );
                }
                self.loosened.insert(name);
            }
            Err(error) => tracing::debug!(%error, %peer, "no route to the peer yet"),
        }
    }

    /// Lets in the peers that a rule names as its remote side, as transport mode does: their IKE messages come before
    /// any SA tells where the peer is.
    pub(super) fn admit_hosts(&mut self, rule: &Rule, journal: &mut Journal) {
        for range in rule.selectors.remote.iter().map(|s| s.addresses) {
            if range.start() == range.end() {
                self.admit_peer(range.start(), journal);
            }
        }
    }

    /// Takes a prefix from a rule: the others keep the route, the last one takes it along.
    fn release(&mut self, prefix: Prefix, rule: RuleId) {
        let outcome = match self.wanted.release(prefix, rule) {
            Released::Nothing => return,
            Released::LastOne => self.withdraw(prefix),
            Released::OneOfMany => self.put(prefix),
        };
        if let Err(error) = outcome {
            tracing::warn!(%error, "withdrawing the route to {prefix}");
        }
    }

    fn put(&mut self, prefix: Prefix) -> io::Result<()> {
        let routes = self.routes_for(prefix);
        routes.iter().try_for_each(|route| self.netlink.put_route(route))
    }

    /// The routes for a prefix. The blackhole comes first and goes last: there is no moment without a route.
    fn routes_for(&mut self, prefix: Prefix) -> [Route; 2] {
        let source = self.wanted.source(prefix);
        let (table, index) = (self.table, self.device);
        [(BLACKHOLE_METRIC, Target::Blackhole), (DEVICE_METRIC, Target::Device { index, source })]
            .map(|(metric, target)| Route { table, prefix, metric, target })
    }

    /// A route that stays would take packets from the routes of wider networks, so a failure is followed by another
    /// attempt.
    fn withdraw(&mut self, prefix: Prefix) -> io::Result<()> {
        self.try_to_withdraw(prefix).or_else(|_| self.try_to_withdraw(prefix))
    }

    fn try_to_withdraw(&mut self, prefix: Prefix) -> io::Result<()> {
        let (table, index) = (self.table, self.device);
        let target = Target::Device { index, source: None };
        self.netlink.delete_route(&Route { table, prefix, metric: DEVICE_METRIC, target })?;
        let target = Target::Blackhole;
        self.netlink.delete_route(&Route { table, prefix, metric: BLACKHOLE_METRIC, target })
    }

    /// Preferred sources are chosen among the addresses that the host has now.
    fn look_at_addresses(&mut self) {
        let owned = self.netlink.addresses().unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot list this host's addresses; routes prefer no source");
            Vec::new()
        });
        self.wanted.set_addresses(owned);
    }

    fn prefixes(&self, remote: &[Selector]) -> BTreeSet<Prefix> {
        remote
            .iter()
            .flat_map(|s| prefixes(&s.addresses))
            .filter(|p| self.families.contains(&Family::of(p.address)))
            .collect()
    }
}

/// Turns strict reverse path filtering of an interface into loose. A container may not change it, but may have `all` be
/// loose.
fn loosen(interface: &str, journal: &mut Journal) -> Result<(), PlaneError> {
    let values = ["all", interface]
        .map(|of| std::fs::read_to_string(rp_filter(of)).ok()?.trim().parse().ok());
    match is_strict(values) {
        true => journal.set_sysctl(rp_filter(interface), "2").map_err(plane_error),
        false => Ok(()),
    }
}

/// The kernel takes the larger number of the two settings: 1 is strict, and 2 is loose.
fn is_strict(settings: [Option<u8>; 2]) -> bool {
    settings.into_iter().flatten().max() == Some(1)
}

fn rp_filter(interface: &str) -> PathBuf {
    ["/proc/sys/net/ipv4/conf", interface, "rp_filter"].iter().collect()
}

#[cfg(test)]
mod tests {
    use super::is_strict;

    #[test]
    fn the_laxer_setting_counts() {
        for strict in [[0, 1], [1, 0], [1, 1]] {
            assert!(is_strict(strict.map(Some)), "{strict:?}");
        }
        for lax in [[0, 0], [2, 1], [1, 2], [0, 2], [2, 2]] {
            assert!(!is_strict(lax.map(Some)), "{lax:?}");
        }
        assert!(is_strict([None, Some(1)]) && !is_strict([None, None]));
    }
}
