//! Offers and choices of traffic (RFC 7296 §2.9, §3.13).

use crate::wire::payload::TrafficSelector;
use esp::plane::TrafficSelectors;
pub use policy::selector::covered;
use policy::{AddressRange, ChildTunnel, PortRange, Selector};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The most selectors kept of one list after narrowing: what the one octet of a TS payload's count can say.
const LIMIT: usize = 255;

/// Selectors as they stand in a payload.
pub fn encode(selectors: &[Selector]) -> Vec<TrafficSelector> {
    selectors.iter().copied().map(TrafficSelector::Range).collect()
}

/// Selectors of a request. Those of the packet that asked for the Child SA, by protocol, address and port, come first,
/// so that the responder knows what is wanted when it narrows (RFC 7296 §2.9).
pub fn asking(
    selectors: &[Selector],
    packet: Option<(u8, (IpAddr, Option<u16>))>,
) -> Vec<TrafficSelector> {
    let first = packet.and_then(|(protocol, (address, port))| {
        let ports = port.and_then(|p| PortRange::new(p, p)).unwrap_or(PortRange::ANY);
        let packet = Selector { protocol, addresses: AddressRange::from(address), ports };
        let of = selectors.iter().find(|s| s.contains(protocol, address, port))?;
        of.intersection(&packet).filter(|first| !selectors.contains(first))
    });
    let all = first.into_iter().chain(selectors.iter().copied());
    all.take(LIMIT).map(TrafficSelector::Range).collect()
}

/// Any traffic of the address families that selectors have.
pub fn any(selectors: &[Selector]) -> Vec<TrafficSelector> {
    let mut all: Vec<TrafficSelector> = Vec::new();
    for selector in selectors {
        let (first, last): (IpAddr, IpAddr) = match selector.addresses.start() {
            IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::BROADCAST.into()),
            IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::from_bits(u128::MAX).into()),
        };
        let any = AddressRange::new(first, last).map(Selector::all_of).map(TrafficSelector::Range);
        all.extend(any.filter(|any| !all.contains(any)));
    }
    all
}

/// The selectors of a payload whose type is known.
pub fn ranges(selectors: &[TrafficSelector]) -> impl Iterator<Item = &Selector> + Clone {
    selectors.iter().filter_map(|s| match s {
        TrafficSelector::Range(selector) => Some(selector),
        TrafficSelector::Unsupported { .. } => None,
    })
}

/// The addresses of a payload's selectors.
pub fn addresses(selectors: &[TrafficSelector]) -> impl Iterator<Item = AddressRange> {
    ranges(selectors).map(|selector| selector.addresses)
}

fn narrow(ours: &[Selector], theirs: &[TrafficSelector]) -> Vec<Selector> {
    let mut narrowed: Vec<Selector> = Vec::new();
    for selector in ranges(theirs).flat_map(|t| ours.iter().filter_map(|o| o.intersection(t))) {
        if !narrowed.contains(&selector) && narrowed.len() < LIMIT {
            narrowed.push(selector);
        }
    }
    // A selector that another one covers adds nothing, for example that of the packet that asked for the tunnel.
    let all = narrowed.clone();
    narrowed.retain(|s| all.iter().all(|o| o == s || o.intersection(s) != Some(*s)));
    // They are kept for as long as the Child SA is.
    narrowed.shrink_to_fit();
    narrowed
}

fn meet(ours: &[Selector], theirs: &[TrafficSelector]) -> bool {
    ranges(theirs).any(|t| ours.iter().any(|o| o.intersection(t).is_some()))
}

/// The traffic that a responder grants: the part of the tunnel's traffic that the peer asks for. `local` is what the
/// peer calls TSr; `None`: nothing in common.
pub fn grant(
    tunnel: &ChildTunnel,
    local: &[TrafficSelector],
    remote: &[TrafficSelector],
) -> Option<TrafficSelectors> {
    // Most of a peer's many tunnels are told apart without making anything.
    if !meet(&tunnel.remote, remote) || !meet(&tunnel.local, local) {
        return None;
    }
    let granted = TrafficSelectors {
        local: narrow(&tunnel.local, local),
        remote: narrow(&tunnel.remote, remote),
    };
    (!granted.local.is_empty() && !granted.remote.is_empty()).then_some(granted)
}

/// Returns `true` if the tunnel's traffic includes the first selectors of a request. The granted traffic must include
/// them then, too.
pub fn includes_first(
    tunnel: &ChildTunnel,
    local: &[TrafficSelector],
    remote: &[TrafficSelector],
) -> bool {
    [(&tunnel.local, local), (&tunnel.remote, remote)].into_iter().all(|(ours, theirs)| {
        ranges(theirs).next().is_some_and(|first| covered(std::slice::from_ref(first), ours))
    })
}

/// Returns `true` if a request asks for all of the tunnel's traffic and for nothing more.
pub fn is_exact(
    tunnel: &ChildTunnel,
    local: &[TrafficSelector],
    remote: &[TrafficSelector],
) -> bool {
    [(&tunnel.local, local), (&tunnel.remote, remote)].into_iter().all(|(ours, theirs)| {
        let theirs: Vec<Selector> = ranges(theirs).copied().collect();
        covered(ours, &theirs) && covered(&theirs, ours)
    })
}

