//! A phase 2 tunnel that is up, as far as its traffic is concerned, and the questions about the host that follow from
//! it.

use super::shadow::{self, Shadow};
use esp::filter::{Filter, FilterAction};
use esp::plane::{Encapsulation, PacketSummary};
use host_facts::{HostFacts, Questions, RouteLookup};
use ike::status::{ChildSaStatus, ChildStatus, IkeStatus, NarrowedBy};
use policy::shadow::Traffic;
use policy::{AddressRange, Binding, Bindings, IkeTunnel, Mode, Policy, Selector};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// Most ranges of a tunnel that are looked at, of each side.
const RANGES: usize = 8;

/// A phase 2 tunnel that is up.
#[derive(Clone, Debug)]
pub struct Subject {
    pub(crate) child: String,
    pub(crate) mode: Mode,
    /// The agreed traffic of this side.
    pub(crate) local: Vec<Selector>,
    /// The agreed traffic of the peer.
    pub(crate) remote: Vec<Selector>,
    /// The traffic that the policy names, of both sides; `None`: the policy does not have the tunnel.
    pub(crate) asked: Option<[Vec<Selector>; 2]>,
    /// The traffic that the peer asked for in this one Child SA, where the policy has more of it in other phase 2
    /// tunnels.
    pub(crate) wanted: Option<[Vec<Selector>; 2]>,
    /// The earlier phase 2 tunnel that covers all its traffic.
    pub(crate) shadowed_by: Option<Shadow>,
    /// The TUN device; `None`: the kernel protects the packets.
    pub(crate) device: Option<String>,
    /// Addresses and ports of this side and of the peer.
    pub(crate) ends: [SocketAddr; 2],
    pub(crate) encapsulation: Encapsulation,
    /// Received packets.
    pub(crate) inbound: Flow,
    /// Sent packets.
    pub(crate) outbound: Flow,
    pub(crate) refused: u64,
    /// The last packet that the guard has dropped, and how long ago.
    pub(crate) unprotected: Option<(PacketSummary, Duration)>,
    /// The peer does not answer IKE.
    pub(crate) is_peer_silent: bool,
}

/// The packets of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flow {
    pub packets: u64,
    pub bytes: u64,
    /// The time since the last one.
    pub idle: Option<Duration>,
}

impl Subject {
    fn new(
        child: &ChildStatus,
        sa: &ChildSaStatus,
        (ends, is_peer_silent): ([SocketAddr; 2], bool),
        policy: &Policy,
        device: Option<&str>,
    ) -> Self {
        let (tunnel, defined) = policy.child(&child.name).unzip();
        Self {
            child: child.name.clone(),
            mode: child.mode,
            local: child.local.clone(),
            remote: child.remote.clone(),
            asked: defined.map(|defined| [defined.local.clone(), defined.remote.clone()]),
            wanted: tunnel.and_then(|tunnel| wanted(tunnel, child)),
            shadowed_by: None,
            device: device.map(str::to_owned),
            ends,
            encapsulation: sa.encapsulation,
            inbound: Flow { packets: sa.packets_in, bytes: sa.bytes_in, idle: sa.idle_in },
            outbound: Flow { packets: sa.packets_out, bytes: sa.bytes_out, idle: sa.idle_out },
            refused: sa.refused,
            unprotected: child.unprotected,
            is_peer_silent,
        }
    }

    /// The ranges of this side.
    pub(crate) fn local_ranges(&self) -> Vec<AddressRange> {
        ranges(&self.local)
    }

    /// The ranges of the peer's side.
    pub(crate) fn remote_ranges(&self) -> Vec<AddressRange> {
        ranges(&self.remote)
    }

    /// The peer's address.
    pub(crate) fn peer(&self) -> IpAddr {
        self.ends[1].ip()
    }

    /// The device by which protected packets arrive once they are opened.
    pub(crate) fn inner_device<'a>(&'a self, host: &'a HostFacts) -> Option<&'a str> {
        self.device.as_deref().or_else(|| self.outer_device(host))
    }

    /// The device by which the packets to the peer leave.
    pub(crate) fn outer_device<'a>(&self, host: &'a HostFacts) -> Option<&'a str> {
        let route = host.routes.get(&(self.peer(), true))?.as_ref()?;
        Some(route.device.as_str()).filter(|device| !device.is_empty())
    }
}

