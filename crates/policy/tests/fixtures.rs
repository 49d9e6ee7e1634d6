//! Whole policy files, and what they mean.

use policy::xml::{Diagnostics, Loaded, read};
use policy::{
    AhIntegrity, Credential, EspEncryption, Group, Identity, IkeEncryption, IkeProposal, Integrity,
    KeyBits, KeyKind, Mode, Prf, Protection, Role, Signature,
};
use std::time::Duration;

const HOST: &str = include_str!("../fixtures/01_ikev2_psk_gcm_transport_v4.xml");
const GATEWAY: &str = include_str!("../fixtures/02_ikev2_tunnel_multi_child_pfs.xml");
const IKEV1: &str = include_str!("../fixtures/03_ikev1_main_combined_transforms_subnet.xml");
const CERTIFICATES: &str = include_str!("../fixtures/04_ikev2_certificates_dn_ipv6.xml");
const GENERIC: &str = include_str!("../fixtures/05_ikev1_aggressive_group_responder_generic.xml");
const INTEGRITY: &str = include_str!("../fixtures/06_ah_gmac_and_null_encryption.xml");
const QUIRKS: &str = include_str!("../fixtures/07_whitespace_and_order_quirks.xml");
const ROLES: &str = include_str!("../fixtures/08_roles_autostart_ondemand_matrix.xml");
const VENDOR: &str = include_str!("../fixtures/vendor_sample.xml");
const PLACEHOLDERS: &str = include_str!("../fixtures/vendor_sample_placeholders.xml");

fn load(text: &str) -> Loaded {
    read("policy.xml", text).unwrap_or_else(|errors| panic!("{errors}"))
}

fn refuse(text: &str) -> Diagnostics {
    read("policy.xml", text).expect_err("the file must be refused")
}

/// Line and a part of the message of every error.
fn assert_errors(text: &str, expected: &[(usize, &str)]) {
    let errors = refuse(text);
    let found: Vec<_> = errors.errors().map(|e| (e.line, e.message.as_str())).collect();
    assert_eq!(found.len(), expected.len(), "{errors}");
    for ((line, message), (expected_line, part)) in found.iter().zip(expected) {
        assert!(
            line == expected_line && message.contains(part),
            "{line}: {message} is not {expected_line}: {part}"
        );
    }
}

fn key(credential: &Credential) -> &[u8] {
    match credential {
        Credential::PresharedKey(secret) => secret.expose(),
        other => panic!("{other:?} is no preshared key"),
    }
}

fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(60 * minutes)
}

/// The phase 1 settings of the vendor's sample and of the two files made after it.
fn vendor_proposal() -> IkeProposal {
    IkeProposal {
        encryption: vec![IkeEncryption::AesCbc(KeyBits::B256)],
        integrity: vec![Integrity::HmacSha1_96],
        prf: vec![Prf::HmacSha1],
        groups: vec![Group::Ecp384],
        additional: Vec::new(),
    }
}

#[test]
fn vendor_sample() {
    let loaded = load(VENDOR);
    let [tunnel] = &loaded.policy.tunnels[..] else { panic!("one tunnel") };
    assert_eq!((tunnel.name.as_str(), tunnel.role, tunnel.auto_start), ("LP1", Role::Both, false));
    assert_eq!(tunnel.local.address, Some("192.0.2.10".parse().unwrap()));
    assert_eq!(tunnel.local.identity, Identity::Ipv4("192.0.2.10".parse().unwrap()));
    assert_eq!(tunnel.remote.address, Some("192.0.2.20".parse().unwrap()));
    assert_eq!(key(&tunnel.credential), b"12345");
    assert_eq!(tunnel.proposals, [vendor_proposal()]);
    assert_eq!((tunnel.lifetime.hard, tunnel.lifetime.bytes), (minutes(5), None));
    assert_eq!(tunnel.lifetime.overlap_percent, 50);

    let [child] = &tunnel.children[..] else { panic!("one child") };
    assert_eq!((child.name.as_str(), child.role, child.mode), ("LP2", Role::Both, Mode::Transport));
    assert_eq!((child.auto_start, child.on_demand), (false, false));
    assert_eq!(child.local[0].to_string(), "192.0.2.10");
    assert_eq!(child.remote[0].to_string(), "192.0.2.20");
    let [offer] = &child.proposals[..] else { panic!("one proposal") };
    assert_eq!((offer.name.as_str(), offer.esn), ("LP2Prop", false));
    assert_eq!(offer.protection, Protection::aead(EspEncryption::AesGcm16(KeyBits::B256)));
    assert_eq!((offer.lifetime.hard, offer.lifetime.bytes), (minutes(3), None));
    assert_eq!(offer.lifetime.overlap_percent, 10);
    // Offers no key exchange at a rekey, and accepts both none and group 2.
    assert_eq!(child.pfs.offer, []);
    assert_eq!(child.pfs.accept, [Group::Modp1024]);
    assert!(child.pfs.accept_none);

    let warnings: Vec<_> = loaded.warnings.iter().map(|w| w.line).collect();
    let what = "overlap, window for KB, short key, blanks, weak group, window for KB";
    assert_eq!(warnings, [6, 10, 44, 47, 67, 70], "{what}");
}