/// Checks an answer: it may narrow what was asked for, never widen it.
pub fn accept(
    asked: &TrafficSelectors,
    local: &[TrafficSelector],
    remote: &[TrafficSelector],
) -> Option<TrafficSelectors> {
    let [local, remote] =
        [(local, &asked.local), (remote, &asked.remote)].map(|(answer, asked)| {
            let mut picked: Vec<Selector> = ranges(answer).copied().collect();
            picked.shrink_to_fit();
            (!picked.is_empty() && picked.len() == answer.len() && covered(&picked, asked))
                .then_some(picked)
        });
    Some(TrafficSelectors { local: local?, remote: remote? })
}

/// A list of selectors in words.
pub fn describe<'a>(selectors: impl IntoIterator<Item = &'a Selector>) -> String {
    let words: Vec<String> = selectors.into_iter().map(ToString::to_string).collect();
    if words.is_empty() { "nothing".into() } else { words.join(", ") }
}

/// A payload's selectors, a bounded number of them.
pub fn known(selectors: &[TrafficSelector]) -> Vec<Selector> {
    ranges(selectors).take(crate::failure::facts::KEPT).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(protocol: u8, start: &str, end: &str, ports: (u16, u16)) -> Selector {
        Selector {
            protocol,
            addresses: AddressRange::new(start.parse().unwrap(), end.parse().unwrap()).unwrap(),
            ports: PortRange::new(ports.0, ports.1).unwrap(),
        }
    }

    #[test]
    fn narrowing_takes_the_common_part() {
        let ours = [range(0, "10.1.0.0", "10.1.255.255", (0, 65535))];
        let theirs = encode(&[range(6, "10.0.0.0", "10.1.0.255", (443, 443))]);
        assert_eq!(narrow(&ours, &theirs), [range(6, "10.1.0.0", "10.1.0.255", (443, 443))]);
        assert!(narrow(&ours, &encode(&[range(0, "fd00::", "fd00::1", (0, 65535))])).is_empty());
        assert!(narrow(&ours, &[TrafficSelector::Unsupported { kind: 9 }]).is_empty());
    }

    #[test]
    fn granted_selectors_fit_a_payload() {
        // Two of ours with each of the 255 that a payload can hold.
        let ours = [17, 6].map(|p| range(p, "10.1.0.0", "10.1.255.255", (0, 65535)));
        let theirs: Vec<Selector> =
            (0..255).map(|n| format!("10.1.0.{n}")).map(|a| range(0, &a, &a, (0, 65535))).collect();
        let granted = narrow(&ours, &encode(&theirs));
        assert_eq!(granted.len(), 255);
        let header = crate::wire::header::Header::parse(&{
            let mut octets = vec![1; 28];
            (octets[17], octets[19]) = (0x20, 0);
            octets[24..].copy_from_slice(&28u32.to_be_bytes());
            octets
        })
        .unwrap();
        let payload = crate::wire::payload::Payload::TsInitiator(encode(&granted));
        crate::wire::message::encode(&header, &[payload]);
    }

    #[test]
    fn the_packet_comes_first_unless_it_is_all_there_is() {
        let ours = [
            range(17, "10.1.0.0", "10.1.0.255", (53, 53)),
            range(0, "10.2.0.0", "10.2.0.255", (0, 65535)),
        ];
        let packet =
            |protocol, address: &str, port| Some((protocol, (address.parse().unwrap(), port)));
        let expected = |first: &[Selector]| encode(&[first, &ours].concat());
        let asked = asking(&ours, packet(6, "10.2.0.9", Some(443)));
        assert_eq!(asked, expected(&[range(6, "10.2.0.9", "10.2.0.9", (443, 443))]));
        let asked = asking(&ours, packet(1, "10.2.0.9", None));
        assert_eq!(asked, expected(&[range(1, "10.2.0.9", "10.2.0.9", (0, 65535))]));
        assert_eq!(asking(&ours, packet(6, "10.1.0.9", Some(53))), expected(&[]));
        assert_eq!(asking(&ours, None), expected(&[]));
        let one = [range(6, "10.2.0.9", "10.2.0.9", (443, 443))];
        assert_eq!(asking(&one, packet(6, "10.2.0.9", Some(443))), encode(&one));
    }

    #[test]
    fn a_selector_that_another_covers_is_not_granted_twice() {
        let ours = [range(0, "10.1.0.0", "10.1.255.255", (0, 65535))];
        let packet = range(6, "10.1.0.9", "10.1.0.9", (443, 443));
        let asked = encode(&[packet, range(0, "10.0.0.0", "10.255.255.255", (0, 65535))]);
        assert_eq!(narrow(&ours, &asked), ours);
        assert_eq!(narrow(&ours, &encode(&[packet])), [packet]);
    }

    #[test]
    fn an_answer_may_not_widen() {
        let asked = TrafficSelectors {
            local: vec![range(0, "10.1.0.0", "10.1.0.255", (0, 65535))],
            remote: vec![range(0, "10.2.0.0", "10.2.0.255", (0, 65535))],
        };
        let part = encode(&[range(17, "10.1.0.7", "10.1.0.7", (53, 53))]);
        let all = encode(&asked.remote);
        assert!(accept(&asked, &part, &all).is_some());
        assert!(
            accept(&asked, &encode(&[range(0, "10.1.0.0", "10.1.1.0", (0, 65535))]), &all)
                .is_none()
        );
        assert!(accept(&asked, &[], &all).is_none());
    }
}
