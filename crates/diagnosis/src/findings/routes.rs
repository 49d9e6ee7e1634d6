//! The routes to the remote network and to the peer, and the reverse path filter, which asks for them.

use super::finding::{Finding, FindingKind, sysctl};
use super::subject::{Subject, is_bypassed, routes};
use esp::filter::Filter;
use host_facts::HostFacts;
use policy::AddressRange;

/// Packets for the remote network do not enter the tunnel.
pub(super) fn diverted(
    subject: &Subject,
    host: &HostFacts,
    filter: Option<&Filter>,
) -> Vec<Finding> {
    let findings = subject.remote_ranges().into_iter().filter_map(|range| {
        let mut known = routes(host, &range)
            .filter(|(address, _)| !is_bypassed(filter, [AddressRange::from(*address); 2]));
        let (message, cure) = match &subject.device {
            Some(device) => {
                let (address, route) =
                    known.find(|(_, route)| route.is_none_or(|route| route.device != *device))?;
                let takes = route.map_or("finds no route".to_owned(), |route| {
                    format!("leaves by {}", route.device)
                });
                (
                    format!(
                        "a packet to {address} of the remote network {range} {takes} and does not enter the tunnel device \
                         {device}: a routing rule comes before that of vpnd"
                    ),
                    vec![
                        format!("see ip rule show and ip route get {address}"),
                        "delete that rule, or give it a priority above 4500".to_owned(),
                    ],
                )
            }
            None => {
                // The kernel looks for an IPsec policy once it has found a route: any route will do.
                known.find(|(_, route)| route.is_none())?;
                let device = subject.outer_device(host).unwrap_or("DEVICE");
                (
                    format!(
                        "no route leads to {range}, so that no packet to it comes to the kernel's ESP"
                    ),
                    vec![format!("ip route add {range} dev {device}")],
                )
            }
        };
        Some(Finding::new(&subject.child, FindingKind::Route, true, message).with_cure(cure))
    });
    findings.collect()
}

/// The strict reverse path filter drops packets whose source is reached by another device than that on which they
/// arrive. The kernel filters reverse paths of IPv4 only, and not those of packets that it has opened itself.
pub(super) fn reverse_path(subject: &Subject, host: &HostFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let peer = subject.peer();
    let back = host.routes.get(&(peer, false)).filter(|_| peer.is_ipv4());
    if let (Some(outer), Some(back)) = (subject.outer_device(host), back)
        && is_strict(host, outer)
        && let takes = back.as_ref().map(|route| route.device.as_str())
        && takes != Some(outer)
    {
        let takes = takes.unwrap_or("no device");
        let message = format!(
            "the reverse path filter of {outer} is strict (rp_filter is 1) and drops the packets of the peer {peer}: \
             the way back to this address is {takes}, because the address lies in the remote network of a tunnel"
        );
        findings.push(reverse_path_drops(subject, outer, message));
    }
    let Some(device) = subject.device.as_deref().filter(|device| is_strict(host, device)) else {
        return findings;
    };
    let remote = subject.remote_ranges().into_iter().filter(|range| range.start().is_ipv4());
    for range in remote {
        let other = routes(host, &range).find_map(|(address, route)| {
            route.filter(|route| route.device != device).map(|route| (address, &route.device))
        });
        if let Some((address, other)) = other {
            let message = format!(
                "the reverse path filter of {device} is strict (rp_filter is 1) and drops what the tunnel has brought \
                 from {range}: the way back to {address} is {other}"
            );
            findings.push(reverse_path_drops(subject, device, message));
        }
    }
    findings
}

fn is_strict(host: &HostFacts, device: &str) -> bool {
    host.rp_filter.get(device) == Some(&1)
}

fn reverse_path_drops(subject: &Subject, device: &str, message: String) -> Finding {
    let setting = format!("net.ipv4.conf.{}.rp_filter", device.replace('.', "/"));
    let mut cure = sysctl(&setting, 2).to_vec();
    cure.push(
        "to find its drops in the log of the kernel: set log_martians of the device to 1".into(),
    );
    Finding::new(&subject.child, FindingKind::RpFilter, true, message).with_cure(cure)
}
