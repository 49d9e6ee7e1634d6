//! Every spelling that the format is known or believed to have, and how strictly names are taken.

use policy::xml::{Advice, Algorithm, Loaded, Options, Severity, read, read_with};
use policy::{
    AddressRange, AhIntegrity, AllowedTraffic, EspEncryption, Group, Identity, IkeEncryption,
    Integrity, KeyBits, Prf, Protection, RangeKind, Selector,
};

const OFFICE: &str = include_str!("../../../../tests/policies/good/01_two_networks.xml");
const GROUP: &str = include_str!("../../../../tests/policies/good/02_group_of_peers.xml");

fn load(text: &str) -> Loaded {
    read("p.xml", text).unwrap_or_else(|errors| panic!("{errors}"))
}

/// The file with one attribute's value replaced by another.
fn with(attribute: &str, value: &str) -> Loaded {
    let start = OFFICE.find(&format!("{attribute}=\"")).expect("the file has it");
    let start = start + attribute.len() + 2;
    let end = start + OFFICE[start..].find('"').expect("it is closed");
    load(&format!("{}{value}{}", &OFFICE[..start], &OFFICE[end..]))
}

fn proposal(loaded: &Loaded) -> policy::IkeProposal {
    loaded.policy.tunnels[0].proposals[0].clone()
}

#[test]
fn spellings_of_phase_1() {
    use KeyBits::{B128, B192, B256};
    for (value, meaning) in [
        ("AES-CBC-128", IkeEncryption::AesCbc(B128)),
        ("AES-CBC-192", IkeEncryption::AesCbc(B192)),
        ("AES-CBC-256", IkeEncryption::AesCbc(B256)),
        ("aes-cbc-256", IkeEncryption::AesCbc(B256)),
    ] {
        assert_eq!(proposal(&with("IKE_Encryption", value)).encryption, [meaning], "{value}");
    }
    for (value, meaning) in [
        ("MD5", Integrity::HmacMd5_96),
        ("SHA", Integrity::HmacSha1_96),
        ("HMAC_SHA2_256", Integrity::HmacSha2_256_128),
        ("SHA2_256", Integrity::HmacSha2_256_128),
        ("SHA2-256", Integrity::HmacSha2_256_128),
        ("CMAC_AES_XCBC", Integrity::AesXcbc96),
        ("AES-XCBC", Integrity::AesXcbc96),
        ("AES_XCBC", Integrity::AesXcbc96),
    ] {
        assert_eq!(proposal(&with("IKE_Hash", value)).integrity, [meaning], "{value}");
    }
    for (value, meaning) in [
        ("PRF_HMAC_MD5", Prf::HmacMd5),
        ("PRF_HMAC_SHA1", Prf::HmacSha1),
        ("PRF_HMAC_SHA2_256", Prf::HmacSha2_256),
        ("PRF_SHA2_256", Prf::HmacSha2_256),
        ("PRF_AES128_XCBC", Prf::Aes128Xcbc),
    ] {
        assert_eq!(proposal(&with("IKE_PRF", value)).prf, [meaning], "{value}");
    }
    for (value, meaning) in [
        ("2", Group::Modp1024),
        ("5", Group::Modp1536),
        ("14", Group::Modp2048),
        ("GROUP_14", Group::Modp2048),
        ("19", Group::Ecp256),
        ("20", Group::Ecp384),
        ("21", Group::Ecp521),
        ("24", Group::Modp2048Sub256),
    ] {
        assert_eq!(proposal(&with("IKE_DHGroup", value)).groups, [meaning], "{value}");
    }
}

