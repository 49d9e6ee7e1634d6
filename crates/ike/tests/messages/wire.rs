//! Messages octet by octet: what RFC 7296 §3 says they look like, and what is refused.

use crypto::{Aad, Cipher, Provider, Suite};
use ike::wire::header::{Header, IkeSpi};
use ike::wire::message::{decode, encode};
use ike::wire::payload::{
    Delete, Identification, Notify, Payload, Proposal, TrafficSelector, Transform,
};
use ike::wire::protected::{OpenError, open, seal};
use ike::wire::reader::WireError;
use ike::wire::registry::*;
use policy::{
    AddressRange, EspEncryption, Group, Identity, Integrity, KeyBits, PortRange, Prf, Secret,
    Selector,
};
use std::net::IpAddr;

fn header(next_payload: PayloadType) -> Header {
    Header {
        initiator_spi: IkeSpi(0x0102_0304_0506_0708),
        responder_spi: IkeSpi(0x1112_1314_1516_1718),
        next_payload,
        exchange: ExchangeType::IKE_AUTH,
        from_initiator: true,
        response: false,
        higher_version: false,
        minor_version: 0,
        message_id: 5,
    }
}

/// A datagram with these octets after the header.
fn datagram(next_payload: u8, body: &[u8]) -> Vec<u8> {
    let mut out = hex("0102030405060708 1112131415161718");
    out.extend_from_slice(&[next_payload, 0x20, 35, 0x08, 0, 0, 0, 5]);
    out.extend_from_slice(&u32::try_from(28 + body.len()).expect("small").to_be_bytes());
    out.extend_from_slice(body);
    out
}

/// Reads a message of one payload of which only the body is given.
fn decode_one(kind: PayloadType, body: &str) -> Result<Payload, WireError> {
    let body = hex(body);
    let mut payload = vec![0, 0];
    payload.extend_from_slice(&u16::try_from(4 + body.len()).expect("small").to_be_bytes());
    payload.extend_from_slice(&body);
    let message = datagram(kind.0, &payload);
    let mut payloads = decode(&Header::parse(&message)?, &message)?;
    assert_eq!(payloads.len(), 1);
    Ok(payloads.remove(0))
}

/// Checks that a payload is written as these octets, and read from them.
fn is_written_as(payload: Payload, body: &str) {
    let kind = payload.kind();
    let message = encode(&header(PayloadType::NONE), std::slice::from_ref(&payload));
    let body_octets = hex(body);
    assert_eq!(message[28..30], [0, 0], "{kind}");
    assert_eq!(usize::from(message[31]), 4 + body_octets.len(), "{kind}");
    assert_eq!(message[32..], body_octets, "{kind}");
    assert_eq!(decode_one(kind, body), Ok(payload), "{kind}");
}

fn malformed<T: std::fmt::Debug>(result: Result<T, WireError>, what: &str) {
    match result {
        Err(WireError::Malformed(_) | WireError::Truncated(_)) => {}
        other => panic!("{what}: {other:?}"),
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|c| !c.is_ascii_whitespace()).collect();
    digits
        .chunks(2)
        .map(|pair| {
            let pair = std::str::from_utf8(pair).expect("digits");
            u8::from_str_radix(pair, 16).expect("digits")
        })
        .collect()
}

#[test]
fn the_header_is_read_and_written() {
    let message = datagram(33, &[]);
    let parsed = Header::parse(&message).expect("a header");
    assert_eq!(parsed, header(PayloadType::SA));
    // The first payload's type comes from the payloads.
    assert_eq!(encode(&parsed, &[])[..], datagram(0, &[]));

    let mut answer = message.clone();
    answer[19] = 0x20;
    let parsed = Header::parse(&answer).expect("a header");
    assert!(parsed.response && !parsed.from_initiator && !parsed.higher_version);
    assert_eq!(encode(&parsed, &[])[19], 0x20);

    // RFC 7296 §2.5, §3.1: minor version and V flag are no reason to refuse, and are never sent; reserved bits are
    // ignored.
    let mut newer = message.clone();
    (newer[17], newer[19]) = (0x2f, 0xff);
    let parsed = Header::parse(&newer).expect("a header");
    assert_eq!((parsed.minor_version, parsed.higher_version), (15, true));
    assert_eq!(encode(&parsed, &[])[17], 0x20);
    assert_eq!(encode(&parsed, &[])[19], 0x28);
}

