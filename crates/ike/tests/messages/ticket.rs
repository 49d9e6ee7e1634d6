//! Sealed tickets of session resumption against values that another program has computed.

use crypto::CryptoProviders;
use ike::crypto::rng::Rng;
use ike::ticket::{Content, KEY_LEN, LONGEST, Sealer, TicketKey, Unopened};
use ike::wire::header::IkeSpi;
use ike::wire::payload::{Proposal, Transform};
use ike::wire::registry::{AuthMethod, ProtocolId, TransformType};
use policy::Secret;

/// Python's hmac and the package cryptography have made them: HKDF-SHA-256 of the key and of the first 16 octets of
/// ChaCha20 with the key 07…07, and AES-256-GCM with the counters 0 and 1.
const SEALED: [&str; 2] = [
    concat!(
        "01eb5fe787f400927857aaf64114f561baacb37970000000000000000060ff6546ed2eacf13b69193ecc2ba10fb58fa9",
        "94b47df8f5e09a0dce67d4d2189375006a0539843b5c7e7e43ae79dadfe91abf3ac83f94833aa8ac7d41568c114734bf",
        "2e439462330278983d8fd69b5358c72449700e0c0c382995409cda010788f495fd6b0ba871138380cef5767f15e0f401",
        "cf88cd0899ef962008d41f56433ced37b9176d1383659c033bfccc26499bf73af43290e335f0a67b9b9e6bc28af44fdb",
        "66a3349bbe52eab7bdd652a439daabe8036d9d87bc1d8d82dbbab591ecf556e7f7377ec5a8293b526ea0cb3b55b1b986",
        "dcab5ee0a188dcba847c367c2f547d4a631967e23991bba582031628cc544ad7849358a843a7efb8d50bc8a782866f84",
        "fdb0bc2db3ab3e080f451807d1c93d",
    ),
    concat!(
        "01eb5fe787f400927857aaf64114f561baacb3797000000000000000018aaf57b44660ab764d1d4b5b6e4e8f0dffc09a",
        "8590be8366b267b237dc590b05d8ac2f55ded0f5843d670e9fa7c0970b2521d85e7d6e0b40ccfa6072eb7e115db25be9",
        "942a5443689085a2bb2d5147549b3dcd8f60a1ae844b0c8d7000b749e7de453dc014549e5314cec4b35d49db89876460",
        "72bafda4821d64adb512a3424a44a637b7c4ef7636148bd2d19144daac11658dd99861bf5b9e14ffba5da79518665d2f",
        "35fb5170e256ef43d12039689eb49a5678ac37e4637afef892286c89d71df6e95e2d8c5961794838def547e7e7c04c68",
        "5fdd0d7419fb3448c79401863d4fbcfcec5fb83f57453cdfbad1373ed70dd840d4b327947975ecdc5bf77c585e8a3550",
        "35f9bd93d6d0d9d9df185c35a24b95",
    ),
];

fn key(first: u8) -> TicketKey {
    let octets = (first..).take(KEY_LEN).collect();
    TicketKey::new(Secret::new(octets)).expect("32 octets")
}

fn sealer(seed: u8) -> Sealer {
    Sealer::new(&mut Rng::from_seed([seed; 32]))
}

fn transform(kind: TransformType, id: u16, key_length: Option<u16>) -> Transform {
    Transform { kind, id, key_length, unknown_attribute: false }
}

fn content() -> Content {
    let transforms = vec![
        transform(TransformType::ENCR, 20, Some(256)),
        transform(TransformType::PRF, 5, None),
        transform(TransformType::KE, 31, None),
        transform(TransformType::ADDKE1, 36, None),
    ];
    Content {
        expires: 1_800_000_000,
        proved: 1_799_990_000,
        proof_until: 1_800_100_000,
        resumptions: 2,
        method: AuthMethod::DIGITAL_SIGNATURE,
        tunnel: [0xa1; 32],
        initiator: [0xa2; 32],
        responder: [0xa3; 32],
        credential: [0xa4; 32],
        ppk: Some([0xa5; 32]),
        quantum_safe: true,
        spis: (IkeSpi(1), IkeSpi(2)),
        suite: Proposal { number: 1, protocol: ProtocolId::IKE, spi: vec![], transforms },
        sk_d: Secret::new(vec![0x5d; 32]),
    }
}

