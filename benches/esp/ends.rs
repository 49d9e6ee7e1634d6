//! Two datapaths back to back, and packets for them.

use crypto::{Choice, CryptoProviders, Provider, Suite};
use esp::datapath::{Arrival, Datapath, Sender, Settings};
use esp::gso::{Gso, PartialChecksum, Segmentation};
use esp::plane::{
    DataPlane, Encapsulation, InboundSa, Limits, OutboundSa, Path, Rule, RuleId, SaId, Spi,
    TrafficSelectors,
};
use esp::queue::{Coalesce, ReceiveQueue, SendQueue};
use policy::{AddressRange, Mode, Secret, Selector};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

/// Octets of the headers of [`super_packet`]'s segments: IPv4, and TCP with timestamps.
pub const HEADERS: usize = 52;

/// Packets of a batch of such as come one by one.
const SINGLES: usize = 64;

const QUEUE: usize = 1 << 20;
const WINDOW: u32 = 4096;

/// The first of the SPIs; each SA has the next.
pub const FIRST_SPI: u32 = 0x1000_0000;

/// The sender, the receiver, and the queues between them.
pub struct Ends {
    now: Instant,
    pub sending: Datapath,
    pub receiving: Datapath,
    pub sender: Sender,
    sealed: SendQueue,
    opened: ReceiveQueue,
    arrival: Arrival,
    packet: Vec<u8>,
    offload: Gso,
    times: usize,
}

impl Ends {
    /// With one rule for everything, and its SAs.
    pub fn new(suite: Suite, provider: Provider) -> Self {
        let all = IpAddr::from([0; 4])..=IpAddr::from([255; 4]);
        Self::with_rules(suite, provider, 1, |_| {
            AddressRange::new(*all.start(), *all.end()).expect("ascending")
        })
    }

    /// With so many rules, each for what goes to one address, and SAs for each.
    pub fn with_hosts(suite: Suite, provider: Provider, rules: u32) -> Self {
        Self::with_rules(suite, provider, rules, |n| AddressRange::from(IpAddr::from(host(n))))
    }

    fn with_rules(
        suite: Suite,
        provider: Provider,
        rules: u32,
        remote: impl Fn(u32) -> AddressRange,
    ) -> Self {
        let now = Instant::now();
        let crypto = Arc::new(CryptoProviders::new(Choice::of(provider)));
        let settings = Settings { crypto, ..Settings::default() };
        let mut sending = Datapath::new(settings.clone(), now);
        let mut receiving = Datapath::new(settings, now);
        let ends = [[192, 0, 2, 1], [192, 0, 2, 2]].map(|a| SocketAddr::from((a, 4500)));
        let there = Path { local: ends[0], remote: ends[1], encapsulation: Encapsulation::Udp };
        let back = Path { local: ends[1], remote: ends[0], ..there };
        let any = AddressRange::new([0; 4].into(), [255; 4].into()).expect("ascending");
        let key = Secret::new((0..suite.key_material_len()).map(|n| n as u8).collect());
        for n in 0..rules {
            let (id, rule, spi) = (SaId(n.into()), RuleId(n), Spi(FIRST_SPI + n));
            let (near, far) = (vec![Selector::all_of(any)], vec![Selector::all_of(remote(n))]);
            let selectors = TrafficSelectors { local: near.clone(), remote: far.clone() };
            let mirrored = TrafficSelectors { local: far, remote: near };
            let tunnel = Rule {
                id: rule,
                tunnel: format!("branch-{n}"),
                selectors: selectors.clone(),
                trap: false,
            };
            sending.add_rule(tunnel).expect("a new rule");
            let outbound = OutboundSa {
                id,
                rule,
                spi,
                suite,
                key: key.clone(),
                esn: true,
                mode: Mode::Tunnel,
                path: there,
                selectors: selectors.into(),
                limits: Limits::default(),
                standby: false,
            };
            sending.add_outbound(outbound).expect("a new SA");
            let inbound = InboundSa {
                id,
                rule,
                spi,
                suite,
                key: key.clone(),
                esn: true,
                replay_window: WINDOW,
                mode: Mode::Tunnel,
                path: back,
                selectors: mirrored.into(),
                limits: Limits::default(),
            };
            receiving.add_inbound(inbound).expect("a new SA");
        }
        Self {
            now,
            sender: sending.sender(),
            sending,
            receiving,
            sealed: SendQueue::new(QUEUE),
            opened: ReceiveQueue::new(QUEUE, Coalesce { tcp: true, udp: true }),
            arrival: Arrival { path: back, tos: Some(0), ttl: None },
            packet: Vec::new(),
            offload: Gso::NONE,
            times: 0,
        }
    }

