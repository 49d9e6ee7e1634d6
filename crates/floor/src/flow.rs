//! Traffic as prefixes, one protocol or all, and ports under a mask: the terms of the kernel's policies and the guard.
//!
//! Traffic that a moderate number of these cannot express exactly is refused, never widened or narrowed.

#![forbid(unsafe_code)]

use esp::plane::{PlaneError, TrafficSelectors};
use host::prefixes;
use policy::{PortRange, Selector};
use std::net::IpAddr;

/// Most flows that one tunnel's traffic may take, each a policy in the kernel.
const MAX_FLOWS: usize = 256;

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// TCP, UDP, DCCP, SCTP and UDP-Lite: the kernel looks for their ports.
const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];

/// An address and how many of its leading bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct End {
    /// The address.
    pub address: IpAddr,
    /// The bits of it that count.
    pub length: u8,
    /// The ports of this end.
    pub port: Port,
}

/// The ports whose bits under the mask are those of the value. For ICMP, the source's are types and the destination's
/// codes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    /// The value.
    pub value: u16,
    /// The mask; 0: any port.
    pub mask: u16,
}

/// Packets from one place to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    /// The end that sends.
    pub source: End,
    /// The end that receives.
    pub destination: End,
    /// 0 is any.
    pub protocol: u8,
}

impl Flow {
    /// The flows of the traffic that leaves; those of the traffic that arrives are the same with both ends exchanged.
    pub fn leaving(traffic: &TrafficSelectors) -> Result<Vec<Self>, PlaneError> {
        let mut flows = Vec::new();
        for local in &traffic.local {
            for remote in &traffic.remote {
                let same_family =
                    local.addresses.start().is_ipv4() == remote.addresses.start().is_ipv4();
                let meet = local.protocol == remote.protocol
                    || local.protocol == 0
                    || remote.protocol == 0;
                if same_family && meet {
                    extend(&mut flows, local, remote).map_err(|why| PlaneError::System {
                        what: format!("telling the kernel of traffic between {local} and {remote}"),
                        why,
                    })?;
                }
            }
        }
        flows.sort_unstable();
        flows.dedup();
        Ok(flows)
    }

    /// The same in the other direction; types and codes of ICMP stay where they are.
    pub fn reversed(self) -> Self {
        let Self { mut source, mut destination, protocol } = self;
        if matches!(protocol, ICMP | ICMPV6) {
            std::mem::swap(&mut source.port, &mut destination.port);
        }
        Self { source: destination, destination: source, protocol }
    }

    /// Its ports; of ICMP, type and code where other protocols have their source port.
    pub fn ports(&self) -> [Port; 2] {
        let (source, destination) = (self.source.port, self.destination.port);
        if !matches!(self.protocol, ICMP | ICMPV6) {
            return [source, destination];
        }
        let [value, mask] = [(source.value, destination.value), (source.mask, destination.mask)]
            .map(|(kind, code)| kind << 8 | code & 0xff);
        [Port { value, mask }, Port::default()]
    }
}

fn extend(flows: &mut Vec<Flow>, local: &Selector, remote: &Selector) -> Result<(), String> {
    let protocol = local.protocol.max(remote.protocol);
    let (from, to) = (prefixes(&local.addresses), prefixes(&remote.addresses));
    let ports = ports(protocol, local.ports, remote.ports)?;
    if flows.len() + from.len() * to.len() * ports.len() > MAX_FLOWS {
        return Err(format!(
            "its ranges take more than {MAX_FLOWS} prefixes and blocks of ports; use prefixes and fewer ports"
        ));
    }
    for from in &from {
        for to in &to {
            flows.extend(ports.iter().map(|&(source, destination)| Flow {
                source: End { address: from.address, length: from.length, port: source },
                destination: End { address: to.address, length: to.length, port: destination },
                protocol,
            }));
        }
    }
    Ok(())
}

/// The pairs of ports of both ends.
fn ports(protocol: u8, local: PortRange, remote: PortRange) -> Result<Vec<(Port, Port)>, String> {
    let any = local == PortRange::ANY && remote == PortRange::ANY;
    match protocol {
        _ if any => Ok(vec![(Port::default(), Port::default())]),
        ICMP | ICMPV6 => Ok(types(local.intersection(&remote))),
        _ if WITH_PORTS.contains(&protocol) => {
            let remote = blocks(remote.start(), remote.end(), u16::MAX);
            let local = blocks(local.start(), local.end(), u16::MAX);
            Ok(local.iter().flat_map(|l| remote.iter().map(|r| (*l, *r))).collect())
        }
        0 => Err("the kernel knows ports only together with a protocol".to_owned()),
        _ => Err(format!("the kernel knows no ports of protocol {protocol}")),
    }
}

/// Types and codes: a packet's lie in both ends' ranges (RFC 4301 §4.4.1.1).
fn types(range: Option<PortRange>) -> Vec<(Port, Port)> {
    let Some(range) = range else { return Vec::new() };
    let (first, last) = (range.start() >> 8, range.end() >> 8);
    let (first_code, last_code) = (range.start() & 0xff, range.end() & 0xff);
    if first == last {
        return of_type(first, first_code, last_code).collect();
    }
    let mut found = Vec::new();
    let mut whole = (first, last);
    if first_code != 0 {
        found.extend(of_type(first, first_code, 0xff));
        whole.0 += 1;
    }
    if last_code != 0xff {
        found.extend(of_type(last, 0, last_code));
        whole.1 -= 1;
    }
    if whole.0 <= whole.1 {
        let kinds = blocks(whole.0, whole.1, 0xff).into_iter();
        found.extend(kinds.map(|kind| (kind, Port::default())));
    }
    found
}