#[test]
fn vendor_sample_as_printed() {
    let expected =
        ["initiator", "receiver", "receiver", "initiator", "initiator", "receiver", "receiver"];
    let errors = refuse(PLACEHOLDERS);
    let found: Vec<_> = errors.errors().map(|e| e.message.clone()).collect();
    assert_eq!(found, expected.map(|side| format!("placeholder not replaced: {side}_ip_address")));
}

#[test]
fn host_to_host() {
    let loaded = load(HOST);
    let tunnel = loaded.policy.tunnel("hh_k").unwrap();
    assert_eq!(tunnel.proposals, [vendor_proposal()]);
    assert_eq!(tunnel.lifetime.hard, minutes(480));
    assert_eq!(tunnel.lifetime.soft(), minutes(432));
    assert_eq!(key(&tunnel.credential), b"correct-horse-battery-staple-0192");
    let (_, child) = loaded.policy.child("hh_d").unwrap();
    assert_eq!((child.mode, child.proposals[0].lifetime.hard), (Mode::Transport, minutes(60)));
    assert_eq!(loaded.warnings.len(), 3, "the weak group, and two windows for KB");
}

#[test]
fn gateway_with_alternatives() {
    let loaded = load(GATEWAY);
    let warnings: Vec<_> = loaded.warnings.iter().map(|w| (w.line, w.message.as_str())).collect();
    let idle = "the responder's window for KB has no effect: phase 1 is renewed by time alone";
    assert_eq!(warnings, [(8, idle)], "the one of phase 2 bounds a limit");
    let tunnel = loaded.policy.tunnel("gw_k").unwrap();
    assert!(tunnel.auto_start);
    assert_eq!(
        tunnel.proposals,
        [IkeProposal {
            encryption: vec![
                IkeEncryption::AesCbc(KeyBits::B256),
                IkeEncryption::AesCbc(KeyBits::B128)
            ],
            integrity: vec![Integrity::HmacSha2_256_128, Integrity::HmacSha1_96],
            prf: vec![Prf::HmacSha2_256, Prf::HmacSha1],
            groups: vec![Group::Ecp256, Group::Modp2048],
            additional: Vec::new()
        }]
    );
    assert_eq!((tunnel.lifetime.hard, tunnel.lifetime.overlap_percent), (minutes(720), 15));
    assert_eq!(
        key(&tunnel.credential),
        [
            0x3f, 0x9a, 0x5c, 0x77, 0x11, 0xd0, 0x4b, 0xe2, 0x8a, 0x66, 0x01, 0xf3, 0xc4, 0xd5,
            0xe6, 0xf7
        ]
    );

    let [lan, https] = &tunnel.children[..] else { panic!("two children") };
    let names: Vec<_> = lan.proposals.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["gw_gcm256", "gw_gcm128", "gw_cbc"]);
    assert_eq!(lan.proposals.iter().map(|p| p.esn).collect::<Vec<_>>(), [true, false, false]);
    let bytes: Vec<_> = lan.proposals.iter().map(|p| p.lifetime.bytes).collect();
    assert_eq!(bytes, [None, Some(4_194_304 * 1024), None]);
    let cbc = EspEncryption::AesCbc(KeyBits::B256);
    let cbc = Protection::encrypt_and_mac(cbc, Integrity::HmacSha1_96);
    assert_eq!(lan.proposals[2].protection, cbc);
    assert_eq!(lan.proposals[2].lifetime.soft(), minutes(48));
    assert_eq!(lan.pfs.offer, [Group::Ecp256]);
    assert_eq!(lan.pfs.accept, [Group::Modp2048, Group::Ecp256]);
    assert!(lan.pfs.accept_none);
    assert_eq!((lan.mode, lan.auto_start, lan.on_demand), (Mode::Tunnel, true, false));
    assert_eq!(lan.local[0].to_string(), "10.1.0.0/16");
    assert_eq!((https.auto_start, https.on_demand), (false, true));
    assert_eq!(https.local[0].to_string(), "172.16.8.5-172.16.8.13[tcp]");
    assert_eq!(https.remote[0].to_string(), "172.20.0.1[tcp/443-444]");
}

