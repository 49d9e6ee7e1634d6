//! Which packets the kernel hands to the TUN device: the routes of every rule, in a table of their own.
//!
//! A rule's routes stand from the moment the rule is added, whether or not an SA serves it, so that its packets reach
//! the datapath, which drops what it cannot protect. Behind each route stands a blackhole for the same prefix with a
//! worse metric: the kernel removes the first when the device vanishes with a killed process, the second remains, and
//! nothing leaves in the clear until the next start cleans up.

use super::cleanup::{Change, Journal};
use super::netlink::{Family, MarkRule, Netlink, Prefix, Route, Target};
use super::refused;
use crate::plane::{PlaneError, Rule, RuleId};
use policy::{AddressRange, Selector};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

const DEVICE_METRIC: u32 = 10;
const BLACKHOLE_METRIC: u32 = 20;

/// The routes of all rules.
pub(super) struct Routing {
    netlink: Netlink,
    device: u32,
    table: u32,
    mark: u32,
    families: Vec<Family>,
    /// Every routed prefix, and the rules that want it.
    wanted: BTreeMap<Prefix, BTreeSet<RuleId>>,
    rules: BTreeMap<RuleId, Routed>,
    loosened: BTreeSet<String>,
}

/// A rule, as far as routes are concerned.
#[derive(Default)]
struct Routed {
    /// What it protects on this side: where its preferred source addresses come from.
    local: Vec<Selector>,
    /// Those of [`Routing::wanted`] that it wants.
    prefixes: BTreeSet<Prefix>,
}

impl Routing {
    /// Sends everything without the mark to `table`, which is empty at first.
    pub(super) fn start(
        mut netlink: Netlink,
        device: u32,
        (mark, table, priority): (u32, u32, u32),
        journal: &mut Journal,
    ) -> Result<Self, PlaneError> {
        journal.record(&Change::Table(table))?;
        journal.record(&Change::Rules { mark, table, priority })?;
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
        let (wanted, rules, loosened) = Default::default();
        Ok(Self { netlink, device, table, mark, families, wanted, rules, loosened })
    }

    /// Routes the remote addresses of a rule to the device, and no longer those of a former rule of its name. On error
    /// nothing of the rule remains.
    pub(super) fn add(&mut self, rule: &Rule) -> Result<(), PlaneError> {
        let prefixes = self.prefixes(&rule.selectors.remote);
        let routed = self.rules.entry(rule.id).or_default();
        routed.local.clone_from(&rule.selectors.local);
        let former = routed.prefixes.clone();
        routed.prefixes.extend(&prefixes);
        for prefix in &prefixes {
            self.wanted.entry(*prefix).or_default().insert(rule.id);
        }
        let owned = self.owned();
        for prefix in &prefixes {
            if let Err(e) = self.put(*prefix, &owned) {
                self.remove(rule.id);
                return Err(refused(
                    format!("routing {prefix} to the tunnel device for {}", rule.tunnel),
                    &e,
                ));
            }
        }
        for prefix in former.difference(&prefixes) {
            self.release(*prefix, rule.id, &owned);
        }
        if let Some(routed) = self.rules.get_mut(&rule.id) {
            routed.prefixes = prefixes;
        }
        Ok(())
    }

    /// A rule goes on under another name.
    pub(super) fn rename(&mut self, rule: RuleId, to: RuleId) {
        let Some(routed) = self.rules.remove(&rule) else { return };
        for prefix in &routed.prefixes {
            if let Some(rules) = self.wanted.get_mut(prefix) {
                rules.remove(&rule);
                rules.insert(to);
            }
        }
        self.rules.insert(to, routed);
    }

    /// Withdraws the routes no other rule wants.
    pub(super) fn remove(&mut self, rule: RuleId) {
        let Some(routed) = self.rules.remove(&rule) else { return };
        let owned = self.owned();
        for prefix in routed.prefixes {
            self.release(prefix, rule, &owned);
        }
    }

    /// Puts a rule's routes again: its source addresses may have come or gone since it was added, and the kernel
    /// deletes the routes that prefer an address which goes.
    pub(super) fn refresh(&mut self, rule: RuleId) {
        let Some(routed) = self.rules.get(&rule) else { return };
        let prefixes = routed.prefixes.clone();
        let owned = self.owned();
        for prefix in prefixes {
            if let Err(error) = self.put(prefix, &owned) {
                tracing::warn!(%error, "renewing the route to {prefix}");
            }
        }
    }

    /// Lowers the device's MTU.
    pub(super) fn set_mtu(&mut self, mtu: u16) -> io::Result<()> {
        self.netlink.set_mtu(self.device, mtu)
    }

