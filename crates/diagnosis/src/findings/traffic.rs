//! The traffic of a tunnel: packets in one direction only, and less traffic than the policy names.

use super::finding::{Finding, FindingKind};
use super::subject::{Flow, Subject};
use esp::plane::Encapsulation;
use policy::{Mode, Selector};
use std::time::Duration;

/// So many packets of one direction without one of the other are worth telling at once.
const ENOUGH: u64 = 5;
/// After this long without an answer, fewer are.
const ANSWERED: Duration = Duration::from_secs(3);
/// Packets of one direction have stopped if those of the other came so much later.
const STOPPED: Duration = Duration::from_secs(10);

/// How the packets of one direction stand to those of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Silence {
    /// None has ever passed.
    Never,
    /// None has passed for so long.
    Stopped(Duration),
}

/// The direction whose packets pass, while those of the other do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passing {
    Outbound,
    Inbound,
}

/// The parts of the sentences about packets in one direction only.
struct Words {
    /// Around the packets that have passed.
    passed: [&'static str; 2],
    /// None of the other direction ever has.
    never: &'static str,
    /// None of the other direction has for a while.
    stopped: &'static str,
    /// The packets pass until now.
    passing: &'static str,
}

impl Passing {
    const fn words(self) -> Words {
        match self {
            Self::Outbound => Words {
                passed: ["this side has sent ", ""],
                never: "nothing has ever come in",
                stopped: "nothing has come in",
                passing: "this side went on sending",
            },
            Self::Inbound => Words {
                passed: ["", " have come in"],
                never: "this side has never sent anything",
                stopped: "this side has sent nothing",
                passing: "packets went on coming in",
            },
        }
    }
}

/// Packets of the one direction pass; says whether those of the other do not.
fn silence(passing: Flow, other: Flow) -> Option<Silence> {
    let last = passing.idle?;
    match other.idle {
        _ if passing.packets == 0 => None,
        None => (passing.packets >= ENOUGH || last >= ANSWERED).then_some(Silence::Never),
        Some(idle) => (idle >= last + STOPPED).then_some(Silence::Stopped(idle)),
    }
}

/// The direction whose packets pass, and how those of the other stand.
fn one_direction(subject: &Subject) -> Option<(Passing, Silence)> {
    let (inbound, outbound) = (subject.inbound, subject.outbound);
    let of_inbound = silence(outbound, inbound).map(|silence| (Passing::Outbound, silence));
    of_inbound.or_else(|| silence(inbound, outbound).map(|silence| (Passing::Inbound, silence)))
}

/// Returns `true` if packets pass in one direction only.
pub(super) fn is_one_way(subject: &Subject) -> bool {
    one_direction(subject).is_some()
}

/// Returns `true` if no packet passes in either direction at present.
pub(super) fn is_quiet(subject: &Subject) -> bool {
    let flows = [subject.inbound, subject.outbound];
    flows.into_iter().all(|flow| flow.idle.is_none_or(|idle| idle >= STOPPED))
}

/// Packets pass in one direction only.
pub(super) fn one_way(subject: &Subject) -> Option<Finding> {
    // Then the tunnel's own state tells the cause.
    if subject.is_peer_silent {
        return None;
    }
    let (passing, silence) = one_direction(subject)?;
    let (inbound, outbound) = (&subject.inbound, &subject.outbound);
    let flow = if passing == Passing::Outbound { outbound } else { inbound };
    let last = seconds(flow.idle.unwrap_or_default());
    let words = passing.words();
    let message = match silence {
        Silence::Never => {
            let [before, behind] = words.passed;
            format!("{before}{}{behind}, the last one {last} ago, and {}", sum(flow), words.never)
        }
        Silence::Stopped(idle) => format!(
            "{} for {}, while {} until {last} ago: {} out, {} in since the tunnel came up",
            words.stopped,
            seconds(idle),
            words.passing,
            sum(outbound),
            sum(inbound)
        ),
    };
    let message = message + &refused(subject);
    let cure = match passing {
        Passing::Outbound => nothing_in(subject, silence),
        Passing::Inbound => nothing_out(subject),
    };
    Some(Finding::new(&subject.child, FindingKind::OneWay, false, message).with_cure(cure))
}

fn sum(flow: &Flow) -> String {
    format!("{} packets ({} octets)", flow.packets, flow.bytes)
}

/// The time for which a dropped packet is worth telling.
const RECENT: Duration = Duration::from_secs(600);

/// The guard has dropped packets.
pub(super) fn unprotected(subject: &Subject) -> Option<Finding> {
    let (packet, ago) = subject.unprotected.filter(|(_, ago)| *ago < RECENT)?;
    let message = format!(
        "the guard drops packets that are about to leave in the clear; the last one {} ago: {packet}",
        seconds(ago)
    );
    let cure = vec![
        format!("see its way: vpnctl trace {packet}"),
        "if a program is bound to another device or address: let it use an address of the tunnel's local network".to_owned(),
        "if this traffic is to leave in the clear: write a bypass rule ([[filter.rule]] in vpnd.toml)".to_owned(),
    ];
    Some(Finding::new(&subject.child, FindingKind::Unprotected, false, message).with_cure(cure))
}

fn refused(subject: &Subject) -> String {
    match subject.refused {
        0 => String::new(),
        n => format!("; {n} packets were refused (vpnctl counters says why)"),
    }
}

fn nothing_in(subject: &Subject, silence: Silence) -> Vec<String> {
    let [local, peer] = subject.ends.map(|end| end.ip());
    let mut cure = Vec::new();
    // An upload whose large packets vanish gets no more answers.
    if silence != Silence::Never {
        let child = &subject.child;
        cure.push(format!(
            "if small packets still pass (ping), large ones are lost: vpnctl probe {child}"
        ));
    }
    cure.extend(match subject.encapsulation {
        Encapsulation::Udp => vec![format!(
            "let UDP 4500 pass every firewall between {local} and {peer}, in both directions"
        )],
        Encapsulation::Native => vec![
            format!(
                "let ESP (IP protocol 50) pass every firewall between {local} and {peer}, in both directions"
            ),
            "if a firewall must block it: encap = \"always\" in [esp] of vpnd.toml sends ESP in UDP, as IKE is sent; restart vpnd"
                .to_owned(),
        ],
        Encapsulation::Ah => vec![format!(
            "let AH (IP protocol 51) pass every firewall between {local} and {peer}, in both directions"
        )],
    });
    cure.push(
        "on the peer's side: do its hosts answer, do their routes lead to the gateway there, and does it forward? If it runs \
         vpnd, vpnctl why there tells"
            .to_owned(),
    );
    cure
}

fn nothing_out(subject: &Subject) -> Vec<String> {
    let mut cure = Vec::new();
    if subject.mode == Mode::Tunnel {
        cure.push(format!(
            "see whether the hosts of {} answer, and whether their route to {} leads to this host",
            listed(&subject.local),
            listed(&subject.remote)
        ));
    }
    cure.push("see whether the firewall of the hosts on this side lets the packets in".to_owned());
    cure
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs())
}

