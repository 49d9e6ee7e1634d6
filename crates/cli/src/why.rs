//! The explanation of a tunnel's state: its failures, a comparison of both sides, and advice.

use crate::report::duration;
use control::protocol::{Defined, Explanation, Row, Story, Waits};
use ike::failure::facts::{
    Addresses, Facts, Identities, Layer, Offer, Offers, Shadowed, Silence, Traffic, Wanted,
};
use ike::failure::{Failure, FailureKind};
use ike::status::{ChildStatus, IkeStatus, Next, PastFailure};
use policy::Selector;
use policy::xml::Definitions;
use std::fmt::Display;
use std::net::IpAddr;
use std::time::Duration;

/// Explains a phase 1 tunnel with its phase 2 tunnels, or with the one of that name only.
pub fn explain(status: &IkeStatus, only: Option<&str>, definitions: &Definitions) -> Explanation {
    let wanted = |c: &&ChildStatus| only.is_none_or(|name| c.name == name);
    let children: Vec<&ChildStatus> = status.children.iter().filter(wanted).collect();
    let defined = |tunnel: &str| {
        let definition = |d: &policy::xml::Definition| Defined {
            element: d.element.clone(),
            name: d.name.clone(),
            file: definitions.file().to_owned(),
            line: d.line,
        };
        definitions.of(tunnel).iter().map(definition).collect::<Vec<_>>()
    };
    let own = defined(&status.name);
    // Advice on a failure may concern any of the elements behind it.
    let all: Vec<Defined> =
        own.iter().cloned().chain(children.iter().flat_map(|c| defined(&c.name))).collect();
    let story = |past: &PastFailure| tell(past, &all);
    let explained = |child: &&ChildStatus| {
        // What kept the IKE SA from coming up is told once.
        let new = |p: &&PastFailure| status.failures.iter().all(|f| f.failure != p.failure);
        Explanation {
            name: child.name.clone(),
            phase: 2,
            state: child.state.name().to_owned(),
            up_seconds: child.sa.as_ref().map(|sa| sa.established_for.as_secs()),
            fault: child.fault.clone(),
            waits: child.next.as_ref().map(waits),
            failures: child.failures.iter().filter(new).map(story).collect(),
            turned_away: Vec::new(),
            defined: defined(&child.name),
            children: Vec::new(),
            findings: Vec::new(),
        }
    };
    let up = status.sa.as_ref().and_then(|sa| sa.established_for);
    Explanation {
        name: status.name.clone(),
        phase: 1,
        state: status.state.name().to_owned(),
        up_seconds: up.map(|up| up.as_secs()),
        fault: None,
        waits: None,
        failures: status.failures.iter().map(story).collect(),
        turned_away: status.turned_away.iter().map(story).collect(),
        defined: own,
        children: children.iter().map(explained).collect(),
        findings: Vec::new(),
    }
}

fn waits(next: &Next) -> Waits {
    let seconds = |d: &Duration| Some(d.as_secs());
    let (what, message, seconds) = match next {
        Next::Answer { request, sent, again_in } => {
            let times = times(*sent);
            let again = again_in.as_ref().map_or_else(String::new, |d| {
                format!("; it is repeated, or given up, in {}", duration(*d))
            });
            let message = format!("the peer's answer to {request}, sent {times}{again}");
            ("answer", message, again_in.as_ref().and_then(seconds))
        }
        Next::Attempt { after, failed } => {
            let message =
                format!("the next attempt, in {}; {} failed in a row", duration(*after), failed);
            ("attempt", message, seconds(after))
        }
        Next::Packet => ("packet", "the first packet for it, or vpnctl activate".to_owned(), None),
        Next::Command { deactivated: true } => (
            "command",
            "vpnctl activate: it was taken down with vpnctl deactivate".to_owned(),
            None,
        ),
        Next::Command { deactivated: false } => {
            let message =
                "vpnctl activate or the peer: the policy has neither AutoStart nor OnDemand for it";
            ("command", message.to_owned(), None)
        }
        Next::Peer => {
            let message = "the peer: this side may not start it (its role), or does not know the peer's address";
            ("peer", message.to_owned(), None)
        }
        _ => ("other", "something that this version cannot name".to_owned(), None),
    };
    Waits { what: what.to_owned(), message, seconds }
}