#[test]
fn headers_of_other_versions_or_lengths_are_refused() {
    let message = datagram(0, &[]);
    for (version, error) in [(0x30, (3, 0)), (0x10, (1, 0)), (0x0f, (0, 15)), (0xff, (15, 15))] {
        let mut other = message.clone();
        other[17] = version;
        assert_eq!(Header::parse(&other), Err(WireError::Version(error.0, error.1)));
        // A peer that speaks another version is told so, whatever that version does with the length.
        other.push(0);
        assert_eq!(Header::parse(&other), Err(WireError::Version(error.0, error.1)));
    }
    for len in 0..28 {
        assert_eq!(Header::parse(&message[..len]), Err(WireError::Truncated("IKE header")));
    }
    for length in [0_u32, 27, 29, u32::MAX] {
        let mut other = message.clone();
        other[24..28].copy_from_slice(&length.to_be_bytes());
        malformed(Header::parse(&other), "length");
    }
    let mut longer = message.clone();
    longer.push(0);
    malformed(Header::parse(&longer), "octets after the message");
    let mut nobody = message;
    nobody[..8].fill(0);
    malformed(Header::parse(&nobody), "no initiator SPI");
}

fn transform(kind: TransformType, id: u16, key_length: Option<u16>) -> Transform {
    Transform { kind, id, key_length, unknown_attribute: false }
}

#[test]
fn an_sa_payload_is_proposals_of_transforms_of_attributes() {
    let encr = transform(
        TransformType::ENCR,
        EspEncryption::AesGcm16(KeyBits::B256).row().number,
        Some(256),
    );
    let prf = transform(TransformType::PRF, Prf::HmacSha2_256.row().number, None);
    let dh = transform(TransformType::KE, GroupId::from(Group::Curve25519).0, None);
    let esn = transform(TransformType::ESN, 0, None);
    is_written_as(
        Payload::Sa(vec![
            Proposal {
                number: 1,
                protocol: ProtocolId::IKE,
                spi: vec![],
                transforms: vec![encr, prf, dh],
            },
            Proposal {
                number: 2,
                protocol: ProtocolId::ESP,
                spi: vec![0xc0, 1, 2, 3],
                transforms: vec![esn],
            },
        ]),
        "02 00 0024 01 01 00 03
            03 00 000c 01 00 0014 800e 0100
            03 00 0008 02 00 0005
            00 00 0008 04 00 001f
         00 00 0014 02 03 04 01 c0010203
            00 00 0008 05 00 0000",
    );
}

