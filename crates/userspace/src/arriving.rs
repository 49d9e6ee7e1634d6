//! A message from a socket: ESP with its arrival, or another protocol on the shared port.

use super::datagrams::Incoming;
use super::hooks::{Hooks, IkeDatagram};
use super::queue_pair::Wire;
use esp::datapath::Arrival;
use esp::plane::{Encapsulation, Path};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;

/// The marker before IKE messages on the port that ESP also uses (RFC 3948 §2.2).
pub(super) const NON_ESP_MARKER: [u8; 4] = [0; 4];

/// ESP packets that came together, each from the SPI on.
pub(super) struct Arrived<'a> {
    /// The offset in the message.
    pub at: usize,
    pub octets: &'a [u8],
    /// Octets of each but the last.
    pub segment_len: usize,
    pub arrival: Arrival,
}

/// Sorts a message: hands IKE to `hooks`, and all ESP to `esp`, in order.
pub(super) fn sort<'a>(
    wire: Wire,
    incoming: &Incoming<'a>,
    port: u16,
    hooks: &Hooks,
    esp: &mut dyn FnMut(Arrived<'a>),
) {
    match wire {
        Wire::Udp => from_udp(incoming, port, hooks, esp),
        Wire::Native4 => from_native4(incoming).into_iter().for_each(esp),
        Wire::Native6 => from_native6(incoming).into_iter().for_each(esp),
        // No ESP, and opened elsewhere.
        Wire::Ah4 | Wire::Ah6 => {}
    }
}

/// Tells ESP, IKE and keepalives apart (RFC 3948 §2).
fn from_udp<'a>(
    incoming: &Incoming<'a>,
    port: u16,
    hooks: &Hooks,
    esp: &mut dyn FnMut(Arrived<'a>),
) {
    // Without its own address a packet has no path.
    let Some(local) = incoming.local else { return };
    let path = Path {
        local: SocketAddr::new(local, port),
        remote: incoming.remote,
        encapsulation: Encapsulation::Udp,
    };
    let arrival = Arrival { path, tos: incoming.tos, ttl: None };
    let segment_len = incoming.segment_len.max(1);
    let mut hand_over = |range: Range<usize>| {
        if !range.is_empty() {
            let octets = &incoming.octets[range.clone()];
            esp(Arrived { at: range.start, octets, segment_len, arrival });
        }
    };
    // Datagrams that the kernel put together may be more than ESP.
    let (mut start, mut at) = (0, 0);
    for datagram in incoming.octets.chunks(segment_len) {
        let end = at + datagram.len();
        if !is_esp(datagram) {
            hand_over(start..at);
            start = end;
            if let Some(message) = datagram.strip_prefix(&NON_ESP_MARKER) {
                let (local, remote) = (path.local, path.remote);
                (hooks.ike)(IkeDatagram { local, remote, octets: message.to_vec() });
            }
        }
        at = end;
    }
    hand_over(start..at);
}

/// A keepalive has one octet (RFC 3948 §2.3), and no SPI is zero.
fn is_esp(datagram: &[u8]) -> bool {
    datagram.len() > NON_ESP_MARKER.len() && !datagram.starts_with(&NON_ESP_MARKER)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, mpsc};

    #[test]
    fn keepalives_and_ike_are_not_esp() {
        assert!(!is_esp(&[]));
        assert!(!is_esp(&[0xff]));
        assert!(!is_esp(&[0, 0, 0, 0, 1, 2, 3]));
        assert!(!is_esp(&[0, 0, 1, 0]));
        assert!(is_esp(&[0, 0, 1, 0, 0]));
    }

    #[test]
    fn ike_among_esp_is_found() {
        let (messages, received) = mpsc::channel();
        let hooks = Hooks {
            notice: Arc::new(|_| {}),
            ike: Arc::new(move |message| {
                let _ = messages.send(message.octets);
            }),
        };
        let octets = b"esp 1 esp 2 \0\0\0\0ikesp 3 sh";
        let mut incoming = Incoming::of(octets, ([192, 0, 2, 2], 4500).into());
        incoming.local = Some([192, 0, 2, 1].into());
        incoming.segment_len = 6;
        let mut esp = Vec::new();
        sort(Wire::Udp, &incoming, 4500, &hooks, &mut |arrived| {
            esp.push((arrived.at, arrived.octets.to_vec()));
        });
        // The last is too short for an SPI and anything behind it.
        assert_eq!(esp, [(0, b"esp 1 esp 2 ".to_vec()), (18, b"esp 3 ".to_vec())]);
        assert_eq!(received.try_recv().as_deref(), Ok(&b"ik"[..]));
    }
}
