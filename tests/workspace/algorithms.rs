//! Each algorithm of the registry keeps its identity on every way: from the words of a policy to its value and back, to a
//! transform of IKE and back, and from the words of other daemons to the words of a policy.
#![forbid(unsafe_code)]

use algorithms::{AhIntegrity, EspEncryption, Group, IkeEncryption, Integrity, Prf};
use convert::source::{Disk, File};
use convert::{Converted, Format, Options, convert};
use esp::plane::Spi;
use ike::negotiation::description::{describe, describe_group};
use ike::negotiation::proposal::{
    ChildKeyExchange, Offered, accept_ike, choose_child, offer_child, offer_ike,
};
use ike::wire::registry::{EncryptionId, GroupId, IntegrityId, PrfId};
use policy::xml::word_for;
use policy::{ChildProposal, IkeProposal, Policy, Protection};

/// A policy with AES-CBC in both phases, and AH instead of ESP if `ah` names an algorithm.
fn document(changes: &[(&str, &str)], ah: Option<&str>) -> String {
    let mut text = include_str!("../policies/good/01_two_networks.xml").to_owned();
    let mut set = |from: &str, to: &str| {
        assert_eq!(text.matches(from).count(), 1, "{from}");
        text = text.replace(from, to);
    };
    if let Some(word) = ah {
        set(
            "<IPSecESPProtocol ESP_Encryption=\"ESP_AES256_GCM_16\" ESP_Authentication=\"NONE\"",
            &format!("<IPSecAHProtocol AH_Authentication=\"{word}\""),
        );
        for name in ["EncapsulationMode", "ExtendedSeqNum", "KeyRefreshMinutes", "KeyRefreshKB"] {
            set(&format!("ESP_{name}"), &format!("AH_{name}"));
        }
    }
    let used = [
        ("IKE_Encryption", "AES-CBC-256"),
        ("IKE_Hash", "HMAC_SHA2_256"),
        ("IKE_PRF", "PRF_HMAC_SHA2_256"),
        ("IKE_DHGroup", "19"),
        ("ESP_Encryption", "ESP_AES256_GCM_16"),
        ("ESP_Authentication", "NONE"),
    ];
    for (attribute, word) in changes {
        let (_, old) = used.iter().find(|(name, _)| name == attribute).expect("an attribute");
        set(&format!(" {attribute}=\"{old}\""), &format!(" {attribute}=\"{word}\""));
    }
    text
}

fn read(text: &str) -> Policy {
    policy::xml::read("p.xml", text).unwrap_or_else(|errors| panic!("{errors}\n{text}")).policy
}

fn ike_of(policy: &Policy) -> &IkeProposal {
    &policy.tunnels[0].proposals[0]
}

fn protection_of(policy: &Policy) -> Protection {
    policy.tunnels[0].children[0].proposals[0].protection
}

/// ESP with a cipher, and the word of its integrity algorithm.
fn esp(encryption: EspEncryption) -> (Protection, &'static str) {
    match encryption.is_aead() {
        true => (Protection::aead(encryption), "NONE"),
        false => {
            (Protection::encrypt_and_mac(encryption, Integrity::HmacSha2_256_128), "HMAC-SHA2-256")
        }
    }
}

/// Every cipher that this build has: weak ones need the feature `legacy`.
fn built() -> Vec<EspEncryption> {
    let built: Vec<_> = EspEncryption::ALL.into_iter().filter(|e| policy::is_built(*e)).collect();
    assert!(built.len() >= 11);
    built
}

#[test]
fn a_word_of_a_policy_is_read_as_the_algorithm_of_its_row() {
    for encryption in IkeEncryption::all() {
        for word in encryption.row().xml_ike {
            let read = read(&document(&[("IKE_Encryption", word)], None));
            assert_eq!(ike_of(&read).encryption, [encryption], "{word}");
        }
    }
    for encryption in built() {
        let (protection, mac) = esp(encryption);
        for word in encryption.row().xml_esp {
            let changes = [("ESP_Encryption", *word), ("ESP_Authentication", mac)];
            assert_eq!(protection_of(&read(&document(&changes, None))), protection, "{word}");
        }
    }
    let cbc = ("ESP_Encryption", "ESP_AES_CBC_128");
    for integrity in Integrity::ALL {
        for word in integrity.row().xml_ike {
            let read = read(&document(&[("IKE_Hash", word)], None));
            assert_eq!(ike_of(&read).integrity, [integrity], "{word}");
        }
        for word in integrity.row().xml_esp {
            let read = read(&document(&[cbc, ("ESP_Authentication", word)], None));
            let expected = Some(integrity);
            assert!(
                matches!(protection_of(&read), Protection::Esp { integrity, .. } if integrity == expected)
            );
        }
    }
    for integrity in AhIntegrity::all() {
        for word in integrity.row().xml {
            let read = read(&document(&[], Some(word)));
            assert_eq!(protection_of(&read), Protection::Ah(integrity), "{word}");
        }
    }
    for prf in Prf::ALL {
        for word in prf.row().xml {
            assert_eq!(ike_of(&read(&document(&[("IKE_PRF", word)], None))).prf, [prf], "{word}");
        }
    }
    for group in Group::ALL {
        let read = read(&document(&[("IKE_DHGroup", &group.row().number.to_string())], None));
        assert_eq!(ike_of(&read).groups, [group]);
    }
}