#[test]
fn whitespace_and_order() {
    let loaded = load(QUIRKS);
    let tunnel = loaded.policy.tunnel("Q1").unwrap();
    assert_eq!(tunnel.local.address, Some("192.0.2.101".parse().unwrap()));
    assert_eq!(tunnel.proposals, [vendor_proposal()]);
    let [child] = &tunnel.children[..] else { panic!("one child") };
    assert_eq!(child.name, "Q2");
    assert_eq!(child.local[0].to_string(), "192.0.2.101");
    assert_eq!(child.remote[0].to_string(), "192.0.2.102");
    let proposals: Vec<_> =
        child.proposals.iter().map(|p| (p.name.as_str(), p.protection, p.lifetime.hard)).collect();
    assert_eq!(
        proposals,
        [
            ("Q2Prop", Protection::aead(EspEncryption::AesGcm16(KeyBits::B256)), minutes(3)),
            ("Q2Prop_b", Protection::aead(EspEncryption::AesGcm16(KeyBits::B128)), minutes(480)),
        ]
    );
}

#[test]
fn ikev1_is_refused() {
    assert_errors(IKEV1, &[(5, "no IKE_Version means 1")]);
    assert_eq!(refuse(IKEV1).iter().count(), 1, "what serves it alone is not looked into");
}

#[test]
fn certificates_and_names_are_read() {
    let loaded = load(CERTIFICATES);
    let signature = |tunnel: &str| match &loaded.policy.tunnel(tunnel).expect("is there").credential
    {
        Credential::Signature(signature) => signature.clone(),
        other => panic!("{tunnel} has {other:?}"),
    };
    let rsa = Signature { keys: vec![KeyKind::Rsa], use_crl: true, sha1: false };
    assert_eq!(signature("cert_k"), rsa);
    let ecdsa = Signature { keys: vec![KeyKind::EcdsaP256], use_crl: false, sha1: false };
    assert_eq!(signature("ecdsa_k"), ecdsa);
    let tunnel = loaded.policy.tunnel("cert_k").expect("is there");
    assert_eq!(tunnel.local.identity.to_string(), "CN=left.example.net,OU=Lab,O=Example,C=NL");
    assert_eq!(tunnel.remote.address, "2001:db8:2::20".parse().ok());
    let warnings: Vec<_> = loaded.warnings.iter().map(|w| w.message.clone()).collect();
    assert!(warnings.iter().any(|w| w.contains("a certificate has no Key_ID")), "{warnings:?}");
}

