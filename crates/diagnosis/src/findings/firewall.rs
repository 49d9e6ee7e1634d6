//! The packet filter of this host: whether it drops the tunnel's packets, before or after they are protected.

use super::finding::{Finding, FindingKind};
use super::networks::{Behind, behind};
use super::subject::Subject;
use super::traffic::{is_one_way, is_quiet};
use esp::plane::Encapsulation;
use host_facts::HostFacts;
use host_facts::firewall::{Fate, Hook, Packet, Place};
use policy::AddressRange;

/// Packets of one kind that pass some hooks in one direction.
struct Traversal<'a> {
    hooks: &'a [Hook],
    packet: Packet,
}

/// Whether packets pass in both directions.
enum Verdict {
    Passes,
    /// It may be dropped, in this direction.
    Maybe(Place, bool),
    /// It is dropped, in this direction, if rules about the state of a flow mean what such rules mean nearly always.
    Likely(Place, bool),
    /// It is dropped, in this direction.
    Drops(Place, bool),
}

/// Rules that drop the packets of a tunnel.
pub(super) fn drops(subject: &Subject, host: &HostFacts) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    found.extend(not_read(subject, host));
    found.extend(outer(subject, host));
    for local in subject.local_ranges() {
        for remote in subject.remote_ranges() {
            if local.start().is_ipv4() != remote.start().is_ipv4() {
                continue;
            }
            found.extend(forwarded(subject, host, [local, remote]));
            found.extend(own(subject, host, [local, remote]));
        }
    }
    let mut findings: Vec<Finding> = Vec::new();
    for finding in found {
        // One rule may drop the packets of several pairs of networks. Each rule is reported once.
        if findings.iter().all(|other| other.cure != finding.cure) {
            findings.push(finding);
        }
    }
    findings
}

/// Packets are lost, and not all rules are known.
fn not_read(subject: &Subject, host: &HostFacts) -> Option<Finding> {
    let reason = host.firewall.unread.as_ref().filter(|_| is_one_way(subject))?;
    let message = format!(
        "the rules of this host's packet filter are not all known to vpnd ({reason}), and one of them may drop packets"
    );
    let finding = Finding::new(&subject.child, FindingKind::Firewall, false, message);
    Some(
        finding
            .with_cure(["see nft list ruleset, and iptables-legacy -S, if it is there".to_owned()]),
    )
}

/// ESP and AH between the two gateways.
fn outer(subject: &Subject, host: &HostFacts) -> Option<Finding> {
    let [local, peer] = subject.ends;
    let (protocol, name) = match subject.encapsulation {
        Encapsulation::Native => ((50, None), "ESP (IP protocol 50)"),
        Encapsulation::Udp => ((17, Some((peer.port(), local.port()))), "ESP in UDP"),
        Encapsulation::Ah => ((51, None), "AH (IP protocol 51)"),
    };
    let [here, there] = [local.ip(), peer.ip()].map(AddressRange::from);
    let device = subject.outer_device(host).map(str::to_owned);
    let packet = Packet {
        arrives: device,
        leaves: None,
        source: there,
        destination: here,
        protocol: Some(protocol),
        established: false,
        guessed: false,
    };
    let inward = Traversal { hooks: &[Hook::Prerouting, Hook::Input], packet };
    let outward = reversed(&inward.packet, &[Hook::Output, Hook::Postrouting]);
    let what = [
        format!("{name} from the peer {}", subject.peer()),
        format!("{name} to the peer {}", subject.peer()),
    ];
    let header = match subject.encapsulation {
        Encapsulation::Udp => {
            ["udp dport", "udp sport"].map(|end| format!("{end} {}", local.port()))
        }
        Encapsulation::Native => ["meta l4proto esp"; 2].map(str::to_owned),
        Encapsulation::Ah => ["meta l4proto ah"; 2].map(str::to_owned),
    };
    let family = if peer.is_ipv4() { "ip" } else { "ip6" };
    let accept = [
        vec![format!("{family} saddr {} {} accept", peer.ip(), header[0])],
        vec![format!("{family} daddr {} {} accept", peer.ip(), header[1])],
    ];
    told(subject, verdict(host, [inward, outward]), &what, accept)
}

/// Packets between the tunnel and a network behind this host.
fn forwarded(
    subject: &Subject,
    host: &HostFacts,
    [local, remote]: [AddressRange; 2],
) -> Option<Finding> {
    let Behind::Network(device) = behind(subject, host, &local) else { return None };
    const HOOKS: [Hook; 3] = [Hook::Prerouting, Hook::Forward, Hook::Postrouting];
    let packet = Packet {
        arrives: subject.inner_device(host).map(str::to_owned),
        leaves: device.clone(),
        source: remote,
        destination: local,
        protocol: None,
        established: false,
        guessed: false,
    };
    let inward = Traversal { hooks: &HOOKS, packet };
    let outward = reversed(&inward.packet, &HOOKS);
    let what =
        [format!("packets from {remote} to {local}"), format!("packets from {local} to {remote}")];
    // Only protected packets pass the TUN device.
    let accept = match &subject.device {
        Some(tunnel) => ["iifname", "oifname"].map(|way| format!("{way} {tunnel} accept")),
        None => [between(&remote, &local), between(&local, &remote)],
    };
    // One chain has both directions.
    let accept = [accept.to_vec(), accept.to_vec()];
    told(subject, verdict(host, [inward, outward]), &what, accept)
}