#[test]
fn sa_payloads_whose_counts_lengths_or_flags_disagree_are_refused() {
    let sa = |body: &str| decode_one(PayloadType::SA, body);
    assert!(sa("00 00 0010 01 01 00 01   00 00 0008 02 00 0005").is_ok());
    for (what, body) in [
        ("no proposal", ""),
        ("proposal beyond the payload", "00 00 0011 01 01 00 01   00 00 0008 02 00 0005"),
        ("proposal shorter than its header", "00 00 0003 01 01 00 01   00 00 0008 02 00 0005"),
        ("proposal without its transforms", "00 00 0008 01 01 00 01   00 00 0008 02 00 0005"),
        ("no transform", "00 00 0008 01 01 00 00"),
        ("fewer transforms than counted", "00 00 0010 01 01 00 02   00 00 0008 02 00 0005"),
        ("more, says the flag", "00 00 0010 01 01 00 01   03 00 0008 02 00 0005"),
        (
            "last, says the flag",
            "00 00 0018 01 01 00 02 00 00 0008 02 00 0005 00 00 0008 02 00 0005",
        ),
        (
            "more transforms than counted",
            "00 00 0018 01 01 00 01 00 00 0008 02 00 0005 00 00 0008 02 00 0005",
        ),
        ("flag of a proposal in a transform", "00 00 0010 01 01 00 01   02 00 0008 02 00 0005"),
        ("flag of a transform in a proposal", "03 00 0010 01 01 00 01   00 00 0008 02 00 0005"),
        ("more proposals, says the flag", "02 00 0010 01 01 00 01   00 00 0008 02 00 0005"),
        ("octets after the last proposal", "00 00 0010 01 01 00 01   00 00 0008 02 00 0005 00"),
        ("transform beyond the proposal", "00 00 0010 01 01 00 01   00 00 0009 02 00 0005"),
        ("transform shorter than its header", "00 00 0010 01 01 00 01   00 00 0007 02 00 0005"),
        ("half an attribute", "00 00 0012 01 01 00 01   00 00 000a 02 00 0005 800e"),
        (
            "attribute beyond the transform",
            "00 00 0014 01 01 00 01   00 00 000c 02 00 0005 4000 0001",
        ),
        ("two key lengths", "00 00 0018 01 01 00 01   00 00 0010 01 00 000c 800e 0080 800e 0100"),
        ("ESP with an IKE SPI", "00 00 0018 01 03 08 01 0000000000000000 00 00 0008 05 00 0000"),
        ("ESP without SPI", "00 00 0010 01 03 00 01   00 00 0008 05 00 0000"),
        ("IKE with an ESP SPI", "00 00 0014 01 01 04 01 00000000 00 00 0008 02 00 0005"),
        ("proposal number 0", "00 00 0010 00 01 00 01   00 00 0008 02 00 0005"),
        (
            "the same number twice",
            "02 00 0010 01 01 00 01 00 00 0008 02 00 0005 00 00 0010 01 01 00 01 00 00 0008 02 00 0005",
        ),
    ] {
        malformed(sa(body), what);
    }
    // A whole IKE_SA_INIT of 40 octets whose proposal claims more than its payload has.
    let short = datagram(33, &hex("0000 000c 00 00 0040 01 01 00 04"));
    malformed(decode(&header(PayloadType::SA), &short), "40 octets");
}

#[test]
fn proposals_are_bounded() {
    let proposals = |count: u8| -> Vec<Proposal> {
        (1..=count)
            .map(|number| Proposal {
                number,
                protocol: ProtocolId::IKE,
                spi: vec![],
                transforms: vec![transform(TransformType::PRF, 5, None)],
            })
            .collect()
    };
    let read = |count| {
        let message = encode(&header(PayloadType::NONE), &[Payload::Sa(proposals(count))]);
        decode(&header(PayloadType::SA), &message)
    };
    assert_eq!(read(64), Ok(vec![Payload::Sa(proposals(64))]));
    assert_eq!(read(65), Err(WireError::TooMany("proposals")));
}

/// RFC 7296 §3.3.6: such a transform must not be chosen, but it does no harm to the others.
#[test]
fn a_transform_with_an_unknown_attribute_says_so() {
    for (what, attribute, key_length) in [
        ("short form", "8001 0000", None),
        ("long form", "4001 0000", None),
        ("long form with a value, then a key length", "0009 0003 aabbcc 800e 00c0", Some(192)),
        ("key length in the long form", "000e 0002 0100", None),
    ] {
        let octets = hex(attribute).len();
        let body = format!(
            "00 00 {:04x} 01 01 00 01  00 00 {:04x} 01 00 000c {attribute}",
            16 + octets,
            8 + octets
        );
        let expected = Transform {
            unknown_attribute: true,
            ..transform(
                TransformType::ENCR,
                EspEncryption::AesCbc(KeyBits::B128).row().number,
                key_length,
            )
        };
        match decode_one(PayloadType::SA, &body) {
            Ok(Payload::Sa(proposals)) => assert_eq!(proposals[0].transforms, [expected], "{what}"),
            other => panic!("{what}: {other:?}"),
        }
    }
}

