//! The facts about a host that decide whether the packets of a tunnel pass: its addresses, its routes, the settings of
//! its kernel, and its packet filter. They are collected here, and judged elsewhere.

#![forbid(unsafe_code)]

use crate::firewall::Firewall;
use crate::netlink::{Attachment, Family, Netlink, RouteLookup};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::IpAddr;

/// The facts to collect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Questions {
    /// Addresses to which packets without a mark, and packets with this one, go.
    pub destinations: BTreeSet<IpAddr>,
    /// The mark of packets that must not enter a tunnel.
    pub mark: u32,
    /// Devices whose settings matter, beside those by which the packets leave.
    pub devices: BTreeSet<String>,
}

/// The facts about a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// The addresses of this host.
    pub attachments: Vec<Attachment>,
    /// The routes to the destinations, without the mark and with it; `None`: no route leads there. A destination that
    /// is absent is unknown.
    pub routes: BTreeMap<(IpAddr, bool), Option<RouteLookup>>,
    /// Whether the kernel forwards packets that arrive on a device, or, with the name `all`, at all. Settings that
    /// cannot be read are absent.
    pub forwarding: BTreeMap<(Family, String), bool>,
    /// The reverse path filter of each device: the larger one of the device's value and that of all devices.
    pub rp_filter: BTreeMap<String, u8>,
    /// The packet filter; the collector of the facts reads it with [`Firewall::read`], because that takes longer.
    pub firewall: Firewall,
}

impl HostFacts {
    /// Collects facts in the network namespace of the calling thread, all but the packet filter. Facts that cannot be
    /// found are left out.
    pub fn collect(questions: &Questions) -> Self {
        let mut facts = Self::default();
        match Netlink::open() {
            Ok(mut netlink) => facts.ask(&mut netlink, questions),
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

    fn ask(&mut self, netlink: &mut Netlink, questions: &Questions) {
        match netlink.attached() {
            Ok(attachments) => self.attachments = attachments,
            Err(error) => tracing::debug!(%error, "the host's addresses cannot be listed"),
        }
        for destination in &questions.destinations {
            for (marked, mark) in [(false, 0), (true, questions.mark)] {
                match netlink.look_up_route(*destination, mark) {
                    Ok(route) => drop(self.routes.insert((*destination, marked), route)),
                    Err(error) => tracing::debug!(%error, %destination, "no answer about a route"),
                }
            }
        }
    }

    /// The addresses of this host.
    pub fn own(&self) -> impl Iterator<Item = IpAddr> {
        self.attachments.iter().map(|attachment| attachment.address)
    }
}

/// The laxer of two settings is the larger number (ip-sysctl of the kernel's documentation).
fn rp_filter(device: &str) -> Option<u8> {
    let of = |device| setting(Family::V4, device, "rp_filter");
    Some(of("all")?.max(of(device)?))
}

fn setting(family: Family, device: &str, name: &str) -> Option<u8> {
    let path = format!("/proc/sys/net/{}/conf/{device}/{name}", family.directory());
    fs::read_to_string(path).ok()?.trim().parse().ok()
}