/// Blocks that cover the codes of one type.
fn of_type(kind: u16, from: u16, to: u16) -> impl Iterator<Item = (Port, Port)> {
    blocks(from, to, 0xff).into_iter().map(move |code| (exactly(kind), code))
}

fn exactly(value: u16) -> Port {
    Port { value, mask: u16::MAX }
}

/// The fewest blocks that hold the numbers from `start` to `end` and no others, of all up to `highest`. The highest
/// bits of a number that has fewer than 16 are zero, and compared.
fn blocks(start: u16, end: u16, highest: u16) -> Vec<Port> {
    if (start, end) == (0, highest) {
        return vec![Port::default()];
    }
    let (mut next, end) = (u32::from(start), u32::from(end));
    let mut found = Vec::new();
    while next <= end {
        let aligned = if next == 0 { 16 } else { next.trailing_zeros() };
        let size = 1 << aligned.min((end - next + 1).ilog2());
        let [value, free] = [next, size - 1].map(|n| u16::try_from(n & 0xffff).expect("16 bits"));
        found.push(Port { value, mask: !free });
        next += size;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::AddressRange;
    use proptest::prelude::*;

    fn selector(protocol: u8, start: &str, end: &str, ports: (u16, u16)) -> Selector {
        let (start, end) = (start.parse().expect("address"), end.parse().expect("address"));
        let addresses = AddressRange::new(start, end).expect("range");
        Selector { protocol, addresses, ports: PortRange::new(ports.0, ports.1).expect("range") }
    }

    fn leaving(local: Selector, remote: Selector) -> Result<Vec<Flow>, PlaneError> {
        Flow::leaving(&TrafficSelectors { local: vec![local], remote: vec![remote] })
    }

    proptest! {
        #[test]
        fn blocks_hold_exactly_the_ports_of_a_range(a: u16, b: u16, probe: u16) {
            let (start, end) = (a.min(b), a.max(b));
            let blocks = blocks(start, end, u16::MAX);
            prop_assert!(blocks.len() <= 30);
            for port in [probe, start, end, start.wrapping_sub(1), end.wrapping_add(1)] {
                let holding = blocks.iter().filter(|p| port & p.mask == p.value).count();
                prop_assert_eq!(holding, usize::from((start..=end).contains(&port)));
            }
        }

        #[test]
        fn types_hold_exactly_the_types_and_codes_of_a_range(a: u16, b: u16, probe: u16) {
            let (start, end) = (a.min(b), a.max(b));
            let types = types(PortRange::new(start, end));
            for packet in [probe, start, end] {
                let (kind, code) = (packet >> 8, packet & 0xff);
                let holds = |(t, c): &&(Port, Port)| {
                    kind & t.mask == t.value && code & c.mask == c.value
                };
                let holding = types.iter().filter(holds).count();
                prop_assert_eq!(holding, usize::from((start..=end).contains(&packet)));
            }
        }
    }

    #[test]
    fn a_prefix_with_one_port_is_one_flow() {
        let any = (0, u16::MAX);
        let flows = leaving(
            selector(0, "10.1.0.0", "10.1.255.255", any),
            selector(6, "10.2.0.7", "10.2.0.7", (443, 443)),
        );
        let flows = flows.expect("the kernel can");
        let [flow] = flows[..] else { panic!("{flows:?}") };
        let https = Port { value: 443, mask: 0xffff };
        assert_eq!((flow.source.length, flow.destination.length, flow.protocol), (16, 32, 6));
        assert_eq!(flow.ports(), [Port::default(), https]);
        let back = flow.reversed();
        assert_eq!(back.ports(), [https, Port::default()]);
        assert_eq!(back.source.address.to_string(), "10.2.0.7");
    }

    #[test]
    fn types_of_icmp_stay_the_source_s() {
        let echo = (8 << 8, (8 << 8) + 255);
        let flows = leaving(
            selector(1, "10.1.0.1", "10.1.0.1", echo),
            selector(1, "10.2.0.1", "10.2.0.1", (0, u16::MAX)),
        );
        let flow = flows.expect("the kernel can")[0];
        for flow in [flow, flow.reversed()] {
            assert_eq!(flow.source.port, Port { value: 8, mask: 0xffff });
            assert_eq!(flow.destination.port, Port::default());
        }
        assert_eq!(flow.reversed().reversed(), flow);
    }

    #[test]
    fn selectors_that_the_kernel_cannot_express_are_refused_with_the_reason() {
        let any = (0, u16::MAX);
        let refused = |local, remote| leaving(local, remote).expect_err("refused").to_string();
        let ports = refused(
            selector(0, "10.1.0.1", "10.1.0.1", (80, 80)),
            selector(0, "10.2.0.1", "10.2.0.1", any),
        );
        assert!(ports.ends_with("only together with a protocol"), "{ports}");
        let ranges = refused(
            selector(6, "10.1.0.1", "10.1.255.254", (1, 65_534)),
            selector(6, "10.2.0.1", "10.2.0.1", any),
        );
        assert!(ranges.contains("more than 256"), "{ranges}");
    }

    #[test]
    fn families_do_not_meet() {
        let any = (0, u16::MAX);
        let flows = leaving(
            selector(0, "10.1.0.1", "10.1.0.1", any),
            selector(0, "fd00::1", "fd00::1", any),
        );
        assert_eq!(flows, Ok(Vec::new()));
    }
}
