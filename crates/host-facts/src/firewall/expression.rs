//! The expressions of nftables' JSON (libnftables-json(5)), asked about a packet that is known in part.

use super::Packet;
use crate::prefix::Prefix;
use policy::AddressRange;
use serde_json::Value;
use std::net::IpAddr;

/// An answer about a packet that is known in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match {
    Yes,
    No,
    Unknown,
}

/// A part of a rule.
pub(super) enum Statement<'a> {
    /// It decides nothing.
    Nothing,
    /// The rest of the rule counts only if the packet fits.
    Condition(Match),
    /// Possible verdicts in their order; the first one that is sure ends them.
    Verdicts(Vec<(Verdict<'a>, bool)>),
    /// It may do anything.
    Unknown,
}

/// The end of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict<'a> {
    Accept,
    /// It is dropped, or, in a chain for translation, it gets an address outside of its source.
    Drop,
    On,
    Return,
    Jump(&'a str),
    Goto(&'a str),
    Unknown,
}

/// The value of a packet in one place.
enum Shown {
    Text(String),
    Number(u64),
    Addresses(AddressRange),
    /// The packet has no such place.
    Absent,
    Unknown,
}

/// The meaning of a statement for a packet.
pub(super) fn statement_of<'a>(statement: &'a Value, packet: &Packet) -> Statement<'a> {
    let Some((name, body)) = statement.as_object().and_then(|object| object.iter().next()) else {
        // As in `"notrack"`.
        return Statement::Nothing;
    };
    if let Some(verdict) = verdict(name, body) {
        return Statement::Verdicts(vec![(verdict, true)]);
    }
    match name.as_str() {
        "match" => Statement::Condition(matches(body, packet)),
        "counter" | "log" | "comment" | "mangle" | "notrack" | "flow" | "dup" | "set" | "map"
        | "meter" | "ct helper" | "ct timeout" | "ct expectation" | "secmark" | "synproxy" => {
            Statement::Nothing
        }
        "limit" | "quota" | "ct count" => Statement::Condition(Match::Unknown),
        // To the address that it has.
        "snat" if body["addr"]["payload"]["field"].as_str() == Some("saddr") => {
            Statement::Verdicts(vec![(Verdict::Accept, true)])
        }
        // They stand in chains for translation alone.
        "snat" => {
            let other =
                addresses(&body["addr"]).map(|to| to.intersection(&packet.source).is_none());
            Statement::Verdicts(vec![match other {
                Some(true) => (Verdict::Drop, true),
                _ => (Verdict::Unknown, true),
            }])
        }
        // The address is that of a device, or not of interest here.
        "dnat" | "masquerade" | "redirect" => Statement::Verdicts(vec![(Verdict::Unknown, true)]),
        "vmap" => verdicts(body, packet),
        "xt" => extension(body, packet),
        _ => Statement::Unknown,
    }
}

/// An extension of `iptables`, of which `nft` shows the name alone.
fn extension<'a>(body: &Value, packet: &Packet) -> Statement<'a> {
    let [kind, name] = ["type", "name"].map(|field| body[field].as_str().unwrap_or_default());
    match (kind, name) {
        ("match", "comment") => Statement::Nothing,
        ("match", "conntrack" | "state") if packet.guessed => {
            Statement::Condition(if packet.established { Match::Yes } else { Match::No })
        }
        ("match", _) => Statement::Condition(Match::Unknown),
        ("target", "REJECT" | "DROP") => Statement::Verdicts(vec![(Verdict::Drop, true)]),
        ("target", "LOG" | "NFLOG" | "TRACE" | "AUDIT" | "MARK" | "CONNMARK" | "TCPMSS" | "CT") => {
            Statement::Nothing
        }
        ("target", "CHECKSUM" | "CLASSIFY" | "DSCP" | "TOS" | "TTL" | "HL" | "SET") => {
            Statement::Nothing
        }
        _ => Statement::Unknown,
    }
}

fn verdict<'a>(name: &str, body: &'a Value) -> Option<Verdict<'a>> {
    let target = body["target"].as_str();
    Some(match name {
        "accept" => Verdict::Accept,
        "drop" | "reject" => Verdict::Drop,
        "continue" => Verdict::On,
        "return" => Verdict::Return,
        "jump" => target.map_or(Verdict::Unknown, Verdict::Jump),
        "goto" => target.map_or(Verdict::Unknown, Verdict::Goto),
        "queue" => Verdict::Unknown,
        _ => return None,
    })
}

/// The verdicts of a verdict map that are possible.
fn verdicts<'a>(map: &'a Value, packet: &Packet) -> Statement<'a> {
    let Some(elements) = map["data"]["set"].as_array() else { return Statement::Unknown };
    let shown = show(&map["key"], packet);
    let mut possible = Vec::new();
    for element in elements {
        let pair = element.as_array().map(Vec::as_slice);
        let Some([key, then]) = pair else { return Statement::Unknown };
        let fits = compare(&shown, key);
        if fits == Match::No {
            continue;
        }
        let named = then.as_object().and_then(|object| object.iter().next());
        let verdict = named.and_then(|(name, body)| verdict(name, body));
        possible.push((verdict.unwrap_or(Verdict::Unknown), fits == Match::Yes));
    }
    possible.push((Verdict::On, true));
    Statement::Verdicts(possible)
}

fn matches(body: &Value, packet: &Packet) -> Match {
    let (shown, right) = (show(&body["left"], packet), &body["right"]);
    if matches!(shown, Shown::Absent) {
        return Match::No;
    }
    let found = compare(&shown, right);
    match body["op"].as_str() {
        Some("==" | "in") | None => found,
        Some("!=") => not(found),
        Some(_) => Match::Unknown,
    }
}

