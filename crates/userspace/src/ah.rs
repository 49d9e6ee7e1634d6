//! AH packets as the sockets hand them over: whole in IPv4, and without the IPv6 header in IPv6.
//!
//! The ancillary data of an IPv6 packet suffices, because AH does not cover the flow label and the hop limit: it has
//! the addresses, and the extension headers in their order. A packet whose headers exceed its room (48 octets of one
//! header) cannot be checked. The kernel has reassembled fragments before.

use super::worker::Shared;
use esp::ah::{self, AH, IPV6_LEN, MAX_HEADERS, write_header};
use esp::datapath::Arrival;

use esp::plane::{Encapsulation, Path};
use esp::queue::ReceiveQueue;
use floor::datagrams::Incoming;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Instant;

/// Takes what a raw IPv4 socket received.
pub(super) fn from_v4(
    shared: &Shared,
    now: Instant,
    incoming: &Incoming<'_>,
    queue: &mut ReceiveQueue,
) {
    let [_, tos, _, _, _, _, _, _, ttl, _, _, _, s0, s1, s2, s3, d0, d1, d2, d3, ..] =
        *incoming.octets
    else {
        return;
    };
    let Some(cut) = ah::split(incoming.octets) else { return };
    let path = Path {
        local: (Ipv4Addr::new(d0, d1, d2, d3), 0).into(),
        remote: (Ipv4Addr::new(s0, s1, s2, s3), 0).into(),
        encapsulation: Encapsulation::Ah,
    };
    // A discard is counted where it is found.
    let arrival = Arrival { path, tos: Some(tos), ttl: Some(ttl) };
    let _ = shared.datapath.decapsulate_ah(now, cut, arrival, queue);
}

/// Takes what a raw IPv6 socket received.
pub(super) fn from_v6(
    shared: &Shared,
    now: Instant,
    incoming: &Incoming<'_>,
    queue: &mut ReceiveQueue,
) {
    let Some(local @ IpAddr::V6(_)) = incoming.local else { return };
    let mut remote = incoming.remote;
    remote.set_port(0);
    let path = Path { local: SocketAddr::new(local, 0), remote, encapsulation: Encapsulation::Ah };
    let arrival = Arrival { path, tos: incoming.tos, ttl: None };
    let mut headers = [0; MAX_HEADERS];
    // Without its headers a packet is refused, and counted.
    let len = rebuild(&mut headers, incoming, &path).unwrap_or(0);
    let _ = shared.datapath.decapsulate_ah(now, (&headers[..len], incoming.octets), arrival, queue);
}

/// Writes the headers before AH, and returns how many octets they have.
fn rebuild(out: &mut [u8; MAX_HEADERS], incoming: &Incoming<'_>, path: &Path) -> Option<usize> {
    let (source, destination) = (path.remote.ip(), path.local.ip());
    write_header(out, source, destination, AH, 0, incoming.tos.unwrap_or(0), None);
    let (mut names_next, mut at) = (6, IPV6_LEN);
    for (kind, extension) in incoming.extension_headers()? {
        out.get_mut(at..at + extension.len())?.copy_from_slice(extension);
        // Not what it says itself: a fragment header that stood in between is gone (RFC 4302 appendix A2).
        out[names_next] = kind;
        (names_next, at) = (at, at + extension.len());
    }
    out[names_next] = AH;
    ah::set_len(out, at + incoming.octets.len());
    Some(at)
}
