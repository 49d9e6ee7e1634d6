//! The facts about a host that decide whether the packets of a tunnel pass, as far as the kernel tells them. They are
//! collected here, and judged elsewhere.

#![forbid(unsafe_code)]

pub use host_facts::{HostFacts, Questions};

use crate::netlink::Netlink;
use host_facts::Family;
use std::fs;

/// Collects facts in the network namespace of the calling thread, all but the packet filter. Facts that cannot be
/// found are left out.
pub fn collect(questions: &Questions) -> HostFacts {
    let mut facts = HostFacts::default();
    match Netlink::open() {
        Ok(mut netlink) => ask(&mut facts, &mut netlink, questions),
        Err(error) => tracing::debug!(%error, "the host's routes cannot be looked at"),
    }
    let mut devices = questions.devices.clone();
    let routes = facts.routes.values().flatten().map(|route| route.device.clone());
    devices.extend(routes.filter(|device| !device.is_empty()));
    for device in &devices {
        if let Some(value) = rp_filter(device) {
            facts.rp_filter.insert(device.clone(), value);
        }
    }
    devices.insert("all".to_owned());
    for family in Family::BOTH {
        for device in &devices {
            if let Some(value) = setting(family, device, "forwarding") {
                facts.forwarding.insert((family, device.clone()), value != 0);
            }
        }
    }
    facts
}

fn ask(facts: &mut HostFacts, netlink: &mut Netlink, questions: &Questions) {
    match netlink.attached() {
        Ok(attachments) => facts.attachments = attachments,
        Err(error) => tracing::debug!(%error, "the host's addresses cannot be listed"),
    }
    for destination in &questions.destinations {
        for (marked, mark) in [(false, 0), (true, questions.mark)] {
            match netlink.look_up_route(*destination, mark) {
                Ok(route) => drop(facts.routes.insert((*destination, marked), route)),
                Err(error) => tracing::debug!(%error, %destination, "no answer about a route"),
            }
        }
    }
}

/// The laxer of two settings is the larger number (ip-sysctl of the kernel's documentation).
fn rp_filter(device: &str) -> Option<u8> {
    let [all, own] = ["all", device].map(|device| setting(Family::V4, device, "rp_filter"));
    Some(all?.max(own?))
}

fn setting(family: Family, device: &str, name: &str) -> Option<u8> {
    let path = format!("/proc/sys/net/{}/conf/{device}/{name}", family.directory());
    fs::read_to_string(path).ok()?.trim().parse().ok()
}