#[test]
fn weak_or_unclear_signatures_are_told() {
    let sha = CERTIFICATES.replacen("IKE_Hash=\"HMAC_SHA2_256\"", "IKE_Hash=\"SHA\"", 1);
    let loaded = load(&sha);
    let Credential::Signature(signature) = &loaded.policy.tunnels[0].credential else { panic!() };
    assert!(signature.sha1);
    assert!(loaded.warnings.iter().any(|w| w.message.contains("may sign with SHA-1")));

    let both = CERTIFICATES.replacen(
        "<IKETransform IKE_AuthenticationMethod=\"RSA_signatures\"/>",
        "<IKETransform IKE_AuthenticationMethod=\"RSA_signatures\"/>\
         <IKETransform IKE_AuthenticationMethod=\"Preshared_key\"/>",
        1,
    );
    assert_errors(&both, &[(12, "preshared key and signatures in one IKEProtection")]);

    let reversed = CERTIFICATES.replacen(
        "/C=NL/O=Example/OU=Lab/CN=left.example.net",
        "C=NL, O=Example, OU=Lab, CN=left.example.net",
        1,
    );
    let loaded = load(&reversed);
    assert!(loaded.warnings.iter().any(|w| w.message.contains("has CN at the top")));

    let wrong = CERTIFICATES.replacen("/C=NL/O=Example/OU=Lab/CN=left", "/X=NL/CN=left", 1);
    assert_errors(&wrong, &[(27, "\"X\" is no attribute type")]);
}

#[test]
fn ikev1_with_groups_is_refused_once() {
    assert_errors(GENERIC, &[(14, "IKEv1 is not supported")]);
}

#[test]
fn a_bundle_of_esp_and_ah_is_refused() {
    assert_errors(INTEGRITY, &[(50, "ESP and AH in one IPSecProposal are a bundle")]);
}

/// The file without the bundle, and with proposals of one mode only.
#[test]
fn integrity_without_secrecy_is_loaded_with_warnings() {
    let mut text = INTEGRITY
        .replace("ah_gmac ah_classic esp_gmac esp_null bundle", "ah_gmac esp_gmac esp_null");
    for name in ["ah_classic", "bundle"] {
        let start = text.find(&format!("<IPSecProposal IPSec_ProposalName=\"{name}\"")).unwrap();
        let end = start + text[start..].find("</IPSecProposal>").unwrap() + 16;
        // Lines keep their numbers.
        let lines = "\n".repeat(text[start..end].matches('\n').count());
        text.replace_range(start..end, &lines);
    }
    let loaded = load(&text);
    let (tunnel, child) = loaded.policy.child("int_d").unwrap();
    assert_eq!(tunnel.proposals[0].integrity, [Integrity::AesXcbc96]);
    let offers: Vec<_> = child.proposals.iter().map(|p| (p.protection, p.esn)).collect();
    assert_eq!(
        offers,
        [
            (Protection::Ah(AhIntegrity::AesGmac(KeyBits::B256)), false),
            (Protection::Ah(AhIntegrity::AesGmac(KeyBits::B192)), false),
            (Protection::Ah(AhIntegrity::AesGmac(KeyBits::B128)), false),
            (Protection::aead(EspEncryption::AesGmac(KeyBits::B256)), true),
            (Protection::aead(EspEncryption::AesGmac(KeyBits::B192)), true),
            (Protection::aead(EspEncryption::AesGmac(KeyBits::B128)), true),
            (Protection::encrypt_and_mac(EspEncryption::Null, Integrity::HmacSha1_96), false),
        ]
    );
    assert!(child.proposals.iter().all(|p| !p.protection.hides()));
    let warnings: Vec<_> = (loaded.warnings.iter().map(|w| (w.line, w.message.as_str())))
        .filter(|(line, _)| *line > 18)
        .collect();
    let readable = ["ESP_AES256_GMAC", "ESP_AES192_GMAC", "ESP_AES128_GMAC", "ESP_NULL"]
        .map(|name| format!("{name} does not encrypt: everybody on the way can read the traffic"));
    let mut expected = vec![(22, "AH does not encrypt: everybody on the way can read the traffic")];
    expected.extend([36, 38, 40, 44].into_iter().zip(readable.iter().map(String::as_str)));
    assert_eq!(warnings, expected);
    assert_eq!(loaded.warnings.len(), 1 + 5, "the short key of line 18, too");
}

