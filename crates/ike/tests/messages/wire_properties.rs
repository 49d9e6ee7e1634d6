//! Properties of all messages: a message that is written reads back the same, and no input can cause a panic.

use crypto::{Aad, Cipher, Provider, Suite};
use ike::wire::header::{Header, IkeSpi};
use ike::wire::message::{decode, encode};
use ike::wire::payload::{
    Delete, Identification, Notify, Payload, Proposal, TrafficSelector, Transform,
};
use ike::wire::protected::{OpenError, open, seal};
use ike::wire::registry::*;
use policy::{AddressRange, Integrity, KeyBits, PortRange, Secret, Selector};
use proptest::collection::vec;
use proptest::prelude::*;
use std::net::IpAddr;

fn suites() -> Vec<Suite> {
    use Integrity::*;
    let bits = [KeyBits::B128, KeyBits::B192, KeyBits::B256];
    let hashes = [HmacSha1_96, HmacSha2_256_128, HmacSha2_384_192, HmacSha2_512_256];
    let cbc = bits.into_iter().flat_map(|k| hashes.map(|i| Suite::AesCbcMac(k, i)));
    bits.map(Suite::AesGcm16).into_iter().chain([Suite::ChaCha20Poly1305]).chain(cbc).collect()
}

fn cipher(suite: Suite) -> Box<dyn Cipher> {
    let key = (0..suite.key_material_len()).map(|i| i as u8).collect();
    Provider::default().cipher(suite, &Secret::new(key)).expect("it has every suite")
}

prop_compose! {
    fn header()(
        initiator_spi in 1..=u64::MAX,
        responder_spi in any::<u64>(),
        exchange in any::<u8>(),
        from_initiator in any::<bool>(),
        response in any::<bool>(),
        message_id in any::<u32>(),
    ) -> Header {
        Header {
            initiator_spi: IkeSpi(initiator_spi),
            responder_spi: IkeSpi(responder_spi),
            next_payload: PayloadType::NONE,
            exchange: ExchangeType(exchange),
            from_initiator,
            response,
            higher_version: false,
            minor_version: 0,
            message_id,
        }
    }
}

prop_compose! {
    fn transform()(
        kind in any::<u8>(),
        id in any::<u16>(),
        key_length in any::<Option<u16>>(),
        unknown_attribute in any::<bool>(),
    ) -> Transform {
        Transform { kind: TransformType(kind), id, key_length, unknown_attribute }
    }
}

fn proposal() -> impl Strategy<Value = Proposal> {
    let spi = prop_oneof![
        Just((ProtocolId::IKE, 0)),
        Just((ProtocolId::IKE, 8)),
        Just((ProtocolId::AH, 4)),
        Just((ProtocolId::ESP, 4)),
        (4..=255_u8, 0..=255_usize).prop_map(|(protocol, len)| (ProtocolId(protocol), len)),
    ]
    .prop_flat_map(|(protocol, len)| (Just(protocol), vec(any::<u8>(), len)));
    (spi, vec(transform(), 1..20)).prop_map(|((protocol, spi), transforms)| Proposal {
        number: 0,
        protocol,
        spi,
        transforms,
    })
}

fn proposals() -> impl Strategy<Value = Vec<Proposal>> {
    vec(proposal(), 1..6).prop_map(|mut proposals| {
        for (number, proposal) in (1..).zip(&mut proposals) {
            proposal.number = number;
        }
        proposals
    })
}

fn octets(max: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..=max)
}

fn identification() -> impl Strategy<Value = Identification> {
    (any::<u8>(), octets(40)).prop_map(|(kind, data)| Identification { kind: IdType(kind), data })
}

fn notify() -> impl Strategy<Value = Notify> {
    (any::<u8>(), octets(255), any::<u16>(), octets(300)).prop_map(|(protocol, spi, kind, data)| {
        let protocol = if spi.is_empty() { ProtocolId::NONE } else { ProtocolId(protocol) };
        Notify { protocol, spi, kind: NotifyType(kind), data }
    })
}

fn delete() -> impl Strategy<Value = Delete> {
    let protocol = prop_oneof![Just(ProtocolId::AH), Just(ProtocolId::ESP)];
    prop_oneof![
        Just(Delete::IkeSa),
        (protocol, vec(any::<u32>(), 0..20))
            .prop_map(|(protocol, spis)| Delete::ChildSas { protocol, spis }),
    ]
}

fn addresses() -> impl Strategy<Value = AddressRange> {
    let range = |a: IpAddr, b: IpAddr| AddressRange::new(a.min(b), a.max(b)).expect("one family");
    prop_oneof![
        any::<[[u8; 4]; 2]>().prop_map(move |[a, b]| range(a.into(), b.into())),
        any::<[[u8; 16]; 2]>().prop_map(move |[a, b]| range(a.into(), b.into())),
    ]
}

