//! Fragments as octets (RFC 7383 §2.5): a message that is cut apart comes together again, and no input can cause a
//! panic.

use crypto::{Cipher, Provider, Suite};
use ike::wire::fragment::{Cut, Place, open, place, seal};
use ike::wire::header::{Header, IkeSpi};
use ike::wire::payload::{Notify, Payload};
use ike::wire::protected::{self, Content, OpenError};
use ike::wire::registry::*;
use policy::{Integrity, KeyBits, Secret};
use proptest::collection::vec;
use proptest::prelude::*;

const GCM: Suite = Suite::AesGcm16(KeyBits::B128);
const CBC: Suite = Suite::AesCbcMac(KeyBits::B256, Integrity::HmacSha2_256_128);

fn cipher(suite: Suite) -> Box<dyn Cipher> {
    let key = (0..suite.key_material_len()).map(|i| i as u8).collect();
    Provider::default().cipher(suite, &Secret::new(key)).expect("it has every suite")
}

fn header() -> Header {
    Header {
        initiator_spi: IkeSpi(0x0102_0304_0506_0708),
        responder_spi: IkeSpi(0x1112_1314_1516_1718),
        next_payload: PayloadType::NONE,
        exchange: ExchangeType::IKE_AUTH,
        from_initiator: true,
        response: false,
        higher_version: false,
        minor_version: 0,
        message_id: 1,
    }
}

fn payloads(octets: &[u8]) -> Vec<Payload> {
    let notify = Payload::Notify(Notify {
        protocol: ProtocolId::NONE,
        spi: vec![],
        kind: NotifyType::INITIAL_CONTACT,
        data: vec![],
    });
    vec![Payload::VendorId(octets.to_vec()), notify]
}

fn cut(octets: &[u8], room: usize, least: usize, suite: Suite) -> Vec<Vec<u8>> {
    let mut count = 0_u8;
    let next_iv = || {
        count = count.wrapping_add(1);
        vec![count; suite.iv_len()]
    };
    let content = Content::of(&header(), &payloads(octets));
    seal(&header(), &content, Cut { room, least }, suite, cipher(suite).as_ref(), next_iv)
}

fn join(datagrams: &[Vec<u8>], suite: Suite) -> Vec<Payload> {
    let mut whole = Content::of(&header(), &[]);
    for (i, datagram) in datagrams.iter().enumerate() {
        let header = Header::parse(datagram).expect("a header");
        let claimed = place(&header, datagram).expect("well-formed").expect("a fragment");
        let fragment = open(&header, datagram, suite, cipher(suite).as_ref()).expect("authentic");
        assert_eq!(fragment.place, claimed);
        assert_eq!(usize::from(claimed.number), i + 1);
        assert_eq!(usize::from(claimed.total), datagrams.len());
        if i == 0 {
            whole.first = fragment.content.first;
        } else {
            assert_eq!(fragment.content.first, PayloadType::NONE);
        }
        whole.octets.extend_from_slice(&fragment.content.octets);
    }
    whole.read(&header()).expect("what was written")
}

#[test]
fn a_fragment_octet_by_octet() {
    let datagrams = cut(&[0xaa; 100], 120, 1, GCM);
    let total = datagrams.len();
    assert!(total > 1);
    for (i, datagram) in datagrams.iter().enumerate() {
        assert_eq!(datagram[..16], [1, 2, 3, 4, 5, 6, 7, 8, 17, 18, 19, 20, 21, 22, 23, 24]);
        // SKF, version 2.0, IKE_AUTH, from the initiator, message 1.
        assert_eq!(datagram[16..24], [53, 0x20, 35, 0x08, 0, 0, 0, 1]);
        assert_eq!(datagram[24..28], (datagram.len() as u32).to_be_bytes());
        // The vendor ID is what the first fragment begins with.
        assert_eq!(datagram[28..30], [if i == 0 { 43 } else { 0 }, 0]);
        assert_eq!(datagram[30..32], (datagram.len() as u16 - 28).to_be_bytes());
        assert_eq!(datagram[32..34], (i as u16 + 1).to_be_bytes());
        assert_eq!(datagram[34..36], (total as u16).to_be_bytes());
        // Each has an IV of its own.
        assert_eq!(datagram[36..44], [i as u8 + 1; 8]);
    }
}

#[test]
fn a_message_that_fits_is_not_fragmented() {
    let [whole] = &cut(&[0xaa; 100], 10_000, 1, CBC)[..] else { panic!("one datagram") };
    assert_eq!(cut(&[0xaa; 100], whole.len(), 1, CBC).len(), 1);
    assert_eq!(cut(&[0xaa; 100], whole.len() - 1, 1, CBC).len(), 2);
    let header = Header::parse(whole).expect("a header");
    assert_eq!(place(&header, whole).expect("well-formed"), None);
    let read = protected::open(&header, whole, CBC, cipher(CBC).as_ref()).expect("authentic");
    assert_eq!(read, payloads(&[0xaa; 100]));
}