#[test]
fn simple_payloads_are_read_and_written() {
    is_written_as(
        Payload::KeyExchange { group: GroupId::from(Group::Curve25519), data: vec![1, 2, 3] },
        "001f 0000 010203",
    );
    is_written_as(
        Payload::Auth { method: AuthMethod::SHARED_KEY_MIC, data: vec![9; 3] },
        "02 000000 090909",
    );
    is_written_as(Payload::Nonce(vec![7; 16]), &"07".repeat(16));
    is_written_as(Payload::VendorId(vec![]), "");
    let x509 = CertEncoding::X509_SIGNATURE;
    is_written_as(Payload::Certificate { encoding: x509, data: vec![5, 6] }, "04 0506");
    let request = Payload::CertificateRequest { encoding: x509, authorities: vec![7; 20] };
    is_written_as(request, &format!("04 {}", "07".repeat(20)));
    is_written_as(Payload::Other { kind: PayloadType::CP, data: vec![4, 5] }, "0405");
    is_written_as(Payload::Other { kind: PayloadType(200), data: vec![4, 5] }, "0405");
    is_written_as(
        Payload::IdInitiator(Identification { kind: IdType::FQDN, data: b"a.b".to_vec() }),
        "02 000000 612e62",
    );
    // Reserved fields are ignored.
    assert_eq!(
        decode_one(PayloadType::KE, "001f ffff 01"),
        Ok(Payload::KeyExchange { group: GroupId::from(Group::Curve25519), data: vec![1] })
    );
    for (kind, body) in [
        (PayloadType::KE, "001f 00"),
        (PayloadType::AUTH, "02 0000"),
        (PayloadType::IDI, "02 0000"),
        (PayloadType::IDR, ""),
        (PayloadType::CERT, ""),
        (PayloadType::CERTREQ, ""),
        (PayloadType::NOTIFY, "00 00 40"),
        (PayloadType::DELETE, "01 00 00"),
        (PayloadType::TSI, "01 0000"),
        (PayloadType::TSR, ""),
    ] {
        malformed(decode_one(kind, body), body);
    }
}

#[test]
fn a_nonce_has_16_to_256_octets() {
    for len in [16, 17, 256] {
        let nonce = Payload::Nonce(vec![1; len]);
        assert_eq!(decode_one(PayloadType::NONCE, &"01".repeat(len)), Ok(nonce));
    }
    for len in [0, 15, 257] {
        malformed(decode_one(PayloadType::NONCE, &"01".repeat(len)), "nonce");
    }
}

#[test]
fn a_notification_has_a_protocol_only_with_an_spi() {
    let cookie = Notify::new(NotifyType::COOKIE, vec![1, 2]);
    is_written_as(Payload::Notify(cookie.clone()), "00 00 4006 0102");
    let rekey = Notify {
        protocol: ProtocolId::ESP,
        spi: vec![1, 2, 3, 4],
        kind: NotifyType::REKEY_SA,
        data: vec![],
    };
    is_written_as(Payload::Notify(rekey), "03 04 4009 01020304");
    // RFC 7296 §3.10: without SPI it is sent as zero and ignored on receipt.
    assert_eq!(
        decode_one(PayloadType::NOTIFY, "01 00 4006 0102"),
        Ok(Payload::Notify(cookie.clone()))
    );
    let sent = encode(
        &header(PayloadType::NONE),
        &[Payload::Notify(Notify { protocol: ProtocolId::IKE, ..cookie })],
    );
    assert_eq!(sent[32], 0);
    malformed(decode_one(PayloadType::NOTIFY, "03 04 4009 010203"), "SPI beyond the payload");
}

#[test]
fn a_delete_names_the_ike_sa_or_child_sas_of_one_protocol() {
    is_written_as(Payload::Delete(Delete::IkeSa), "01 00 0000");
    is_written_as(
        Payload::Delete(Delete::ChildSas { protocol: ProtocolId::ESP, spis: vec![0x0102_0304, 9] }),
        "03 04 0002 01020304 00000009",
    );
    for (what, body) in [
        ("an IKE SA with an SPI", "01 08 0001 0000000000000001"),
        ("an IKE SA counted", "01 00 0001"),
        ("an IKE SA and more", "01 00 0000 00"),
        ("a Child SA with an IKE SPI", "03 08 0001 0000000000000001"),
        ("a Child SA without SPI", "03 00 0000"),
        ("fewer SPIs than counted", "03 04 0002 01020304"),
        ("more SPIs than counted", "03 04 0001 01020304 00000009"),
        ("more than there can be", "03 04 ffff 01020304"),
        ("no such protocol", "07 04 0001 01020304"),
        ("no protocol", "00 00 0000"),
    ] {
        malformed(decode_one(PayloadType::DELETE, body), what);
    }
}

