//! Published identifiers, and the choices that policies make.

use super::*;
use crate::negotiation::description::describe;
use crate::negotiation::transforms::esp_encryption;
use ::crypto::Suite;
use policy::{
    AhIntegrity, EspEncryption, IkeEncryption, Integrity, KeyBits, Lifetime, Prf, Protection,
};
use std::time::Duration;

fn cbc() -> IkeProposal {
    IkeProposal {
        encryption: vec![
            IkeEncryption::AesCbc(KeyBits::B256),
            IkeEncryption::AesCbc(KeyBits::B128),
        ],
        integrity: vec![Integrity::HmacSha2_256_128, Integrity::HmacSha1_96],
        prf: vec![Prf::HmacSha2_256, Prf::HmacSha1],
        groups: vec![Group::Ecp384, Group::Curve25519],
        additional: Vec::new(),
    }
}

fn gcm() -> IkeProposal {
    IkeProposal {
        encryption: vec![IkeEncryption::AesGcm16(KeyBits::B128)],
        integrity: vec![],
        prf: vec![Prf::HmacSha2_256],
        groups: vec![Group::Curve25519],
        additional: Vec::new(),
    }
}

fn esp(key: KeyBits, esn: bool) -> ChildProposal {
    ChildProposal {
        name: "p".into(),
        protection: Protection::aead(EspEncryption::AesGcm16(key)),
        esn,
        lifetime: Lifetime::new(Duration::from_secs(3600)),
    }
}

#[test]
fn own_order_decides_and_sent_group_is_preferred() {
    let (suite, answer) = choose_ike(
        &[gcm(), cbc()],
        &offer_ike(&[cbc(), gcm()], &[]),
        GroupId::from(Group::Curve25519),
        &[],
    )
    .unwrap();
    assert_eq!(suite.encryption, IkeEncryption::AesGcm16(KeyBits::B128));
    assert_eq!(answer.number, 2);
    let (suite, _) =
        choose_ike(&[cbc()], &offer_ike(&[cbc()], &[]), GroupId::from(Group::Curve25519), &[])
            .unwrap();
    assert_eq!(suite.group, Group::Curve25519);
    let (suite, _) =
        choose_ike(&[cbc()], &offer_ike(&[cbc()], &[]), GroupId::from(Group::Modp2048), &[])
            .unwrap();
    assert_eq!(suite.group, Group::Ecp384);
}

#[test]
fn every_choice_is_accepted_and_nothing_else() {
    let ours = [gcm(), cbc()];
    let offer = offer_ike(&ours, &[]);
    let (suite, answer) = choose_ike(&[cbc()], &offer, GroupId::NONE, &[]).unwrap();
    assert_eq!(accept_ike(&ours, std::slice::from_ref(&answer)), Some(suite));
    assert_eq!(accept_ike(&ours, &[answer.clone(), answer.clone()]), None);
    let mut doubled = answer.clone();
    doubled.transforms.push(integrity(Integrity::HmacSha1_96));
    assert_eq!(accept_ike(&ours, &[doubled]), None);
    let mut foreign = answer.clone();
    foreign.transforms[0].key_length = Some(192);
    assert_eq!(accept_ike(&ours, &[foreign]), None);
    let mut other = answer;
    other.number = 9;
    assert_eq!(accept_ike(&ours, &[other]), None);
}

#[test]
fn a_proposal_with_an_unknown_transform_type_is_not_chosen() {
    let mut offer = offer_ike(&[gcm()], &[]);
    offer[0].transforms.push(plain(TransformType(6), 36));
    assert!(choose_ike(&[gcm()], &offer, GroupId::from(Group::Curve25519), &[]).is_none());
    let mut offer = offer_ike(&[gcm()], &[]);
    offer[0].transforms[0].unknown_attribute = true;
    assert!(choose_ike(&[gcm()], &offer, GroupId::from(Group::Curve25519), &[]).is_none());
}