fn listed(selectors: &[Selector]) -> String {
    selectors.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The Child SA protects less than the policy names, or than the peer has asked for.
pub(super) fn narrowed(subject: &Subject) -> Option<Finding> {
    let [local, remote] = subject.asked.as_ref()?;
    if let Some([asked_local, asked_remote]) = &subject.wanted {
        let message = format!(
            "the peer has asked for {} to {} in one Child SA, and this policy has that in several phase 2 tunnels: this one \
             carries {} to {} alone",
            listed(asked_local),
            listed(asked_remote),
            listed(&subject.local),
            listed(&subject.remote)
        );
        let cure = [
            "have the peer ask for a Child SA for each pair of networks (strongSwan: a child for each in swanctl.conf)"
                .to_owned(),
            "or start the others from this side: vpnctl activate NAME".to_owned(),
        ];
        return Some(
            Finding::new(&subject.child, FindingKind::Narrowed, false, message).with_cure(cure),
        );
    }
    let mut told = Vec::new();
    for (side, agreed, asked) in
        [("local", &subject.local, local), ("remote", &subject.remote, remote)]
    {
        if !asked.iter().all(|selector| is_covered(selector, agreed)) {
            told.push(format!(
                "{side} traffic {}, where the policy names {}",
                listed(agreed),
                listed(asked)
            ));
        }
    }
    if told.is_empty() {
        return None;
    }
    let message = format!(
        "the two sides have agreed to less than the policy of this side names: {}; other packets of the policy are dropped",
        told.join(", and ")
    );
    let cure = [
        "give the peer's policy the same traffic, seen from its side (IPSecLocalIdentity and IPSecRemoteIdentity), and then: \
         vpnctl rekey"
            .to_owned()
            + &format!(" {}", subject.child),
        "if the smaller traffic is meant, write it into this side's policy, too".to_owned(),
    ];
    Some(Finding::new(&subject.child, FindingKind::Narrowed, false, message).with_cure(cure))
}

/// Returns `true` if each packet of a selector is one of the agreed ones. Agreed selectors may share the addresses
/// among them.
fn is_covered(asked: &Selector, agreed: &[Selector]) -> bool {
    let mut fitting: Vec<&Selector> = agreed
        .iter()
        .filter(|a| {
            (a.protocol == 0 || a.protocol == asked.protocol)
                && a.ports.intersection(&asked.ports) == Some(asked.ports)
                && a.addresses.start().is_ipv4() == asked.addresses.start().is_ipv4()
        })
        .collect();
    fitting.sort_by_key(|a| a.addresses);
    let (mut next, end) = (bits(asked.addresses.start()), bits(asked.addresses.end()));
    for selector in fitting {
        let (from, to) = (bits(selector.addresses.start()), bits(selector.addresses.end()));
        if from <= next && to >= next {
            if to >= end {
                return true;
            }
            next = to + 1;
        }
    }
    false
}

fn bits(address: std::net::IpAddr) -> u128 {
    match address {
        std::net::IpAddr::V4(a) => a.to_bits().into(),
        std::net::IpAddr::V6(a) => a.to_bits(),
    }
}
