//! Tunnels in the kernel to whose remote network no route leads: of their packets none comes to the kernel's policies.

#![forbid(unsafe_code)]

use super::{KernelPlane, PlaneKind, Planes};
use esp::plane::{DataPlane, Rule, RuleId};
use host::prefixes;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A remote network without a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unrouted {
    /// The phase 2 tunnel, or the SAs that are keyed by hand.
    pub tunnel: String,
    /// Address and length of its prefix.
    pub network: String,
    /// A route to it, as `ip` takes it.
    pub command: String,
}

impl<U: DataPlane, K: KernelPlane> Planes<U, K> {
    /// Looks at the routes of every tunnel in the kernel.
    pub(super) fn look_at_routes(&self) {
        let in_kernel = self.rules.values().filter(|(_, place)| *place == PlaneKind::Kernel);
        in_kernel.for_each(|(rule, _)| self.look_at_route(rule));
    }

    /// Takes note of whether routes lead to a tunnel's remote network.
    pub(super) fn look_at_route(&self, rule: &Rule) {
        let unrouted = self.unrouted(rule);
        if self.config.report.routed(rule.id, unrouted.clone())
            && let Some(Unrouted { tunnel, network, command }) = unrouted
        {
            tracing::warn!(
                tunnel,
                "no route leads to {network}: no packet to it comes to the kernel's ESP; type: {command}"
            );
        }
    }

    /// Checks the route to a rule's peer again, now that the peer is known: a missing route can be named.
    pub(super) fn know_peer(&self, rule: RuleId) {
        if let (true, Some((rule, _))) =
            (self.config.report.lacks_route(rule), self.rules.get(&rule))
        {
            self.config.report.routed(rule.id, None);
            self.look_at_route(rule);
        }
    }

    fn unrouted(&self, rule: &Rule) -> Option<Unrouted> {
        let placement = &self.config.placement;
        let binding = self.config.settings.tunnels.get(&rule.tunnel).map(|tunnel| tunnel.binding);
        let mark = binding.and_then(|binding| binding.mark).map_or(0, |(value, _)| value);
        let remote = rule.selectors.remote.iter().flat_map(|side| prefixes(&side.addresses));
        let mut remote = remote.map(|prefix| (prefix.address, prefix.length));
        let (network, length) = remote
            .find(|(first, length)| !placement.routes_lead_to(host_of(*first, *length), mark))?;
        // By the way to the peer: once the packet is protected, the routers on the way do not matter.
        let device = self.peers.get(&rule.id).and_then(|peer| placement.device_towards(*peer));
        let hop = device.map_or("via ROUTER".to_owned(), |device| format!("dev {device}"));
        let ours = rule.selectors.local.iter().map(|side| &side.addresses);
        let mut ours = ours.filter(|range| range.start().is_ipv4() == network.is_ipv4());
        let source = ours.find_map(|range| placement.own_within(range));
        let source = source.map_or(String::new(), |source| format!(" src {source}"));
        let network = format!("{network}/{length}");
        let command = format!("ip route add {network} {hop}{source}");
        Some(Unrouted { tunnel: rule.tunnel.clone(), network, command })
    }
}

/// An address that may be a host's: the first of a network is none.
fn host_of(first: IpAddr, length: u8) -> IpAddr {
    match first {
        IpAddr::V4(first) if length < 32 => Ipv4Addr::from_bits(first.to_bits() | 1).into(),
        IpAddr::V6(first) if length < 128 => Ipv6Addr::from_bits(first.to_bits() | 1).into(),
        single => single,
    }
}