/// RFC 7634 §4 and RFC 2410 §3: no Key Length attribute; RFC 4543 §5.2: one for GMAC. An integrity algorithm goes
/// with NULL and with nothing else here.
#[test]
fn transforms_of_the_esp_suites_are_as_registered() {
    let offer = |encryption, integrity| ChildProposal {
        protection: Protection::Esp { encryption, integrity },
        ..esp(KeyBits::B128, false)
    };
    let sha1 = Some(Integrity::HmacSha1_96);
    let cases = [
        (offer(EspEncryption::ChaCha20Poly1305, None), 28, None, "CHACHA20-POLY1305"),
        (
            offer(EspEncryption::AesGmac(KeyBits::B192), None),
            21,
            Some(192),
            "NULL-AUTH-AES-GMAC-192",
        ),
        (offer(EspEncryption::Null, sha1), 11, None, "NULL | HMAC-SHA1-96"),
    ];
    for (ours, id, key_length, words) in &cases {
        let ours = std::slice::from_ref(ours);
        let offered = offer_child(ours, Offered::default(), Spi(0x1000));
        let cipher = &offered[0].transforms[0];
        assert_eq!((cipher.id, cipher.key_length), (*id, *key_length));
        assert_eq!(describe(&offered), format!("[{words} | no ESN]"));
        let never = ChildKeyExchange::Never;
        let (choice, _, answer) =
            choose_child(ours, never, &offered, Spi(0x2000)).expect("our own offer");
        let suite = choice.suite().expect("they go together").to_string();
        assert_eq!(choice.algorithms.to_string(), suite);
        assert_eq!(accept_child(ours, Offered::default(), &[answer]).map(|(c, _)| c), Some(choice));
        // None of them is taken for another one.
        for (other, ..) in cases.iter().filter(|(_, other, ..)| other != id) {
            let other = std::slice::from_ref(other);
            assert!(choose_child(other, never, &offered, Spi(0x2000)).is_none());
        }
        let mut longer = offered.clone();
        longer[0].transforms[0].key_length = Some(256);
        assert!(choose_child(ours, never, &longer, Spi(0x2000)).is_none());
        let mut bare = offered.clone();
        bare[0].transforms.retain(|t| t.kind != TransformType::INTEG);
        let chosen = choose_child(ours, never, &bare, Spi(0x2000)).is_some();
        let mac = match ours[0].protection {
            Protection::Esp { integrity, .. } => integrity,
            Protection::Ah(_) => None,
        };
        assert_eq!(chosen, mac.is_none(), "NULL needs its integrity");
        let mut doubled = offered.clone();
        doubled[0].transforms.push(integrity(Integrity::HmacSha2_512_256));
        assert!(choose_child(ours, never, &doubled, Spi(0x2000)).is_none() || sha1 == mac);
    }
}

/// RFC 7296 §3.3, RFC 4543 §5.3: AH has an integrity transform and none for encryption.
#[test]
fn ah_is_negotiated_by_its_integrity() {
    let ah = |integrity| ChildProposal {
        protection: Protection::Ah(integrity),
        ..esp(KeyBits::B128, true)
    };
    let gmac = |key| AhIntegrity::AesGmac(key);
    let cases = [
        (gmac(KeyBits::B128), 9, "AES-128-GMAC"),
        (gmac(KeyBits::B192), 10, "AES-192-GMAC"),
        (gmac(KeyBits::B256), 11, "AES-256-GMAC"),
        (AhIntegrity::Mac(Integrity::HmacSha2_256_128), 12, "HMAC-SHA2-256-128"),
    ];
    let never = ChildKeyExchange::Never;
    for (algorithm, id, words) in cases {
        let ours = [ah(algorithm)];
        let offered = offer_child(&ours, Offered::default(), Spi(0x1000));
        assert_eq!(offered[0].protocol, ProtocolId::AH);
        assert_eq!(offered[0].transforms[0], plain(TransformType::INTEG, id));
        assert_eq!(describe(&offered), format!("[AH | {words} | ESN]"));
        let (choice, spi, answer) =
            choose_child(&ours, never, &offered, Spi(0x2000)).expect("our own offer");
        assert_eq!((choice.protocol(), spi), (ProtocolId::AH, Spi(0x1000)));
        assert_eq!(choice.suite(), Some(Suite::Ah(algorithm)));
        assert_eq!(
            accept_child(&ours, Offered::default(), &[answer]).map(|(c, _)| c),
            Some(choice)
        );
        let mut encrypting = offered.clone();
        encrypting[0].transforms.push(esp_encryption(EspEncryption::AesCbc(KeyBits::B128)));
        assert!(choose_child(&ours, never, &encrypting, Spi(0x2000)).is_none());
        let mut as_esp = offered.clone();
        as_esp[0].protocol = ProtocolId::ESP;
        assert!(choose_child(&ours, never, &as_esp, Spi(0x2000)).is_none());
    }
    // In one list with ESP, the first of the responder's that is offered at all.
    let ours = [esp(KeyBits::B128, true), ah(gmac(KeyBits::B256))];
    let offered = offer_child(&ours, Offered::default(), Spi(0x1000));
    let numbers: Vec<_> = offered.iter().map(|p| (p.number, p.protocol)).collect();
    assert_eq!(numbers, [(1, ProtocolId::ESP), (2, ProtocolId::AH)]);
    let (choice, ..) = choose_child(&ours[1..], never, &offered, Spi(0x2000)).expect("AH");
    assert_eq!(choice.algorithms.to_string(), "AH/AES-GMAC-256/ESN");
}