/// `once`, `twice`, `3 times`.
pub fn times(n: u32) -> String {
    match n {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        n => format!("{n} times"),
    }
}

fn tell(past: &PastFailure, defined: &[Defined]) -> Story {
    let PastFailure { failure, ago, times, peer, overcome, .. } = past;
    let comparison = comparison(&failure.facts);
    Story {
        kind: failure.kind.name().to_owned(),
        message: message(failure),
        seconds_ago: ago.as_secs(),
        times: *times,
        authenticated: !failure.unauthenticated,
        overcome: *overcome,
        peer: *peer,
        cure: Advice { defined, by_stranger: peer.is_some() }.on(failure, &comparison),
        comparison,
    }
}

/// The message of a failure, without the part that the table of differences shows.
fn message(failure: &Failure) -> String {
    let kind = failure.kind;
    match &*failure.facts {
        Facts::Offers(Offers { wanted_group: Some(group), .. }) => {
            format!("{kind}: the peer wants the key exchange {group}, which was not offered")
        }
        Facts::Offers(offers) => {
            let what = match offers.layer {
                Layer::Ike => "for the IKE SA (phase 1)",
                Layer::Child => "for the Child SA (phase 2)",
            };
            match &offers.theirs {
                Some(_) => format!("{kind}: {what} the two sides offer different algorithms"),
                None => format!("{kind}: the peer accepts none of the offers {what}"),
            }
        }
        Facts::Traffic(Traffic { theirs: Some(_), .. }) => {
            format!("{kind}: the two sides want different traffic protected")
        }
        Facts::Traffic(_) => format!("{kind}: the peer protects none of the traffic asked for"),
        Facts::Identities(_) => {
            let kind = FailureKind::NoMatchingTunnel;
            format!("{kind}: the peer names itself otherwise than the policy does")
        }
        Facts::Silence(Silence { request, sent, remote, .. }) => {
            format!("{kind}: {request} was sent to {remote} {}", times(*sent))
        }
        Facts::Proof(proof) if !proof.by_us => {
            let what = if proof.certificate { "certificate" } else { "proof" };
            format!("{kind}: the peer does not accept this side's {what}")
        }
        Facts::Shadowed(claim) => {
            format!("{kind}: {} of {} comes first", claim.shadowing_rule.child, claim.peer)
        }
        Facts::Modes(_) => kind.to_string(),
        Facts::Addresses(_) => format!("{kind}: no tunnel is between these two addresses"),
        _ => failure.to_string(),
    }
}

fn row(item: impl Into<String>, here: impl Display, there: Option<String>) -> Row {
    let here = here.to_string();
    let differs = there.as_ref().is_some_and(|t| *t != here);
    Row { item: item.into(), here, there, differs }
}

fn comparison(facts: &Facts) -> Vec<Row> {
    match facts {
        Facts::Offers(offers) => offered(offers),
        Facts::Identities(identities) => named(identities),
        Facts::Traffic(traffic) => wanted(traffic),
        Facts::Shadowed(claim) => claimed(claim),
        Facts::Modes(modes) => {
            vec![row(
                format!("mode of {}", modes.child),
                modes.ours,
                Some(modes.theirs.to_string()),
            )]
        }
        Facts::Addresses(Addresses { local, remote, known }) => {
            let address = |a: &Option<IpAddr>| a.map_or_else(|| "any".into(), |a| a.to_string());
            let there = format!("{local} to {remote}");
            let row = |(name, ours, theirs): &(String, Option<IpAddr>, Option<IpAddr>)| {
                let here = format!("{} to {}", address(ours), address(theirs));
                Row { item: name.clone(), here, there: Some(there.clone()), differs: true }
            };
            known.iter().map(row).collect()
        }
        _ => Vec::new(),
    }
}

