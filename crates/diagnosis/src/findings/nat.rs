//! The NAT rules of this host: whether they change the source of the tunnel's packets.

use super::finding::{Finding, FindingKind};
use super::firewall::between;
use super::subject::Subject;
use super::traffic::{is_one_way, is_quiet};
use host_facts::firewall::{Fate, Hook, Packet, Place};
use host_facts::{HostFacts, prefixes};
use policy::AddressRange;

/// Commands of a cure that differ in the network alone.
const MOST_COMMANDS: usize = 4;

/// A rule such as `masquerade` that the tunnel's packets meet before they are protected. The first one is told.
pub(super) fn changes(subject: &Subject, host: &HostFacts) -> Option<Finding> {
    let remotes = subject.remote_ranges();
    let pairs = subject.local_ranges().into_iter().flat_map(|local| {
        let same_family =
            remotes.iter().filter(|remote| remote.start().is_ipv4() == local.start().is_ipv4());
        same_family.map(|remote| [local, *remote]).collect::<Vec<_>>()
    });
    pairs.filter_map(|pair| of_pair(subject, host, pair)).max_by_key(|finding| finding.certain)
}

fn of_pair(
    subject: &Subject,
    host: &HostFacts,
    [local, remote]: [AddressRange; 2],
) -> Option<Finding> {
    let packet = Packet {
        arrives: None,
        leaves: subject.inner_device(host).map(str::to_owned),
        source: local,
        destination: remote,
        protocol: None,
        established: false,
        guessed: false,
    };
    let (place, certain) = match host.firewall.translation(Hook::Postrouting, &packet) {
        Fate::Dropped(place) => (place, true),
        Fate::Unknown(place) if is_one_way(subject) || is_quiet(subject) => (place, false),
        _ => return None,
    };
    let message = match certain {
        true => format!(
            "a NAT rule of this host changes the source of packets from {local} to {remote}, which then belong to no \
             tunnel: {place} does"
        ),
        false => format!(
            "a NAT rule of this host may change the source of packets from {local} to {remote}, which then belong to no \
             tunnel: see {place}"
        ),
    };
    Some(
        Finding::new(&subject.child, FindingKind::Nat, certain, message)
            .with_cure(cure(&place, &local, &remote)),
    )
}

fn cure(place: &Place, local: &AddressRange, remote: &AddressRange) -> Vec<String> {
    let chain = &place.chain;
    let flows = prefixes(remote).into_iter().map(|network| {
        format!("end the flows that it has changed already: conntrack -D -d {network}")
    });
    let mut cure = vec![
        format!("to see it: nft -a list chain {chain}"),
        format!("except the tunnel from it: nft insert rule {chain} {}", between(local, remote)),
    ];
    cure.extend(flows.take(MOST_COMMANDS));
    cure.push(
        "put such a rule into the configuration of the firewall, too: a command does not outlive a reboot".to_owned(),
    );
    cure
}
