//! What must hold of two gateways once nothing is under way any more.

use crate::host::{HostId, Site};
use crate::recorder::Recorder;
use crate::world::World;
use esp::plane::Spi;
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
        let status = world.status(host);
        found.extend(bookkeeping(world, host));
        found.extend(deadline_passed(world, host, now).map(|why| format!("{name}: {why}")));
        End::new(name, status, children, &mut found)
    });
    let [Some(l), Some(r)] = &ends else { return found };
    mirror_ike(l, r, &mut found);
    for (name, child) in &l.children {
        match r.children.get(name) {
            Some(other) => mirror_child(name, child, other, &mut found),
            None => found.push(format!("{} has {name}, {} does not", l.name, r.name)),
        }
    }
    for (host, end) in [(left, l), (right, r)] {
        plane_holds(world.plane(host), end, &mut found);
    }
    mirror_keys(world, left, right, &mut found);
    found
}

/// Names every way in which a host's tables, SPIs and plane do not fit each other. Holds at every moment, whatever is under
/// way.
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
    found.extend(plane.inbound().map(|r| format!("{name} still receives on {}", r.sa.spi)));
    found.extend(plane.outbound().map(|s| format!("{name} still sends on {}", s.sa.spi)));
    found.extend(bookkeeping(world, host));
    found
}

/// As [`leftovers`], and no deadline either: what a stopped host must have none of.
pub fn leftovers_after_stop(world: &mut World, host: HostId) -> Vec<String> {
    let mut found = leftovers(world, host);
    if let Some(deadline) = world.host(host).engine.poll_timeout() {
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

/// The SAs of one end, of which there is the right number.
struct End {
    name: String,
    ike: IkeSaStatus,
    children: BTreeMap<String, (ChildStatus, ChildSaStatus)>,
}

impl End {
    fn new(
        name: String,
        status: Vec<IkeStatus>,
        children: u8,
        found: &mut Vec<String>,
    ) -> Option<Self> {
        let sas: Vec<&IkeStatus> = status.iter().filter(|s| s.sa.is_some()).collect();
        let [ike] = sas[..] else {
            found.push(format!("{name} has {} IKE SAs, not one", sas.len()));
            return None;
        };
        if ike.state != State::Established {
            found.push(format!("{name}: the IKE SA is {}", ike.state.name()));
        }
        let sa = ike.sa.clone()?;
        let mut by_name = BTreeMap::new();
        for child in &ike.children {
            let Some(sa) = child.sa.clone() else { continue };
            if child.state != State::Established {
                found.push(format!("{name}: {} is {}", child.name, child.state.name()));
            }
            if by_name.insert(child.name.clone(), (child.clone(), sa)).is_some() {
                found.push(format!("{name} has {} twice", child.name));
            }
        }
        if by_name.len() != usize::from(children) {
            found.push(format!("{name} has {} Child SAs, not {children}", by_name.len()));
        }
        Some(Self { name, ike: sa, children: by_name })
    }
}

fn deadline_passed(world: &World, host: HostId, now: std::time::Instant) -> Option<String> {
    let deadline = world.host(host).engine.poll_timeout()?;
    (deadline.at < now).then(|| format!("a deadline has passed: {}", deadline.reason))
}

fn mirror_ike(left: &End, right: &End, found: &mut Vec<String>) {
    let (l, r) = (&left.ike, &right.ike);
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
        found.push(format!("the ends have different IKE algorithms: {} and {}", l.suite, r.suite));
    }
    // Not the other way round: an end may announce a NAT where there is none, to have ESP in UDP.
    if (l.nat_local && !r.nat_remote) || (r.nat_local && !l.nat_remote) {
        found.push("an end is behind a NAT, and the other does not know".into());
    }
}

fn mirror_child(
    name: &str,
    (left, l): &(ChildStatus, ChildSaStatus),
    (right, r): &(ChildStatus, ChildSaStatus),
    found: &mut Vec<String>,
) {
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

fn plane_holds(plane: &Recorder, end: &End, found: &mut Vec<String>) {
    let listed: BTreeSet<Spi> = end.children.values().map(|(_, sa)| sa.inbound_spi).collect();
    let held: BTreeSet<Spi> = plane.inbound().map(|r| r.sa.spi).collect();
    if listed != held {
        found.push(format!("{}: receives on {held:?}, but lists {listed:?}", end.name));
    }
    let listed: Vec<Spi> = sorted(end.children.values().map(|(_, sa)| sa.outbound_spi));
    let held: Vec<Spi> = sorted(plane.outbound().map(|s| s.sa.spi));
    if listed != held {
        found.push(format!("{}: sends on {held:?}, but lists {listed:?}", end.name));
    }
    let standby = plane.outbound().filter(|s| s.sa.standby);
    found.extend(standby.map(|s| format!("{}: {} is still in standby", end.name, s.sa.spi)));
}

/// Compares what each end sends on with what the other receives on.
fn mirror_keys(world: &mut World, left: HostId, right: HostId, found: &mut Vec<String>) {
    for (from, to) in [(left, right), (right, left)] {
        let sending: Vec<_> = world
            .plane(from)
            .outbound()
            .map(|s| (s.sa.spi, (s.sa.key.clone(), s.sa.suite, s.sa.esn, s.sa.mode)))
            .collect();
        let receiving: BTreeMap<_, _> = world
            .plane(to)
            .inbound()
            .map(|r| (r.sa.spi, (r.sa.key.clone(), r.sa.suite, r.sa.esn, r.sa.mode)))
            .collect();
        for (spi, sa) in sending {
            if receiving.get(&spi).is_some_and(|other| *other != sa) {
                found.push(format!("the ends disagree on key, suite or mode of {spi}"));
            }
        }
    }
}

fn sorted<T: Ord>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut items: Vec<T> = items.collect();
    items.sort();
    items
}
