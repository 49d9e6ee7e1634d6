//! The explanation of a tunnel's state: its failures, a comparison of both sides, and advice.

mod advice;
mod peer_settings;

use advice::Advice;
use control::protocol::{
    Defined, Down, ExplainedFailure, Explanation, Renewal, Row, Sent, Unanswered, Waits,
};
use diagnosis::line;
use ike::CloseReason;
use ike::failure::facts::{
    Addresses, Facts, Identities, Layer, Offer, Offers, Ppk, PpkLack, Shadowed, Silence, Traffic,
    Unsendable, Wanted,
};
use ike::failure::{Failure, FailureKind};
use ike::product::Product;
use ike::status::{self, ChildStatus, Ended, IkeStatus, Next, PastFailure};
use ike::unreachable::{Lack, UNPROTECTED, Unreachable};
use policy::xml::Definitions;
use policy::{Identity, Selector};
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};
use terminal::report::duration;
use terminal::report::since::{clock, times};

/// Explains a phase 1 tunnel with its phase 2 tunnels, or with the one of that name only. `now` is the time of the
/// status.
pub fn explain(
    status: &IkeStatus,
    only: Option<&str>,
    definitions: &Definitions,
    now: SystemTime,
) -> Explanation {
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
    let product = status.product.as_ref();
    let failure = |past: &PastFailure| tell(past, &all, product, now);
    let since = |up: Option<Duration>| up.map(|up| stamp(now, up));
    let explained = |child: &&ChildStatus| {
        // A failure that kept the IKE SA from coming up is told once.
        let new = |p: &&PastFailure| status.failures.iter().all(|f| f.failure != p.failure);
        Explanation {
            name: child.name.clone(),
            phase: 2,
            state: child.state.name().to_owned(),
            up_seconds: up_for(child).map(|up| up.as_secs()),
            up_since: since(up_for(child)),
            down: child.ended.as_ref().map(|ended| down(ended, &child.name, now)),
            fault: child.fault.clone(),
            waits: child.next.as_ref().map(|next| match &status.unanswered {
                Some(_) => waits(&without_obstacle(next)),
                None => waits(next),
            }),
            unanswered: None,
            renewal: child.renewal.and_then(renewal),
            failures: child.failures.iter().filter(new).map(failure).collect(),
            turned_away: Vec::new(),
            defined: defined(&child.name),
            children: Vec::new(),
            findings: Vec::new(),
        }
    };
    let up = status.sa.as_ref().filter(|_| status.state.is_up()).and_then(|sa| sa.established_for);
    Explanation {
        name: status.name.clone(),
        phase: 1,
        state: status.state.name().to_owned(),
        up_seconds: up.map(|up| up.as_secs()),
        up_since: since(up),
        down: status.ended.as_ref().map(|ended| down(ended, &status.name, now)),
        fault: None,
        waits: status.next.as_ref().map(waits),
        unanswered: status.unanswered.as_ref().map(|request| unanswered(request, now)),
        renewal: None,
        failures: status.failures.iter().map(failure).collect(),
        turned_away: status.turned_away.iter().map(failure).collect(),
        defined: own,
        children: children.iter().map(explained).collect(),
        findings: Vec::new(),
    }
}

fn up_for(child: &ChildStatus) -> Option<Duration> {
    child.sa.as_ref().filter(|_| child.state.has_sa()).map(|sa| sa.established_for)
}

/// The moment so long ago, as RFC 3339 writes it.
fn stamp(now: SystemTime, ago: Duration) -> String {
    let at = now.checked_sub(ago).unwrap_or(SystemTime::UNIX_EPOCH);
    humantime::format_rfc3339_seconds(at).to_string()
}