    /// Has them carry packets of `len` octets from now on: a super-packet of so many segments; or, where there is one,
    /// a batch of [`SINGLES`] packets.
    pub fn carry(mut self, len: usize, segments: usize) -> Self {
        (self.packet, self.offload) = super_packet(host(0), len, segments);
        self.times = if segments == 1 { SINGLES } else { 1 };
        self
    }

    /// How many packets a call of [`Self::seal`] makes.
    pub fn packets(&mut self) -> usize {
        self.seal();
        self.sealed.packets()
    }

    /// Protects what is to be carried, and forgets what was protected before. Sealing leaves the packet one that can be
    /// sealed again.
    pub fn seal(&mut self) {
        self.sealed.clear();
        for _ in 0..self.times {
            let (packet, sealed) = (&mut self.packet, &mut self.sealed);
            self.sender.encapsulate(self.now, packet, self.offload, sealed).expect("an SA");
        }
    }

    /// Opens what was sealed last, which can be done once, to the packets that a device takes.
    pub fn open(&mut self) {
        self.opened.clear();
        let mut accepted = 0;
        for run in self.sealed.runs() {
            let (octets, len) = (self.sealed.octets(run), run.segment_len);
            let (now, opened) = (self.now, &mut self.opened);
            accepted += self.receiving.decapsulate_run(now, octets, len, self.arrival, opened);
        }
        black_box(self.opened.packets().count());
        assert!(accepted > 0, "they are let in");
    }
}

/// The address of a rule's host.
pub fn host(n: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a80_0000 + n)
}

/// A TCP super-packet to a host, of so many segments of `len` octets with all headers; or, if there is one, a packet.
/// The TCP checksum and the segmentation are left to the receiver, as a device leaves them.
pub fn super_packet(destination: Ipv4Addr, len: usize, segments: usize) -> (Vec<u8>, Gso) {
    let payload = len - HEADERS;
    let total = HEADERS + payload * segments;
    let mut packet = vec![0; total];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(total as u16).to_be_bytes());
    packet[6] = 0x40;
    packet[8..10].copy_from_slice(&[64, 6]);
    packet[12..16].copy_from_slice(&[10, 1, 0, 1]);
    packet[16..20].copy_from_slice(&destination.octets());
    let header: u32 = packet[..20].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    packet[10..12].copy_from_slice(&(!((header & 0xffff) + (header >> 16)) as u16).to_be_bytes());
    packet[20..24].copy_from_slice(&[0x9c, 0x40, 0, 80]);
    packet[32..36].copy_from_slice(&[0x80, 0x10, 0xff, 0xff]);
    packet[40..44].copy_from_slice(&[1, 1, 8, 10]);
    for (n, octet) in packet[HEADERS..].iter_mut().enumerate() {
        *octet = (n * 7 + n / 251) as u8;
    }
    let several = segments > 1;
    let offload = Gso {
        segmentation: if several { Segmentation::Tcp } else { Segmentation::None },
        segment_len: if several { payload as u16 } else { 0 },
        header_len: if several { HEADERS as u16 } else { 0 },
        checksum: Some(PartialChecksum { start: 20, offset: 16 }),
        checksum_verified: false,
    };
    (packet, offload)
}