#[test]
fn a_fragment_is_no_message_and_a_message_no_fragment() {
    for (room, suite) in [(160, GCM), (160, CBC), (160, Suite::ChaCha20Poly1305)] {
        for datagram in cut(&[1; 300], room, 1, suite) {
            let header = Header::parse(&datagram).expect("a header");
            let opened = protected::open(&header, &datagram, suite, cipher(suite).as_ref());
            assert!(matches!(opened, Err(OpenError::NotAuthentic(_))));
        }
        let [whole] = &cut(&[1; 300], 10_000, 1, suite)[..] else { panic!("one datagram") };
        let header = Header::parse(whole).expect("a header");
        let opened = open(&header, whole, suite, cipher(suite).as_ref());
        assert!(matches!(opened, Err(OpenError::NotAuthentic(_))));
    }
}

#[test]
fn impossible_places_are_refused_before_anything_is_opened() {
    let datagram = cut(&[7; 200], 160, 1, GCM).remove(0);
    for (number, total) in [(0, 0), (0, 3), (4, 3), (1, 0)] {
        let mut datagram = datagram.clone();
        datagram[32..34].copy_from_slice(&u16::to_be_bytes(number));
        datagram[34..36].copy_from_slice(&u16::to_be_bytes(total));
        let header = Header::parse(&datagram).expect("a header");
        assert!(matches!(place(&header, &datagram), Err(OpenError::NotAuthentic(_))));
        let opened = open(&header, &datagram, GCM, cipher(GCM).as_ref());
        assert!(matches!(opened, Err(OpenError::NotAuthentic(_))));
    }
}

proptest! {
    #[test]
    fn a_fragmented_message_comes_together(
        octets in vec(any::<u8>(), 0..3000),
        room in 100_usize..1500,
        least in 2_usize..20,
        cbc in any::<bool>(),
    ) {
        let suite = if cbc { CBC } else { GCM };
        let datagrams = cut(&octets, room, least, suite);
        prop_assert!(datagrams.len() >= least);
        prop_assert!(datagrams.iter().all(|d| d.len() <= room.max(140)), "none is too long");
        prop_assert_eq!(join(&datagrams, suite), payloads(&octets));
    }

    #[test]
    fn no_fragment_is_longer_than_there_is_room(
        octets in vec(any::<u8>(), 500..3000),
        room in 120_usize..400,
        cbc in any::<bool>(),
    ) {
        let suite = if cbc { CBC } else { GCM };
        let datagrams = cut(&octets, room, 1, suite);
        prop_assert!(datagrams.iter().all(|d| d.len() <= room));
        // And none is needlessly short: with one fragment less, they would not fit.
        let inside = room - 36 - suite.iv_len() - suite.icv_len();
        let inside = inside / suite.block_len() * suite.block_len() - 1;
        let content = Content::of(&header(), &payloads(&octets)).octets.len();
        prop_assert_eq!(datagrams.len(), content.div_ceil(inside));
    }

    #[test]
    fn any_flipped_bit_is_noticed(bit in any::<prop::sample::Index>(), cbc in any::<bool>()) {
        let suite = if cbc { CBC } else { GCM };
        let mut datagram = cut(&[3; 300], 200, 1, suite).remove(1);
        let bit = bit.index(datagram.len() * 8);
        datagram[bit / 8] ^= 1 << (bit % 8);
        if let Ok(header) = Header::parse(&datagram) {
            let opened = open(&header, &datagram, suite, cipher(suite).as_ref());
            prop_assert!(matches!(opened, Err(OpenError::NotAuthentic(_))), "bit {bit}");
        }
    }

    #[test]
    fn truncated_fragments_are_refused(len in any::<prop::sample::Index>(), cbc in any::<bool>()) {
        let suite = if cbc { CBC } else { GCM };
        let mut datagram = cut(&[3; 300], 200, 1, suite).remove(0);
        datagram.truncate(28 + len.index(datagram.len() - 28));
        let len = datagram.len();
        datagram[24..28].copy_from_slice(&(len as u32).to_be_bytes());
        if len >= 32 {
            datagram[30..32].copy_from_slice(&(len as u16 - 28).to_be_bytes());
        }
        let header = Header::parse(&datagram).expect("the length fits");
        let opened = open(&header, &datagram, suite, cipher(suite).as_ref());
        prop_assert!(matches!(opened, Err(OpenError::NotAuthentic(_))));
    }

    #[test]
    fn junk_is_refused(junk in vec(any::<u8>(), 0..200), shaped in any::<bool>()) {
        let mut datagram = cut(&[3; 300], 200, 1, GCM).remove(0);
        datagram.truncate(28);
        datagram.extend(&junk);
        let len = datagram.len();
        datagram[24..28].copy_from_slice(&(len as u32).to_be_bytes());
        if shaped && len >= 36 {
            datagram[30..32].copy_from_slice(&(len as u16 - 28).to_be_bytes());
            datagram[32..36].copy_from_slice(&[0, 1, 0, 2]);
        }
        let header = Header::parse(&datagram).expect("the length fits");
        if let Ok(Some(Place { number, total })) = place(&header, &datagram) {
            prop_assert!(0 < number && number <= total);
        }
        prop_assert!(open(&header, &datagram, GCM, cipher(GCM).as_ref()).is_err());
    }
}