/// DES is not built in unless that is asked for, and then it is told what it is worth.
#[test]
fn des_is_for_builds_that_ask_for_it() {
    for (name, why) in [("ESP_3DES", "blocks of 64 bits"), ("ESP_DES", "key of 56 bits")] {
        let text = HOST
            .replace("ESP_AES256_GCM_16", name)
            .replace("ESP_Authentication=\"NONE\"", "ESP_Authentication=\"HMAC-SHA\"");
        let read = read("p.xml", &text);
        if cfg!(feature = "legacy") {
            let loaded = read.expect("built in");
            let loud = loaded.warnings.iter().find(|w| w.message.starts_with(name)).expect("told");
            assert!(loud.message.contains("DOES NOT KEEP THE TRAFFIC SECRET"), "{}", loud.message);
            assert!(loud.message.contains(why), "{}", loud.message);
        } else {
            let errors = read.expect_err("not built in").to_string();
            assert!(errors.contains(&format!("{name:?} is not supported")), "{errors}");
            assert!(errors.contains("a vpnd that is built with --features legacy"), "{errors}");
        }
    }
}

#[test]
fn chacha20_and_large_groups() {
    let text = HOST
        .replace("IKE_Encryption=\"AES-CBC-256\"", "IKE_Encryption=\"CHACHA20-POLY1305\"")
        .replace("<IKETransform IKE_Hash=\"SHA\"/>", "")
        .replace(
            "IKE_DHGroup=\"20\"/>",
            "IKE_DHGroup=\"15\"/><IKETransform IKE_DHGroup=\"GROUP_16\"/>",
        )
        .replace("ESP_AES256_GCM_16", "ESP_CHACHA20_POLY1305")
        .replace("IPSec_InitiatorDHGroup=\"0\"", "IPSec_InitiatorDHGroup=\"GROUP_16\"");
    let loaded = load(&text);
    let tunnel = loaded.policy.tunnel("hh_k").unwrap();
    assert_eq!(
        tunnel.proposals,
        [IkeProposal {
            encryption: vec![IkeEncryption::ChaCha20Poly1305],
            integrity: vec![],
            prf: vec![Prf::HmacSha1],
            groups: vec![Group::Modp3072, Group::Modp4096],
            additional: Vec::new()
        }]
    );
    let (_, child) = loaded.policy.child("hh_d").unwrap();
    let chacha = Protection::aead(EspEncryption::ChaCha20Poly1305);
    assert_eq!(child.proposals[0].protection, chacha);
    assert!(chacha.hides());
    assert_eq!(child.pfs.offer, [Group::Modp4096]);
}

#[test]
fn weak_algorithms_are_used_where_named_and_warned_of() {
    let text = HOST
        .replace("IKE_DHGroup=\"20\"", "IKE_DHGroup=\"24\"")
        .replace("ESP_AES256_GCM_16", "ESP_AES_CBC_128")
        .replace("ESP_Authentication=\"NONE\"", "ESP_Authentication=\"HMAC-MD5\"");
    let loaded = load(&text);
    let (tunnel, child) = loaded.policy.child("hh_d").unwrap();
    assert_eq!(tunnel.proposals[0].groups, [Group::Modp2048Sub256]);
    let md5 =
        Protection::encrypt_and_mac(EspEncryption::AesCbc(KeyBits::B128), Integrity::HmacMd5_96);
    assert_eq!(child.proposals[0].protection, md5);
    // Nobody gets them who did not ask for them: without IPSec_ResponderDHGroup all groups are accepted but these.
    for group in [Group::Modp1024, Group::Modp1536, Group::Modp2048Sub256] {
        assert!(group.is_weak());
        let open = load(&HOST.replace("IPSec_ResponderDHGroup=\"GROUP_2\"", ""));
        let (_, child) = open.policy.child("hh_d").unwrap();
        assert!(child.pfs.accept.contains(&Group::Ecp384) && !child.pfs.accept.contains(&group));
    }
    let warned = |words: &str| loaded.warnings.iter().any(|w| w.message == words);
    assert!(warned("Diffie-Hellman group 24 (MODP-2048-256) is weak"));
    assert!(warned("ESP_Authentication \"HMAC-MD5\" is weak"));
}