fn not(found: Match) -> Match {
    match found {
        Match::Yes => Match::No,
        Match::No => Match::Yes,
        Match::Unknown => Match::Unknown,
    }
}

/// The value of the packet where an expression looks.
fn show(left: &Value, packet: &Packet) -> Shown {
    let ipv4 = packet.source.start().is_ipv4();
    if let Some(key) = left["meta"]["key"].as_str() {
        return match key {
            "iifname" | "iif" => device(packet.arrives.as_ref()),
            "oifname" | "oif" => device(packet.leaves.as_ref()),
            "l4proto" => protocol(packet),
            "nfproto" => Shown::Text(if ipv4 { "ipv4" } else { "ipv6" }.to_owned()),
            "protocol" => Shown::Text(if ipv4 { "ip" } else { "ip6" }.to_owned()),
            _ => Shown::Unknown,
        };
    }
    if left["ct"]["key"].as_str() == Some("state") {
        return Shown::Text(if packet.established { "established" } else { "new" }.to_owned());
    }
    let payload = &left["payload"];
    let (Some(header), Some(field)) = (payload["protocol"].as_str(), payload["field"].as_str())
    else {
        return Shown::Unknown;
    };
    match (header, field) {
        ("ip", _) if !ipv4 => Shown::Absent,
        ("ip6", _) if ipv4 => Shown::Absent,
        ("ip" | "ip6", "saddr") => Shown::Addresses(packet.source),
        ("ip" | "ip6", "daddr") => Shown::Addresses(packet.destination),
        ("ip", "protocol") | ("ip6", "nexthdr") => protocol(packet),
        ("ip" | "ip6", _) => Shown::Unknown,
        _ => upper(header, field, packet),
    }
}

fn device(name: Option<&String>) -> Shown {
    name.map_or(Shown::Unknown, |name| Shown::Text(name.clone()))
}

fn protocol(packet: &Packet) -> Shown {
    packet.protocol.map_or(Shown::Unknown, |(number, _)| Shown::Number(number.into()))
}

/// A field of the header behind IP's.
fn upper(header: &str, field: &str, packet: &Packet) -> Shown {
    let Some((is, ports)) = packet.protocol else { return Shown::Unknown };
    match number_of(header) {
        Some(wanted) if wanted != is => return Shown::Absent,
        None if header != "th" => return Shown::Unknown,
        _ => {}
    }
    match (field, ports) {
        ("sport", Some((source, _))) => Shown::Number(source.into()),
        ("dport", Some((_, destination))) => Shown::Number(destination.into()),
        ("sport" | "dport", None) => Shown::Absent,
        _ => Shown::Unknown,
    }
}

fn number_of(protocol: &str) -> Option<u8> {
    Some(match protocol {
        "icmp" => 1,
        "tcp" => 6,
        "udp" => 17,
        "dccp" => 33,
        "gre" => 47,
        "esp" => 50,
        "ah" => 51,
        "icmpv6" | "ipv6-icmp" => 58,
        "sctp" => 132,
        "udplite" => 136,
        _ => return None,
    })
}

/// Compares what a packet shows with the right side of a match.
fn compare(shown: &Shown, right: &Value) -> Match {
    if let Some(elements) = right.as_array().or_else(|| right["set"].as_array()) {
        let found = elements.iter().map(|element| {
            // An element with a counter or a timeout.
            let plain = element["elem"].get("val").unwrap_or(element);
            compare(shown, plain)
        });
        return found.fold(Match::No, |so_far, one| match (so_far, one) {
            (Match::Yes, _) | (_, Match::Yes) => Match::Yes,
            (Match::Unknown, _) | (_, Match::Unknown) => Match::Unknown,
            _ => Match::No,
        });
    }
    match shown {
        Shown::Text(text) => of_text(text, right),
        Shown::Number(number) => of_number(*number, right),
        Shown::Addresses(range) => of_addresses(range, right),
        Shown::Absent => Match::No,
        Shown::Unknown => Match::Unknown,
    }
}

fn is(fits: bool) -> Match {
    if fits { Match::Yes } else { Match::No }
}

fn of_text(text: &str, right: &Value) -> Match {
    match right.as_str() {
        Some(name) if name.starts_with('@') => Match::Unknown,
        Some(name) => match name.strip_suffix('*') {
            Some(beginning) => is(text.starts_with(beginning)),
            None => is(text == name),
        },
        None => Match::Unknown,
    }
}

fn of_number(number: u64, right: &Value) -> Match {
    if let Some([first, last]) = right["range"].as_array().map(Vec::as_slice) {
        return match (number_in(first), number_in(last)) {
            (Some(first), Some(last)) => is((first..=last).contains(&number)),
            _ => Match::Unknown,
        };
    }
    number_in(right).map_or(Match::Unknown, |wanted| is(wanted == number))
}

fn number_in(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str().and_then(number_of).map(u64::from))
}

fn of_addresses(range: &AddressRange, right: &Value) -> Match {
    let Some(wanted) = addresses(right) else { return Match::Unknown };
    match range.intersection(&wanted) {
        None => Match::No,
        Some(both) if both == *range => Match::Yes,
        Some(_) => Match::Unknown,
    }
}

fn addresses(right: &Value) -> Option<AddressRange> {
    if let Some([first, last]) = right["range"].as_array().map(Vec::as_slice) {
        return AddressRange::new(address_in(first)?, address_in(last)?);
    }
    if let Some(prefix) = right.get("prefix") {
        let length = prefix["len"].as_u64()?;
        let network = Prefix::holding(address_in(&prefix["addr"])?, u8::try_from(length).ok()?);
        return AddressRange::subnet(network.address, network.length.into());
    }
    address_in(right).map(AddressRange::from)
}

fn address_in(value: &Value) -> Option<IpAddr> {
    value.as_str()?.parse().ok()
}