#[test]
fn the_word_that_is_written_is_the_first_of_the_row() {
    let first = |attribute: &str, name: &str, words: &[&str]| {
        assert_eq!(word_for(attribute, name).as_deref(), words.first().copied(), "{name}");
    };
    for encryption in built() {
        let row = encryption.row();
        first("ESP_Encryption", row.name, row.xml_esp);
        first("IKE_Encryption", row.name, row.xml_ike);
        let (protection, mac) = esp(encryption);
        let word = row.xml_esp[0];
        let changes = [("ESP_Encryption", word), ("ESP_Authentication", mac)];
        let written = read(&document(&changes, None)).to_xml().expect("it can be written");
        assert!(written.contains(&format!("ESP_Encryption=\"{word}\"")), "{}", written.as_str());
        assert_eq!(protection_of(&read(&written)), protection);
    }
    for integrity in Integrity::ALL {
        let row = integrity.row();
        first("IKE_Hash", row.name, row.xml_ike);
        first("ESP_Authentication", row.name, row.xml_esp);
        first("AH_Authentication", row.name, row.xml_ah);
        first("IKE_PRF", row.prf.row().name, row.prf.row().xml);
    }
    for group in Group::ALL.map(Group::row) {
        first("IKE_DHGroup", group.name, &[&group.number.to_string()]);
    }
}

#[test]
fn a_transform_has_the_number_of_the_row_and_is_chosen_as_its_algorithm() {
    let esp = EspEncryption::ALL.into_iter().map(|encryption| esp(encryption).0);
    let cbc = EspEncryption::AesCbc(algorithms::KeyBits::B128);
    let macs = Integrity::ALL.into_iter().map(|mac| Protection::encrypt_and_mac(cbc, mac));
    let proposals: Vec<ChildProposal> = esp
        .chain(macs)
        .chain(AhIntegrity::all().map(Protection::Ah))
        .map(|protection| ChildProposal { protection, ..ChildProposal::default() })
        .collect();
    for proposal in &proposals {
        let offer = offer_child(std::slice::from_ref(proposal), Offered::default(), Spi(0x1000));
        let transforms = &offer[0].transforms;
        let ids = |kind| transforms.iter().filter(move |t| t.kind.0 == kind);
        match proposal.protection {
            Protection::Esp { encryption, integrity } => {
                let (row, sent) = (encryption.row(), ids(1).next().expect("a cipher"));
                assert_eq!(sent.id, row.number, "{}", row.name);
                assert_eq!(sent.key_length, row.key_length.map(algorithms::KeyBits::bits));
                assert_eq!(EncryptionId(sent.id).to_string(), row.iana);
                let sent: Vec<u16> = ids(3).map(|t| t.id).collect();
                assert_eq!(sent, integrity.map(|i| i.row().number).into_iter().collect::<Vec<_>>());
            }
            Protection::Ah(integrity) => {
                let sent = ids(3).next().expect("an integrity algorithm");
                assert_eq!(sent.id, integrity.row().number, "{integrity}");
                assert_eq!(IntegrityId(sent.id).to_string(), integrity.row().iana);
            }
        }
        let never = ChildKeyExchange::Never;
        let (choice, ..) = choose_child(&proposals, never, &offer, Spi(0x2000)).expect("one");
        assert_eq!(choice.algorithms.protection, proposal.protection);
    }
}

