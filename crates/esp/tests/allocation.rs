//! The packet path asks the allocator for nothing once its queues and the SA's anti-replay window have grown.

use crypto::Suite;
use esp::datapath::{Arrival, Datapath, Settings};
use esp::gso::{Gso, Segmentation};
use esp::plane::{
    DataPlane, Encapsulation, InboundSa, Limits, OutboundSa, Path, Rule, RuleId, SaId, Spi,
    TrafficSelectors,
};
use esp::queue::{Coalesce, ReceiveQueue, SendQueue};
use policy::{AddressRange, Integrity, KeyBits, Mode, Secret, Selector};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, counting per thread.
struct Counting;

// SAFETY: every call is handed to the system's allocator as it is; counting touches only a thread-local that needs
// neither allocation nor destruction.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A TCP super-packet of 40 segments.
fn super_packet() -> (Vec<u8>, Gso) {
    let len = 40 + 40 * 1360u16;
    let mut packet = vec![0; usize::from(len)];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&len.to_be_bytes());
    packet[8..10].copy_from_slice(&[64, 6]);
    packet[12..20].copy_from_slice(&[10, 1, 0, 1, 10, 2, 0, 2]);
    packet[32..34].copy_from_slice(&[0x50, 0x10]);
    (packet, Gso { segmentation: Segmentation::Tcp, segment_len: 1360, ..Gso::NONE })
}

#[test]
fn no_allocation_per_packet() {
    for suite in [
        Suite::AesGcm16(KeyBits::B128),
        Suite::AesCbcMac(KeyBits::B256, Integrity::HmacSha2_256_128),
        Suite::ChaCha20Poly1305,
        Suite::AesGmac(KeyBits::B192),
        Suite::NullMac(Integrity::HmacSha2_512_256),
    ] {
        no_allocation_with(suite);
    }
}

fn no_allocation_with(suite: Suite) {
    let now = Instant::now();
    let (mut sender, mut receiver) =
        (Datapath::new(Settings::default(), now), Datapath::new(Settings::default(), now));
    let any = AddressRange::new(IpAddr::from([0; 4]), IpAddr::from([255; 4])).expect("ordered");
    let selectors = TrafficSelectors {
        local: vec![Selector::all_of(any)],
        remote: vec![Selector::all_of(any)],
    };
    let ends = (SocketAddr::from(([192, 0, 2, 1], 4500)), SocketAddr::from(([192, 0, 2, 2], 4500)));
    let path = Path { local: ends.0, remote: ends.1, encapsulation: Encapsulation::Udp };
    let back = Path { local: ends.1, remote: ends.0, ..path };
    let key = Secret::new(vec![7; suite.key_material_len()]);
    let (rule, spi) = (RuleId(1), Spi(4711));
    let protected =
        Rule { id: rule, tunnel: "branch".into(), selectors: selectors.clone(), trap: false };
    sender.add_rule(protected).expect("a new rule");
    sender
        .add_outbound(OutboundSa {
            id: SaId(1),
            rule,
            spi,
            suite,
            key: key.clone(),
            esn: true,
            mode: Mode::Tunnel,
            path,
            selectors: selectors.clone().into(),
            limits: Limits::default(),
            standby: false,
        })
        .expect("a new SA");
    receiver
        .add_inbound(InboundSa {
            id: SaId(1),
            rule: RuleId(1),
            spi,
            suite,
            key,
            esn: true,
            replay_window: 4096,
            mode: Mode::Tunnel,
            path: back,
            selectors: selectors.into(),
            limits: Limits::default(),
        })
        .expect("a new SA");

    let (original, gso) = super_packet();
    let mut packet = original.clone();
    let mut sender = sender.sender();
    let mut sent = SendQueue::new(1 << 18);
    let mut received = ReceiveQueue::new(1 << 18, Coalesce { tcp: true, udp: true });
    let arrival = Arrival { path: back, tos: Some(0), ttl: None };
    let mut round = || {
        packet.copy_from_slice(&original);
        sent.clear();
        received.clear();
        sender.encapsulate(now, &mut packet, gso, &mut sent).expect("an SA serves it");
        let run = &sent.runs()[0];
        let octets = sent.octets(run);
        let accepted =
            receiver.decapsulate_run(now, octets, run.segment_len, arrival, &mut received);
        assert_eq!(accepted, 40);
        assert_eq!(received.packets().count(), 1);
        assert_eq!(received.packets().next().map(|(packet, _)| packet.len()), Some(original.len()));
    };
    // The window grows to its whole size with the 64th packet.
    round();
    round();
    let before = ALLOCATIONS.get();
    for _ in 0..10 {
        round();
    }
    assert_eq!(ALLOCATIONS.get() - before, 0, "{suite}");
}