fn hex(text: &str) -> Vec<u8> {
    Secret::from_hex(text).expect("hexadecimal digits").expose().to_vec()
}

#[test]
fn tickets_are_those_that_another_program_seals() {
    let (crypto, mut sealer) = (CryptoProviders::default(), sealer(7));
    for (count, expected) in SEALED.into_iter().enumerate() {
        let (id, ticket) = sealer.seal(&crypto, &[key(0)], &content()).expect("room");
        assert_eq!(ticket, hex(expected), "ticket {count}");
        assert_eq!(sealer.open(&crypto, &[key(0)], &ticket), Ok((id, content())));
    }
    assert_eq!(key(0).number(), 0xeb5f_e787);
}

#[test]
fn a_key_opens_the_tickets_of_another_start_and_stays_when_a_new_one_seals() {
    let crypto = CryptoProviders::default();
    let (old, new) = (key(1), key(2));
    let (id, ticket) =
        sealer(1).seal(&crypto, std::slice::from_ref(&old), &content()).expect("room");
    // After a restart, and after the first step of a rotation.
    let other = sealer(2);
    let both = [new.clone(), old];
    assert_eq!(other.open(&crypto, &both, &ticket), Ok((id, content())));
    // After the last step.
    assert_eq!(other.open(&crypto, &[new], &ticket), Err(Unopened::UnknownKey));
    // A key of the right number is not enough.
    let mut forged = ticket;
    forged[1..5].copy_from_slice(&key(3).number().to_be_bytes());
    assert_eq!(other.open(&crypto, &[key(3)], &forged), Err(Unopened::NotAuthentic));
}

#[test]
fn without_a_given_key_only_the_sealer_itself_opens_its_tickets() {
    let (crypto, mut first) = (CryptoProviders::default(), sealer(1));
    let (id, ticket) = first.seal(&crypto, &[], &content()).expect("room");
    assert_eq!(first.open(&crypto, &[], &ticket), Ok((id, content())));
    // A key that is given later does not end what was sealed before.
    assert_eq!(first.open(&crypto, &[key(0)], &ticket), Ok((id, content())));
    assert_eq!(sealer(2).open(&crypto, &[], &ticket), Err(Unopened::UnknownKey));
    let (other, _) = first.seal(&crypto, &[], &content()).expect("room");
    assert_ne!(id, other);
}

#[test]
fn every_bit_of_a_ticket_counts() {
    let (crypto, sealer) = (CryptoProviders::default(), sealer(7));
    let whole = hex(SEALED[0]);
    for bit in 0..whole.len() * 8 {
        let mut forged = whole.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        assert!(sealer.open(&crypto, &[key(0)], &forged).is_err(), "bit {bit}");
    }
    for len in 0..whole.len() {
        assert!(sealer.open(&crypto, &[key(0)], &whole[..len]).is_err(), "{len} octets");
    }
    let long = [whole, vec![0; LONGEST]].concat();
    assert_eq!(sealer.open(&crypto, &[key(0)], &long), Err(Unopened::Malformed));
}

#[test]
fn the_longest_content_makes_a_ticket_that_is_read() {
    let (crypto, mut sealer) = (CryptoProviders::default(), sealer(7));
    let kinds = [TransformType::ENCR, TransformType::PRF, TransformType::INTEG, TransformType::KE];
    let kinds = kinds.into_iter().chain(TransformType::ADDITIONAL);
    let transforms = kinds.map(|kind| transform(kind, u16::MAX, Some(u16::MAX))).collect();
    let content = Content {
        suite: Proposal { transforms, ..content().suite },
        sk_d: Secret::new(vec![0xff; 64]),
        ..content()
    };
    let (id, ticket) = sealer.seal(&crypto, &[key(0)], &content).expect("room");
    assert!(ticket.len() <= LONGEST, "{}", ticket.len());
    assert_eq!(sealer.open(&crypto, &[key(0)], &ticket), Ok((id, content)));
}

#[test]
fn a_ticket_key_has_32_octets() {
    for len in [0, 16, 31, 33, 64] {
        assert_eq!(TicketKey::new(Secret::new(vec![1; len])), None, "{len} octets");
    }
    assert_eq!(format!("{:?}", key(0)), "TicketKey(eb5fe787)");
}
