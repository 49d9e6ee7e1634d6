//! Packets that a peer or a stranger may send.

use super::*;

/// Seals octets that no sender of ours would make.
pub(super) fn sealed_by_hand(kind: Kind, sequence: u64, plaintext: &[u8]) -> Vec<u8> {
    let cipher = Provider::default().cipher(kind.suite, &kind.key()).expect("it has the suite");
    let mut out = vec![0; 8 + kind.suite.iv_len() + plaintext.len() + kind.suite.icv_len()];
    out[..4].copy_from_slice(&SPI.to_be_bytes());
    out[4..8].copy_from_slice(&(sequence as u32).to_be_bytes());
    let aad = crypto::Aad::Esp { spi: SPI, sequence, esn: kind.esn };
    cipher.seal(&sequence.to_be_bytes(), aad, plaintext, &[], &mut out[8..]);
    out
}

#[test]
fn trailers_are_checked() {
    let pair = Pair::new(Kind::PLAIN);
    let packet = sample::udp(false, (1, 2), &[5; 4]);
    let sealed = |sequence, tail: &[u8]| {
        sealed_by_hand(Kind::PLAIN, sequence, &[&packet[..], tail].concat())
    };
    assert_eq!(pair.open(&sealed(1, &[1, 2, 2, 4])), Ok(packet.clone()));
    // Padding for traffic flow confidentiality comes before the padding proper.
    assert_eq!(pair.open(&sealed(2, &[9, 9, 9, 9, 1, 2, 2, 4])), Ok(packet.clone()));
    assert_eq!(pair.open(&sealed(3, &[1, 3, 2, 4])), Err(Discard::Padding));
    assert_eq!(pair.open(&sealed(4, &[0, 0, 255, 4])), Err(Discard::Padding));
    assert_eq!(pair.open(&sealed(5, &[1, 2, 2, 59])), Err(Discard::Dummy));
    assert_eq!(pair.open(&sealed(6, &[1, 2, 2, 41])), Err(Discard::InboundMalformed));
    assert_eq!(pair.open(&sealed(7, &[1, 2, 2, 6])), Err(Discard::NextHeader));
    assert_eq!(pair.open(&sealed_by_hand(Kind::PLAIN, 8, &[0])), Err(Discard::InboundTruncated));
    assert_eq!(pair.open(&sealed_by_hand(Kind::PLAIN, 9, &[0, 4])), Err(Discard::InboundMalformed));
    assert_eq!(pair.open(&[0, 0, 0]), Err(Discard::InboundTruncated));
    assert_eq!(pair.open(&[0; 100]), Err(Discard::UnknownSpi));
    let refused = pair.receiver.clone().usage(IN).expect("installed").refused;
    assert_eq!(refused, 6);
    assert_eq!(pair.receiver.counters().values().sum::<u64>(), 9);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A packet that is changed, cut or made up without the key, or a replay, changes nothing at the receiver. The
    /// genuine packet still passes afterwards.
    #[test]
    fn hostile_datagrams_change_nothing(
        suite in 0..SUITES.len(), esn: bool, transport: bool, len in 0..300usize,
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 0..8u8), 1..40),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 1..20),
        junk: Vec<u8>,
    ) {
        let mode = if transport { Mode::Transport } else { Mode::Tunnel };
        let kind = Kind { suite: SUITES[suite], esn, mode, ..Kind::PLAIN };
        let pair = Pair::new(kind);
        let packet = sample::udp(false, (1, 2), &sample::payload(len));
        let seen = pair.protect(&packet).expect("an SA");
        pair.open(&seen).expect("authentic");
        let fresh = pair.protect(&packet).expect("an SA");
        let before = pair.inbound().snapshot();

        let mut queue = ReceiveQueue::new(0, Coalesce { tcp: true, udp: true });
        let mut hostile = vec![seen, junk.clone(), [&SPI.to_be_bytes()[..], &junk].concat()];
        for (index, bit) in flips {
            let mut datagram = fresh.clone();
            datagram[index.index(fresh.len())] ^= 1 << bit;
            hostile.push(datagram);
        }
        hostile.extend(cuts.iter().map(|cut| fresh[..cut.index(fresh.len())].to_vec()));
        for datagram in &hostile {
            prop_assert!(pair.receiver.decapsulate(pair.now, datagram, kind.arrival(), &mut queue).is_err());
        }
        prop_assert!(queue.is_empty());
        prop_assert_eq!(pair.inbound().snapshot(), before);
        prop_assert_eq!(pair.receiver.counters().values().sum::<u64>(), hostile.len() as u64);
        prop_assert!(pair.receiver.take_notices().is_empty());
        prop_assert!(pair.open(&fresh).is_ok());
    }

    /// A forged packet in the middle of a super-packet being put together leaves no mark on it.
    #[test]
    fn forgeries_between_segments_leave_the_super_packet_alone(at in 0..9usize, flip: prop::sample::Index) {
        let pair = Pair::new(Kind::PLAIN);
        let data = sample::payload(9 * 500);
        let packet = sample::tcp(false, 7, ACK, &[1; 12], &data);
        let gso = Gso { segmentation: Segmentation::Tcp, segment_len: 500, ..Gso::NONE };
        let mut sent = pair.protect_all(&packet, gso).expect("an SA");
        let mut forged = sent[at].clone();
        let flip = 8 + flip.index(forged.len() - 8);
        forged[flip] ^= 0x40;
        sent.insert(at, forged);
        let mut queue = ReceiveQueue::new(0, Coalesce { tcp: true, udp: true });
        for datagram in &sent {
            _ = pair.receiver.decapsulate(pair.now, datagram, Kind::PLAIN.arrival(), &mut queue);
        }
        let packets: Vec<_> = queue.packets().collect();
        prop_assert_eq!(packets.len(), 1);
        prop_assert!(packets[0].0[52..] == data);
        prop_assert_eq!(pair.count(Discard::Forged), 1);
    }
}