#[test]
fn an_offer_for_the_ike_sa_names_its_algorithms_as_their_rows_do() {
    for encryption in IkeEncryption::all() {
        for integrity in Integrity::ALL {
            let macs = if encryption.is_aead() { Vec::new() } else { vec![integrity] };
            let prf = Prf::of(integrity);
            for group in Group::ALL {
                let ours = [IkeProposal {
                    encryption: vec![encryption],
                    integrity: macs.clone(),
                    prf: vec![prf],
                    groups: vec![group],
                    additional: Vec::new(),
                }];
                let offer = offer_ike(&ours, &[]);
                let suite = accept_ike(&ours, &offer).expect("it is what was offered");
                assert_eq!((suite.encryption, suite.prf, suite.group), (encryption, prf, group));
                let described = describe(&offer);
                let names = [encryption.row().name, prf.row().name, group.row().name];
                let mac = macs.first().map(|mac| mac.row().name);
                for name in names.into_iter().chain(mac) {
                    assert!(
                        described.trim_matches(['[', ']']).split(" | ").any(|n| n == name),
                        "{described}"
                    );
                }
            }
        }
    }
    for group in Group::ALL.map(Group::row) {
        assert_eq!(GroupId(group.number).to_string(), group.iana);
        assert_eq!(describe_group(GroupId(group.number)), group.name);
    }
    for prf in Prf::ALL.map(Prf::row) {
        assert_eq!(PrfId(prf.number).to_string(), prf.iana);
    }
}

/// A file of strongSwan.
fn swanctl(ike: &str, child: &str) -> Converted {
    let text = format!(
        "connections {{\n site {{\n  local_addrs = 192.0.2.1\n  remote_addrs = 192.0.2.2\n  proposals = {ike}\n  \
         local {{ auth = psk }}\n  remote {{ auth = psk }}\n  children {{ lan {{\n   local_ts = 10.1.0.0/16\n   \
         remote_ts = 10.2.0.0/16\n   {child}\n  }} }}\n }}\n}}\n\
         secrets {{ ike-site {{ secret = \"not a good one\" }} }}\n"
    );
    converted(Format::Swanctl, text, None)
}

/// A file of libreswan.
fn libreswan(ike: &str, esp: &str) -> Converted {
    let text = format!(
        "config setup\n\nconn site\n\tauthby=secret\n\tleft=192.0.2.1\n\tright=192.0.2.2\n\tleftsubnet=10.1.0.0/16\n\
         \trightsubnet=10.2.0.0/16\n\tikev2=insist\n\tauto=add\n\tike={ike}\n\t{esp}\n"
    );
    let secrets = "192.0.2.1 192.0.2.2 : PSK \"not a good one\"\n".to_owned();
    converted(Format::Libreswan, text, Some(secrets))
}

fn converted(format: Format, text: String, secrets: Option<String>) -> Converted {
    let file = |name: &str, text: String| File { name: name.into(), text: text.into() };
    let secrets = secrets.map(|text| file("ipsec.secrets", text));
    let options = Options { local_address: "192.0.2.1".parse().ok(), peer: false };
    convert(format, file("ipsec.conf", text), secrets, &mut Disk::default(), &options)
        .unwrap_or_else(|finding| panic!("{finding}"))
}

/// The policy in a conversion, which writes these words.
fn policy_with(converted: &Converted, words: &[(&str, &str)]) -> Policy {
    assert!(!converted.is_empty(), "{}", converted.report());
    for (attribute, word) in words {
        let text = format!(" {attribute}=\"{word}\"");
        assert!(converted.xml.contains(&text), "{text}\n{}", converted.xml.as_str());
    }
    read(&converted.xml)
}

const SWANCTL: &str = "aes256-sha256-prfsha256-ecp256";
const LIBRESWAN: &str = "aes256-sha2_256;dh19";

#[test]
fn the_words_of_other_daemons_for_ciphers_mean_the_algorithms_of_their_rows() {
    for encryption in EspEncryption::ALL {
        let row = encryption.row();
        let (protection, _) = esp(encryption);
        let mac = if encryption.is_aead() { "" } else { "-sha256" };
        let words = [("ESP_Encryption", row.xml_esp[0])];
        for word in row.strongswan {
            let child = format!("esp_proposals = {word}{mac}");
            if !built().contains(&encryption) {
                let report = swanctl(SWANCTL, &child).report();
                assert!(
                    report.contains(&format!("{word:?}: vpnd has no such algorithm")),
                    "{report}"
                );
                continue;
            }
            let policy = policy_with(&swanctl(SWANCTL, &child), &words);
            assert_eq!(protection_of(&policy), protection, "{word}");
            if let Some(ike) = row.ike {
                let proposal = format!("{word}{mac}-prfsha256-ecp256");
                let converted = swanctl(&proposal, "esp_proposals = aes128-sha256");
                let policy = policy_with(&converted, &[("IKE_Encryption", row.xml_ike[0])]);
                assert_eq!(ike_of(&policy).encryption, [ike], "{word}");
            }
        }
        let bits = row.key_length.map_or_else(String::new, |length| length.to_string());
        for stem in row.libreswan.iter().filter(|_| built().contains(&encryption)) {
            for word in [format!("{stem}{bits}"), format!("{stem}_{bits}")] {
                let word = word.trim_end_matches('_');
                let mac = if encryption.is_aead() { "" } else { "-sha2_256" };
                let policy =
                    policy_with(&libreswan(LIBRESWAN, &format!("esp={word}{mac}")), &words);
                assert_eq!(protection_of(&policy), protection, "{word}");
            }
        }
    }
}