/// AIX's names for the algorithms made of AES.
#[test]
fn integrity_made_of_aes_has_several_names() {
    for (hash, integrity, prf) in [
        ("CMAC_AES_XCBC", Integrity::AesXcbc96, Prf::Aes128Xcbc),
        ("AES-XCBC", Integrity::AesXcbc96, Prf::Aes128Xcbc),
        ("AES-CMAC", Integrity::AesCmac96, Prf::Aes128Cmac),
    ] {
        let text = HOST
            .replace("IKE_Hash=\"SHA\"", &format!("IKE_Hash=\"{hash}\""))
            .replace("<IKETransform IKE_PRF=\"PRF_HMAC_SHA1\"/>", "");
        let loaded = load(&text);
        let proposal = &loaded.policy.tunnel("hh_k").unwrap().proposals[0];
        assert_eq!((&proposal.integrity[..], &proposal.prf[..]), (&[integrity][..], &[prf][..]));
        assert!(!loaded.warnings.iter().any(|w| w.message.contains(hash)));
    }
}

#[test]
fn roles_and_flags() {
    let loaded = load(ROLES);
    let [a, b] = &loaded.policy.tunnels[..] else { panic!("two tunnels") };
    assert_eq!((a.role, b.role), (Role::Initiator, Role::Responder));
    assert_eq!((a.lifetime.hard, a.lifetime.overlap_percent), (minutes(1), 1));
    assert_eq!((b.lifetime.hard, b.lifetime.overlap_percent), (minutes(1440), 50));
    assert_eq!((a.auto_start, b.auto_start), (true, false));
    assert_eq!(b.remote.identity, Identity::Fqdn("c.example".into()));
    assert_eq!(b.remote.address, Some("127.10.0.3".parse().unwrap()));
    assert_eq!((key(&a.credential), key(&b.credential)), (&b"a"[..], &b"c-secret"[..]));
    assert_eq!(b.proposals.len(), 2, "one for each complete transform");
    assert_eq!(b.proposals[1].groups, [Group::Modp1024]);
    assert_eq!(b.proposals[1].encryption, [IkeEncryption::AesCbc(KeyBits::B128)]);
    assert_eq!(b.proposals[1].integrity, [Integrity::HmacMd5_96]);
    assert_eq!(b.proposals[1].prf, [Prf::HmacMd5]);
    let idle = loaded.warnings.iter().find(|w| w.message.contains("cannot come up"));
    let idle = idle.expect("its phase 2 tunnels only answer, and the peer may not start");
    assert!(idle.message.starts_with("\"a_k\"") && idle.line == 16, "{idle}");
    let weak: Vec<_> =
        (loaded.warnings.iter().filter(|w| w.line == 13)).map(|w| w.message.as_str()).collect();
    assert_eq!(
        weak,
        [
            "IKE_PRF \"PRF_HMAC_MD5\" is weak",
            "IKE_Hash \"MD5\" is weak",
            "Diffie-Hellman group 2 (MODP-1024) is weak"
        ]
    );

    let flags: Vec<_> = [a, b]
        .iter()
        .flat_map(|t| &t.children)
        .map(|c| (c.name.as_str(), c.role, c.auto_start, c.on_demand))
        .collect();
    assert_eq!(
        flags,
        [
            ("a_auto", Role::Responder, true, false),
            ("a_demand", Role::Responder, false, true),
            ("b_both", Role::Responder, true, true),
            ("b_manual", Role::Responder, false, false),
        ]
    );
    let (_, both) = loaded.policy.child("b_both").unwrap();
    assert_eq!(both.local[0].to_string(), "0.0.0.0/0[udp/53]");
    assert_eq!(both.remote[0].to_string(), "10.9.0.0/22[udp/1024-65535]");
    // No IPSec_ResponderDHGroup: no key exchange, or any group that is not weak.
    assert!(both.pfs.accept_none && both.pfs.offer.is_empty());
    assert!(
        both.pfs.accept.contains(&Group::Ecp256) && !both.pfs.accept.contains(&Group::Modp1024)
    );
}