fn selectors() -> impl Strategy<Value = Vec<TrafficSelector>> {
    let range = (any::<u8>(), addresses(), any::<[u16; 2]>()).prop_map(
        |(protocol, addresses, [one, other])| {
            let ports = PortRange::new(one.min(other), one.max(other)).expect("in order");
            TrafficSelector::Range(Selector { protocol, addresses, ports })
        },
    );
    let unsupported = any::<u8>().prop_map(|kind| TrafficSelector::Unsupported { kind });
    vec(prop_oneof![3 => range, 1 => unsupported], 1..8)
}

fn payload() -> impl Strategy<Value = Payload> {
    let other = prop_oneof![
        prop_oneof![Just(PayloadType::CP), Just(PayloadType::EAP)],
        prop_oneof![1..=32_u8, 49..=52_u8, 54..=255_u8].prop_map(PayloadType),
    ];
    prop_oneof![
        proposals().prop_map(Payload::Sa),
        (any::<u16>(), octets(300))
            .prop_map(|(group, data)| Payload::KeyExchange { group: GroupId(group), data }),
        identification().prop_map(Payload::IdInitiator),
        identification().prop_map(Payload::IdResponder),
        (any::<u8>(), octets(300)).prop_map(|(encoding, data)| Payload::Certificate {
            encoding: CertEncoding(encoding),
            data
        }),
        (any::<u8>(), octets(300)).prop_map(|(encoding, authorities)| {
            Payload::CertificateRequest { encoding: CertEncoding(encoding), authorities }
        }),
        (any::<u8>(), octets(300))
            .prop_map(|(method, data)| Payload::Auth { method: AuthMethod(method), data }),
        vec(any::<u8>(), 16..=256).prop_map(Payload::Nonce),
        notify().prop_map(Payload::Notify),
        delete().prop_map(Payload::Delete),
        octets(50).prop_map(Payload::VendorId),
        selectors().prop_map(Payload::TsInitiator),
        selectors().prop_map(Payload::TsResponder),
        (other, octets(100)).prop_map(|(kind, data)| Payload::Other { kind, data }),
    ]
}

fn payloads() -> impl Strategy<Value = Vec<Payload>> {
    vec(payload(), 0..12)
}

fn any_suite() -> impl Strategy<Value = Suite> {
    proptest::sample::select(suites())
}

/// Makes the length field right, so that more than the header's check of it is reached.
fn with_length(mut message: Vec<u8>) -> Vec<u8> {
    if message.len() >= Header::LEN {
        let len = u32::try_from(message.len()).expect("small");
        message[24..28].copy_from_slice(&len.to_be_bytes());
    }
    message
}

/// Reads octets in every way there is; an accepted message must survive being written again.
fn read_everything(message: &[u8]) {
    let Ok(header) = Header::parse(message) else { return };
    if let Ok(payloads) = decode(&header, message) {
        let again = encode(&header, &payloads);
        let header = Header::parse(&again).expect("what is written has a header");
        assert_eq!(decode(&header, &again), Ok(payloads));
    }
    for suite in [
        Suite::AesGcm16(KeyBits::B128),
        Suite::ChaCha20Poly1305,
        Suite::AesCbcMac(KeyBits::B256, Integrity::HmacSha2_512_256),
    ] {
        let opened = open(&header, message, suite, &*cipher(suite));
        assert!(matches!(opened, Err(OpenError::NotAuthentic(_))), "{opened:?}");
    }
}

