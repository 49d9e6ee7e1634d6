//! The networks behind this host: whether packets are forwarded there, whether a route leads there, and whether the
//! same addresses are on the other side.

use super::finding::{Finding, FindingKind, sysctl};
use super::subject::{Subject, is_bypassed, is_whole, routes};
use esp::filter::Filter;
use host_facts::{Family, HostFacts};
use policy::{AddressRange, Mode};

/// The network behind this host in a range of its side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Behind {
    /// Nothing but this host itself, or nothing is known.
    Nothing,
    /// A network, by this device; `None`: by several, or it is not known.
    Network(Option<String>),
    /// Only a default route leads there, by this device.
    DefaultRoute(String),
    /// No route leads there.
    NoRoute,
}

/// Looks for the network behind this host in a range of its side.
pub(super) fn behind(subject: &Subject, host: &HostFacts, range: &AddressRange) -> Behind {
    let tunnel = subject.device.as_deref();
    let single = range.start() == range.end();
    if subject.mode == Mode::Transport || single && host.own().any(|own| range.contains(own)) {
        return Behind::Nothing;
    }
    if is_whole(range) {
        return Behind::Network(None);
    }
    let attached = host.attachments.iter().find(|attachment| {
        let network = &attachment.network;
        let whole = if network.address.is_ipv4() { 32 } else { 128 };
        let meets = AddressRange::subnet(network.address, network.length.into())
            .is_some_and(|network| network.intersection(range).is_some());
        meets
            && network.length < whole
            && attachment.device != "lo"
            && tunnel != Some(&attachment.device)
    });
    if let Some(attachment) = attached {
        return Behind::Network(Some(attachment.device.clone()));
    }
    let known: Vec<_> = routes(host, range).map(|(_, route)| route).collect();
    let mut found = known.iter().flatten().filter(|route| tunnel != Some(&route.device)).peekable();
    // If no route below is more specific, the first one is a default route.
    let first = found.peek().map(|route| route.device.clone());
    if let Some(route) = found.find(|route| !route.default) {
        return Behind::Network(Some(route.device.clone()).filter(|device| !device.is_empty()));
    }
    // This host may be all that is meant.
    if known.is_empty() || host.own().any(|own| range.contains(own)) {
        return Behind::Nothing;
    }
    match first {
        Some(device) => Behind::DefaultRoute(device),
        None if known.iter().all(Option::is_none) => Behind::NoRoute,
        None => Behind::Nothing,
    }
}

/// The kernel does not forward packets between the tunnel and a network behind this host.
pub(super) fn forwarding(subject: &Subject, host: &HostFacts) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for range in subject.local_ranges() {
        let there = match behind(subject, host, &range) {
            Behind::Nothing => continue,
            Behind::Network(device) => device,
            Behind::DefaultRoute(device) => Some(device),
            Behind::NoRoute => None,
        };
        let Some(setting) = off(subject, host, &range, there.as_deref()) else { continue };
        let message = format!(
            "this host forwards no packets ({setting} is 0), so that no packet passes between the tunnel and the hosts of \
             {range}"
        );
        let found = Finding::new(&subject.child, FindingKind::Forwarding, true, message);
        let mut cure = sysctl(&setting, 1).to_vec();
        if !range.start().is_ipv4() {
            cure.push(
                "a host that forwards IPv6 ignores router advertisements; if a device needs them, set its accept_ra to 2"
                    .to_owned(),
            );
        }
        // One setting is told once.
        if findings.iter().all(|other| other.cure != cure) {
            findings.push(found.with_cure(cure));
        }
    }
    findings
}

/// The setting that keeps the kernel from forwarding.
fn off(
    subject: &Subject,
    host: &HostFacts,
    range: &AddressRange,
    there: Option<&str>,
) -> Option<String> {
    let family = Family::of(range.start());
    if family == Family::V6 {
        return is_off(host, family, "all").then(|| "net.ipv6.conf.all.forwarding".to_owned());
    }
    // A device decides about the packets that arrive on it.
    let devices = [subject.inner_device(host), there];
    let device = devices.into_iter().flatten().find(|device| is_off(host, family, device))?;
    Some(match is_off(host, family, "all") {
        true => "net.ipv4.ip_forward".to_owned(),
        false => format!("net.ipv4.conf.{}.forwarding", device.replace('.', "/")),
    })
}