#[test]
fn spellings_of_phase_2() {
    let protection = |loaded: Loaded| loaded.policy.tunnels[0].children[0].proposals[0].protection;
    for (value, meaning) in [
        ("ESP_AES128_GCM_16", EspEncryption::AesGcm16(KeyBits::B128)),
        ("ESP_AES192_GCM_16", EspEncryption::AesGcm16(KeyBits::B192)),
        ("ESP_AES256_GCM_16", EspEncryption::AesGcm16(KeyBits::B256)),
        ("ESP_AES128_GMAC", EspEncryption::AesGmac(KeyBits::B128)),
        ("ESP_AES192_GMAC", EspEncryption::AesGmac(KeyBits::B192)),
        ("ESP_AES256_GMAC", EspEncryption::AesGmac(KeyBits::B256)),
    ] {
        let read = protection(with("ESP_Encryption", value));
        assert_eq!(read, Protection::aead(meaning), "{value}");
    }
    let sha = OFFICE.replace("\"NONE\"", "\"HMAC-SHA\"");
    for (value, meaning) in [
        ("ESP_AES_CBC_128", EspEncryption::AesCbc(KeyBits::B128)),
        ("ESP_AES_128", EspEncryption::AesCbc(KeyBits::B128)),
        ("ESP_AES128_CBC", EspEncryption::AesCbc(KeyBits::B128)),
        ("ESP_AES128", EspEncryption::AesCbc(KeyBits::B128)),
        ("ESP_AES_CBC_192", EspEncryption::AesCbc(KeyBits::B192)),
        ("ESP_AES_CBC_256", EspEncryption::AesCbc(KeyBits::B256)),
        ("ESP_NULL", EspEncryption::Null),
    ] {
        let read = protection(load(&sha.replace("ESP_AES256_GCM_16", value)));
        assert_eq!(read, Protection::encrypt_and_mac(meaning, Integrity::HmacSha1_96), "{value}");
    }
    let cbc = OFFICE.replace("ESP_AES256_GCM_16", "ESP_AES_CBC_256");
    for (value, meaning) in [
        ("HMAC-MD5", Integrity::HmacMd5_96),
        ("HMAC-SHA", Integrity::HmacSha1_96),
        ("HMAC-SHA2-256", Integrity::HmacSha2_256_128),
        ("AES-XCBC-MAC-96", Integrity::AesXcbc96),
        ("AES_XCBC_MAC_96", Integrity::AesXcbc96),
    ] {
        let read = protection(load(&cbc.replace("\"NONE\"", &format!("{value:?}"))));
        let aes = EspEncryption::AesCbc(KeyBits::B256);
        assert_eq!(read, Protection::encrypt_and_mac(aes, meaning), "{value}");
    }
    let pfs = |loaded: Loaded| loaded.policy.tunnels[0].children[0].pfs.clone();
    for (value, offer) in [
        ("0", &[][..]),
        ("NO_PFS", &[]),
        ("NONE", &[]),
        ("19", &[Group::Ecp256]),
        ("GROUP_19", &[Group::Ecp256]),
    ] {
        assert_eq!(pfs(with("IPSec_InitiatorDHGroup", value)).offer, offer, "{value}");
    }
    let read = pfs(with("IPSec_ResponderDHGroup", " NO_PFS GROUP_19 14\n 0 "));
    assert_eq!((read.accept, read.accept_none), (vec![Group::Ecp256, Group::Modp2048], true));
}

#[test]
fn each_spelling_of_a_signature_method_is_read() {
    let text = OFFICE.replace("Preshared_key", "RSA_signatures");
    for value in ["RSA_signatures", "ECDSA-256", "ECDSA_256", "ECDSA_signatures"] {
        let loaded = load(&text.replace("RSA_signatures", value));
        let credential = &loaded.policy.tunnels[0].credential;
        assert!(matches!(credential, policy::Credential::Signature(_)), "{value}");
    }
}

#[test]
fn subnets_in_every_spelling() {
    let range = "IPV4_Address_Range From_IPAddr=\"10.1.0.0\" To_IPAddr=\"10.1.255.255\"";
    for address in ["Value", "IPAddr", "From_IPAddr"] {
        for (mask, value) in [
            ("Netmask", "255.255.0.0"),
            ("Mask", "16"),
            ("SubnetMask", "255.255.0.0"),
            ("PrefixLength", "16"),
        ] {
            let subnet = format!("IPV4_Subnet {address}=\"10.1.0.0\" {mask}={value:?}");
            let loaded = load(&OFFICE.replace(range, &subnet));
            assert_eq!(loaded.policy.tunnels[0].children[0].local[0].to_string(), "10.1.0.0/16");
        }
    }
}

