use super::*;
use ::crypto::Suite;
use esp::plane::Spi;
use ike::negotiation::suite::IkeSuite;
use ike::wire::header::IkeSpi;
use policy::{Group, IkeEncryption, KeyBits, Prf};

fn secret(octet: u8, len: usize) -> Secret {
    Secret::new(vec![octet; len])
}

fn ike(encryption: IkeEncryption, integrity: Option<Integrity>, lengths: [usize; 2]) -> IkeKeys {
    let keys = |e, i| DirectionKeys {
        encryption: secret(e, lengths[0]),
        integrity: secret(i, lengths[1]),
    };
    IkeKeys {
        initiator_spi: IkeSpi(0x0102_0304_0506_0708),
        responder_spi: IkeSpi(0x1112_1314_1516_1718),
        suite: IkeSuite::new(encryption, integrity, Prf::HmacSha2_256, Group::Ecp256),
        initiator: keys(0xe1, 0xa1),
        responder: keys(0xe2, 0xa2),
    }
}

fn esp(suite: Suite, esn: bool, lengths: [usize; 2]) -> EspKeys {
    EspKeys {
        spi: Spi(0xc0de),
        suite,
        esn,
        source: [192, 0, 2, 1].into(),
        destination: [192, 0, 2, 2].into(),
        keys: DirectionKeys {
            encryption: secret(0xe1, lengths[0]),
            integrity: secret(0xa1, lengths[1]),
        },
    }
}

fn text(line: Result<Secret, Unknown>) -> String {
    String::from_utf8(line.expect("Wireshark knows it").expose().to_vec()).expect("text")
}

#[test]
fn ike_keys_have_their_columns() {
    let gcm = ike(IkeEncryption::AesGcm16(KeyBits::B128), None, [20, 0]);
    assert_eq!(
        text(ike_line(&gcm)),
        format!(
            "0102030405060708,1112131415161718,{},{},\
             \"AES-GCM-128 with 16 octet ICV [RFC5282]\",,,\"NONE [RFC4306]\"\n",
            "e1".repeat(20),
            "e2".repeat(20)
        )
    );
    let mac = Some(Integrity::HmacSha2_256_128);
    let cbc = ike(IkeEncryption::AesCbc(KeyBits::B256), mac, [32, 32]);
    assert_eq!(
        text(ike_line(&cbc)),
        format!(
            "0102030405060708,1112131415161718,{},{},\"AES-CBC-256 [RFC3602]\",{},{},\
             \"HMAC_SHA2_256_128 [RFC4868]\"\n",
            "e1".repeat(32),
            "e2".repeat(32),
            "a1".repeat(32),
            "a2".repeat(32)
        )
    );
}

#[test]
fn esp_keys_have_their_columns() {
    assert_eq!(
        text(esp_line(&esp(Suite::AesGcm16(KeyBits::B256), false, [36, 0]))),
        format!(
            "\"IPv4\",\"*\",\"*\",\"0x0000c0de\",\"AES-GCM with 16 octet ICV [RFC4106]\",\
             \"0x{}\",\"NULL\",\"\"\n",
            "e1".repeat(36)
        )
    );
    let cbc = Suite::AesCbcMac(KeyBits::B128, Integrity::HmacSha2_256_128);
    let mut ipv6 = esp(cbc, false, [16, 32]);
    ipv6.source = std::net::Ipv6Addr::LOCALHOST.into();
    assert_eq!(
        text(esp_line(&ipv6)),
        format!(
            "\"IPv6\",\"*\",\"*\",\"0x0000c0de\",\"AES-CBC [RFC3602]\",\"0x{}\",\
             \"HMAC-SHA-256-128 [RFC4868]\",\"0x{}\"\n",
            "e1".repeat(16),
            "a1".repeat(32)
        )
    );
}

#[test]
fn hmacs_over_long_sequence_numbers_are_not_to_be_checked() {
    let sha256 = Suite::AesCbcMac(KeyBits::B128, Integrity::HmacSha2_256_128);
    let cbc = text(esp_line(&esp(sha256, true, [16, 32])));
    assert!(cbc.contains("\"ANY 128 bit authentication [no checking]\""), "{cbc}");
    let sha512 = Suite::AesCbcMac(KeyBits::B128, Integrity::HmacSha2_512_256);
    let cbc = text(esp_line(&esp(sha512, true, [16, 64])));
    assert!(cbc.contains("\"ANY 256 bit authentication [no checking]\""), "{cbc}");
}

#[test]
fn an_algorithm_that_wireshark_does_not_know_has_no_line() {
    let chacha = ike(IkeEncryption::ChaCha20Poly1305, None, [36, 0]);
    assert!(ike_line(&chacha).is_err_and(|e| e.0.contains("CHACHA20")));
    for suite in [Suite::ChaCha20Poly1305, Suite::AesGmac(KeyBits::B128)] {
        assert_eq!(esp_line(&esp(suite, false, [20, 0])), Err(Unknown(suite.to_string())));
    }
}

#[test]
fn the_longest_line_fits() {
    let mac = Some(Integrity::HmacSha2_512_256);
    let longest = ike(IkeEncryption::AesCbc(KeyBits::B256), mac, [32, 64]);
    assert!(text(ike_line(&longest)).len() <= LINE);
}

#[test]
fn a_directory_is_made_for_its_owner_alone_and_kept() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let directory = place.path().join("keys");
    let mode = |path: &Path| fs::metadata(path).expect("it is there").mode() & 0o777;
    for lines in 1..=2 {
        let sink = export_to(&directory).expect("it can be used");
        assert_eq!(mode(&directory), 0o700);
        for table in [IKE_TABLE, ESP_TABLE] {
            assert_eq!(mode(&directory.join(table)), 0o600);
        }
        drop(sink);
        let again = Tables {
            ike: open(&directory, IKE_TABLE).expect("ours"),
            esp: open(&directory, ESP_TABLE).expect("ours"),
        };
        let keys = esp(Suite::AesGcm16(KeyBits::B256), false, [36, 0]);
        again.append(&LoggedKeys::Esp(keys));
        let table = fs::read_to_string(directory.join(ESP_TABLE)).expect("text");
        assert_eq!(table.lines().count(), lines);
    }
}

#[test]
fn a_directory_that_is_not_private_is_refused() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let directory = place.path().join("keys");
    fs::create_dir(&directory).expect("writable");
    fs::set_permissions(&directory, Permissions::from_mode(0o750)).expect("ours");
    let error = export_to(&directory).expect_err("the group may read it").to_string();
    assert!(error.contains("mode 0750") && error.contains("chmod 700"), "{error}");
    assert_eq!(fs::read_dir(&directory).expect("it is there").count(), 0);

    let file = place.path().join("file");
    fs::write(&file, "").expect("writable");
    let error = export_to(&file).expect_err("no directory").to_string();
    assert!(error.contains("it is no directory"), "{error}");

    let linked = place.path().join("link");
    fs::set_permissions(&directory, Permissions::from_mode(0o700)).expect("ours");
    std::os::unix::fs::symlink(&file, directory.join(ESP_TABLE)).expect("writable");
    assert!(export_to(&directory).is_err(), "it would write elsewhere");
    std::os::unix::fs::symlink(&directory, &linked).expect("writable");
    assert!(matches!(export_to(&linked), Err(KeyDirectoryError::NoDirectory(_))));
}
