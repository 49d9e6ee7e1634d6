//! Packets as people describe them: `tcp 10.1.0.5:40000 > 10.2.0.7:443`.

use crate::plane::PacketSummary;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// A description that says no packet; the text says what is wrong and what one looks like.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0}\n\
     a packet is described as in\n  \
       tcp 10.1.0.5:40000 10.2.0.7:443\n  \
       udp [fd01::5]:53 > [fd02::7]:53\n  \
       icmp 10.1.0.5 10.2.0.7, for echo-request; or with a type or a type and code, as in 3/4\n  \
       udp 10.1.0.5 10.2.0.7 fragment, for what follows the first fragment and shows no ports\n  \
       47 10.1.0.5 10.2.0.7, for another protocol"
)]
pub struct BadDescription(String);

policy::readable_debug!(BadDescription);

/// Longer ones are nobody's.
const LONGEST: usize = 512;

const PROTOCOLS: [(&str, u8); 13] = [
    ("icmp", 1),
    ("igmp", 2),
    ("ipip", 4),
    ("tcp", 6),
    ("udp", 17),
    ("dccp", 33),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmpv6", 58),
    ("ospf", 89),
    ("sctp", 132),
    ("udplite", 136),
];

/// The protocols whose ports are read.
const HAVE_PORTS: [u8; 5] = [6, 17, 33, 132, 136];

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// Types and codes by the names that `ping` and `nft` have made known.
const KINDS: [(u8, &str, u16); 14] = [
    (ICMP, "echo-reply", 0),
    (ICMP, "destination-unreachable", 3 << 8),
    (ICMP, "frag-needed", 3 << 8 | 4),
    (ICMP, "redirect", 5 << 8),
    (ICMP, "echo-request", 8 << 8),
    (ICMP, "time-exceeded", 11 << 8),
    (ICMPV6, "destination-unreachable", 1 << 8),
    (ICMPV6, "packet-too-big", 2 << 8),
    (ICMPV6, "time-exceeded", 3 << 8),
    (ICMPV6, "echo-request", 128 << 8),
    (ICMPV6, "echo-reply", 129 << 8),
    (ICMPV6, "router-advertisement", 134 << 8),
    (ICMPV6, "neighbour-solicitation", 135 << 8),
    (ICMPV6, "neighbour-advertisement", 136 << 8),
];

/// Number of a protocol, by number or name.
pub fn protocol(word: &str) -> Option<u8> {
    let named = PROTOCOLS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
    named.map(|(_, number)| *number).or_else(|| word.parse().ok())
}

/// Name of a protocol, or its number.
pub fn protocol_name(number: u8) -> String {
    let named = PROTOCOLS.iter().find(|(_, n)| *n == number);
    named.map_or_else(|| number.to_string(), |(name, _)| (*name).to_owned())
}

/// Reads a description.
///
/// # Errors
/// Where it says no packet.
pub fn parse(text: &str) -> Result<PacketSummary, BadDescription> {
    if text.len() > LONGEST {
        return bad(format!("a description has at most {LONGEST} octets"));
    }
    let words: Vec<&str> =
        text.split_whitespace().filter(|word| !matches!(*word, ">" | "->" | "to")).collect();
    let [first, source, destination, rest @ ..] = words.as_slice() else {
        return bad("protocol, source and destination are needed".to_owned());
    };
    let Some(protocol) = protocol(first) else {
        return bad(format!("{first:?} is no protocol"));
    };
    let (source, destination) = (end(source)?, end(destination)?);
    if source.0.is_ipv4() != destination.0.is_ipv4() {
        return bad(format!("{} and {} are of two families", source.0, destination.0));
    }
    let icmp = match (protocol, source.0.is_ipv4()) {
        (ICMP, true) | (ICMPV6, false) => true,
        (ICMP, false) => return bad("icmp is of IPv4; for IPv6, write icmpv6".to_owned()),
        (ICMPV6, true) => return bad("icmpv6 is of IPv6; for IPv4, write icmp".to_owned()),
        _ => false,
    };
    let fragment = rest.first() == Some(&"fragment");
    let ports = [source.1, destination.1];
    let has_ports = HAVE_PORTS.contains(&protocol);
    let ports = match (rest, ports) {
        ([_, word, ..], _) => return bad(format!("{word:?} is too much")),
        (_, [Some(_), _] | [_, Some(_)]) if !has_ports || fragment => {
            let why = if fragment { "a later fragment shows no ports" } else { "it has no ports" };
            return bad(format!("{first}: {why}"));
        }
        ([], [Some(source), Some(destination)]) => [Some(source), Some(destination)],
        ([], _) if has_ports => {
            return bad(format!("{first}: both ports are needed, as in {}:443", source.0));
        }
        // RFC 7296 §3.13.1: type and code stand in place of a port.
        ([], _) if icmp => [Some(type_and_code(protocol, "echo-request")?); 2],
        ([kind], _) if icmp && !fragment => [Some(type_and_code(protocol, kind)?); 2],
        ([word], _) if !fragment => return bad(format!("{word:?} is too much")),
        _ => [None, None],
    };
    Ok(PacketSummary {
        protocol,
        source: (source.0, ports[0]),
        destination: (destination.0, ports[1]),
    })
}

fn bad<T>(what: String) -> Result<T, BadDescription> {
    Err(BadDescription(what))
}

/// As [`parse`] reads it.
impl fmt::Display for PacketSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { protocol, source, destination } = *self;
        f.write_str(&protocol_name(protocol))?;
        let is_icmp = matches!(protocol, ICMP | ICMPV6);
        for (address, port) in [source, destination] {
            match port.filter(|_| !is_icmp) {
                Some(port) => write!(f, " {}", SocketAddr::new(address, port))?,
                None => write!(f, " {address}")?,
            }
        }
        match source.1 {
            Some(kind) if is_icmp => write!(f, " {}/{}", kind >> 8, kind & 0xff),
            None if is_icmp || HAVE_PORTS.contains(&protocol) => f.write_str(" fragment"),
            _ => Ok(()),
        }
    }
}