#[test]
fn the_words_of_other_daemons_for_macs_and_prfs_mean_the_algorithms_of_their_rows() {
    for integrity in Integrity::ALL {
        let row = integrity.row();
        let words = [("IKE_Hash", row.xml_ike[0]), ("ESP_Authentication", row.xml_esp[0])];
        let check = |converted: &Converted, word: &str| {
            let policy = policy_with(converted, &words);
            assert_eq!(ike_of(&policy).integrity, [integrity], "{word}");
            assert_eq!(ike_of(&policy).prf, [row.prf], "{word}");
            let Protection::Esp { integrity: mac, .. } = protection_of(&policy) else { panic!() };
            assert_eq!(mac, Some(integrity), "{word}");
        };
        for word in row.strongswan {
            let child = format!("esp_proposals = aes128-{word}");
            check(&swanctl(&format!("aes256-{word}-ecp256"), &child), word);
            let converted = swanctl(SWANCTL, &format!("ah_proposals = {word}"));
            let policy = policy_with(&converted, &[("AH_Authentication", row.xml_ah[0])]);
            assert_eq!(protection_of(&policy), Protection::Ah(AhIntegrity::Mac(integrity)));
        }
        for word in row.libreswan {
            for word in [(*word).to_owned(), format!("hmac_{word}")] {
                let esp = format!("esp=aes128-{word}");
                check(&libreswan(&format!("aes256-{word};dh19"), &esp), &word);
            }
        }
    }
    for prf in Prf::ALL {
        for word in prf.row().strongswan {
            let ike = format!("aes256gcm16-{word}-ecp256");
            let converted = swanctl(&ike, "esp_proposals = aes256gcm16");
            let policy = policy_with(&converted, &[("IKE_PRF", prf.row().xml[0])]);
            assert_eq!(ike_of(&policy).prf, [prf], "{word}");
        }
    }
}

#[test]
fn the_words_of_other_daemons_for_groups_mean_the_methods_of_their_rows() {
    for group in Group::ALL {
        let row = group.row();
        let number = row.number.to_string();
        let check = |converted: &Converted, word: &str| {
            let policy = policy_with(converted, &[("IKE_DHGroup", &number)]);
            assert_eq!(ike_of(&policy).groups, [group], "{word}");
        };
        for word in row.strongswan {
            let ike = format!("aes256-sha256-{word}");
            check(&swanctl(&ike, "esp_proposals = aes256gcm16"), word);
        }
        for word in row.libreswan.iter().filter(|_| !group.is_quantum_safe()) {
            check(&libreswan(&format!("aes256-sha2_256;{word}"), "esp=aes_gcm256"), word);
        }
        for word in row.libreswan.iter().filter(|_| group.is_quantum_safe()) {
            let ike = format!("aes256-sha2_256;dh19-addke1={word}");
            let policy = read(&libreswan(&ike, "esp=aes_gcm256").xml);
            assert_eq!(ike_of(&policy).additional[0].methods, [group], "{word}");
        }
    }
}

/// Of the ciphers that differ only in the length of the key, one is written out.
#[test]
fn the_page_of_algorithms_has_every_cipher() {
    let page = include_str!("../../docs/reference/algorithms.md");
    let has_one_of = |words: &[&str]| words.iter().any(|word| page.contains(&format!("`{word}`")));
    for row in EspEncryption::ALL.map(EspEncryption::row) {
        let rows = EspEncryption::ALL.map(EspEncryption::row);
        let alike: Vec<_> = rows.into_iter().filter(|other| other.number == row.number).collect();
        assert!(alike.iter().any(|row| has_one_of(row.xml_esp)), "ESP: {}", row.name);
        let in_ike = row.ike.is_none() || alike.iter().any(|row| has_one_of(row.xml_ike));
        assert!(in_ike, "IKE: {}", row.name);
    }
}
