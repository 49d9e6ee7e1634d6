//! Network address translation with the behaviours RFC 4787 names.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// On what a mapping or a filter depends (RFC 4787 §4.1 and §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// On nothing outside.
    EndpointIndependent,
    /// On the outside address.
    AddressDependent,
    /// On the outside address and port.
    AddressAndPortDependent,
}

impl Behaviour {
    /// The part of an outside endpoint that matters.
    fn key(self, outside: SocketAddr) -> Option<SocketAddr> {
        match self {
            Self::EndpointIndependent => None,
            Self::AddressDependent => Some(SocketAddr::new(outside.ip(), 0)),
            Self::AddressAndPortDependent => Some(outside),
        }
    }
}

/// A translator in front of one or more hosts.
#[derive(Clone, Debug)]
pub struct Nat {
    address: IpAddr,
    mapping: Behaviour,
    filtering: Behaviour,
    timeout: Duration,
    next_port: u16,
    forwarded: BTreeMap<u16, SocketAddr>,
    mappings: BTreeMap<(SocketAddr, Option<SocketAddr>), Mapping>,
}

#[derive(Clone, Debug)]
struct Mapping {
    port: u16,
    used: Duration,
    permitted: Vec<Option<SocketAddr>>,
}

impl Nat {
    /// Makes a NAT with an outside address; unused mappings go after `timeout`.
    pub fn new(
        address: IpAddr,
        mapping: Behaviour,
        filtering: Behaviour,
        timeout: Duration,
    ) -> Self {
        let (next_port, forwarded, mappings) = (20_000, BTreeMap::new(), BTreeMap::new());
        Self { address, mapping, filtering, timeout, next_port, forwarded, mappings }
    }

    /// Leads a port to an endpoint inside, whoever sends there, and lets that endpoint keep it.
    pub fn forward(&mut self, port: u16, inside: SocketAddr) {
        self.forwarded.insert(port, inside);
    }

    /// The outside address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Translates the source of what leaves, and refreshes or makes its mapping (RFC 4787 §4.3).
    pub fn outbound(
        &mut self,
        now: Duration,
        source: SocketAddr,
        destination: SocketAddr,
    ) -> SocketAddr {
        self.expire(now);
        if let Some((port, _)) = self.forwarded.iter().find(|(_, inside)| **inside == source) {
            return SocketAddr::new(self.address, *port);
        }
        let next_port = &mut self.next_port;
        let mapping =
            self.mappings.entry((source, self.mapping.key(destination))).or_insert_with(|| {
                *next_port += 1;
                Mapping { port: *next_port, used: now, permitted: Vec::new() }
            });
        mapping.used = now;
        let permit = self.filtering.key(destination);
        if !mapping.permitted.contains(&permit) {
            mapping.permitted.push(permit);
        }
        SocketAddr::new(self.address, mapping.port)
    }

    /// Translates the destination of what arrives.
    ///
    /// # Errors
    /// Where there is no mapping, or the filter does not let the source in.
    pub fn inbound(
        &mut self,
        now: Duration,
        source: SocketAddr,
        port: u16,
    ) -> Result<SocketAddr, &'static str> {
        self.expire(now);
        if let Some(inside) = self.forwarded.get(&port) {
            return Ok(*inside);
        }
        let (inside, mapping) = self
            .mappings
            .iter()
            .find(|(_, m)| m.port == port)
            .map(|((inside, _), m)| (*inside, m))
            .ok_or("the NAT has no mapping")?;
        if mapping.permitted.contains(&self.filtering.key(source)) {
            Ok(inside)
        } else {
            Err("the NAT filters the source")
        }
    }

    /// Forgets every mapping, as after a reboot; later ones get ports not used before. Forwarded ports stay.
    pub fn reboot(&mut self) {
        self.mappings.clear();
    }

    fn expire(&mut self, now: Duration) {
        let timeout = self.timeout;
        self.mappings.retain(|_, m| now < m.used + timeout);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSIDE: ([u8; 4], u16) = ([10, 0, 0, 5], 4500);
    const MINUTE: Duration = Duration::from_secs(60);

    fn nat(mapping: Behaviour, filtering: Behaviour) -> Nat {
        Nat::new(IpAddr::from([203, 0, 113, 1]), mapping, filtering, MINUTE)
    }

    fn outside(last: u8, port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, last], port))
    }

    #[test]
    fn mappings_depend_on_what_they_should() {
        for (behaviour, other_port, other_address) in [
            (Behaviour::EndpointIndependent, true, true),
            (Behaviour::AddressDependent, true, false),
            (Behaviour::AddressAndPortDependent, false, false),
        ] {
            let mut nat = nat(behaviour, Behaviour::EndpointIndependent);
            let inside = SocketAddr::from(INSIDE);
            let first = nat.outbound(Duration::ZERO, inside, outside(1, 500));
            assert_eq!(first, nat.outbound(Duration::ZERO, inside, outside(1, 500)));
            let same = |to, nat: &mut Nat| nat.outbound(Duration::ZERO, inside, to) == first;
            assert_eq!(same(outside(1, 4500), &mut nat), other_port, "{behaviour:?}");
            assert_eq!(same(outside(2, 500), &mut nat), other_address, "{behaviour:?}");
        }
    }

    #[test]
    fn filters_let_in_what_they_should() {
        for (behaviour, other_port, other_address) in [
            (Behaviour::EndpointIndependent, true, true),
            (Behaviour::AddressDependent, true, false),
            (Behaviour::AddressAndPortDependent, false, false),
        ] {
            let mut nat = nat(Behaviour::EndpointIndependent, behaviour);
            let inside = SocketAddr::from(INSIDE);
            let shown = nat.outbound(Duration::ZERO, inside, outside(1, 500));
            let mut enters = |from| nat.inbound(Duration::ZERO, from, shown.port()) == Ok(inside);
            assert!(enters(outside(1, 500)));
            assert_eq!(enters(outside(1, 4500)), other_port, "{behaviour:?}");
            assert_eq!(enters(outside(2, 500)), other_address, "{behaviour:?}");
        }
    }

    #[test]
    fn unused_mappings_go_and_come_back_with_another_port() {
        let mut nat = nat(Behaviour::EndpointIndependent, Behaviour::EndpointIndependent);
        let inside = SocketAddr::from(INSIDE);
        let first = nat.outbound(Duration::ZERO, inside, outside(1, 500));
        assert_eq!(nat.inbound(MINUTE / 2, outside(1, 500), first.port()), Ok(inside));
        assert!(nat.inbound(MINUTE, outside(1, 500), first.port()).is_err());
        let second = nat.outbound(MINUTE, inside, outside(1, 500));
        assert_ne!(first, second);
        nat.reboot();
        assert!(nat.inbound(MINUTE, outside(1, 500), second.port()).is_err());
    }

    #[test]
    fn forwarded_ports_are_open_to_everybody_and_stay() {
        let strict = Behaviour::AddressAndPortDependent;
        let mut nat = nat(strict, strict);
        let inside = SocketAddr::from(INSIDE);
        nat.forward(4500, inside);
        nat.reboot();
        assert_eq!(nat.inbound(MINUTE, outside(1, 500), 4500), Ok(inside));
        assert!(nat.inbound(MINUTE, outside(1, 500), 500).is_err());
        assert_eq!(nat.outbound(MINUTE, inside, outside(2, 7)).port(), 4500);
        let other = SocketAddr::new(inside.ip(), 500);
        assert_ne!(nat.outbound(MINUTE, other, outside(2, 7)).port(), 4500);
    }
}
