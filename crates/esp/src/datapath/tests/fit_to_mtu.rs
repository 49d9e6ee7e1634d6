//! Packets that are longer than the path carries (RFC 4301 §8).

use super::*;
use crate::encap::inner_mtu;
use crate::fragment::Fragments;
use crate::header::ICMP;
use crate::ip::{ICMPV6, put_word, word_at};
use crate::path_mtu::{Df, Fit};
use policy::AhIntegrity;

const OUTER: usize = 1500;

/// A pair whose sender has been told that the path carries so much.
fn told(kind: Kind, df: Df, mtu: u16) -> Pair {
    let pair = untold(kind, df);
    learn(&pair, mtu).expect("an SA's packet");
    pair
}

fn untold(kind: Kind, df: Df) -> Pair {
    let outer = Outer { mtu: u16::try_from(OUTER).ok(), df, ..Outer::UNKNOWN };
    let settings = Settings { outer, ..Settings::default() };
    let mut pair = Pair::new(kind);
    pair.send_by(Datapath::new(settings, pair.now));
    pair.sender.add_rule(rule(false)).expect("a new rule");
    pair.sender.add_outbound(kind.outbound()).expect("a new SA");
    pair
}

/// As a router that was sent a packet of the SA says it.
fn learn(pair: &Pair, mtu: u16) -> Result<(), Discard> {
    said(pair, pair.kind.path().remote.ip(), SPI, mtu)
}

fn said(pair: &Pair, peer: IpAddr, spi: u32, mtu: u16) -> Result<(), Discard> {
    let local = pair.kind.path().local.ip();
    let esp = [&spi.to_be_bytes()[..], &[0; 600]].concat();
    let (protocol, upper) = match pair.kind.encapsulation {
        Encapsulation::Native => (50, esp),
        Encapsulation::Udp => (UDP, sample::udp_between(local, peer, (4500, 4500), &esp)),
        Encapsulation::Ah => (51, [&[4, 4, 0, 0][..], &esp].concat()),
    };
    let mut quoted = sample::ip(local, peer, protocol, &upper);
    quoted.truncate(540);
    if pair.kind.ipv6 {
        let message = [&[2, 0, 0, 0][..], &u32::from(mtu).to_be_bytes(), &quoted].concat();
        return pair.sender.take_icmp_v6(pair.now, &message);
    }
    let mut message = [&[3, 4, 0, 0, 0, 0][..], &mtu.to_be_bytes(), &quoted].concat();
    let sum = sample::checksum(&message);
    put_word(&mut message, 2, sum);
    let router = IpAddr::from([192, 0, 2, 254]);
    pair.sender.take_icmp_v4(pair.now, &sample::ip(router, local, ICMP, &message))
}

fn fits(kind: Kind, mtu: usize) -> usize {
    inner_mtu(mtu, kind.suite, kind.mode, kind.encapsulation, kind.ipv6)
}

/// An inner packet of that length; IPv4 may be fragmented, or not.
fn inner(ipv6: bool, dont_fragment: bool, len: usize) -> Vec<u8> {
    let headers = if ipv6 { 48 } else { 28 };
    let mut packet = sample::udp(ipv6, (1, 2), &sample::payload(len - headers));
    if !ipv6 && !dont_fragment {
        put_word(&mut packet, 6, 0);
        put_word(&mut packet, 10, 0);
        let sum = sample::checksum(&packet[..20]);
        put_word(&mut packet, 10, sum);
    }
    packet
}

fn kinds() -> impl Iterator<Item = Kind> {
    let suites = [GCM, SUITES[5], SUITES[9]];
    suites.into_iter().flat_map(|suite| {
        [(Encapsulation::Udp, false), (Encapsulation::Native, true), (Encapsulation::Native, false)]
            .map(|(encapsulation, ipv6)| Kind { suite, encapsulation, ipv6, ..Kind::PLAIN })
    })
}

#[test]
fn senders_are_told_what_fits() {
    for kind in kinds() {
        let pair = told(kind, Df::Set, 1400);
        let largest = fits(kind, 1400);
        for ipv6 in [false, true] {
            let packet = inner(ipv6, true, largest);
            assert_eq!(pair.open(&pair.protect(&packet).expect("it fits")).as_ref(), Ok(&packet));
            assert_eq!(pair.sender.take_answers(), Vec::<Vec<u8>>::new());
            let packet = inner(ipv6, true, largest + 1);
            assert_eq!(pair.protect(&packet), Err(Discard::TooBig), "{kind:?}");
            let answers = pair.sender.take_answers();
            let [answer] = &answers[..] else { panic!("{answers:?}") };
            let header = Header::parse(answer).expect("whole");
            let (source, destination) = sample::hosts(ipv6);
            assert_eq!((header.source(), header.destination()), (destination, source));
            assert_eq!(header.protocol, if ipv6 { ICMPV6 } else { ICMP });
            let message = &answer[header.transport..];
            assert_eq!(usize::from(word_at(message, 6)), largest);
            assert!(packet.starts_with(&message[8..]));
        }
        assert_eq!(pair.count(Discard::TooBig), 2);
        let fit = Fit { path_mtu: 1400, inner_mtu: largest, learned: true };
        assert_eq!(pair.sender.clone().fit(OUT), Some(fit));
    }
}