fn selector(protocol: u8, start: &str, end: &str, ports: (u16, u16)) -> TrafficSelector {
    let address = |text: &str| text.parse::<IpAddr>().expect("an address");
    TrafficSelector::Range(Selector {
        protocol,
        addresses: AddressRange::new(address(start), address(end)).expect("a range"),
        ports: PortRange::new(ports.0, ports.1).expect("a range"),
    })
}

#[test]
fn traffic_selectors_are_ranges_of_both_families() {
    is_written_as(
        Payload::TsInitiator(vec![
            selector(0, "10.0.0.0", "10.0.0.255", (0, 65535)),
            selector(6, "2001:db8::", "2001:db8::ffff", (80, 81)),
        ]),
        "02 000000
         07 00 0010 0000 ffff 0a000000 0a0000ff
         08 06 0028 0050 0051 20010db8000000000000000000000000 20010db800000000000000000000ffff",
    );
    is_written_as(
        Payload::TsResponder(vec![TrafficSelector::Unsupported { kind: 9 }]),
        "01 000000 09 00 0004",
    );
    // OPAQUE ports, and a type this implementation does not know, whatever is in it.
    assert_eq!(
        decode_one(
            PayloadType::TSR,
            "02 000000 07 3a 0010 ffff 0000 0a000000 0a0000ff 0a 00 0007 010203"
        ),
        Ok(Payload::TsResponder(vec![
            TrafficSelector::Unsupported { kind: 7 },
            TrafficSelector::Unsupported { kind: 10 }
        ]))
    );
    for (what, body) in [
        ("no selector", "00 000000"),
        ("fewer than counted", "02 000000 07 00 0010 0000 ffff 0a000000 0a0000ff"),
        ("more than counted", "01 000000 09 00 0004 09 00 0004"),
        ("IPv4 of another length", "01 000000 07 00 0014 0000 ffff 0a000000 0a0000ff 00000000"),
        ("IPv4 too short", "01 000000 07 00 000c 0000 ffff 0a000000"),
        ("IPv6 with the length of IPv4", "01 000000 08 00 0010 0000 ffff 0a000000 0a0000ff"),
        ("shorter than its header", "01 000000 09 00 0003"),
        ("beyond the payload", "01 000000 09 00 0005"),
        ("addresses in the wrong order", "01 000000 07 00 0010 0000 ffff 0a0000ff 0a000000"),
        ("ports in the wrong order", "01 000000 07 00 0010 0051 0050 0a000000 0a0000ff"),
    ] {
        malformed(decode_one(PayloadType::TSI, body), what);
    }
}