/// The traffic of the peer's request of which this side has granted a part, if other phase 2 tunnels have more of it.
fn wanted(tunnel: &IkeTunnel, child: &ChildStatus) -> Option<[Vec<Selector>; 2]> {
    let narrowed = child.narrowed.as_ref().filter(|n| n.by == NarrowedBy::Grant)?;
    let binding = Binding::default();
    let asked = Traffic { local: &narrowed.local, remote: &narrowed.remote, binding };
    let others = tunnel.children.iter().filter(|other| other.name != child.name);
    let mut more = others.filter(|other| Traffic::of(other, binding).meets(&asked));
    more.next().map(|_| [narrowed.local.clone(), narrowed.remote.clone()])
}

/// The children of a phase 1 tunnel that are up. `bindings`: the marks and interfaces of all phase 2 tunnels.
/// `in_kernel` tells those whose packets the kernel protects.
pub fn subjects(
    status: &IkeStatus,
    (policy, bindings): (&Policy, &Bindings),
    device: &str,
    in_kernel: impl Fn(&str) -> bool,
) -> Vec<Subject> {
    let Some(sa) = &status.sa else { return Vec::new() };
    let peer = ([sa.local, sa.remote], status.unanswered.is_some());
    let subjects = status.children.iter().filter_map(|child| {
        let sa = child.sa.as_ref().filter(|_| child.state.has_sa())?;
        let device = (!in_kernel(&child.name)).then_some(device);
        Some(Subject::new(child, sa, peer, policy, device))
    });
    let mut subjects: Vec<Subject> = subjects.collect();
    if !subjects.is_empty() {
        shadow::find(&mut subjects, policy, bindings);
    }
    subjects
}

/// The questions about the host for these tunnels.
pub fn questions(subjects: &[Subject], mark: u32) -> Questions {
    let mut questions = Questions { mark, ..Questions::default() };
    for subject in subjects {
        questions.destinations.insert(subject.peer());
        for range in [subject.local_ranges(), subject.remote_ranges()].concat() {
            questions.destinations.extend(samples(&range));
        }
        questions.devices.extend(subject.device.clone());
    }
    questions
}

/// The ranges of selectors, each once.
fn ranges(selectors: &[Selector]) -> Vec<AddressRange> {
    let mut found: Vec<AddressRange> = Vec::new();
    for selector in selectors {
        if !found.contains(&selector.addresses) && found.len() < RANGES {
            found.push(selector.addresses);
        }
    }
    found
}

/// Addresses of a range that hosts may have: the first of a network is none.
pub(super) fn samples(range: &AddressRange) -> Vec<IpAddr> {
    if range.start() == range.end() {
        return vec![range.start()];
    }
    let all = [(range.start(), 1), (range.start(), 2), (range.start(), 3), (range.end(), -1)];
    let mut found: Vec<IpAddr> = Vec::new();
    for address in all.into_iter().filter_map(|(address, step)| stepped(address, step)) {
        if range.contains(address) && !found.contains(&address) {
            found.push(address);
        }
    }
    found
}

fn stepped(address: IpAddr, step: i8) -> Option<IpAddr> {
    Some(match address {
        IpAddr::V4(a) => Ipv4Addr::from_bits(a.to_bits().checked_add_signed(step.into())?).into(),
        IpAddr::V6(a) => Ipv6Addr::from_bits(a.to_bits().checked_add_signed(step.into())?).into(),
    })
}

/// The routes to addresses of a range that are not this host's own, as far as they are known.
pub(super) fn routes<'a>(
    host: &'a HostFacts,
    range: &AddressRange,
) -> impl Iterator<Item = (IpAddr, Option<&'a RouteLookup>)> {
    samples(range).into_iter().filter_map(|address| {
        let route = host.routes.get(&(address, false))?.as_ref();
        route.is_none_or(|route| !route.own).then_some((address, route))
    })
}

/// Returns `true` if a range holds all addresses of its family.
pub(super) fn is_whole(range: &AddressRange) -> bool {
    let whole = AddressRange::subnet(range.start(), 0);
    whole.as_ref() == Some(range)
}

/// Returns `true` if a bypass rule of the filter lets the packets between two ranges pass in the clear.
pub(super) fn is_bypassed(filter: Option<&Filter>, [from, to]: [AddressRange; 2]) -> bool {
    filter.is_some_and(|filter| {
        filter.rules.iter().any(|rule| {
            rule.action == FilterAction::Bypass
                && has_all(&rule.traffic.local, from)
                && has_all(&rule.traffic.remote, to)
        })
    })
}

fn has_all(selectors: &[Selector], range: AddressRange) -> bool {
    selectors.iter().any(|s| s.addresses.intersection(&range) == Some(range))
}
