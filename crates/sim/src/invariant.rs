//! Conditions that two gateways must meet once nothing is under way any more.

use crate::host::{HostId, Site};
use crate::world::World;
use ike::status::{ChildSaStatus, ChildStatus, IkeSaStatus, IkeStatus, State};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Names every way in which two gateways that should have all phase 2 tunnels of a site up are not in the same state.
///
/// Each end has one IKE SA and one Child SA per phase 2 tunnel, all established; the ends' SPIs, selectors, keys and
/// algorithms mirror each other; the planes hold those SAs and no other; no plane was misused. To be asked at rest and
/// after the linger time of replaced SAs.
pub fn disagreements(world: &mut World, left: HostId, right: HostId, children: u8) -> Vec<String> {
    let now = world.instant();
    let mut found = Vec::new();
    let ends = [left, right].map(|host| {
        let name = world.host(host).name.clone();
        found.extend(bookkeeping(world, host));
        found.extend(deadline_passed(world, host, now).map(|why| format!("{name}: {why}")));
        only_tunnel(&name, world.status(host), children, &mut found)
    });
    let [Some(l), Some(r)] = &ends else { return found };
    found.extend(mirrored(l, r));
    for host in [left, right] {
        found.extend(plane_fits(world, host));
    }
    found.extend(mirrored_keys(world, left, right));
    found
}

/// Names every way in which two ends of a phase 1 tunnel are not in the same state, up or down.
pub fn mirrored(left: &IkeStatus, right: &IkeStatus) -> Vec<String> {
    let name = &left.name;
    let (l, r) = match (&left.sa, &right.sa) {
        (Some(l), Some(r)) => (l, r),
        (None, None) => return Vec::new(),
        _ => return vec![format!("{name} is {} and {}", left.state.name(), right.state.name())],
    };
    let mut found = Vec::new();
    if (left.state, right.state) != (State::Established, State::Established) {
        found.push(format!("{name} is {} and {}", left.state.name(), right.state.name()));
    }
    mirror_ike(l, r, &mut found);
    let [lefts, rights] = [left, right].map(|s| {
        let up = s.children.iter().filter_map(|c| Some((c.name.as_str(), (c, c.sa.as_ref()?))));
        up.collect::<BTreeMap<_, _>>()
    });
    for name in lefts.keys().chain(rights.keys()).collect::<BTreeSet<_>>() {
        match (lefts.get(name), rights.get(name)) {
            (Some(l), Some(r)) => mirror_child(name, *l, *r, &mut found),
            _ => found.push(format!("only one end has {name}")),
        }
    }
    found
}

/// Names every way in which a host's tables, SPIs and plane do not fit each other. Holds at every moment, whatever is
/// under way.
pub fn bookkeeping(world: &mut World, host: HostId) -> Vec<String> {
    let name = world.host(host).name.clone();
    let held = world.host(host).engine.inventory();
    let plane = world.plane(host);
    let (inbound, outbound) = (plane.inbound().count(), plane.outbound().count());
    let mut found: Vec<String> =
        plane.misuse().iter().map(|m| format!("{name} misuses its plane: {m}")).collect();
    let receiving = held.child_sas + held.lingering;
    for (what, seen, expected) in [
        ("inbound SAs in the plane", inbound, receiving),
        ("outbound SAs in the plane", outbound, held.child_sas),
        ("ESP SPIs in use", held.spis, receiving + held.pending_spis),
        ("IKE SPIs delivered to", held.delivered_spis, held.ike_sas),
        ("SAs of the plane delivered to", held.delivered_sas, 2 * held.child_sas),
        ("requests of strangers", held.strangers, held.half_open),
        ("contacts", held.contacts, held.established),
        ("stale deadlines", held.stale_deadlines, 0),
    ] {
        if seen != expected {
            found.push(format!("{name} has {seen} {what}, its tables say {expected}: {held:?}"));
        }
    }
    found
}