#[test]
fn identities_have_their_payloads_and_back() {
    for (identity, kind, data) in [
        (Identity::Ipv4([192, 0, 2, 1].into()), IdType::IPV4_ADDR, &[192, 0, 2, 1][..]),
        (
            Identity::Ipv6("2001:db8::1".parse().expect("an address")),
            IdType::IPV6_ADDR,
            &[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        ),
        (Identity::Fqdn("gw.example.org".into()), IdType::FQDN, b"gw.example.org"),
        (Identity::UserFqdn("a@example.org".into()), IdType::RFC822_ADDR, b"a@example.org"),
        (Identity::KeyId(vec![0, 255, 3]), IdType::KEY_ID, &[0, 255, 3]),
    ] {
        let payload = Identification { kind, data: data.to_vec() };
        assert_eq!(Identification::of(&identity), payload);
        assert_eq!(payload.identity(), Some(identity));
    }
    for (kind, data) in [
        (IdType::IPV4_ADDR, &[1, 2, 3][..]),
        (IdType::IPV4_ADDR, &[1, 2, 3, 4, 5]),
        (IdType::IPV6_ADDR, &[1, 2, 3, 4]),
        (IdType::FQDN, b""),
        (IdType::FQDN, b"a\0b"),
        (IdType::FQDN, b"a\x1b[2Jb"),
        (IdType::FQDN, &[0xff, 0xfe]),
        (IdType::RFC822_ADDR, b"a@b\r\n"),
        (IdType::KEY_ID, b""),
        (IdType::DER_ASN1_DN, b"x"),
        (IdType(77), b"x"),
    ] {
        let payload = Identification { kind, data: data.to_vec() };
        assert_eq!(payload.identity(), None, "{payload:?}");
    }
}

/// RFC 7296 §2.5
#[test]
fn the_critical_bit_matters_where_the_type_is_unknown_only() {
    let read = |kind: u8, flags: u8| {
        let message = datagram(kind, &[0, flags, 0, 8, 1, 2, 3, 4]);
        decode(&header(PayloadType(kind)), &message)
    };
    for unknown in [1, 32, 49, 54, 128, 255] {
        let kind = PayloadType(unknown);
        let other = Payload::Other { kind, data: vec![1, 2, 3, 4] };
        assert_eq!(read(unknown, 0), Ok(vec![other.clone()]));
        assert_eq!(read(unknown, 0x7f), Ok(vec![other]), "reserved bits are ignored");
        assert_eq!(read(unknown, 0x80), Err(WireError::UnsupportedCritical(kind)));
    }
    for known in [PayloadType::CP, PayloadType::EAP] {
        assert_eq!(
            read(known.0, 0x80),
            Ok(vec![Payload::Other { kind: known, data: vec![1, 2, 3, 4] }])
        );
    }
    for known in [PayloadType::CERT, PayloadType::CERTREQ, PayloadType::VENDOR_ID] {
        let read = read(known.0, 0x80);
        assert!(
            matches!(read.as_deref(), Ok([payload]) if payload.kind() == known),
            "{known}: {read:?}"
        );
    }
}

#[test]
fn the_chain_of_payloads_ends_with_the_message() {
    let read = |next: u8, body: &str| {
        let message = datagram(next, &hex(body));
        decode(&header(PayloadType(next)), &message)
    };
    assert_eq!(read(0, ""), Ok(vec![]));
    assert_eq!(
        read(43, "2b 00 0005 01  00 00 0004"),
        Ok(vec![Payload::VendorId(vec![1]), Payload::VendorId(vec![])])
    );
    for (what, next, body) in [
        ("octets, but no payload", 0, "00"),
        ("octets after the last payload", 43, "00 00 0004 00"),
        ("a payload, but no octets", 43, ""),
        ("another payload, but no octets", 43, "2b 00 0004"),
        ("half a generic header", 43, "00 00 00"),
        ("a length below the generic header's", 43, "00 00 0003"),
        ("a length of zero", 43, "00 00 0000"),
        ("a length beyond the message", 43, "00 00 0005"),
        ("SK in the clear", 46, "00 00 0004"),
        ("SKF in the clear", 53, "00 00 0004"),
    ] {
        malformed(read(next, body), what);
    }
    assert_eq!(read(43, &("2b 00 0004".repeat(63) + "00 00 0004")).map(|p| p.len()), Ok(64));
    let too_many = read(43, &("2b 00 0004".repeat(64) + "00 00 0004"));
    assert_eq!(too_many, Err(WireError::TooMany("payloads")));
    malformed(decode(&header(PayloadType::NONE), &[0; 27]), "no header");
}

const GCM: Suite = Suite::AesGcm16(KeyBits::B256);
const CBC: Suite = Suite::AesCbcMac(KeyBits::B128, Integrity::HmacSha2_256_128);

fn key(suite: Suite) -> Vec<u8> {
    (0..suite.key_material_len()).map(|i| i as u8 ^ 0x5a).collect()
}

fn cipher(suite: Suite) -> Box<dyn Cipher> {
    Provider::default().cipher(suite, &Secret::new(key(suite))).expect("it has every suite")
}

/// A message whose SK payload holds any octets at all, pad length included.
fn sealed_octets(suite: Suite, next: u8, plaintext: &[u8]) -> Vec<u8> {
    let body = suite.iv_len() + plaintext.len() + suite.icv_len();
    let mut sk = vec![next, 0];
    sk.extend_from_slice(&u16::try_from(4 + body).expect("small").to_be_bytes());
    sk.resize(4 + body, 0);
    let mut message = datagram(46, &sk);
    let (aad, sealed) = message.split_at_mut(32);
    cipher(suite).seal(&vec![3; suite.iv_len()], Aad::Octets(aad), plaintext, &[], sealed);
    message
}

/// The layout of RFC 7296 §3.14 and RFC 5282 §3, with the primitives called directly.
#[test]
fn a_protected_message_is_what_the_rfcs_say() {
    let delete = Payload::Delete(Delete::IkeSa);
    let inner = hex("00 00 0008 01 00 0000");

    let key_material = key(GCM);
    let message = seal(
        &header(PayloadType::NONE),
        std::slice::from_ref(&delete),
        GCM,
        &*cipher(GCM),
        &[7; 8],
    );
    let mut aad = datagram(46, &[]);
    aad[24..28].copy_from_slice(&(32 + 8 + 9 + 16_u32).to_be_bytes());
    aad.extend_from_slice(&[42, 0, 0, 4 + 8 + 9 + 16]);
    assert_eq!(message[..32], aad);
    assert_eq!(message[32..40], [7; 8]);
    {
        use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
        let key = UnboundKey::new(&AES_256_GCM, &key_material[..32]).expect("a key");
        let nonce = [&key_material[32..], &[7; 8]].concat();
        let nonce = Nonce::try_assume_unique_for_key(&nonce).expect("12 octets");
        let mut expected = [&inner[..], &[0]].concat();
        LessSafeKey::new(key)
            .seal_in_place_append_tag(nonce, Aad::from(&aad), &mut expected)
            .expect("seals");
        assert_eq!(message[40..], expected);
    }

    let key_material = key(CBC);
    let message = seal(&header(PayloadType::NONE), &[delete], CBC, &*cipher(CBC), &[7; 16]);
    assert_eq!(message.len(), 32 + 16 + 16 + 16);
    {
        use aws_lc_rs::cipher::{AES_128, DecryptingKey, DecryptionContext, UnboundCipherKey};
        let (covered, icv) = message.split_at(message.len() - 16);
        let mac_key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, &key_material[16..]);
        assert_eq!(aws_lc_rs::hmac::sign(&mac_key, covered).as_ref()[..16], *icv);
        let key = UnboundCipherKey::new(&AES_128, &key_material[..16]).expect("a key");
        let mut plaintext = covered[48..].to_vec();
        DecryptingKey::cbc(key)
            .expect("CBC")
            .decrypt(&mut plaintext, DecryptionContext::Iv128([7; 16].into()))
            .expect("whole blocks");
        assert_eq!(plaintext, [&inner[..], &[0; 7], &[7]].concat());
    }
}