fn end(word: &str) -> Result<(IpAddr, Option<u16>), BadDescription> {
    let bracketed = word.strip_prefix('[').and_then(|w| w.strip_suffix(']'));
    if let Ok(address) = bracketed.unwrap_or(word).parse() {
        return Ok((address, None));
    }
    match word.parse::<SocketAddr>() {
        Ok(end) => Ok((end.ip(), Some(end.port()))),
        Err(_) => Err(BadDescription(format!("{word:?} is no address, with or without a port"))),
    }
}

fn type_and_code(protocol: u8, word: &str) -> Result<u16, BadDescription> {
    let named = KINDS.iter().find(|(of, name, _)| *of == protocol && *name == word);
    if let Some((.., number)) = named {
        return Ok(*number);
    }
    let (kind, code) = word.split_once('/').unwrap_or((word, "0"));
    match (kind.parse::<u8>(), code.parse::<u8>()) {
        (Ok(kind), Ok(code)) => Ok(u16::from_be_bytes([kind, code])),
        _ => {
            let names = KINDS.iter().filter(|(of, ..)| *of == protocol).map(|(_, name, _)| *name);
            let names = names.collect::<Vec<_>>().join(", ");
            let what = format!("{word:?} is no type; write TYPE, TYPE/CODE or one of {names}");
            Err(BadDescription(what))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ends(text: &str) -> (u8, String, Option<u16>, Option<u16>) {
        let packet = parse(text).expect("a packet");
        let hosts = format!("{} {}", packet.source.0, packet.destination.0);
        (packet.protocol, hosts, packet.source.1, packet.destination.1)
    }

    #[test]
    fn reads_what_people_write() {
        let four = || "10.1.0.5 10.2.0.7".to_owned();
        let tcp = (6, four(), Some(40_000), Some(443));
        for arrow in ["", ">", "->", "to"] {
            assert_eq!(ends(&format!("tcp 10.1.0.5:40000 {arrow} 10.2.0.7:443")), tcp);
        }
        assert_eq!(ends("TCP 10.1.0.5:40000 10.2.0.7:443"), tcp);
        let six = "fd01::5 fd02::7".to_owned();
        assert_eq!(ends("udp [fd01::5]:53 [fd02::7]:54"), (17, six.clone(), Some(53), Some(54)));
        assert_eq!(ends("gre fd01::5 fd02::7"), (47, six.clone(), None, None));
        assert_eq!(ends("200 10.1.0.5 10.2.0.7"), (200, four(), None, None));
        assert_eq!(ends("udp 10.1.0.5 10.2.0.7 fragment"), (17, four(), None, None));
        let echo = |kind| (1, four(), Some(kind), Some(kind));
        assert_eq!(ends("icmp 10.1.0.5 10.2.0.7 echo-request"), echo(0x0800));
        assert_eq!(ends("icmp 10.1.0.5 10.2.0.7"), echo(0x0800));
        assert_eq!(ends("icmpv6 fd01::5 fd02::7").2, Some(0x8000));
        assert_eq!(ends("icmp 10.1.0.5 10.2.0.7 3/4"), echo(0x0304));
        assert_eq!(ends("icmp 10.1.0.5 10.2.0.7 13"), echo(0x0d00));
        assert_eq!(ends("icmpv6 fd01::5 fd02::7 packet-too-big").2, Some(0x0200));
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, why) in [
            ("", "protocol, source and destination are needed"),
            ("tcp 10.1.0.5:1", "protocol, source and destination are needed"),
            ("tpc 10.1.0.5:1 10.2.0.7:1", "\"tpc\" is no protocol"),
            ("tcp 10.1.0.5 10.2.0.7:443", "both ports are needed, as in 10.1.0.5:443"),
            ("tcp 10.1.0.5:99999 10.2.0.7:443", "\"10.1.0.5:99999\" is no address"),
            ("tcp host:1 10.2.0.7:443", "\"host:1\" is no address"),
            ("tcp 10.1.0.5:1 [fd02::7]:443", "of two families"),
            ("icmp fd01::5 fd02::7 8", "icmp is of IPv4; for IPv6, write icmpv6"),
            ("icmp 10.1.0.5 10.2.0.7 ping", "one of echo-reply, destination-unreachable"),
            ("gre 10.1.0.5:1 10.2.0.7", "it has no ports"),
            ("gre 10.1.0.5 10.2.0.7 8", "\"8\" is too much"),
            ("udp 10.1.0.5:1 10.2.0.7:1 fragment", "a later fragment shows no ports"),
            ("tcp 10.1.0.5:1 10.2.0.7:1 syn now", "\"now\" is too much"),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(why) && error.contains("described as in"), "{error}");
        }
    }

    #[test]
    fn is_written_as_it_is_read() {
        for text in [
            "tcp 10.1.0.5:40000 10.2.0.7:443",
            "udp [fd01::5]:53 [fd02::7]:54",
            "gre 10.1.0.5 10.2.0.7",
            "200 10.1.0.5 10.2.0.7",
            "udp 10.1.0.5 10.2.0.7 fragment",
            "icmp 10.1.0.5 10.2.0.7 8/0",
            "icmpv6 fd01::5 fd02::7 128/0",
            "icmp 10.1.0.5 10.2.0.7 fragment",
        ] {
            assert_eq!(parse(text).expect("a packet").to_string(), text);
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a-z0-9:./ \\[\\]>-]{0,60}") {
            let _ = parse(&text);
        }
    }
}