#[test]
fn groups_in_every_spelling() {
    let expected = load(GROUP).policy;
    for (from, to) in [
        ("IKEGroup IKE_GroupName", "IKEGroup GroupName"),
        ("IKEGroup IKE_GroupName", "IKEGroup Name"),
        ("IKEGroupRef Value", "IKEGroupRef IKE_GroupName"),
        ("IKEGroupRef Value", "IKEGroup Value"),
        ("IKEGroupRef Value", "Group Name"),
    ] {
        assert_eq!(load(&GROUP.replace(from, to)).policy, expected, "{from} → {to}");
    }
    for name in ["IDGroup", "Group"] {
        let text = GROUP.replace("<IKEGroup ", &format!("<{name} "));
        let text = text.replace("</IKEGroup>", &format!("</{name}>"));
        assert_eq!(load(&text).policy, expected, "{name}");
    }
}

/// Each peer has a tunnel of its own, and of the group's traffic its own address.
#[test]
fn a_group_becomes_a_tunnel_for_each_peer() {
    let loaded = load(GROUP);
    let tunnels: Vec<_> = (loaded.policy.tunnels.iter())
        .map(|tunnel| {
            let remote: Vec<Vec<String>> = (tunnel.children.iter())
                .map(|child| child.remote.iter().map(Selector::to_string).collect())
                .collect();
            (tunnel.name.as_str(), tunnel.remote.address.map(|a| a.to_string()), remote)
        })
        .collect();
    let own = |address: &str| (Some(address.to_owned()), vec![vec![address.to_owned()]]);
    let expected = [
        ("branches:ann.example.net", own("192.0.2.21")),
        ("branches:bob@example.net", own("192.0.2.22")),
        ("branches:192.0.2.30", own("192.0.2.30")),
        ("branches:192.0.2.32", own("192.0.2.32")),
        ("branches:192.0.2.33", own("192.0.2.33")),
    ]
    .map(|(name, (address, remote))| (name, address, remote));
    assert_eq!(tunnels, expected);
    assert!(loaded.policy.child("branch_lan:192.0.2.33").is_some());
    assert_eq!(loaded.policy.tunnels[0].remote.identity, Identity::Fqdn("ann.example.net".into()));
}

#[test]
fn unknown_names_are_warned_of_where_that_is_wanted() {
    let text = OFFICE
        .replace("IKE_Flags_AutoStart=\"No\"", "IKE_TunnelLifetime=\"1440\"")
        .replace("</IKETunnel>", "</IKETunnel>\n<Firewall Rule='permit'><Rule/></Firewall>");
    let errors = read("p.xml", &text).expect_err("strict as AIX is");
    assert_eq!(errors.errors().count(), 2, "{errors}");
    let options = Options { lenient: true, ..Options::default() };
    let loaded = read_with("p.xml", &text, &options).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(loaded.policy, load(OFFICE).policy);
    let said: Vec<_> = loaded.warnings.iter().map(|w| (w.severity, w.message.as_str())).collect();
    let expected = [
        "IKETunnel has no attribute IKE_TunnelLifetime: it is ignored",
        "unknown element Firewall: it is ignored, with all in it",
    ];
    assert_eq!(said, expected.map(|message| (Severity::Warning, message)));

    // Values, and what a known name says in the wrong place, are never ignored.
    for (from, to) in [
        ("AES-CBC-256", "AES-CBC-265"),
        ("</IKETunnel>", "<IKETransform IKE_DHGroup='20'/></IKETunnel>"),
        ("IKE_ProtectionRef=", "IKE_ProtectionReference="),
    ] {
        let text = OFFICE.replace(from, to);
        assert!(read_with("p.xml", &text, &options).is_err(), "{from} → {to}");
    }
}