/// RFC 7634 appendix B, in both directions.
#[test]
fn the_message_of_rfc_7634_is_opened_and_made() {
    let file: serde_json::Value = serde_json::from_str(include_str!("../vectors/rfc7634_ike.json"))
        .expect("the file is JSON");
    let field = |name: &str| hex(file[name].as_str().expect("a text"));
    let suite = Suite::ChaCha20Poly1305;
    let cipher = Provider::default()
        .cipher(suite, &Secret::new(field("key_material")))
        .expect("it has every suite");
    let message = field("message");
    let header = Header::parse(&message).expect("a header");
    let payloads = open(&header, &message, suite, &*cipher).expect("authentic");
    let [Payload::Notify(notify)] = &payloads[..] else { panic!("{payloads:?}") };
    assert_eq!(notify.kind, NotifyType::SET_WINDOW_SIZE);
    assert_eq!(notify.data, [0, 0, 0, 10]);
    assert_eq!(seal(&header, &payloads, suite, &*cipher, &message[32..40]), message);
    for at in 0..message.len() {
        let mut forged = message.clone();
        forged[at] ^= 1;
        if let Ok(header) = Header::parse(&forged) {
            assert!(open(&header, &forged, suite, &*cipher).is_err(), "octet {at}");
        }
    }
}

#[test]
fn a_message_without_payloads_is_protected_too() {
    for suite in [GCM, CBC] {
        let cipher = cipher(suite);
        let iv = vec![1; suite.iv_len()];
        let message = seal(&header(PayloadType::NONE), &[], suite, &*cipher, &iv);
        let parsed = Header::parse(&message).expect("a header");
        assert_eq!(parsed, header(PayloadType::SK));
        assert_eq!(open(&parsed, &message, suite, &*cipher), Ok(vec![]));
    }
}