    /// How many packets the device had no room for.
    pub(super) fn dropped(&mut self) -> io::Result<u64> {
        self.netlink.dropped(self.device)
    }

    /// Lets the protected packets of a peer in whose own address is routed to the device. The reverse path of such a
    /// packet is the device, not the interface it arrives on, and strict reverse path filtering would drop it.
    pub(super) fn admit_peer(&mut self, peer: IpAddr, journal: &mut Journal) {
        // The kernel filters reverse paths of IPv4 only.
        let IpAddr::V4(_) = peer else { return };
        // However many rules there are: every SA asks.
        if !(0..=32).any(|length| self.wanted.contains_key(&Prefix::holding(peer, length))) {
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
                    tracing::warn!(%error, interface = name, "cannot loosen rp_filter; packets of {peer} may be dropped");
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
    fn release(&mut self, prefix: Prefix, rule: RuleId, owned: &[IpAddr]) {
        let Some(rules) = self.wanted.get_mut(&prefix) else { return };
        rules.remove(&rule);
        let outcome = if rules.is_empty() {
            self.wanted.remove(&prefix);
            self.withdraw(prefix)
        } else {
            self.put(prefix, owned)
        };
        if let Err(error) = outcome {
            tracing::warn!(%error, "withdrawing the route to {prefix}");
        }
    }

    fn put(&mut self, prefix: Prefix, owned: &[IpAddr]) -> io::Result<()> {
        let source = self.wanted.get(&prefix).and_then(|rules| {
            rules
                .iter()
                .filter_map(|r| self.rules.get(r))
                .flat_map(|routed| &routed.local)
                .find_map(|s| preferred(s, Family::of(prefix.address), owned))
        });
        let (table, index) = (self.table, self.device);
        // The blackhole comes first and goes last: there is no moment without a route.
        self.netlink.put_route(&Route {
            table,
            prefix,
            metric: BLACKHOLE_METRIC,
            target: Target::Blackhole,
        })?;
        self.netlink.put_route(&Route {
            table,
            prefix,
            metric: DEVICE_METRIC,
            target: Target::Device { index, source },
        })
    }

    fn withdraw(&mut self, prefix: Prefix) -> io::Result<()> {
        let (table, index) = (self.table, self.device);
        let target = Target::Device { index, source: None };
        self.netlink.delete_route(&Route { table, prefix, metric: DEVICE_METRIC, target })?;
        let target = Target::Blackhole;
        self.netlink.delete_route(&Route { table, prefix, metric: BLACKHOLE_METRIC, target })
    }

    fn owned(&mut self) -> Vec<IpAddr> {
        self.netlink.addresses().unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot list this host's addresses; routes prefer no source");
            Vec::new()
        })
    }

    fn prefixes(&self, remote: &[Selector]) -> BTreeSet<Prefix> {
        remote
            .iter()
            .flat_map(|s| prefixes(&s.addresses))
            .filter(|p| self.families.contains(&Family::of(p.address)))
            .collect()
    }
}

/// The first address this host owns that a selector holds.
fn preferred(selector: &Selector, family: Family, owned: &[IpAddr]) -> Option<IpAddr> {
    owned
        .iter()
        .copied()
        .find(|a| Family::of(*a) == family && !a.is_loopback() && selector.addresses.contains(*a))
}

/// The fewest prefixes that hold a range's addresses and no others.
pub(crate) fn prefixes(range: &AddressRange) -> Vec<Prefix> {
    let (width, mut next, end) = match (range.start(), range.end()) {
        (IpAddr::V4(s), IpAddr::V4(e)) => (32, u128::from(s.to_bits()), u128::from(e.to_bits())),
        (s, e) => (128, bits(s), bits(e)),
    };
    let mut found = Vec::new();
    loop {
        // The largest block that begins here: limited by how `next` is aligned, and by what is left.
        let left = end - next;
        let aligned = if next == 0 { width } else { next.trailing_zeros().min(width) };
        let fits = if left == u128::MAX { width } else { (left + 1).ilog2() };
        let host_bits = aligned.min(fits);
        let address = if width == 32 {
            Ipv4Addr::from_bits(u32::try_from(next).expect("an IPv4 address has 32 bits")).into()
        } else {
            Ipv6Addr::from_bits(next).into()
        };
        let length = u8::try_from(width - host_bits).expect("a prefix has at most 128 bits");
        found.push(Prefix { address, length });
        let last = next + (1u128.checked_shl(host_bits).map_or(u128::MAX, |size| size - 1));
        if last >= end {
            return found;
        }
        next = last + 1;
    }
}