#[test]
fn a_packet_that_may_be_fragmented_is_fragmented_before_esp() {
    for kind in kinds() {
        let pair = told(kind, Df::Set, 1000.max(if kind.ipv6 { 1280 } else { 0 }));
        let packet = inner(false, false, 4000);
        let sealed = pair.protect_all(&packet, Gso::NONE).expect("in fragments");
        let largest = pair.sender.clone().fit(OUT).expect("installed").inner_mtu;
        let mut expected = packet.clone();
        let mut fragments = Fragments::new(&mut expected, 20, largest);
        for (n, datagram) in sealed.iter().enumerate() {
            assert_eq!(datagram[4..8], (n as u32 + 1).to_be_bytes(), "a number of its own");
            assert_eq!(pair.open(datagram).as_deref(), Ok(fragments.next().expect("as many")));
        }
        assert!(fragments.next().is_none() && sealed.len() > 3);
        // The next packet has the next number.
        let next = pair.protect(&inner(false, true, 100)).expect("it fits");
        assert_eq!(next[4..8], (sealed.len() as u32 + 1).to_be_bytes());
        assert_eq!(pair.sender.take_answers(), Vec::<Vec<u8>>::new());
    }
}

#[test]
fn numbers_that_were_claimed_suffice_whatever_the_path_does_between() {
    let kind = Kind::PLAIN;
    let pair = told(kind, Df::Set, 1400);
    let mut first = inner(false, false, 3000);
    let mut second = inner(false, true, 60);
    let admit = |packet: &mut Vec<u8>| {
        pair.sender.sender().admit(pair.now, packet, Gso::NONE).expect("an SA serves it")
    };
    let admitted = [admit(&mut first), admit(&mut second)];
    learn(&pair, 600).expect("believed");
    let mut numbers = Vec::new();
    for (admitted, packet) in admitted.into_iter().zip([&mut first, &mut second]) {
        let mut queue = SendQueue::new(0);
        pair.sender.seal(pair.now, admitted, packet, &mut queue);
        numbers.extend(datagrams(&queue).iter().map(|d| d[7]));
    }
    assert_eq!(numbers, [1, 2, 3, 4]);
}