#[test]
fn padding_of_any_content_and_any_length_that_fits_is_accepted() {
    // A Vendor ID payload of 4 octets, and the rest of `len` octets padding.
    let plaintext = |len: usize, pad: u8| {
        let mut octets = hex("00 00 0004");
        octets.resize(len, 0xee);
        octets[len - 1] = pad;
        octets
    };
    let read = |suite: Suite, plaintext: &[u8]| {
        let message = sealed_octets(suite, 43, plaintext);
        let header = Header::parse(&message).expect("a header");
        open(&header, &message, suite, &*cipher(suite))
    };
    for (suite, len) in [(GCM, 5), (GCM, 9), (GCM, 260), (CBC, 16), (CBC, 32), (CBC, 256)] {
        let pad = u8::try_from(len - 5).expect("at most 255");
        assert_eq!(read(suite, &plaintext(len, pad)), Ok(vec![Payload::VendorId(vec![])]), "{len}");
        let Ok(beyond) = u8::try_from(len) else { continue };
        let refused = read(suite, &plaintext(len, beyond));
        let malformed = matches!(refused, Err(OpenError::Inside(WireError::Malformed(_))));
        assert!(malformed, "{len}: {refused:?}");
    }
    assert_eq!(read(GCM, &[]), Err(OpenError::Inside(WireError::Truncated("Encrypted payload"))));
    assert_eq!(read(CBC, &[]), Err(OpenError::Inside(WireError::Truncated("Encrypted payload"))));
}

#[test]
fn a_malformed_message_is_told_from_one_that_is_not_authentic() {
    for suite in [GCM, CBC] {
        let read = |next: u8, plaintext: &[u8]| {
            let message = sealed_octets(suite, next, plaintext);
            let header = Header::parse(&message).expect("a header");
            open(&header, &message, suite, &*cipher(suite))
        };
        let mut block = hex("00 80 0008 01020304");
        block.resize(15, 0);
        block.push(7);
        assert_eq!(
            read(99, &block),
            Err(OpenError::Inside(WireError::UnsupportedCritical(PayloadType(99))))
        );
        assert!(matches!(read(46, &block), Err(OpenError::Inside(WireError::Malformed(_)))));
        assert!(matches!(read(0, &block), Err(OpenError::Inside(WireError::Malformed(_)))));
    }
}

#[test]
fn sk_is_found_behind_other_payloads_and_must_be_the_last() {
    let cipher = cipher(GCM);
    let read = |message: &[u8]| {
        let header = Header::parse(message).expect("a header");
        open(&header, message, GCM, &*cipher)
    };
    // A payload of an unknown type before SK, critical even, is authenticated and skipped.
    let plaintext = [0];
    let sk_len = 8 + plaintext.len() + 16;
    let mut body = hex("2e 80 0006 aabb");
    body.extend_from_slice(&[0, 0, 0, u8::try_from(4 + sk_len).expect("small")]);
    body.resize(body.len() + sk_len, 0);
    let mut message = datagram(99, &body);
    let (aad, sealed) = message.split_at_mut(28 + 6 + 4);
    cipher.seal(&[1; 8], Aad::Octets(aad), &plaintext, &[], sealed);
    assert_eq!(read(&message), Ok(vec![]));
    message[28 + 4] ^= 1;
    assert!(matches!(read(&message), Err(OpenError::NotAuthentic(_))));

    for (next, body) in [
        (0, ""),
        (43, "00 00 0004"),
        (46, ""),
        (46, "00 00 0003"),
        (46, "00 00 0004"),
        (46, "00 00 0005 00"),
        (46, "00 00 0004 00"),
        (46, "2b 00 0004 00 00 0004"),
        (43, "2e 00 ffff"),
        (53, "00 00 0008 00010001"),
    ] {
        let message = datagram(next, &hex(body));
        assert!(matches!(read(&message), Err(OpenError::NotAuthentic(_))), "{next} {body}");
    }
    let many = "2b 00 0004".repeat(65);
    assert!(matches!(read(&datagram(43, &hex(&many))), Err(OpenError::NotAuthentic(_))));
}