fn is_off(host: &HostFacts, family: Family, device: &str) -> bool {
    host.forwarding.get(&(family, device.to_owned())) == Some(&false)
}

/// No route of its own leads to the network of this side.
pub(super) fn no_route_behind(subject: &Subject, host: &HostFacts) -> Vec<Finding> {
    let kind = FindingKind::NoRouteBehind;
    let findings = subject.local_ranges().into_iter().filter_map(|range| {
        let found = match behind(subject, host, &range) {
            Behind::NoRoute => Finding::new(
                &subject.child,
                kind,
                true,
                format!(
                    "no route of this host leads to {range}, which the tunnel has as the network of this side"
                ),
            ),
            Behind::DefaultRoute(device) => Finding::new(
                &subject.child,
                kind,
                false,
                format!(
                    "only the default route (by {device}) leads to {range}, which the tunnel has as the network of this side: \
                     the packets from the peer may not find their hosts"
                ),
            ),
            Behind::Nothing | Behind::Network(_) => return None,
        };
        Some(found.with_cure([
            format!(
                "if {range} is behind a router: ip route add {range} via ROUTER; if it is on a link of this host, give the \
                 device there an address in it"
            ),
            "otherwise correct IPSecLocalIdentity of the tunnel in the policy, and IPSecRemoteIdentity of the peer's"
                .to_owned(),
        ]))
    });
    findings.collect()
}

/// The same addresses are on both sides of the tunnel.
pub(super) fn duplicate_subnet(
    subject: &Subject,
    host: &HostFacts,
    filter: Option<&Filter>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let both = "give one of the two networks other addresses, or translate them on a gateway before the tunnel".to_owned();
    for remote in subject.remote_ranges().into_iter().filter(|range| !is_whole(range)) {
        let overlapping = subject.local_ranges().into_iter().filter_map(|local| {
            let both = local.intersection(&remote).filter(|_| !is_whole(&local))?;
            // A smaller network of the peer's within that of this side is reached by the more specific route.
            (both == local || both != remote).then_some((local, both))
        });
        let overlap = overlapping.into_iter().find(|(_, both)| !is_bypassed(filter, [*both; 2]));
        if let Some((local, shared)) = overlap {
            let message = format!(
                "{shared} is on both sides: the tunnel's local network {local} and its remote network {remote} overlap, so \
                 that packets for hosts on this side enter the tunnel"
            );
            let enters = routes(host, &shared).any(|(_, route)| {
                route.is_some_and(|route| subject.device.as_ref() == Some(&route.device))
            });
            let certain = local == remote || enters;
            let kind = FindingKind::DuplicateSubnet;
            let found = Finding::new(&subject.child, kind, certain, message);
            findings.push(found.with_cure([both.clone(), bypass_for(&shared.to_string())]));
            continue;
        }
        // In transport mode, the remote address is the peer's own.
        let twice = host.attachments.iter().find(|attachment| {
            let address = AddressRange::from(attachment.address);
            remote.contains(attachment.address) && !is_bypassed(filter, [address; 2])
        });
        if let Some(attachment) = twice {
            let (address, device) = (attachment.address, &attachment.device);
            let network = &attachment.network;
            let message = format!(
                "this host has the address {address} ({device}), which lies in the tunnel's remote network {remote}: packets \
                 for its neighbours there enter the tunnel, and the peer's hosts cannot reach it"
            );
            let kind = FindingKind::DuplicateSubnet;
            let found = Finding::new(&subject.child, kind, false, message);
            findings.push(found.with_cure([both.clone(), bypass_for(&network.to_string())]));
        }
    }
    findings
}

fn bypass_for(network: &str) -> String {
    format!(
        "if packets within {network} are to stay outside of the tunnel, let a bypass rule say so: [[filter.rule]] in \
         vpnd.toml with action = \"bypass\", local = \"{network}\" and remote = \"{network}\""
    )
}