/// The two proposals that come nearest to each other, transform by transform, and how many more there are.
fn offered(offers: &Offers) -> Vec<Row> {
    let names = |offer: Option<&Offer>, kind: &str| -> Vec<String> {
        let of_kind = offer.and_then(|o| o.transforms.iter().find(|t| t.kind == kind));
        of_kind.map_or_else(Vec::new, |t| t.names.clone())
    };
    let meet = |ours: Option<&Offer>, theirs: Option<&Offer>, kind: &str| {
        let (ours, theirs) = (names(ours, kind), names(theirs, kind));
        ours.iter().any(|o| theirs.contains(o)) || ours.is_empty() && theirs.is_empty()
    };
    const KINDS: [&str; 5] = ["encryption", "integrity", "PRF", "group", "sequence numbers"];
    let theirs = offers.theirs.as_deref().unwrap_or_default();
    let alike = |(ours, theirs): &(&Offer, &Offer)| {
        KINDS.iter().filter(|kind| meet(Some(ours), Some(theirs), kind)).count()
    };
    // The first of those that are equally near.
    let pairs = offers.ours.iter().flat_map(|o| theirs.iter().map(move |t| (o, t)));
    let nearest = pairs.rev().max_by_key(alike);
    let (our, their) = match nearest {
        Some((ours, theirs)) => (Some(ours), Some(theirs)),
        None => (offers.ours.first(), theirs.first()),
    };
    let shown =
        |names: &[String]| if names.is_empty() { "none".into() } else { names.join(" or ") };
    let mut rows = Vec::new();
    for kind in KINDS {
        let (ours, thens) = (names(our, kind), names(their, kind));
        let mut here = shown(&ours);
        if kind == "group" && offers.group_optional {
            here = if ours.is_empty() { here } else { format!("{here} or none") };
        }
        let there = match (&offers.wanted_group, &offers.theirs) {
            (Some(wanted), _) if kind == "group" => Some(wanted.clone()),
            (_, Some(_)) => Some(shown(&thens)),
            (_, None) => None,
        };
        if ours.is_empty() && thens.is_empty() {
            continue;
        }
        let met =
            meet(our, their, kind) || kind == "group" && offers.group_optional && thens.is_empty();
        let differs = there.is_some() && !met;
        rows.push(Row { item: kind.to_owned(), here, there, differs });
    }
    let more = |n: usize| match n {
        0 | 1 => "none".to_owned(),
        n => format!("{} more", n - 1),
    };
    if offers.ours.len() > 1 || theirs.len() > 1 {
        let there = offers.theirs.as_ref().map(|t| more(t.len()));
        let here = more(offers.ours.len());
        rows.push(Row { item: "other proposals".to_owned(), here, there, differs: false });
    }
    rows
}

fn named(identities: &Identities) -> Vec<Row> {
    let Identities { peer, asked, known } = identities;
    let mut rows = Vec::new();
    for parties in known {
        let of = |what: &str| match known.len() {
            1 => what.to_owned(),
            _ => format!("{what} ({})", parties.tunnel),
        };
        rows.push(row(of("the peer is"), &parties.remote, Some(peer.clone())));
        if let Some(asked) = asked {
            rows.push(row(of("this side is"), &parties.local, Some(asked.clone())));
        }
    }
    rows
}

fn wanted(traffic: &Traffic) -> Vec<Row> {
    let listed = |s: &[Selector]| {
        let words: Vec<String> = s.iter().map(ToString::to_string).collect();
        if words.is_empty() { "none".to_owned() } else { words.join(", ") }
    };
    let mut rows = Vec::new();
    for ours in &traffic.ours {
        let of = |what: &str| match traffic.ours.len() {
            1 => what.to_owned(),
            _ => format!("{what} ({})", ours.child),
        };
        let meets = |ours: &[Selector], theirs: &[Selector]| {
            ours.iter().any(|o| theirs.iter().any(|t| o.intersection(t).is_some()))
        };
        let mut compare = |what: &str, ours: &[Selector], theirs: Option<&Vec<Selector>>| {
            let differs = theirs.is_some_and(|t| !meets(ours, t));
            let there = theirs.map(|t| listed(t));
            rows.push(Row { item: of(what), here: listed(ours), there, differs });
        };
        let theirs = traffic.theirs.as_ref();
        compare("on this side", &ours.local, theirs.map(|t| &t.local));
        compare("on the peer's", &ours.remote, theirs.map(|t| &t.remote));
    }
    rows
}