#[test]
fn aead_and_other_ciphers_part() {
    let text = GATEWAY.replace("\"AES-CBC-128\"", "\"AES-GCM-16-256\"").replace(
        "<IKETransform IKE_PRF=\"PRF_HMAC_SHA1\"/>",
        "<IKETransform IKE_Encryption=\"AES-GCM-16-128\"/>",
    );
    let loaded = load(&text);
    let proposals = &loaded.policy.tunnels[0].proposals;
    assert_eq!(
        *proposals,
        [
            IkeProposal {
                encryption: vec![IkeEncryption::AesCbc(KeyBits::B256)],
                integrity: vec![Integrity::HmacSha2_256_128, Integrity::HmacSha1_96],
                prf: vec![Prf::HmacSha2_256],
                groups: vec![Group::Ecp256, Group::Modp2048],
                additional: Vec::new()
            },
            IkeProposal {
                encryption: vec![
                    IkeEncryption::AesGcm16(KeyBits::B256),
                    IkeEncryption::AesGcm16(KeyBits::B128)
                ],
                integrity: vec![],
                prf: vec![Prf::HmacSha2_256],
                groups: vec![Group::Ecp256, Group::Modp2048],
                additional: Vec::new()
            },
        ]
    );
}

#[test]
fn single_transforms_belong_to_every_whole_one() {
    let text = HOST
        .replace(
            "<IKETransform IKE_Encryption=\"AES-CBC-256\"/>",
            concat!(
                "<IKETransform IKE_Encryption=\"AES-CBC-256\" IKE_Hash=\"HMAC_SHA2_512\"/>",
                "<IKETransform IKE_Encryption=\"AES-GCM-16-128\" IKE_PRF=\"PRF_SHA2_384\"/>"
            ),
        )
        .replace("<IKETransform IKE_Hash=\"SHA\"/>", "");
    let proposals = load(&text).policy.tunnels[0].proposals.clone();
    assert_eq!(
        proposals,
        [
            IkeProposal {
                encryption: vec![IkeEncryption::AesCbc(KeyBits::B256)],
                integrity: vec![Integrity::HmacSha2_512_256],
                prf: vec![Prf::HmacSha1],
                groups: vec![Group::Ecp384],
                additional: Vec::new()
            },
            IkeProposal {
                encryption: vec![IkeEncryption::AesGcm16(KeyBits::B128)],
                integrity: vec![],
                prf: vec![Prf::HmacSha2_384, Prf::HmacSha1],
                groups: vec![Group::Ecp384],
                additional: Vec::new()
            },
        ]
    );
}

#[test]
fn a_hash_serves_as_prf_where_none_is_named() {
    let text = HOST
        .replace("<IKETransform IKE_PRF=\"PRF_HMAC_SHA1\"/>", "")
        .replace("IKE_Hash=\"SHA\"", "IKE_Hash=\"HMAC_SHA2_384\"");
    assert_eq!(load(&text).policy.tunnels[0].proposals[0].prf, [Prf::HmacSha2_384]);
}

#[test]
fn ascii_keys_keep_their_blanks_and_references() {
    let with = |value: &str| {
        let text = HOST.replace("correct-horse-battery-staple-0192", value);
        key(&load(&text).policy.tunnels[0].credential).to_vec()
    };
    assert_eq!(with("  key with  spaces kept "), b"  key with  spaces kept ");
    assert_eq!(with("&lt;a&gt; &amp; &quot;b&quot; &apos;&#39;&#x9;"), b"<a> & \"b\" ''\t");
    assert_eq!(with("a\tb\r\nc\rd"), b"a b c d");
    assert_eq!(with("0x1234567890123456"), b"0x1234567890123456");
}

#[test]
fn names_identify_and_the_address_inside_is_the_endpoint() {
    let text = HOST
        .replace("ESP_EncapsulationMode=\"Transport\"", "ESP_EncapsulationMode=\"Tunnel\"")
        .replace(
            "<IPV4_Address Value=\"192.0.2.10\"/>",
            "<User_FQDN Value=\"ops@left.example.net\"/>",
        )
        .replace(
            "<IPV4_Address Value=\"192.0.2.20\"/>",
            "<Key_ID Value=\" b 7\"><IPV6_Address Value=\"2001:db8::7\"/></Key_ID>",
        )
        .replace("<PK_IPV4_Address Value=\"192.0.2.20\"/>", "<PK_Key_ID Value=\" b 7\"/>");
    let loaded = load(&text);
    let tunnel = &loaded.policy.tunnels[0];
    assert_eq!(tunnel.local.identity, Identity::UserFqdn("ops@left.example.net".into()));
    assert_eq!(tunnel.local.address, None);
    assert_eq!(tunnel.remote.identity, Identity::KeyId(b" b 7".to_vec()));
    assert_eq!(tunnel.remote.address, Some("2001:db8::7".parse().unwrap()));
    assert!(loaded.warnings.iter().any(|w| w.message.contains("only the peer can start")));
}