#[test]
fn super_packets_are_refused_or_cut_once_more() {
    let pair = told(Kind::PLAIN, Df::Set, 1400);
    let gso = Gso {
        segmentation: Segmentation::Tcp,
        segment_len: 1380,
        header_len: 0,
        checksum: Some(PartialChecksum { start: 20, offset: 16 }),
        checksum_verified: false,
    };
    let mut packet = sample::tcp(false, 7, ACK, &[], &sample::payload(5_000));
    assert_eq!(pair.protect_all(&packet, gso), Err(Discard::TooBig));
    let answers = pair.sender.take_answers();
    // The first segment is quoted, as its sender's TCP would have sent it.
    let quoted = &answers[0][28..];
    assert_eq!((word_at(quoted, 2), &quoted[20..28]), (1420, &packet[20..28]));
    assert_eq!(usize::from(word_at(&answers[0], 26)), fits(Kind::PLAIN, 1400));

    packet[6] = 0;
    let sealed = pair.protect_all(&packet, gso).expect("fragments of segments");
    assert_eq!(sealed.len(), 2 * 3 + 1, "three segments in two fragments each, and the rest");
    let opened: Vec<Vec<u8>> = sealed.iter().map(|d| pair.open(d).expect("authentic")).collect();
    let payload: usize = opened.iter().map(|p| p.len() - 20).sum();
    assert_eq!(payload, 4 * 20 + 5_000);
    let numbers: Vec<u8> = sealed.iter().map(|d| d[7]).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn the_outer_packet_says_what_the_setting_wants() {
    use Df::{Clear, Copy, Set};
    for (setting, inner_says, expected) in
        [(Set, false, false), (Set, true, false), (Clear, false, true), (Clear, true, true)]
            .into_iter()
            .chain([(Copy, false, true), (Copy, true, false)])
    {
        let pair = untold(Kind::PLAIN, setting);
        let mut queue = SendQueue::new(0);
        let mut packet = inner(false, inner_says, 100);
        pair.sender.encapsulate(pair.now, &mut packet, Gso::NONE, &mut queue).expect("an SA");
        assert_eq!(queue.runs()[0].may_fragment, expected, "{setting:?} {inner_says}");
    }
    // Packets of both kinds do not leave in one run.
    let pair = untold(Kind::PLAIN, Copy);
    let mut queue = SendQueue::new(0);
    for says in [true, false, false] {
        let mut packet = inner(false, says, 100);
        pair.sender.encapsulate(pair.now, &mut packet, Gso::NONE, &mut queue).expect("an SA");
    }
    assert_eq!(queue.runs().len(), 2);
}

#[test]
fn nothing_is_refused_where_routers_may_fragment() {
    let clear = told(Kind::PLAIN, Df::Clear, 1000);
    for says in [true, false] {
        assert_eq!(clear.protect_all(&inner(false, says, 1400), Gso::NONE).map(|p| p.len()), Ok(1));
    }
    assert!(clear.protect(&inner(true, true, 1400)).is_ok());
    let copy = told(Kind::PLAIN, Df::Copy, 1000);
    assert_eq!(copy.protect(&inner(false, true, 1400)), Err(Discard::TooBig));
    assert!(copy.protect(&inner(false, false, 1400)).is_ok(), "the outer packet says so, too");
    assert_eq!(copy.protect(&inner(true, true, 1400)), Err(Discard::TooBig));
}

#[test]
fn ipv6_is_never_told_of_less_than_it_needs() {
    let pair = told(Kind::PLAIN, Df::Set, 1280);
    assert!(pair.protect(&inner(true, true, 1280)).is_ok(), "the outer packet is fragmented");
    assert_eq!(pair.protect(&inner(true, true, 1281)), Err(Discard::TooBig));
    let answers = pair.sender.take_answers();
    assert_eq!(answers[0][44..48], 1280u32.to_be_bytes());
}

#[test]
fn transport_mode_answers_for_its_own_host() {
    for ipv6 in [false, true] {
        let kind = Kind { mode: Mode::Transport, ipv6, ..Kind::PLAIN };
        let pair = told(kind, Df::Set, 1400);
        let largest = fits(kind, 1400);
        assert!(pair.protect(&inner(ipv6, true, largest)).is_ok());
        assert_eq!(pair.protect(&inner(ipv6, true, largest + 1)), Err(Discard::TooBig));
        assert_eq!(
            usize::from(word_at(&pair.sender.take_answers()[0][if ipv6 { 40 } else { 20 }..], 6)),
            largest
        );
    }
    // Fragments would have to be made after ESP, which the network layer does.
    let kind = Kind { mode: Mode::Transport, ..Kind::PLAIN };
    let pair = told(kind, Df::Set, 1000);
    let mut queue = SendQueue::new(0);
    let mut packet = inner(false, false, 1400);
    pair.sender.encapsulate(pair.now, &mut packet, Gso::NONE, &mut queue).expect("whole");
    assert!(queue.runs()[0].may_fragment);
}

#[test]
fn ah_asks_routers_as_esp_does_and_learns_of_them() {
    let kind = Kind {
        suite: Suite::Ah(AhIntegrity::AesGmac(KeyBits::B128)),
        encapsulation: Encapsulation::Ah,
        ..Kind::PLAIN
    };
    for (wanted, inner_says, says) in [
        (Df::Set, false, true),
        (Df::Clear, true, false),
        (Df::Copy, true, true),
        (Df::Copy, false, false),
    ] {
        let pair = untold(kind, wanted);
        let packet = inner(false, inner_says, 600);
        let sealed = pair.protect(&packet).expect("it fits");
        assert_eq!(sealed[6] & 0x40 != 0, says, "{wanted:?}");
        assert_eq!(pair.open(&sealed), Ok(packet));
    }
    let pair = told(kind, Df::Set, 1400);
    let largest = fits(kind, 1400);
    assert_eq!(pair.protect(&inner(false, true, largest)).map(|sealed| sealed.len()), Ok(1400));
    assert_eq!(pair.protect(&inner(false, true, largest + 1)), Err(Discard::TooBig));
    let pieces = pair.protect_all(&inner(false, false, 3000), Gso::NONE).expect("in fragments");
    assert!(pieces.len() == 3 && pieces.iter().all(|piece| piece.len() <= 1400));
}

#[test]
fn a_learned_path_mtu_expires_and_is_learned_again() {
    let mut pair = told(Kind::PLAIN, Df::Set, 1400);
    let packet = inner(false, true, fits(Kind::PLAIN, OUTER));
    assert_eq!(pair.protect(&packet), Err(Discard::TooBig));
    pair.now += Duration::from_secs(599);
    assert_eq!(pair.protect(&packet), Err(Discard::TooBig));
    pair.now += Duration::from_secs(1);
    assert!(pair.protect(&packet).is_ok());
    assert_eq!(pair.sender.clone().fit(OUT).expect("installed").path_mtu, OUTER);
    // And learned again.
    learn(&pair, 1400).expect("believed");
    assert_eq!(pair.protect(&packet), Err(Discard::TooBig));
    pair.now += Duration::from_secs(600);
    pair.sender.age_paths(pair.now);
    assert!(!pair.sender.clone().fit(OUT).expect("installed").learned);
}

#[test]
fn tcp_is_held_to_what_was_learned() {
    let pair = told(Kind::PLAIN, Df::Set, 1400);
    let syn = sample::tcp(false, 1, 0x02, &[2, 4, 0x23, 0x28], &[]);
    let opened = pair.open(&pair.protect(&syn).expect("an SA")).expect("authentic");
    assert_eq!(usize::from(word_at(&opened, 42)), fits(Kind::PLAIN, 1400) - 40);
}

#[test]
fn an_unauthenticated_path_mtu_is_believed_within_bounds() {
    let kind = Kind::PLAIN;
    let pair = untold(kind, Df::Set);
    let (peer, elsewhere) = (kind.path().remote.ip(), IpAddr::from([198, 51, 100, 1]));
    assert_eq!(said(&pair, peer, SPI + 1, 1000), Err(Discard::MtuUnknown));
    assert_eq!(said(&pair, elsewhere, SPI, 1000), Err(Discard::MtuUnknown));
    assert_eq!(pair.count(Discard::MtuUnknown), 2);
    said(&pair, peer, SPI, 68).expect("believed in part");
    assert_eq!(pair.sender.clone().fit(OUT).expect("installed").path_mtu, 576);
    let outer = Outer { learned_for: None, ..Outer::UNKNOWN };
    let settings = Settings { outer, ..Settings::default() };
    let mut deaf = untold(kind, Df::Set);
    deaf.send_by(Datapath::new(settings, deaf.now));
    deaf.sender.add_rule(rule(false)).expect("a new rule");
    deaf.sender.add_outbound(kind.outbound()).expect("a new SA");
    assert_eq!(learn(&deaf, 1000), Ok(()));
    assert!(deaf.protect(&inner(false, true, 1400)).is_ok());
}

#[test]
fn an_sa_that_moves_leaves_behind_what_its_path_carried() {
    let pair = told(Kind::PLAIN, Df::Set, 1000);
    let mut path = Kind::PLAIN.path();
    path.remote = SocketAddr::from(([198, 51, 100, 7], 7));
    pair.sender.clone().relocate(OUT, path).expect("installed");
    assert!(pair.protect(&inner(false, true, 1400)).is_ok());
    assert_eq!(learn(&pair, 900), Err(Discard::MtuUnknown), "of the old path");
    said(&pair, path.remote.ip(), SPI, 900).expect("of the new one");
    pair.sender.clone().remove(OUT);
    assert_eq!(said(&pair, path.remote.ip(), SPI, 900), Err(Discard::MtuUnknown));
}

#[test]
fn answers_come_at_a_bounded_rate() {
    let pair = told(Kind::PLAIN, Df::Set, 1000);
    let packet = inner(false, true, 1400);
    for _ in 0..1000 {
        assert!(pair.protect(&packet).is_err());
    }
    let told = pair.sender.take_answers().len() as u64;
    assert!((1..=128).contains(&told), "{told}");
    let (answered, silent) = (pair.count(Discard::TooBig), pair.count(Discard::TooBigUntold));
    assert_eq!((answered, answered + silent), (told, 1000));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// No number is used twice and no piece is longer than the path carries, whichever packets come.
    #[test]
    fn pieces_fit_and_numbers_do_not_repeat(
        mtus in proptest::collection::vec(500..1500u16, 1..4),
        packets in proptest::collection::vec((29..4000usize, any::<bool>()), 1..10),
    ) {
        let pair = untold(Kind::PLAIN, Df::Set);
        let mut next = 1u32;
        for (n, (len, says)) in packets.into_iter().enumerate() {
            let _ = learn(&pair, mtus[n % mtus.len()]);
            let fit = pair.sender.clone().fit(OUT).expect("installed");
            let Ok(sealed) = pair.protect_all(&inner(false, says, len), Gso::NONE) else {
                prop_assert!(says && len > fit.inner_mtu);
                continue;
            };
            for datagram in sealed {
                prop_assert!(datagram.len() + 28 <= fit.path_mtu);
                prop_assert_eq!(&datagram[4..8], next.to_be_bytes());
                next += 1;
            }
        }
    }
}
