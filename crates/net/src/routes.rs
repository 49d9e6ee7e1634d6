//! The traffic that tunnels cover, and the addresses of this end: which connections are possible, and from where.

use esp::plane::{Ledger, Rule, RuleEntry, RuleId, SaEntry, SaId, TrafficSelectors};
use policy::{AddressRange, PortRange, RangeKind, Selector};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use tokio::sync::watch;

/// Selectors that an error names at most.
const NAMED: usize = 8;

/// The rules of a plane and the SAs that serve them, as handles of sockets see them.
pub(crate) struct Routes {
    /// The addresses that the embedder has given to this end; empty: they follow from the selectors.
    given: Vec<IpAddr>,
    table: RwLock<Table>,
    /// Counts the changes.
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct Table {
    /// The rules, and the outbound SAs with their selectors.
    ledger: Ledger<(), Arc<TrafficSelectors>>,
    own: BTreeSet<IpAddr>,
}

/// The outcome of the look-up of a route for a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RouteLookup {
    /// An SA serves it.
    Up {
        /// The address of this end.
        source: IpAddr,
        /// The ports that this end may use.
        ports: PortRange,
    },
    /// A tunnel covers it that is not up.
    Down {
        /// Name of the phase 2 tunnel.
        tunnel: String,
    },
    /// No tunnel covers it.
    None,
    /// A tunnel covers it, but this end has no address in the tunnel.
    NoAddress {
        /// Name of the phase 2 tunnel.
        tunnel: String,
    },
}

impl Routes {
    pub fn new(given: Vec<IpAddr>) -> Self {
        let own = given.iter().copied().collect();
        let table = RwLock::new(Table { own, ..Table::default() });
        Self { given, table, changes: watch::Sender::new(0) }
    }

    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Looks up the route to `remote`, from `local` if that is given.
    pub fn find(&self, protocol: u8, local: Option<IpAddr>, remote: SocketAddr) -> RouteLookup {
        let table = self.read();
        let mut found = RouteLookup::None;
        for RuleEntry { rule, .. } in table.ledger.rules() {
            let (address, port) = (remote.ip(), remote.port());
            if !rule.selectors.remote.iter().any(|s| covers_end(s, protocol, address, port)) {
                continue;
            }
            for sa in table.ledger.of_rule(rule.id).rev().filter(|sa| sa.turn().is_some()) {
                if !sa.remote.iter().any(|s| covers_end(s, protocol, address, port)) {
                    continue;
                }
                if let Some((source, ports)) = self.source(sa, protocol, local, remote) {
                    return RouteLookup::Up { source, ports };
                }
            }
            let tunnel = rule.tunnel.clone();
            match self.source(&rule.selectors, protocol, local, remote) {
                Some(_) => return RouteLookup::Down { tunnel },
                None if found == RouteLookup::None => found = RouteLookup::NoAddress { tunnel },
                None => {}
            }
        }
        found
    }

    /// The address of this end for a flow, and the ports that it may use.
    fn source(
        &self,
        selectors: &TrafficSelectors,
        protocol: u8,
        local: Option<IpAddr>,
        remote: SocketAddr,
    ) -> Option<(IpAddr, PortRange)> {
        selectors
            .local
            .iter()
            .filter(|s| {
                [0, protocol].contains(&s.protocol)
                    && s.addresses.start().is_ipv4() == remote.is_ipv4()
            })
            .find_map(|selector| {
                let source = match local {
                    Some(local) => Some(local).filter(|l| selector.addresses.contains(*l)),
                    None if self.given.is_empty() => own_address(&selector.addresses),
                    None => self.given.iter().copied().find(|a| selector.addresses.contains(*a)),
                };
                Some((source?, selector.ports))
            })
    }

    /// Returns `true` if packets to the address are for this end.
    pub fn is_own(&self, address: IpAddr) -> bool {
        self.read().own.contains(&address)
    }

    /// The addresses of this end.
    pub fn own(&self) -> Vec<IpAddr> {
        self.read().own.iter().copied().collect()
    }

    /// The remote sides of the tunnels, for people.
    pub fn described(&self) -> String {
        let table = self.read();
        let mut text = String::new();
        let rules = table.ledger.rules().map(|entry| &entry.rule);
        let remotes: Vec<_> =
            rules.flat_map(|r| r.selectors.remote.iter().map(move |s| (r, s))).collect();
        for (rule, selector) in remotes.iter().take(NAMED) {
            let gap = if text.is_empty() { "" } else { ", " };
            let _ = write!(text, "{gap}{} ({})", selector.addresses, rule.tunnel);
        }
        match remotes.len() {
            0 => "the policy has no tunnel with traffic".to_owned(),
            n if n > NAMED => format!("the tunnels cover {text} and {} more", n - NAMED),
            _ => format!("the tunnels cover {text}"),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Table)) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut table);
        if self.given.is_empty() {
            let of_rules = table.ledger.rules().map(|entry| &entry.rule.selectors);
            let of_sas = table.ledger.sas().map(|sa| &*sa.extra);
            let locals = of_rules.chain(of_sas).flat_map(|s| &s.local);
            let own = locals.filter_map(|s| own_address(&s.addresses)).collect();
            table.own = own;
        }
        drop(table);
        self.changes.send_modify(|count| *count += 1);
    }

    pub fn add_rule(&self, rule: Rule) {
        self.change(|table| _ = table.ledger.enter_rule(rule, ()));
    }

    pub fn renumber_rule(&self, rule: RuleId, to: RuleId) {
        self.change(|table| _ = table.ledger.renumber_rule(rule, to));
    }

    pub fn remove_rule(&self, rule: RuleId) {
        self.change(|table| _ = table.ledger.strike_rule(rule));
    }

    pub fn add_outbound(&self, sa: SaEntry<Arc<TrafficSelectors>>) {
        self.change(|table| table.ledger.enter_sa(sa));
    }

    pub fn promote(&self, sa: SaId) {
        self.change(|table| _ = table.ledger.promote(sa));
    }

    pub fn remove_outbound(&self, sa: SaId) {
        self.change(|table| _ = table.ledger.strike_sa(sa));
    }
}

fn covers_end(selector: &Selector, protocol: u8, address: IpAddr, port: u16) -> bool {
    let port = [TCP, UDP].contains(&protocol).then_some(port);
    selector.contains(protocol, address, port)
}

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

/// The address that this end takes in a range of its own: the only one, or the first of a network that a host may have.
/// `None` if the range is every address, so that it says nothing.
pub fn own_address(range: &AddressRange) -> Option<IpAddr> {
    let start = range.start();
    if start.is_unspecified() {
        return None;
    }
    if range.kind() != RangeKind::Subnet || range.count() == 2 {
        return Some(start);
    }
    // The first address of a network names the network (IPv4), or any router of it (IPv6).
    Some(match start {
        IpAddr::V4(a) => Ipv4Addr::from(u32::from(a) + 1).into(),
        IpAddr::V6(a) => Ipv6Addr::from(u128::from(a) + 1).into(),
    })
}