/// The end of a tunnel that was up.
pub(crate) fn down(ended: &Ended, tunnel: &str, now: SystemTime) -> Down {
    let reason = match ended.reason {
        CloseReason::Deactivated => "taken down with vpnctl deactivate".to_owned(),
        CloseReason::FamilyOff => {
            "IPsec of its address family was switched off (vpnctl family)".to_owned()
        }
        CloseReason::PolicyChanged => "the policy changed (vpnctl reload)".to_owned(),
        reason => reason.to_string(),
    };
    let cure = match ended.reason {
        CloseReason::DeletedByPeer => vec![
            "if the daemon of the peer was stopped, start it again; otherwise its log says why it ended the tunnel \
             (vpnctl why there, if it is vpnd)"
                .to_owned(),
            format!("then, unless AutoStart or OnDemand starts the tunnel again: vpnctl activate {tunnel}"),
        ],
        _ => Vec::new(),
    };
    Down { reason, seconds_ago: ended.ago.as_secs(), since: stamp(now, ended.ago), cure }
}

/// A request that the peer has not answered yet.
pub(crate) fn unanswered(unanswered: &status::Unanswered, now: SystemTime) -> Unanswered {
    let status::Unanswered { silence, most, silent_for, given_up_in, .. } = unanswered;
    let Silence { request, sent, remote, local, unsent, icmp, heard, .. } = silence;
    let given_up_at = stamp(now + *given_up_in, Duration::ZERO);
    let what = match (unsent, heard) {
        (None, Some(heard)) => format!("{request} to {remote} was {heard}"),
        (Some(why), _) => format!("{request} to {remote} could not be sent from {local}: {why}"),
        (None, None) => format!(
            "{request} was sent to {remote} {sent} of {most} times, no answer for {}",
            duration(*silent_for)
        ),
    };
    let until = clock(&given_up_at, given_up_in.as_secs());
    let failure = Failure::from(silence.clone());
    Unanswered {
        message: format!("{what}; given up at {until}{}", by_icmp(*icmp, *remote)),
        sent: Some(Sent { request: request.clone(), times: *sent, most: *most }),
        silent_seconds: silent_for.as_secs(),
        given_up_at,
        // The policy has no part in a silence.
        cure: Advice { defined: &[], by_stranger: false, peer: None }.on(&failure, &[]),
    }
}

/// The part of a message that tells of an ICMP message.
fn by_icmp(icmp: Option<Unreachable>, remote: SocketAddr) -> String {
    icmp.map_or_else(String::new, |icmp| format!("; {} ({UNPROTECTED})", icmp.about(remote)))
}

fn renewal(renewal: status::Renewal) -> Option<Renewal> {
    let (attempt, message) = match renewal {
        status::Renewal::Widened => (
            "widened",
            "the peer has refused to rekey the Child SA; it is asked again, for any traffic"
                .to_owned(),
        ),
        status::Renewal::NewChildSa => (
            "new_child_sa",
            "the peer has refused to rekey the Child SA; it is asked for a new one in its place"
                .to_owned(),
        ),
        status::Renewal::NewIkeSa => {
            ("new_ike_sa", "a new IKE SA is being set up, which takes over the Child SA".to_owned())
        }
        status::Renewal::Again { after, ends_in } => (
            "again",
            format!(
                "the last attempt has failed; the next one is in {}, and the Child SA ends in {}",
                duration(after),
                duration(ends_in)
            ),
        ),
        _ => return None,
    };
    Some(Renewal { attempt: attempt.to_owned(), message })
}

