//! The network that a command is to see: addresses and routes, as they follow from the policy.

use host::{Prefix, prefixes};
use nix::sys::stat::{Mode, umask as set_umask};
use policy::{ChildTunnel, Policy, Selector};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use vpn::net::own_address;

/// Everything that the process of the command needs to know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The addresses of this end.
    pub addresses: Vec<IpAddr>,
    /// The networks behind the tunnels.
    pub routes: Vec<Route>,
    /// Servers that resolve names.
    pub name_servers: Vec<IpAddr>,
    /// The mode bits that new files of the command lack.
    pub umask: u32,
}

/// A network behind a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Its first address.
    pub address: IpAddr,
    /// Bits that count.
    pub length: u8,
    /// The address from which this end sends there.
    pub source: IpAddr,
}

/// The mode bits that new files of this process lack.
pub fn umask() -> u32 {
    let mask = set_umask(Mode::empty());
    set_umask(mask);
    mask.bits()
}

impl Plan {
    /// The plan for the tunnels of a policy.
    ///
    /// # Errors
    /// If no tunnel leaves this end an address.
    pub fn of(
        policy: &Policy,
        given: &[IpAddr],
        name_servers: &[IpAddr],
        umask: u32,
    ) -> Result<Self, String> {
        let mut routes = BTreeMap::<Prefix, IpAddr>::new();
        let mut without = Vec::new();
        for child in policy.tunnels.iter().flat_map(|tunnel| &tunnel.children) {
            let remotes = child.remote.iter();
            if remotes.filter(|remote| add(child, remote, given, &mut routes)).count() == 0 {
                without.push(child.name.as_str());
            }
        }
        if routes.is_empty() {
            return Err(format!(
                "this end has no address in the tunnels ({}); name one of their local networks with --address",
                without.join(", ")
            ));
        }
        let mut addresses: Vec<IpAddr> = routes.values().copied().collect();
        addresses.sort_unstable();
        addresses.dedup();
        if let Some(unused) = given.iter().find(|address| !addresses.contains(address)) {
            return Err(format!("--address {unused}: the address is in no tunnel's local network"));
        }
        let name_servers = name_servers.to_vec();
        let beside = name_servers
            .iter()
            .find(|server| !routes.keys().any(|network| network.contains(**server)));
        if let Some(beside) = beside {
            return Err(format!("--dns {beside}: the server is behind no tunnel"));
        }
        let routes = routes
            .into_iter()
            .map(|(Prefix { address, length }, source)| Route { address, length, source })
            .collect();
        Ok(Self { addresses, routes, name_servers, umask })
    }
}

/// Adds the routes to a selector. `false`: this end has no address for it.
fn add(
    child: &ChildTunnel,
    remote: &Selector,
    given: &[IpAddr],
    routes: &mut BTreeMap<Prefix, IpAddr>,
) -> bool {
    let v4 = remote.addresses.start().is_ipv4();
    let locals = child.local.iter().filter(|local| local.addresses.start().is_ipv4() == v4);
    let mut sources = locals.filter_map(|local| {
        match given.iter().find(|address| local.addresses.contains(**address)) {
            Some(address) => Some(*address),
            None if given.is_empty() => own_address(&local.addresses),
            None => None,
        }
    });
    let Some(source) = sources.next() else { return false };
    for prefix in prefixes(&remote.addresses) {
        routes.entry(prefix).or_insert(source);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const SITE: &str = include_str!("../../../../tests/policies/site/left.xml");

    fn plan(addresses: &[&str], servers: &[&str]) -> Result<Plan, String> {
        let parse = |all: &[&str]| -> Vec<IpAddr> {
            all.iter().map(|a| a.parse().expect("an address")).collect()
        };
        let (addresses, servers) = (parse(addresses), parse(servers));
        let loaded = policy::xml::read("left.xml", SITE).expect("a policy");
        Plan::of(&loaded.policy, &addresses, &servers, 0o22)
    }

    #[test]
    fn routes_lead_to_the_remote_networks() {
        let own: IpAddr = [10, 1, 0, 1].into();
        let route = Route { address: [10, 2, 0, 0].into(), length: 24, source: own };
        let plan = plan(&[], &["10.2.0.53"]).expect("a plan");
        assert_eq!((plan.addresses, plan.routes), (vec![own], vec![route]));
    }

    #[test]
    fn another_address_of_the_local_network_is_taken() {
        let plan = plan(&["10.1.0.9"], &[]).expect("a plan");
        assert_eq!(plan.addresses, [IpAddr::from([10, 1, 0, 9])]);
    }

    #[test]
    fn addresses_beside_the_tunnels_are_refused() {
        let told = |text: &str, outcome: Result<Plan, String>| {
            let error = outcome.expect_err("refused");
            assert!(error.contains(text), "{error}");
        };
        told("no address in the tunnels (site_lan)", plan(&["10.9.0.1"], &[]));
        told("--address 10.9.0.1", plan(&["10.1.0.2", "10.9.0.1"], &[]));
        told("--dns 192.0.2.1", plan(&[], &["192.0.2.1"]));
    }
}