#[test]
fn domain_names_of_keys_compare_without_case() {
    let text = ROLES.replace("PK_FQDN Value=\"c.example\"", "PK_FQDN Value=\"C.Example\"");
    assert_eq!(key(&load(&text).policy.tunnels[1].credential), b"c-secret");
}

#[test]
fn ipv6_and_subnets() {
    let text = GATEWAY
        .replace("IPV4_Address Value=\"198.51.100.1\"", "IPV6_Address Value=\"2001:db8::1\"")
        .replace("IPV4_Address Value=\"203.0.113.1\"", "IPV6_Address Value=\" 2001:DB8:0::2 \"")
        .replace(
            "<IPV4_Address_Range From_IPAddr=\"10.1.0.0\" To_IPAddr=\"10.1.255.255\"/>",
            "<IPV6_Subnet IPAddr=\"2001:db8:1::5\" PrefixLength=\"48\"/>",
        )
        .replace(
            "<IPV4_Address_Range From_IPAddr=\"10.2.0.0\" To_IPAddr=\"10.2.255.255\"/>",
            "<IPV6_Address_Range From_IPAddr=\"2001:db8:2::\" To_IPAddr=\"2001:db8:2::f\"/>",
        )
        .replace(
            "<IPV4_Address_Range From_IPAddr=\"172.16.8.5\" To_IPAddr=\"172.16.8.13\"/>",
            "<IPV4_Subnet Value=\"10.10.10.0\" Netmask=\"255.255.255.192\"/>",
        )
        .replace(
            "<IPV4_Address_Range From_IPAddr=\"172.20.0.1\" To_IPAddr=\"172.20.0.1\"/>",
            "<IPV4_Subnet Value=\"0.0.0.0\" Mask=\"0\"/>",
        );
    // The key's identity is PK_IPV4_Address and thereby renamed as well.
    let loaded = load(&text);
    let [lan, https] = &loaded.policy.tunnels[0].children[..] else { panic!("two children") };
    assert_eq!(lan.local[0].to_string(), "2001:db8:1::/48");
    assert_eq!(lan.remote[0].to_string(), "2001:db8:2::/124");
    assert_eq!(https.local[0].to_string(), "10.10.10.0/26[tcp]");
    assert_eq!(https.remote[0].to_string(), "0.0.0.0/0[tcp/443-444]");
    let converted = loaded.warnings.iter().filter(|w| w.message.contains("is read as the range"));
    assert_eq!(converted.count(), 3);
}

#[test]
fn volume_counts_only_with_use_life_size() {
    let loaded = load(&GATEWAY.replace("UseLifeSize=\"Yes\"", "UseLifeSize=\"No\""));
    let (_, child) = loaded.policy.child("gw_lan").unwrap();
    assert!(child.proposals.iter().all(|p| p.lifetime.bytes.is_none()));
    let said = |words: &str| loaded.warnings.iter().any(|w| w.message.contains(words));
    assert!(said("ESP_KeyRefreshKB 4194304 is ignored"), "{:?}", loaded.warnings);
    assert!(said("no proposal has a limit by volume"), "{:?}", loaded.warnings);
}

#[test]
fn external_doctype_and_byte_order_mark_are_ignored() {
    let text =
        HOST.replace("<AIX_VPN", "<!DOCTYPE AIX_VPN SYSTEM \"http://192.0.2.1/x.dtd\">\n<AIX_VPN");
    assert_eq!(load(&text).policy, load(HOST).policy);
    assert_eq!(load(&format!("\u{feff}{HOST}")).policy, load(HOST).policy);
}