impl Prefix {
    /// The one of that length, which is not more than the address has bits, that holds an address.
    fn holding(address: IpAddr, length: u8) -> Self {
        let address = match address {
            IpAddr::V4(a) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
                Ipv4Addr::from_bits(a.to_bits() & mask).into()
            }
            IpAddr::V6(a) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
                Ipv6Addr::from_bits(a.to_bits() & mask).into()
            }
        };
        Self { address, length }
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(a) => a.to_bits().into(),
        IpAddr::V6(a) => a.to_bits(),
    }
}

/// Whether the kernel has no such family of addresses, or it is switched off.
pub(super) fn lacks_family(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP | libc::EPROTONOSUPPORT | libc::EADDRNOTAVAIL)
    )
}

/// Turns strict reverse path filtering of an interface into loose; the kernel takes the laxer of 1 and 2 as the
/// larger number of `all` and the interface's own.
fn loosen(interface: &str, journal: &mut Journal) -> Result<(), PlaneError> {
    let strict = [rp_filter("all"), rp_filter(interface)]
        .iter()
        .filter_map(|path| std::fs::read_to_string(path).ok())
        .any(|value| value.trim() == "1");
    if strict { set_sysctl(rp_filter(interface), "2", journal) } else { Ok(()) }
}

fn rp_filter(interface: &str) -> PathBuf {
    ["/proc/sys/net/ipv4/conf", interface, "rp_filter"].iter().collect()
}

/// Sets a kernel setting after its former value is on record.
pub(super) fn set_sysctl(
    path: PathBuf,
    value: &str,
    journal: &mut Journal,
) -> Result<(), PlaneError> {
    let fault = |e: &io::Error| refused(format!("setting {} to {value}", path.display()), e);
    let previous = std::fs::read_to_string(&path).map_err(|e| fault(&e))?.trim().to_owned();
    if previous == value {
        return Ok(());
    }
    journal.record(&Change::Sysctl { path: path.clone(), previous, set: value.to_owned() })?;
    std::fs::write(&path, value).map_err(|e| fault(&e))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: &str, end: &str) -> AddressRange {
        AddressRange::new(start.parse().expect("address"), end.parse().expect("address"))
            .expect("range")
    }

    fn shown(start: &str, end: &str) -> Vec<String> {
        prefixes(&range(start, end)).iter().map(|p| p.to_string()).collect()
    }

    #[test]
    fn whole_families_are_one_prefix() {
        assert_eq!(shown("0.0.0.0", "255.255.255.255"), ["0.0.0.0/0"]);
        assert_eq!(shown("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), ["::/0"]);
    }

    #[test]
    fn subnets_and_hosts_are_one_prefix() {
        assert_eq!(shown("10.1.0.0", "10.1.255.255"), ["10.1.0.0/16"]);
        assert_eq!(shown("10.1.2.3", "10.1.2.3"), ["10.1.2.3/32"]);
        assert_eq!(shown("255.255.255.255", "255.255.255.255"), ["255.255.255.255/32"]);
        assert_eq!(shown("fd00::", "fd00::ffff:ffff:ffff:ffff"), ["fd00::/64"]);
    }

    #[test]
    fn ragged_ranges_are_split() {
        assert_eq!(
            shown("10.0.0.1", "10.0.0.6"),
            ["10.0.0.1/32", "10.0.0.2/31", "10.0.0.4/31", "10.0.0.6/32"]
        );
        assert_eq!(shown("0.0.0.1", "255.255.255.254").len(), 62);
        assert_eq!(shown("::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe").len(), 254);
    }

    #[test]
    fn an_address_lies_in_one_prefix_of_each_length() {
        for (address, length, prefix) in [
            ("10.1.2.3", 0, "0.0.0.0/0"),
            ("10.1.2.3", 9, "10.0.0.0/9"),
            ("10.1.2.3", 31, "10.1.2.2/31"),
            ("10.1.2.3", 32, "10.1.2.3/32"),
            ("fd00::1:ffff", 0, "::/0"),
            ("fd00::1:ffff", 113, "fd00::1:8000/113"),
            ("fd00::1:ffff", 128, "fd00::1:ffff/128"),
        ] {
            let holding = Prefix::holding(address.parse().expect("an address"), length);
            assert_eq!(holding.to_string(), prefix);
        }
    }

    #[test]
    fn prefixes_hold_the_range_and_nothing_else() {
        let range = range("10.0.0.3", "10.0.3.17");
        let prefixes = prefixes(&range);
        for n in Ipv4Addr::new(10, 0, 0, 0).to_bits()..Ipv4Addr::new(10, 0, 4, 0).to_bits() {
            let address = IpAddr::from(Ipv4Addr::from_bits(n));
            let holders =
                prefixes.iter().filter(|p| Prefix::holding(address, p.length) == **p).count();
            assert_eq!(holders, usize::from(range.contains(address)), "{address}");
        }
    }
}