/// Names everything a host has left of its peer: IKE SAs, Child SAs, SAs in the plane.
pub fn leftovers(world: &mut World, host: HostId) -> Vec<String> {
    let name = world.host(host).name.clone();
    let mut found = Vec::new();
    if !world.host(host).engine.is_idle() {
        found.push(format!("{name} is not idle"));
    }
    for ike in world.status(host) {
        if ike.sa.is_some() || ike.state != State::Down {
            found.push(format!("{name}: {} is {}", ike.name, ike.state.name()));
        }
        for child in ike.children {
            if child.sa.is_some() || child.state != State::Down {
                found.push(format!("{name}: {} is {}", child.name, child.state.name()));
            }
        }
    }
    let plane = world.plane(host);
    found.extend(plane.inbound().map(|r| format!("{name} still receives on {}", r.spi)));
    found.extend(plane.outbound().map(|s| format!("{name} still sends on {}", s.spi)));
    found.extend(bookkeeping(world, host));
    found
}

/// As [`leftovers`], and no deadline either: what a stopped host must have none of.
pub fn leftovers_after_stop(world: &mut World, host: HostId) -> Vec<String> {
    let mut found = leftovers(world, host);
    if let Some(deadline) = world.host(host).engine.deadline() {
        found.push(format!("{} still waits: {}", world.host(host).name, deadline.reason));
    }
    found
}

/// Checks that two gateways are in the same state, and that each phase 2 tunnel carries packets both ways.
///
/// # Panics
/// With everything found.
pub fn assert_agreement(world: &mut World, left: HostId, right: HostId, site: &Site) {
    let mut found = disagreements(world, left, right, site.children);
    for n in 0..site.children {
        let (l, r) = site.inner(n);
        for (host, source, destination) in [(left, l, r), (right, r, l)] {
            if !world.probe(host, source, destination) {
                found.push(format!("a packet from {source} to {destination} does not arrive"));
            }
        }
    }
    assert!(found.is_empty(), "the gateways disagree:\n  {}", found.join("\n  "));
}

/// Checks that a host has nothing left.
///
/// # Panics
/// With everything found.
pub fn assert_nothing_left(world: &mut World, host: HostId) {
    let found = leftovers(world, host);
    assert!(found.is_empty(), "something is left:\n  {}", found.join("\n  "));
}

/// Stops both hosts and checks that they end without a trace.
///
/// # Panics
/// With everything found.
pub fn assert_clean_stop(world: &mut World, left: HostId, right: HostId) {
    world.stop(left);
    world.stop(right);
    world.run_for(Duration::from_secs(600));
    let mut found = leftovers_after_stop(world, left);
    found.extend(leftovers_after_stop(world, right));
    assert!(found.is_empty(), "something is left after stop:\n  {}", found.join("\n  "));
}

/// The status of the only tunnel that a host has up, with so many Child SAs.
fn only_tunnel(
    host: &str,
    status: Vec<IkeStatus>,
    children: u8,
    found: &mut Vec<String>,
) -> Option<IkeStatus> {
    let mut up: Vec<IkeStatus> = status.into_iter().filter(|s| s.sa.is_some()).collect();
    if up.len() != 1 {
        found.push(format!("{host} has {} IKE SAs, not one", up.len()));
        return None;
    }
    let only = up.pop()?;
    let child_sas = only.children.iter().filter(|c| c.sa.is_some()).count();
    if child_sas != usize::from(children) {
        found.push(format!("{host} has {child_sas} Child SAs, not {children}"));
    }
    Some(only)
}

fn deadline_passed(world: &World, host: HostId, now: std::time::Instant) -> Option<String> {
    let deadline = world.host(host).engine.deadline()?;
    (deadline.at < now).then(|| format!("a deadline has passed: {}", deadline.reason))
}

