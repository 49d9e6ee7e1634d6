//! ESP packets as they arrive: a stranger's, a forger's, and authentic ones with anything inside.

use crate::octets::Octets;
use crypto::{Aad, Cipher, Provider, Suite};
use esp::datapath::{Arrival, Datapath, Settings};
use esp::plane::{DataPlane, Encapsulation, InboundSa, Limits, Path, SaId, Spi, TrafficSelectors};
use esp::queue::{Coalesce, ReceiveQueue};
use policy::{AddressRange, Integrity, KeyBits, Mode, Secret, Selector};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

const SUITES: [(Suite, Mode, bool); 6] = [
    (Suite::AesGcm16(KeyBits::B128), Mode::Tunnel, false),
    (Suite::AesGcm16(KeyBits::B256), Mode::Transport, true),
    (Suite::ChaCha20Poly1305, Mode::Tunnel, true),
    (Suite::AesCbcMac(KeyBits::B128, Integrity::HmacSha2_256_128), Mode::Tunnel, true),
    (Suite::AesGmac(KeyBits::B128), Mode::Transport, false),
    (Suite::NullMac(Integrity::HmacSha1_96), Mode::Tunnel, false),
];
/// More packets than this are not tried in one run.
const PACKETS: usize = 64;
const WINDOW: u32 = 128;

struct Sa {
    suite: Suite,
    esn: bool,
    spi: u32,
    cipher: Box<dyn Cipher>,
    accepted: BTreeSet<u64>,
}

/// Lets packets arrive at a datapath with one SA of each kind. None is accepted twice, none from outside of the
/// selectors, and each that is not accepted is counted.
pub fn esp_inbound(data: &[u8]) {
    let mut input = Octets::new(data);
    #[allow(clippy::disallowed_methods, reason = "only differences matter")]
    let now = Instant::now();
    let mut datapath = Datapath::new(Settings::default(), now);
    let ends = [1, 2].map(|host| SocketAddr::from(([192, 0, 2, host], 4500)));
    let path = Path { local: ends[0], remote: ends[1], encapsulation: Encapsulation::Udp };
    let mut sas: Vec<Sa> =
        (0..).zip(SUITES).map(|(n, kind)| install(&mut datapath, path, n, kind)).collect();
    let mut queue = ReceiveQueue::new(1 << 17, Coalesce { tcp: true, udp: true });
    let mut refused = 0;
    for _ in 0..PACKETS {
        let Some(packet) = next(&mut input, &sas) else { break };
        queue.clear();
        let arrival = Arrival { path, tos: Some(1), ttl: Some(3) };
        match datapath.decapsulate(now, &packet.octets, arrival, &mut queue) {
            Err(_) => refused += 1,
            Ok(()) => {
                let (sa, sequence) = packet.authentic.expect("nobody else has the keys");
                assert!(sas[sa].accepted.insert(sequence), "packet {sequence} came twice");
                for (inner, _) in queue.packets() {
                    assert!(is_within(inner, ends), "a packet from outside of the selectors");
                }
            }
        }
    }
    assert_eq!(datapath.counters().values().sum::<u64>(), refused);
}

fn install(
    datapath: &mut Datapath,
    path: Path,
    n: u32,
    (suite, mode, esn): (Suite, Mode, bool),
) -> Sa {
    let material = vec![n as u8 + 1; suite.key_material_len()];
    let [local, remote] =
        networks(mode, [path.local, path.remote]).map(|r| vec![Selector::all_of(r)]);
    let spi = 0x1000 + n;
    let sa = InboundSa {
        id: SaId(u64::from(n)),
        rule: esp::plane::RuleId(1),
        spi: Spi(spi),
        suite,
        key: Secret::new(material.clone()),
        esn,
        replay_window: WINDOW,
        mode,
        path,
        selectors: TrafficSelectors { local, remote }.into(),
        limits: Limits::default(),
    };
    datapath.add_inbound(sa).expect("a new SA");
    let cipher = Provider::AwsLc.cipher(suite, &Secret::new(material)).expect("it has every suite");
    Sa { suite, esn, spi, cipher, accepted: BTreeSet::new() }
}

/// Networks of this side and the peer.
fn networks(mode: Mode, ends: [SocketAddr; 2]) -> [AddressRange; 2] {
    match mode {
        Mode::Transport => ends.map(|end| AddressRange::from(end.ip())),
        Mode::Tunnel => [1, 2].map(|net| {
            AddressRange::new(IpAddr::from([10, net, 0, 0]), IpAddr::from([10, net, 255, 255]))
                .expect("in order")
        }),
    }
}

struct Packet {
    octets: Vec<u8>,
    /// SA and sequence number of one that a peer could have sent.
    authentic: Option<(usize, u64)>,
}

fn next(input: &mut Octets<'_>, sas: &[Sa]) -> Option<Packet> {
    let how = input.u8()?;
    let len = usize::from(input.u8()?) * if how & 0x80 == 0 { 1 } else { 8 };
    if how % 4 == 0 {
        return Some(Packet { octets: input.up_to(len).to_vec(), authentic: None });
    }
    let at = input.below(sas.len())?;
    let sa = &sas[at];
    let sequence = u64::from(input.u16()?);
    // Half of them have an inner header to start from.
    let mut text = if how & 0x40 == 0 { Vec::new() } else { header(input.u8()?) };
    text.extend_from_slice(input.up_to(len));
    let block = sa.suite.block_len();
    text.resize(text.len().next_multiple_of(block), 4);
    let mut octets = vec![0; 8 + sa.suite.iv_len() + text.len() + sa.suite.icv_len()];
    octets[..4].copy_from_slice(&sa.spi.to_be_bytes());
    octets[4..8].copy_from_slice(&(sequence as u32).to_be_bytes());
    let iv: Vec<u8> = sequence.to_be_bytes().into_iter().cycle().take(sa.suite.iv_len()).collect();
    let aad = Aad::Esp { spi: sa.spi, sequence, esn: sa.esn };
    sa.cipher.seal(&iv, aad, &text, &[], &mut octets[8..]);
    if how % 4 == 3 {
        let bit = usize::from(input.u16()?) % (octets.len() * 8);
        octets[bit / 8] ^= 1 << (bit % 8);
        return Some(Packet { octets, authentic: None });
    }
    Some(Packet { octets, authentic: Some((at, sequence)) })
}

/// The beginning of an IPv4 packet of a tunnel, or of an upper layer message.
fn header(protocol: u8) -> Vec<u8> {
    let mut header = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 2, 0, 1, 10, 1, 0, 1];
    let sum: u32 = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    header[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    header
}

/// Whether a packet that came out is between the networks of some SA.
fn is_within(inner: &[u8], ends: [SocketAddr; 2]) -> bool {
    let address = |at: usize| inner.get(at..at + 4).and_then(|o| <[u8; 4]>::try_from(o).ok());
    let (Some(source), Some(destination)) = (address(12), address(16)) else { return false };
    [Mode::Tunnel, Mode::Transport].into_iter().any(|mode| {
        let [local, remote] = networks(mode, ends);
        inner[0] >> 4 == 4 && local.contains(destination.into()) && remote.contains(source.into())
    })
}
