//! A message from a socket: ESP with its arrival, or another protocol on the shared port.

use super::hooks::Hooks;
use super::queue_pair::Wire;
use esp::datapath::Arrival;
use esp::plane::{Encapsulation, Path};
use floor::datagrams::Incoming;
use floor::port::{self, Arrived};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Sorts a message, on the port with this number if it is of UDP: hands IKE to `hooks`, and all ESP to `esp`, in order.
pub(super) fn sort<'a>(
    wire: Wire,
    incoming: &Incoming<'a>,
    number: u16,
    hooks: &Hooks,
    esp: &mut dyn FnMut(Arrived<'a>),
) {
    match wire {
        Wire::Udp => port::sort(incoming, number, &*hooks.ike, esp),
        Wire::Native4 => from_native4(incoming).into_iter().for_each(esp),
        Wire::Native6 => from_native6(incoming).into_iter().for_each(esp),
        // No ESP, and opened elsewhere.
        Wire::Ah4 | Wire::Ah6 => {}
    }
}

/// A raw IPv4 socket hands over the IP header, too.
fn from_native4<'a>(incoming: &Incoming<'a>) -> Option<Arrived<'a>> {
    let octets = incoming.octets;
    let [first, tos, _, _, _, _, _, _, ttl, _, _, _, s0, s1, s2, s3, d0, d1, d2, d3, ..] = *octets
    else {
        return None;
    };
    let at = usize::from(first & 0x0f) * 4;
    let octets = octets.get(at..)?;
    let path = Path {
        local: (Ipv4Addr::new(d0, d1, d2, d3), 0).into(),
        remote: (Ipv4Addr::new(s0, s1, s2, s3), 0).into(),
        encapsulation: Encapsulation::Native,
    };
    let arrival = Arrival { path, tos: Some(tos), ttl: Some(ttl) };
    Some(Arrived { at, octets, segment_len: octets.len(), arrival })
}

/// A raw IPv6 socket hands over what follows the IP header.
fn from_native6<'a>(incoming: &Incoming<'a>) -> Option<Arrived<'a>> {
    let Some(local @ IpAddr::V6(_)) = incoming.local else { return None };
    let mut remote = incoming.remote;
    remote.set_port(0);
    let path =
        Path { local: SocketAddr::new(local, 0), remote, encapsulation: Encapsulation::Native };
    let arrival = Arrival { path, tos: incoming.tos, ttl: None };
    let octets = incoming.octets;
    Some(Arrived { at: 0, octets, segment_len: octets.len(), arrival })
}