proptest! {
    #[test]
    fn a_written_message_is_read_back(header in header(), payloads in payloads()) {
        let message = encode(&header, &payloads);
        let parsed = Header::parse(&message).expect("what is written has a header");
        let next_payload = payloads.first().map_or(PayloadType::NONE, Payload::kind);
        prop_assert_eq!(parsed, Header { next_payload, ..header });
        prop_assert_eq!(decode(&parsed, &message), Ok(payloads));
    }

    #[test]
    fn a_sealed_message_is_opened(
        header in header(),
        payloads in payloads(),
        suite in any_suite(),
        iv in any::<[u8; 16]>(),
    ) {
        let cipher = cipher(suite);
        let message = seal(&header, &payloads, suite, &*cipher, &iv[..suite.iv_len()]);
        let parsed = Header::parse(&message).expect("what is written has a header");
        prop_assert_eq!(parsed, Header { next_payload: PayloadType::SK, ..header });
        prop_assert_eq!(open(&parsed, &message, suite, &*cipher), Ok(payloads));
    }

    #[test]
    fn a_change_anywhere_in_a_sealed_message_is_noticed(
        header in header(),
        payloads in payloads(),
        suite in any_suite(),
        at in any::<proptest::sample::Index>(),
        change in 1..=255_u8,
        cut in any::<proptest::sample::Index>(),
    ) {
        let cipher = cipher(suite);
        let message = seal(&header, &payloads, suite, &*cipher, &[9; 16][..suite.iv_len()]);
        let mut changed = message.clone();
        changed[at.index(message.len())] ^= change;
        let cut = with_length(message[..cut.index(message.len())].to_vec());
        for forged in [changed, cut] {
            if let Ok(header) = Header::parse(&forged) {
                let opened = open(&header, &forged, suite, &*cipher);
                prop_assert!(matches!(opened, Err(OpenError::NotAuthentic(_))), "{:?}", opened);
            }
        }
    }

    /// Authentic junk: never a panic, never mistaken for a forgery.
    #[test]
    fn any_octets_inside_sk_are_read_or_refused(
        header in header(),
        first in prop_oneof![any::<u8>(), 33..=48_u8],
        blocks in vec(any::<[u8; 16]>(), 0..30),
        suite in any_suite(),
    ) {
        let plaintext = blocks.concat();
        let cipher = cipher(suite);
        // The frame of a message that has the right length, from the function under test; its content is replaced.
        let body = suite.iv_len() + plaintext.len() + suite.icv_len();
        let mut message = encode(&header, &[Payload::VendorId(vec![0; body])]);
        message[16] = PayloadType::SK.0;
        message[28] = first;
        let (aad, sealed) = message.split_at_mut(Header::LEN + 4);
        cipher.seal(&[9; 16][..suite.iv_len()], Aad::Octets(aad), &plaintext, &[], sealed);
        let parsed = Header::parse(&message).expect("what is written has a header");
        let opened = open(&parsed, &message, suite, &*cipher);
        prop_assert!(!matches!(opened, Err(OpenError::NotAuthentic(_))), "{:?}", opened);
    }

    #[test]
    fn random_octets_never_panic(message in octets(400)) {
        read_everything(&message);
    }

    #[test]
    fn random_payloads_never_panic(
        header in header(),
        first in prop_oneof![any::<u8>(), 33..=48_u8],
        body in octets(400),
    ) {
        let mut message = encode(&header, &[]);
        message[16] = first;
        message.extend_from_slice(&body);
        read_everything(&with_length(message));
    }

    /// A payload of a known type with any content.
    #[test]
    fn a_random_body_of_any_payload_never_panics(
        header in header(),
        kind in 33..=48_u8,
        body in octets(200),
    ) {
        let mut message = encode(&header, &[Payload::VendorId(body)]);
        message[16] = kind;
        read_everything(&message);
    }

    #[test]
    fn changed_and_cut_messages_never_panic(
        header in header(),
        payloads in payloads(),
        changes in vec((any::<proptest::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<Option<proptest::sample::Index>>(),
    ) {
        let mut message = encode(&header, &payloads);
        for (at, value) in changes {
            let at = at.index(message.len());
            message[at] = value;
        }
        if let Some(cut) = cut {
            message.truncate(cut.index(message.len()));
        }
        read_everything(&message);
        read_everything(&with_length(message));
    }
}

#[test]
fn every_bit_of_a_sealed_message_counts() {
    let header = Header {
        initiator_spi: IkeSpi(1),
        responder_spi: IkeSpi(2),
        next_payload: PayloadType::NONE,
        exchange: ExchangeType::INFORMATIONAL,
        from_initiator: false,
        response: true,
        higher_version: false,
        minor_version: 0,
        message_id: 7,
    };
    let payloads = [Payload::Delete(Delete::IkeSa), Payload::VendorId(vec![1; 9])];
    for suite in suites() {
        let cipher = cipher(suite);
        let message = seal(&header, &payloads, suite, &*cipher, &[5; 16][..suite.iv_len()]);
        for bit in 0..message.len() * 8 {
            let mut forged = message.clone();
            forged[bit / 8] ^= 1 << (bit % 8);
            if let Ok(header) = Header::parse(&forged) {
                let opened = open(&header, &forged, suite, &*cipher);
                assert!(matches!(opened, Err(OpenError::NotAuthentic(_))), "{suite} bit {bit}");
            }
        }
        for len in 0..message.len() {
            let cut = with_length(message[..len].to_vec());
            if let Ok(header) = Header::parse(&cut) {
                let opened = open(&header, &cut, suite, &*cipher);
                assert!(matches!(opened, Err(OpenError::NotAuthentic(_))), "{suite} {len} octets");
            }
        }
    }
}