/// Packets between the tunnel and this host itself.
fn own(subject: &Subject, host: &HostFacts, [local, remote]: [AddressRange; 2]) -> Option<Finding> {
    let own = host.own().find(|own| local.contains(*own))?;
    let packet = Packet {
        arrives: subject.inner_device(host).map(str::to_owned),
        leaves: None,
        source: remote,
        destination: own.into(),
        protocol: None,
        established: false,
        guessed: false,
    };
    let inward = Traversal { hooks: &[Hook::Prerouting, Hook::Input], packet };
    let outward = reversed(&inward.packet, &[Hook::Output, Hook::Postrouting]);
    let what = [
        format!("packets from {remote} to this host's own address {own}"),
        format!("packets from this host's own address {own} to {remote}"),
    ];
    let own = own.into();
    let accept = [vec![between(&remote, &own)], vec![between(&own, &remote)]];
    told(subject, verdict(host, [inward, outward]), &what, accept)
}

/// A rule that accepts packets.
pub(super) fn between(from: &AddressRange, to: &AddressRange) -> String {
    let family = if from.start().is_ipv4() { "ip" } else { "ip6" };
    format!("{family} saddr {from} {family} daddr {to} accept")
}

/// The other direction of a packet.
fn reversed<'a>(packet: &Packet, hooks: &'a [Hook]) -> Traversal<'a> {
    let protocol =
        packet.protocol.map(|(number, ports)| (number, ports.map(|(from, to)| (to, from))));
    let packet = Packet {
        arrives: packet.leaves.clone(),
        leaves: packet.arrives.clone(),
        source: packet.destination,
        destination: packet.source,
        protocol,
        established: packet.established,
        guessed: packet.guessed,
    };
    Traversal { hooks, packet }
}

/// The fate of a direction on its whole way.
fn fate(host: &HostFacts, traversal: &Traversal<'_>, [established, guessed]: [bool; 2]) -> Fate {
    let mut unknown = None;
    for hook in traversal.hooks {
        let mut packet = Packet { established, guessed, ..traversal.packet.clone() };
        match hook {
            // Not known yet.
            Hook::Prerouting => packet.leaves = None,
            // The packet of another hook may come from elsewhere.
            Hook::Postrouting => packet.arrives = None,
            _ => {}
        }
        match host.firewall.fate(*hook, &packet) {
            Fate::Dropped(place) => return Fate::Dropped(place),
            Fate::Unknown(place) => unknown = unknown.or(Some(place)),
            Fate::Passes => {}
        }
    }
    unknown.map_or(Fate::Passes, Fate::Unknown)
}

/// The fates of a new packet and of one of a known flow, in each direction.
type Fates = [[Fate; 2]; 2];

fn fates(host: &HostFacts, traversals: &[Traversal<'_>; 2], guessed: bool) -> Fates {
    traversals
        .each_ref()
        .map(|traversal| [false, true].map(|known| fate(host, traversal, [known, guessed])))
}

/// Packets of a flow that the kernel knows often pass where new ones do not. Nothing passes if a direction drops both,
/// or if no direction lets a flow begin.
fn dropped(fates: &Fates) -> Option<(Place, bool)> {
    for (direction, fate) in fates.iter().enumerate() {
        if let [Fate::Dropped(_), Fate::Dropped(place)] = fate {
            return Some((place.clone(), direction == 0));
        }
    }
    match fates {
        [[Fate::Dropped(place), _], [Fate::Dropped(_), _]] => Some((place.clone(), true)),
        _ => None,
    }
}

fn verdict(host: &HostFacts, traversals: [Traversal<'_>; 2]) -> Verdict {
    let sure = fates(host, &traversals, false);
    if let Some((place, inward)) = dropped(&sure) {
        return Verdict::Drops(place, inward);
    }
    if let Some((place, inward)) = dropped(&fates(host, &traversals, true)) {
        return Verdict::Likely(place, inward);
    }
    for (direction, fate) in sure.into_iter().enumerate() {
        for fate in fate {
            if let Fate::Dropped(place) | Fate::Unknown(place) = fate {
                return Verdict::Maybe(place, direction == 0);
            }
        }
    }
    Verdict::Passes
}

/// Rules that may drop packets are told only if there is a sign that packets are lost. `accept` has the rules that let
/// the packets of each direction pass.
fn told(
    subject: &Subject,
    verdict: Verdict,
    what: &[String; 2],
    accept: [Vec<String>; 2],
) -> Option<Finding> {
    let (place, inward, certain) = match verdict {
        Verdict::Drops(place, inward) => (place, inward, true),
        Verdict::Maybe(place, inward) if is_one_way(subject) => (place, inward, false),
        Verdict::Likely(place, inward) if is_one_way(subject) || is_quiet(subject) => {
            (place, inward, false)
        }
        _ => return None,
    };
    let [inbound, outbound] = accept;
    let (what, accept) = if inward { (&what[0], inbound) } else { (&what[1], outbound) };
    let message = match certain {
        true => format!("the packet filter of this host drops {what}: {place} does"),
        false => format!("the packet filter of this host may drop {what}: see {place}"),
    };
    let chain = &place.chain;
    let mut cure = vec![format!("to see it: nft -a list chain {chain}")];
    cure.extend(accept.iter().map(|rule| format!("let them pass: nft insert rule {chain} {rule}")));
    cure.push(
        "put such rules into the configuration of the firewall, too: a command does not outlive a reboot"
            .to_owned(),
    );
    Some(Finding::new(&subject.child, FindingKind::Firewall, certain, message).with_cure(cure))
}