/// The event that a tunnel waits for.
pub(crate) fn waits(next: &Next) -> Waits {
    let seconds = |d: &Duration| Some(d.as_secs());
    let (what, message, seconds) = match next {
        Next::Answer { request, sent, again_in, obstacle, .. } => {
            let times = times(*sent);
            let again = again_in.as_ref().map_or_else(String::new, |d| {
                format!("; it is repeated, or given up, in {}", duration(*d))
            });
            let obstacle = obstacle.as_ref().map_or_else(String::new, |o| format!("; {o}"));
            let message = format!("the peer's answer to {request}, sent {times}{again}{obstacle}");
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
        Next::Family(family) => (
            "family",
            format!("vpnctl family {} on: IPsec of {family} is switched off", family.name()),
            None,
        ),
        Next::Peer => {
            let message = "the peer: this side may not start it (its role), or does not know the peer's address";
            ("peer", message.to_owned(), None)
        }
        _ => ("other", "something that this version cannot name".to_owned(), None),
    };
    let sent = match next {
        Next::Answer { request, sent, most, .. } => {
            Some(Sent { request: request.clone(), times: *sent, most: *most })
        }
        _ => None,
    };
    Waits { what: what.to_owned(), message, seconds, sent }
}

/// The same event for a phase 2 tunnel whose phase 1 tunnel tells already what is in the way.
fn without_obstacle(next: &Next) -> Next {
    let mut next = next.clone();
    if let Next::Answer { obstacle, .. } = &mut next {
        *obstacle = None;
    }
    next
}

fn tell(
    past: &PastFailure,
    defined: &[Defined],
    product: Option<&Product>,
    now: SystemTime,
) -> ExplainedFailure {
    let PastFailure { failure, ago, times, peer, overcome, .. } = past;
    let moment = |ago: Option<Duration>| ago.map(|ago| stamp(now, ago));
    let comparison = comparison(&failure.facts);
    ExplainedFailure {
        kind: failure.kind.name().to_owned(),
        message: message(failure),
        seconds_ago: ago.as_secs(),
        at: stamp(now, *ago),
        overcome_at: moment(past.overcome_ago),
        reloaded_at: moment(past.outdated_ago),
        times: *times,
        authenticated: !failure.unauthenticated,
        overcome: *overcome,
        peer: *peer,
        cure: Advice {
            defined,
            by_stranger: peer.is_some(),
            peer: product.filter(|_| peer.is_none()),
        }
        .on(failure, &comparison),
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
                Layer::Ike if offers.renewal => "for the renewal of the IKE SA (phase 1)",
                Layer::Ike => "for the IKE SA (phase 1)",
                Layer::Child if offers.renewal => "for the renewal of the Child SA (phase 2)",
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
        Facts::Traffic(Traffic { renewal: true, .. }) => {
            "the peer does not renew the Child SA with the traffic that it agreed to before"
                .to_owned()
        }
        Facts::Traffic(_) => format!("{kind}: the peer protects none of the traffic asked for"),
        Facts::Identities(_) => {
            let kind = FailureKind::NoMatchingTunnel;
            format!("{kind}: the peer names itself otherwise than the policy does")
        }
        Facts::Silence(Silence { request, remote, local, unsent: Some(why), .. }) => {
            format!("{kind}: {request} to {remote} could not be sent from {local}: {why}")
        }
        Facts::Silence(Silence { request, remote, heard: Some(heard), .. }) => {
            format!("{kind}: {request} to {remote} was {heard}")
        }
        Facts::Silence(Silence { request, sent, remote, icmp, .. }) => {
            let icmp = by_icmp(*icmp, *remote);
            format!("{kind}: {request} was sent to {remote} {}{icmp}", times(*sent))
        }
        Facts::Unsendable(Unsendable { lack: Lack::Address, local, .. }) => {
            format!(
                "{kind}: this host does not have {local}, the address of this side in the policy"
            )
        }
        Facts::Unsendable(Unsendable { lack: Lack::Route, remote, .. }) => {
            format!("{kind}: this host has no route to {remote}")
        }
        Facts::Proof(proof) if !proof.by_us => {
            let what = if proof.certificate { "certificate" } else { "proof" };
            format!("{kind}: the peer does not accept this side's {what}")
        }
        Facts::Ppk(_) => format!("{kind}: one side lacks a postquantum preshared key (PPK)"),
        Facts::Shadowed(claim) => {
            format!("{kind}: {} of {} comes first", claim.shadowing_rule.child, claim.peer)
        }
        Facts::Modes(_) => kind.to_string(),
        Facts::Addresses(_) => format!("{kind}: no tunnel is between these two addresses"),
        _ => line::failure(failure),
    }
}

fn row(item: impl Into<String>, here: impl Display, there: Option<String>) -> Row {
    let here = here.to_string();
    let differs = there.as_ref().is_some_and(|t| *t != here);
    Row { item: item.into(), here, there, differs }
}

fn ppk_row(ppk: &Ppk) -> Row {
    let here = match ppk.lack {
        PpkLack::Key => "no key".to_owned(),
        _ => ppk.known.join(", "),
    };
    let here = if here.is_empty() { "none".to_owned() } else { here };
    let there = match (ppk.lack, &ppk.asked) {
        (PpkLack::Differs, Some(id)) => Some(format!("{id}, with other octets")),
        (PpkLack::Unannounced | PpkLack::Unnamed | PpkLack::Unused | PpkLack::Unshared, _) => {
            Some("none".to_owned())
        }
        (_, asked) => asked.clone(),
    };
    row("PPK", here, there)
}

fn comparison(facts: &Facts) -> Vec<Row> {
    match facts {
        Facts::Offers(offers) => offered(offers),
        Facts::Identities(identities) => named(identities),
        Facts::Traffic(traffic) => wanted(traffic),
        Facts::Shadowed(claim) => claimed(claim),
        Facts::Ppk(ppk) => vec![ppk_row(ppk)],
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
        match of_kind {
            Some(of_kind) => of_kind.names.clone(),
            // Only AH is named.
            None if kind == "protocol" && offer.is_some() => vec!["ESP".to_owned()],
            None => Vec::new(),
        }
    };
    let meet = |ours: Option<&Offer>, theirs: Option<&Offer>, kind: &str| {
        let (ours, theirs) = (names(ours, kind), names(theirs, kind));
        ours.iter().any(|o| theirs.contains(o)) || ours.is_empty() && theirs.is_empty()
    };
    const KINDS: [&str; 6] =
        ["protocol", "encryption", "integrity", "PRF", "group", "sequence numbers"];
    let theirs = offers.theirs.as_deref().unwrap_or_default();
    let alike = |(ours, theirs): &(&Offer, &Offer)| {
        let meet = |kind: &str| meet(Some(ours), Some(theirs), kind);
        (meet("protocol"), KINDS.iter().filter(|kind| meet(kind)).count())
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
        let is_wanted = kind == "group" && offers.wanted_group.is_some();
        // Nearly always ESP, on both sides.
        let needs_no_words = kind == "protocol" && (their.is_none() || ours == thens);
        if needs_no_words || ours.is_empty() && thens.is_empty() && !is_wanted {
            continue;
        }
        let optional = kind == "group" && offers.group_optional && thens.is_empty();
        let met = !is_wanted && (meet(our, their, kind) || optional);
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
    let Identities { peer, asked, known, .. } = identities;
    let mut rows = Vec::new();
    for parties in known {
        let of = |what: &str| match known.len() {
            1 => what.to_owned(),
            _ => format!("{what} ({})", parties.tunnel),
        };
        rows.push(identity_row(of("the peer is"), &parties.remote, peer));
        if let Some(asked) = asked {
            rows.push(identity_row(of("this side is"), &parties.local, asked));
        }
    }
    rows
}

/// Two identities that meet. Their types are named if they differ, even if the values do as well.
fn identity_row(item: String, here: &Identity, there: &Identity) -> Row {
    let text = |identity: &Identity| match here.kind() == there.kind() {
        true => identity.to_string(),
        false => identity.qualified(),
    };
    Row { item, here: text(here), there: Some(text(there)), differs: !here.matches(there) }
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

#[cfg(test)]
mod tests {
    use super::*;
    use ike::failure::facts::{Alternatives, Parties};

    #[test]
    fn a_key_exchange_that_the_peer_demands_is_compared_with_none() {
        let offers = Offers {
            layer: Layer::Child,
            ours: Vec::new(),
            theirs: None,
            group_optional: false,
            wanted_group: Some("ECP-256".to_owned()),
            renewal: true,
        };
        let there = Some("ECP-256".to_owned());
        let row = Row { item: "group".to_owned(), here: "none".to_owned(), there, differs: true };
        assert_eq!(offered(&offers), [row]);
    }

    /// The cure for two offers of these algorithms by kind.
    fn cure(layer: Layer, ours: &[[&'static str; 2]], theirs: &[[&'static str; 2]]) -> Vec<String> {
        let offer = |of: &[[&'static str; 2]]| {
            let transform = |&[kind, name]: &[&'static str; 2]| {
                let names = vec![name.to_owned()];
                Alternatives { kind, names }
            };
            vec![Offer { transforms: of.iter().map(transform).collect() }]
        };
        let offers = Offers {
            layer,
            ours: offer(ours),
            theirs: Some(offer(theirs)),
            group_optional: false,
            wanted_group: None,
            renewal: false,
        };
        let rows = offered(&offers);
        Advice { defined: &[], by_stranger: false, peer: None }.on(&offers.into(), &rows)
    }

    #[test]
    fn the_cure_names_the_words_of_a_policy() {
        let cbc = [["encryption", "AES-CBC-256"], ["integrity", "HMAC-SHA2-256-128"]];
        let gcm = [["encryption", "AES-GCM-16-256"]];
        let told = "set IKE_Encryption in IKEProtection to the peer's AES-GCM-16-256, or the peer's to AES-CBC-256";
        let cure_of_ike = cure(Layer::Ike, &cbc, &gcm);
        assert_eq!(cure_of_ike[0], told);
        assert!(!cure_of_ike.concat().contains("IKE_Hash"), "none is needed: {cure_of_ike:?}");
        let told = [
            "set ESP_Encryption in IPSecProposal to the peer's AES-GCM-16-256 (write ESP_AES256_GCM_16), or the peer's \
             to AES-CBC-256",
            "set ESP_Authentication in IPSecProposal to the peer's none (write NONE), or the peer's to HMAC-SHA2-256-128",
        ];
        assert_eq!(cure(Layer::Child, &cbc, &gcm)[..2], told);
        let ah = |name: &'static str| [["protocol", "AH"], ["integrity", name]];
        let told = "set AH_Authentication in IPSecProposal to the peer's HMAC-SHA2-256-128 (write AH_SHA2_256), or the \
                    peer's to HMAC-SHA1-96";
        assert_eq!(cure(Layer::Child, &ah("HMAC-SHA1-96"), &ah("HMAC-SHA2-256-128"))[0], told);
    }

    #[test]
    fn identities_of_different_types_differ_whatever_their_values_are() {
        let key_id = Identity::KeyId(b"branch-7".to_vec());
        let fqdn = |name: &str| Identity::Fqdn(name.into());
        let tunnel = "site".to_owned();
        let known = vec![Parties { tunnel, local: fqdn("HUB.example"), remote: key_id.clone() }];
        let asked = Some(fqdn("hub.example"));
        let identities =
            Identities { peer: fqdn("branch-7"), address: None, own_address: None, asked, known };
        let rows = named(&identities);
        let row = |item: &str, here: &str, there: &str, differs| Row {
            item: item.to_owned(),
            here: here.to_owned(),
            there: Some(there.to_owned()),
            differs,
        };
        let told = [
            row("the peer is", "Key_ID branch-7", "FQDN branch-7", true),
            // They match, RFC 5280 §7.2.
            row("this side is", "HUB.example", "hub.example", false),
        ];
        assert_eq!(rows, told);
        let facts = Facts::Identities(identities);
        assert!(facts.to_string().contains("says it is FQDN branch-7"), "{facts}");
        assert!(facts.to_string().contains("the peer is Key_ID branch-7"), "{facts}");
        let failure = Failure::with(FailureKind::NoMatchingTunnel, facts);
        let cure = Advice { defined: &[], by_stranger: false, peer: None }.on(&failure, &rows);
        let told = [
            "set IKERemoteIdentity in IKETunnel to the peer's FQDN branch-7 (write <FQDN Value=\"branch-7\">), or the \
             peer's own identity to Key_ID branch-7",
        ];
        assert_eq!(cure, told);
    }

    #[test]
    fn the_cure_for_ah_against_esp_is_one_protocol_for_both() {
        let gcm = [["encryption", "AES-GCM-16-256"], ["sequence numbers", "32 bits"]];
        let ah = [["protocol", "AH"], ["integrity", "HMAC-SHA1-96"]];
        let told = "protect with AH as the peer does (IPSecAHProtocol in IPSecProposal), or have the peer protect \
                    with ESP";
        assert_eq!(cure(Layer::Child, &gcm, &ah), [told]);
        let told = "protect with ESP as the peer does (IPSecESPProtocol in IPSecProposal), or have the peer protect \
                    with AH";
        assert_eq!(cure(Layer::Child, &ah, &gcm), [told]);
    }
}
