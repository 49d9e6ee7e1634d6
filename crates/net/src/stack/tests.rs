use super::segments::SYN;
use super::*;
use crate::incoming::Incoming;
use crate::mailbox::Mailbox;
use crate::routes::Routes;
use crate::settings::Settings;
use esp::datapath::{self, Datapath};
use proptest::prelude::*;
use std::net::SocketAddr;

const BACKLOG: usize = 16;
const OWN: &str = "10.1.0.1";

/// A stack with one listener, without any SA: its packets are dropped.
fn stack() -> (Stack, Arc<Incoming>) {
    let now = Instant::now();
    let routes = Arc::new(Routes::new(vec![OWN.parse().expect("an address")]));
    let settings = Settings { backlog: BACKLOG, ..Settings::new(1) };
    let shared = Arc::new(Shared::new(settings, routes, Arc::new(Mailbox::new())));
    let incoming = Arc::new(Incoming::new(BACKLOG));
    let local = SocketAddr::new(OWN.parse().expect("an address"), 80);
    assert!(shared.sockets().listen(local, &incoming));
    let datapath = Datapath::new(datapath::Settings::default(), now);
    (Stack::new(shared, Outlet::new(&datapath, now)), incoming)
}

/// A packet with a header that is right, and anything behind it.
fn packet(protocol: u8, fragment: u16, port: u16, flags: u8, mut upper: Vec<u8>) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 1, 0, 0, 64, protocol, 0, 0, 10, 2, 0, 7, 10, 1, 0, 1];
    if upper.len() >= 20 && protocol == TCP {
        upper[2..4].copy_from_slice(&port.to_be_bytes());
        // Most headers are of a length that fits.
        upper[12] = upper[12] % 0x70 + 0x40;
        upper[13] = flags;
    }
    packet.extend(upper);
    let len = packet.len() as u16;
    packet[2..4].copy_from_slice(&len.to_be_bytes());
    packet[6..8].copy_from_slice(&fragment.to_be_bytes());
    let sum = !smoltcp::wire::checksum::data(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}

proptest! {
    #[test]
    fn no_packet_harms(packets in proptest::collection::vec(
        (
            proptest::sample::select(vec![1_u8, 6, 6, 6, 17, 58, 44]),
            proptest::sample::select(vec![0_u16, 0, 0, 0, 0x2000, 0x2001, 5]),
            proptest::sample::select(vec![80_u16, 81]),
            proptest::sample::select(vec![2_u8, 2, 0x10, 0x18, 0x11, 4, 0x14, 0xff, 0]),
            proptest::collection::vec(any::<u8>(), 0..120),
        ),
        1..200,
    )) {
        let (mut stack, _incoming) = stack();
        let verified = Gso { checksum_verified: true, ..Gso::NONE };
        for (protocol, fragment, port, flags, upper) in packets {
            stack.take(&packet(protocol, fragment, port, flags, upper), verified);
            stack.send();
            stack.outlet.queue.clear();
            prop_assert!(stack.connections.len() <= BACKLOG);
        }
    }
}

#[test]
fn strangers_cannot_open_more_than_the_backlog() {
    let (mut stack, incoming) = stack();
    let verified = Gso { checksum_verified: true, ..Gso::NONE };
    for from in 1..=1000_u16 {
        let mut upper = vec![0; 20];
        upper[..2].copy_from_slice(&from.to_be_bytes());
        // Five words of header; the test's packet adds four.
        upper[12] = 0x10;
        stack.take(&packet(TCP, 0, 80, SYN, upper), verified);
    }
    assert_eq!(stack.connections.len(), BACKLOG);
    assert!(!incoming.has_room());
    assert_eq!(stack.shared.counts.table()["net_queue_full"], 1000 - BACKLOG as u64);
}