#[test]
fn advice_about_an_algorithm_stands_at_its_place() {
    let slow = |algorithm| match algorithm {
        Algorithm::Child(Protection::Esp { encryption: EspEncryption::AesGcm16(_), .. }) => {
            Some(Advice { message: "slow here".into(), help: "take another".into() })
        }
        _ => None,
    };
    let options = Options { advise: Some(&slow), ..Options::default() };
    let loaded = read_with("p.xml", OFFICE, &options).unwrap_or_else(|errors| panic!("{errors}"));
    let [warning] = &loaded.warnings[..] else { panic!("{:?}", loaded.warnings) };
    assert_eq!(
        (warning.message.as_str(), warning.value.as_deref()),
        ("slow here", Some("ESP_AES256_GCM_16"))
    );
    let ike = |algorithm| match algorithm {
        Algorithm::Ike(IkeEncryption::AesCbc(_)) => {
            Some(Advice { message: "slow".into(), help: String::new() })
        }
        _ => None,
    };
    let options = Options { advise: Some(&ike), ..Options::default() };
    let loaded = read_with("p.xml", OFFICE, &options).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(loaded.warnings.len(), 1);
}

#[test]
fn a_generic_policy_says_what_may_be_asked_for() {
    let loaded = load(include_str!("../../../../tests/policies/good/04_generic_policy.xml"));
    let [tunnel] = &loaded.policy.tunnels[..] else { panic!("one tunnel") };
    let generic = tunnel.generic.as_ref().expect("there is one");
    assert_eq!(generic.name, "_defIPSprot_office");
    let (address, subnet) = (Some(RangeKind::Address), Some(RangeKind::Subnet));
    assert_eq!(generic.local, AllowedTraffic { ipv4: subnet, ipv6: None });
    assert_eq!(generic.remote, AllowedTraffic { ipv4: address, ipv6: address });
    let range = |start: &str, end: &str| {
        let address = |text: &str| text.parse().expect("an address");
        AddressRange::new(address(start), address(end)).expect("in order")
    };
    for (range, local, remote) in [
        (range("10.0.0.1", "10.0.0.1"), true, true),
        (range("10.0.0.0", "10.0.0.255"), true, false),
        (range("10.0.0.1", "10.0.0.255"), false, false),
        (range("::1", "::1"), false, true),
    ] {
        assert_eq!((generic.local.allows(&range), generic.remote.allows(&range)), (local, remote));
    }
}

/// AH's integrity has names of its own.
#[test]
fn spellings_of_ah() {
    let ah = |attribute: &str, value: &str| {
        OFFICE.replace(
            "<IPSecESPProtocol ESP_Encryption=\"ESP_AES256_GCM_16\" ESP_Authentication=\"NONE\"\n        \
             ESP_EncapsulationMode=\"Tunnel\" ESP_ExtendedSeqNum=\"1\"\n        \
             ESP_KeyRefreshMinutes=\"60\" ESP_KeyRefreshKB=\"0\"/>",
            &format!("<IPSecAHProtocol {attribute}={value:?}/>"),
        )
    };
    for attribute in ["AH_Authentication", "AH_Transform", "AH_Encryption"] {
        for (value, meaning) in [
            ("AH_AES_128_GMAC", AhIntegrity::AesGmac(KeyBits::B128)),
            ("AH_AES_192_GMAC", AhIntegrity::AesGmac(KeyBits::B192)),
            ("AH_AES_256_GMAC", AhIntegrity::AesGmac(KeyBits::B256)),
            ("AH_AES256_GMAC", AhIntegrity::AesGmac(KeyBits::B256)),
            ("AH_MD5", AhIntegrity::Mac(Integrity::HmacMd5_96)),
            ("AH_SHA", AhIntegrity::Mac(Integrity::HmacSha1_96)),
            ("AH_SHA2_256", AhIntegrity::Mac(Integrity::HmacSha2_256_128)),
            ("AH_AES_XCBC_MAC", AhIntegrity::Mac(Integrity::AesXcbc96)),
        ] {
            let loaded = load(&ah(attribute, value));
            let read = loaded.policy.tunnels[0].children[0].proposals[0].protection;
            assert_eq!(read, Protection::Ah(meaning), "{value}");
            let said = "AH does not encrypt: everybody on the way can read the traffic";
            assert!(loaded.warnings.iter().any(|warning| warning.message == said), "{value}");
        }
        let errors = read("p.xml", &ah(attribute, "AH_SHA3")).expect_err("unknown");
        assert!(errors.to_string().contains("did you mean"), "{errors}");
    }
}