fn mirror_ike(l: &IkeSaStatus, r: &IkeSaStatus, found: &mut Vec<String>) {
    if (l.initiator_spi, l.responder_spi) != (r.initiator_spi, r.responder_spi) {
        found.push(format!(
            "the ends have different IKE SAs: {}:{} and {}:{}",
            l.initiator_spi, l.responder_spi, r.initiator_spi, r.responder_spi
        ));
    }
    if l.initiator == r.initiator {
        found.push("both ends have the same part in the IKE SA".into());
    }
    if l.suite != r.suite {
        found.push(format!(
            "the ends have different IKE algorithms: {:?} and {:?}",
            l.suite, r.suite
        ));
    }
    // Not the other way round: an end may announce a NAT where there is none, to have ESP in UDP.
    if (l.nat_local && !r.nat_remote) || (r.nat_local && !l.nat_remote) {
        found.push("an end is behind a NAT, and the other does not know".into());
    }
}

fn mirror_child(
    name: &str,
    (left, l): (&ChildStatus, &ChildSaStatus),
    (right, r): (&ChildStatus, &ChildSaStatus),
    found: &mut Vec<String>,
) {
    if (left.state, right.state) != (State::Established, State::Established) {
        found.push(format!("{name} is {} and {}", left.state.name(), right.state.name()));
    }
    if (l.inbound_spi, l.outbound_spi) != (r.outbound_spi, r.inbound_spi) {
        found.push(format!(
            "{name}: the ends have different SAs: {}/{} and {}/{}",
            l.inbound_spi, l.outbound_spi, r.inbound_spi, r.outbound_spi
        ));
    }
    if (&left.local, &left.remote) != (&right.remote, &right.local) {
        found.push(format!("{name}: the ends have different selectors"));
    }
    if (&l.suite, l.esn, l.encapsulation, left.mode)
        != (&r.suite, r.esn, r.encapsulation, right.mode)
    {
        found.push(format!("{name}: the ends have different algorithms, mode or encapsulation"));
    }
}

/// Names every SA in a host's plane that no tunnel of its lists, and the other way round. To be asked at rest.
pub fn plane_fits(world: &mut World, host: HostId) -> Vec<String> {
    let name = world.host(host).name.clone();
    let status = world.status(host);
    let sas: Vec<&ChildSaStatus> =
        status.iter().flat_map(|s| &s.children).filter_map(|c| c.sa.as_ref()).collect();
    let plane = world.plane(host);
    let mut found = Vec::new();
    let listed = sorted(sas.iter().map(|sa| sa.inbound_spi));
    let held = sorted(plane.inbound().map(|r| r.spi));
    if listed != held {
        found.push(format!("{name}: receives on {held:?}, but lists {listed:?}"));
    }
    let listed = sorted(sas.iter().map(|sa| sa.outbound_spi));
    let held = sorted(plane.outbound().map(|s| s.spi));
    if listed != held {
        found.push(format!("{name}: sends on {held:?}, but lists {listed:?}"));
    }
    let standby = plane.outbound().filter(|s| s.turn().is_none());
    found.extend(standby.map(|s| format!("{name}: {} is still in standby", s.spi)));
    found
}

/// Compares what each host sends on with what the other receives on.
pub fn mirrored_keys(world: &mut World, left: HostId, right: HostId) -> Vec<String> {
    let mut found = Vec::new();
    for (from, to) in [(left, right), (right, left)] {
        let sending: Vec<_> = world
            .plane(from)
            .outbound()
            .map(|s| (s.spi, (s.key.clone(), s.suite, s.esn, s.mode)))
            .collect();
        let receiving: BTreeMap<_, _> = world
            .plane(to)
            .inbound()
            .map(|r| (r.spi, (r.key.clone(), r.suite, r.esn, r.mode)))
            .collect();
        for (spi, sa) in sending {
            if receiving.get(&spi).is_some_and(|other| *other != sa) {
                found.push(format!("the ends disagree on key, suite or mode of {spi}"));
            }
        }
    }
    found
}

fn sorted<T: Ord>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut items: Vec<T> = items.collect();
    items.sort();
    items
}
