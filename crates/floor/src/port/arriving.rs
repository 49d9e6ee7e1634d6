//! A message from the port: ESP, IKE and keepalives are told apart (RFC 3948 §2).

use crate::datagrams::Incoming;
use esp::datapath::Arrival;
use esp::plane::{Encapsulation, Path};
use std::net::SocketAddr;
use std::ops::Range;

/// The marker before IKE messages on the port that ESP also uses (RFC 3948 §2.2).
pub(super) const NON_ESP_MARKER: [u8; 4] = [0; 4];

/// An IKE message that came to the port of ESP in UDP; the non-ESP marker is removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IkeDatagram {
    /// The address and port it came to.
    pub local: SocketAddr,
    /// The address and port that it came from.
    pub remote: SocketAddr,
    /// The message, from the IKE header on.
    pub octets: Vec<u8>,
}

/// ESP packets that came together, each from the SPI on.
pub struct Arrived<'a> {
    /// The offset in the message.
    pub at: usize,
    /// The packets.
    pub octets: &'a [u8],
    /// Octets of each but the last.
    pub segment_len: usize,
    /// The path of the packets, and the fields of their IP header.
    pub arrival: Arrival,
}

/// Sorts a message that came to the port with this number: hands IKE to `ike`, and all ESP to `esp`, in order.
#[inline]
pub fn sort<'a>(
    incoming: &Incoming<'a>,
    port: u16,
    ike: &dyn Fn(IkeDatagram),
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
                ike(IkeDatagram { local, remote, octets: message.to_vec() });
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

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
        let octets = b"esp 1 esp 2 \0\0\0\0ikesp 3 sh";
        let mut incoming = Incoming::of(octets, ([192, 0, 2, 2], 4500).into());
        incoming.local = Some([192, 0, 2, 1].into());
        incoming.segment_len = 6;
        let (messages, mut esp) = (RefCell::new(Vec::new()), Vec::new());
        sort(
            &incoming,
            4500,
            &|message| messages.borrow_mut().push(message.octets),
            &mut |arrived| {
                esp.push((arrived.at, arrived.octets.to_vec()));
            },
        );
        // The last is too short for an SPI and anything behind it.
        assert_eq!(esp, [(0, b"esp 1 esp 2 ".to_vec()), (18, b"esp 3 ".to_vec())]);
        assert_eq!(messages.into_inner(), [b"ik"]);
    }
}