fn claimed(claim: &Shadowed) -> Vec<Row> {
    let row = |wanted: &Wanted| {
        let list =
            |s: &[Selector]| s.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let here = format!("{} to {}", list(&wanted.local), list(&wanted.remote));
        row(format!("traffic of {}", wanted.child), here, None)
    };
    vec![row(&claim.shadowing_rule), row(&claim.wanted)]
}

/// The facts from which advice is derived.
struct Advice<'a> {
    defined: &'a [Defined],
    by_stranger: bool,
}

impl Advice<'_> {
    /// ` in IKEProtection "site_p1" (policy.xml:14)`, or nothing where that is not known.
    fn place(&self, element: &str) -> String {
        let found = self.defined.iter().find(|d| d.element == element);
        found.map_or_else(
            || format!(" in {element}"),
            |d| format!(" in {element} {:?} ({}:{})", d.name, d.file, d.line),
        )
    }

    fn on(&self, failure: &Failure, comparison: &[Row]) -> Vec<String> {
        match &*failure.facts {
            Facts::Silence(silence) => self.on_silence(silence),
            Facts::Offers(offers) => self.on_offers(offers, comparison),
            Facts::Identities(identities) => self.on_identities(identities),
            Facts::Proof(proof) if proof.certificate => vec![
                "see vpnctl certs on both sides: is this side's certificate valid, and its authority known to the peer?".to_owned(),
                format!(
                    "is {} among the names of the certificate, and is it whom the peer expects? Its log says what it did not accept, or that it has no certificate itself",
                    proof.local
                ),
            ],
            Facts::Proof(proof) => vec![
                // The likeliest first: a peer never says which of the two it is, but its log does.
                format!(
                    "make the Value of IKEPresharedKey{} the same as the peer's for {}; blanks and Format count",
                    self.file(),
                    proof.local
                ),
                format!(
                    "if the keys are the same, compare the identities: this side is {}, the peer must be {}; which of the two it is, only the side that refuses knows",
                    proof.local, proof.remote
                ),
            ],
            Facts::Traffic(traffic) => self.on_traffic(traffic),
            Facts::Shadowed(claim) => vec![
                format!(
                    "give the peer traffic of its own: IPSecRemoteIdentity{} must not lie within that of {}",
                    self.place("IPSecTunnel"),
                    claim.shadowing_rule.child
                ),
                "gateways in transport mode look alike behind one NAT: use tunnel mode there, with a network of its own for each".to_owned(),
                format!(
                    "if {} is an exception to {}, let it stand before that in the policy file, and start vpnd again: a reload does not change the order",
                    claim.wanted.child, claim.shadowing_rule.child
                ),
            ],
            Facts::Modes(_) => vec![format!(
                "set ESP_EncapsulationMode{} to the peer's mode, or the peer's to this one",
                self.place("IPSecProposal")
            )],
            Facts::Addresses(Addresses { local, remote, .. }) => vec![
                format!(
                    "if {remote} is the peer: give IKERemoteIdentity{} this address, or leave it open for a peer without a fixed one",
                    self.place("IKETunnel")
                ),
                format!("and {local} as the address of IKELocalIdentity"),
                format!("otherwise {remote} is a stranger, and nothing needs to be done"),
            ],
            _ => on_kind(failure.kind),
        }
    }

    fn file(&self) -> String {
        self.defined.first().map_or_else(String::new, |d| format!(" in {}", d.file))
    }

    fn on_silence(&self, silence: &Silence) -> Vec<String> {
        let Silence { local, remote, was_up, request, .. } = silence;
        let mut cure = Vec::new();
        if *was_up {
            cure.push(format!(
                "the peer has answered before: see whether {} still runs and can be reached (ping {})",
                remote.ip(),
                remote.ip()
            ));
        } else {
            cure.push(format!(
                "see whether {} runs an IKEv2 daemon, and can be reached",
                remote.ip()
            ));
        }
        cure.push(format!(
            "let UDP 500, UDP 4500 and ESP (IP protocol 50) pass every firewall between {local} and {}",
            remote.ip()
        ));
        if !*was_up {
            cure.push(format!(
                "see whether the peer's policy has a tunnel with {local}: many daemons do not answer others"
            ));
        }
        if request == "IKE_AUTH" {
            cure.push(
                "the peer has answered the first message: see its log for what it makes of this side's proof".to_owned(),
            );
        }
        cure
    }

    fn on_offers(&self, offers: &Offers, comparison: &[Row]) -> Vec<String> {
        let place = |item: &str| match (offers.layer, item) {
            (Layer::Ike, "encryption") => Some(("IKE_Encryption", "IKEProtection")),
            (Layer::Ike, "integrity") => Some(("IKE_Hash", "IKEProtection")),
            (Layer::Ike, "PRF") => Some(("IKE_PRF", "IKEProtection")),
            (Layer::Ike, "group") => Some(("IKE_DHGroup", "IKEProtection")),
            (Layer::Child, "encryption") => Some(("ESP_Encryption", "IPSecProposal")),
            (Layer::Child, "integrity") => Some(("ESP_Authentication", "IPSecProposal")),
            (Layer::Child, "sequence numbers") => Some(("ESP_ExtendedSeqNum", "IPSecProposal")),
            (Layer::Child, "group") => {
                Some(("IPSec_InitiatorDHGroup and IPSec_ResponderDHGroup", "IPSecProtection"))
            }
            _ => None,
        };
        let mut cure: Vec<String> = comparison
            .iter()
            .filter(|row| row.differs)
            .filter_map(|row| {
                let ((attribute, element), there) = (place(&row.item)?, row.there.as_ref()?);
                Some(format!(
                    "set {attribute}{} to the peer's {there}, or the peer's to {}",
                    self.place(element),
                    row.here
                ))
            })
            .collect();
        if offers.theirs.is_none() && offers.wanted_group.is_none() {
            cure.push(format!(
                "compare{} with the peer's policy; a peer does not say what it would accept, but its log does (vpnctl why, if it runs vpnd)",
                match offers.layer {
                    Layer::Ike => self.place("IKEProtection"),
                    Layer::Child => self.place("IPSecProposal"),
                }
                .replacen(" in", "", 1)
            ));
            cure.push(match offers.layer {
                Layer::Ike => "a peer also answers so if its policy has no tunnel between these addresses".to_owned(),
                Layer::Child => {
                    "a peer also answers so if it wants another mode (ESP_EncapsulationMode), or another key exchange (IPSec_InitiatorDHGroup)".to_owned()
                }
            });
        }
        cure
    }

    fn on_identities(&self, identities: &Identities) -> Vec<String> {
        let Identities { peer, asked, known } = identities;
        let expected: Vec<&str> = known.iter().map(|p| p.remote.as_str()).collect();
        let mut cure = vec![format!(
            "set IKERemoteIdentity{} to {peer}, or the peer's own identity to {}",
            self.place("IKETunnel"),
            expected.join(" or ")
        )];
        if let Some(asked) = asked.as_ref().filter(|a| known.iter().all(|p| p.local != **a)) {
            cure.push(format!(
                "set IKELocalIdentity{} to {asked}, or what the peer expects to this side's identity",
                self.place("IKETunnel")
            ));
        }
        if self.by_stranger {
            cure.push(
                "if that is not the peer, it is a stranger, and nothing needs to be done"
                    .to_owned(),
            );
        }
        cure
    }

    fn on_traffic(&self, traffic: &Traffic) -> Vec<String> {
        let mut cure = vec![format!(
            "IPSecLocalIdentity{} must be the peer's remote traffic, and IPSecRemoteIdentity its local traffic",
            self.place("IPSecTunnel")
        )];
        if traffic.theirs.is_none() {
            cure.push(
                "a peer does not say what it would protect, but its log does (vpnctl why, if it runs vpnd)".to_owned(),
            );
        }
        cure
    }
}

/// Advice about failures of which only the kind is known.
fn on_kind(kind: FailureKind) -> Vec<String> {
    let cure: &[&str] = match kind {
        FailureKind::DataPlane => &[
            "the system has refused it: see the log of vpnd at that time, the memory left, and the limits of its service",
        ],
        FailureKind::ProtocolError => &[
            "see the log with vpnctl log debug at the next attempt; if the peer is no vpnd, see whether it is up to date",
        ],
        FailureKind::Refused => &["see the log of the peer at that time: it knows the reason"],
        FailureKind::NoAnswer => &["see the log of vpnd at that time"],
        _ => &[],
    };
    cure.iter().map(|c| (*c).to_owned()).collect()
}