#[test]
fn chacha20_and_the_large_groups_are_chosen() {
    let ours = [IkeProposal {
        encryption: vec![IkeEncryption::ChaCha20Poly1305, IkeEncryption::AesGcm16(KeyBits::B256)],
        groups: vec![Group::Modp3072, Group::Modp4096],
        ..gcm()
    }];
    let offered = offer_ike(&ours, &[]);
    let (suite, answer) = choose_ike(&ours, &offered, GroupId::from(Group::Modp4096), &[]).unwrap();
    assert_eq!((suite.group, suite.protection()), (Group::Modp4096, Some(Suite::ChaCha20Poly1305)));
    assert_eq!(suite.to_string(), "CHACHA20-POLY1305/PRF-HMAC-SHA2-256/MODP-4096");
    assert_eq!(answer.transforms[0], plain(TransformType::ENCR, 28));
    assert_eq!(accept_ike(&ours, &[answer]), Some(suite));
    assert_eq!(
        describe(&offered),
        "[CHACHA20-POLY1305 or AES-GCM-16-256 | PRF-HMAC-SHA2-256 | MODP-3072 or MODP-4096]"
    );
}

#[test]
fn words_for_an_offer_stay_few_whatever_it_holds() {
    assert_eq!(
        describe(&offer_ike(&[gcm()], &[])),
        "[AES-GCM-16-128 | PRF-HMAC-SHA2-256 | CURVE25519]"
    );
    let mut offer = offer_ike(&[gcm()], &[]);
    offer[0].transforms = (0..255).map(|n| plain(TransformType((n % 2) as u8 + 1), n)).collect();
    let offers = vec![offer[0].clone(); 64];
    let words = describe(&offers);
    assert!(words.len() < 16 * 1024, "{} octets", words.len());
}

#[test]
fn child_choices_follow_pfs_and_esn() {
    let offer = offer_child(
        &[esp(KeyBits::B256, true), esp(KeyBits::B128, false)],
        Offered::one_of(&[Group::Ecp256]),
        Spi(0x1000),
    );
    let pfs = Pfs {
        offer: vec![],
        accept: vec![Group::Ecp256],
        accept_none: true,
        additional: Vec::new(),
    };
    let wanted = ChildKeyExchange::Policy(&pfs, Some(GroupId::from(Group::Ecp256)));
    let (choice, spi, _) =
        choose_child(&[esp(KeyBits::B128, false)], wanted, &offer, Spi(0x2000)).unwrap();
    assert_eq!((choice.algorithms.group, spi), (Some(Group::Ecp256), Spi(0x1000)));
    assert!(choose_child(&[esp(KeyBits::B256, false)], wanted, &offer, Spi(0x2000)).is_none());
    let never =
        choose_child(&[esp(KeyBits::B256, true)], ChildKeyExchange::Never, &offer, Spi(0x2000))
            .unwrap();
    assert_eq!(never.0.algorithms.group, None);
    let none = offer_child(&[esp(KeyBits::B128, false)], Offered::default(), Spi(0x1000));
    let strict = Pfs { accept_none: false, ..pfs };
    let wanted = ChildKeyExchange::Policy(&strict, None);
    assert!(choose_child(&[esp(KeyBits::B128, false)], wanted, &none, Spi(0x2000)).is_none());
    // A responder does not accept a group because it would offer that group itself.
    let other = Pfs {
        offer: vec![Group::Ecp256],
        accept: vec![Group::Ecp384],
        accept_none: true,
        additional: Vec::new(),
    };
    let wanted = ChildKeyExchange::Policy(&other, Some(GroupId::from(Group::Ecp256)));
    assert!(choose_child(&[esp(KeyBits::B128, false)], wanted, &offer, Spi(0x2000)).is_none());
}

#[test]
fn a_child_answer_must_name_a_usable_spi_and_the_offered_group() {
    let ours = [esp(KeyBits::B128, false)];
    let mut answer = offer_child(&ours, Offered::one_of(&[Group::Ecp256]), Spi(0x1000));
    assert!(accept_child(&ours, Offered::one_of(&[Group::Ecp256]), &answer).is_some());
    assert!(accept_child(&ours, Offered::default(), &answer).is_none());
    assert!(accept_child(&ours, Offered::one_of(&[Group::Ecp384]), &answer).is_none());
    answer[0].spi = 255u32.to_be_bytes().to_vec();
    assert!(accept_child(&ours, Offered::one_of(&[Group::Ecp256]), &answer).is_none());
}
