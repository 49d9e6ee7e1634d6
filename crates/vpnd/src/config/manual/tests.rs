use crate::config::Config;
use policy::{AhIntegrity, Protection};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use vpn::manual::{ManualSa, SaDirection};
use xfrm::placement::{Choice, Wanted};

const KEY: &str = "0x44434241343332312423222114131211f4f3f2f1";

fn read(text: &str) -> Result<Vec<ManualSa>, String> {
    let config = Config::parse(Path::new("vpnd.toml"), text).map_err(|error| error.to_string())?;
    Ok(config.sa.iter().map(|sa| sa.manual(4096)).collect())
}

/// The way out of the example that Linux' documentation of offload has.
fn example(lines: &str) -> String {
    format!(
        "[[sa]]\nname = \"eth4\"\ndirection = \"out\"\nsource = \"14.0.0.52\"\ndestination = \"14.0.0.70\"\nspi = 0x07\n\
         mode = \"transport\"\nreplay_window = 32\naead = \"rfc4106(gcm(aes))\"\nkey = \"{KEY}\"\n\
         selector = {{ source = \"14.0.0.0/24\", destination = \"14.0.0.0/24\", protocol = \"tcp\" }}\n{lines}"
    )
}

#[test]
fn the_fields_of_ip_xfrm_are_read() {
    let sas = read(&example("esn = true\n")).expect("valid");
    let ManualSa { spi, suite, path, selectors, key, .. } = &sas[0];
    assert_eq!((spi.0, suite.to_string().as_str()), (7, "AES-GCM-16-128"));
    assert_eq!((sas[0].replay_window, sas[0].esn, key.len()), (32, true, 20));
    let ends = [path.local, path.remote].map(|end| end.ip().to_string());
    assert_eq!(ends, ["14.0.0.52", "14.0.0.70"]);
    let [local, remote] = [&selectors.local, &selectors.remote].map(|side| side[0].to_string());
    assert_eq!((local.as_str(), remote.as_str()), ("14.0.0.0/24[tcp]", "14.0.0.0/24[tcp]"));
}

#[test]
fn a_selector_takes_an_address_with_the_length_of_its_prefix() {
    let written = example("").replacen("14.0.0.0/24", "14.0.0.52/24", 1);
    let sas = read(&written).expect("as ip xfrm takes it");
    assert_eq!(sas[0].selectors, read(&example("")).expect("valid")[0].selectors);
    let error = read(&example("").replacen("14.0.0.0/24", "14.0.0.52/33", 1)).expect_err("33");
    assert!(error.contains("no range of addresses"), "{error}");
}

#[test]
fn a_card_is_asked_for_each_sa_by_its_own_words_and_those_of_its_name() {
    let out = example("reqid = 7\noffload = \"packet\"\n");
    let inbound = example("reqid = 7\noffload_device = \"\"\n")
        .replace("direction = \"out\"", "direction = \"in\"")
        .replace("44434241", "44434242");
    let text = format!(
        "{out}{inbound}[esp]\noffload = \"auto\"\n[tunnel.\"eth4\"]\noffload = \"crypto\"\noffload_device = \"eth2\"\n"
    );
    let config = Config::parse(Path::new("vpnd.toml"), &text).expect("valid");
    assert_eq!(config.sa[0].manual(0).reqid, Some(7));
    let offload = config.planes().offload;
    let choice =
        |wanted, device: Option<&str>| Choice { wanted, device: device.map(str::to_owned) };
    let by_hand = |way| offload.manual[&("eth4".to_owned(), way)].clone();
    assert_eq!(by_hand(SaDirection::Out), choice(Wanted::Packet, Some("eth2")));
    assert_eq!(by_hand(SaDirection::In), choice(Wanted::Crypto, None));
    assert_eq!(*offload.choice_of("eth4"), choice(Wanted::Crypto, Some("eth2")));
    let error = read(&example("reqid = 0x76000001\n")).expect_err("vpnd's own");
    assert!(error.contains("vpnd.toml") && error.contains("reqid 1979711489"), "{error}");
    let error = read(&example("offload = \"eth4\"\n")).expect_err("no such offload");
    assert!(error.contains("use auto, packet, crypto or off"), "{error}");
}

#[test]
fn the_other_direction_has_the_same_traffic() {
    let both = read(
        &["out", "in"]
            .map(|way| {
                let (source, destination) =
                    if way == "out" { ("fd00::1", "fd00::2") } else { ("fd00::2", "fd00::1") };
                format!(
                    "[[sa]]\nname = \"a\"\ndirection = \"{way}\"\nsource = \"{source}\"\ndestination = \"{destination}\"\n\
                     spi = \"0x100\"\nencryption = \"cbc(aes)\"\nencryption_key = \"0x{}\"\nintegrity = \"hmac(sha256)\"\n\
                     integrity_key = \"0x{}\"\nencap = \"udp\"\nremote_port = 4501\n",
                    "11".repeat(32),
                    "22".repeat(32)
                )
            })
            .concat(),
    )
    .expect("valid");
    assert_eq!(both[0].selectors, both[1].selectors);
    assert_eq!(both[0].path, both[1].path);
    assert_eq!((both[0].path.remote.port(), both[0].replay_window), (4501, 4096));
    assert_eq!(both[0].suite.to_string(), "AES-CBC-256/HMAC-SHA2-256-128");
    assert_eq!(both[0].key.expose()[31..33], [0x11, 0x22]);
}

#[test]
fn algorithms_have_the_kernels_names_or_ours() {
    let suite = |lines: &str| {
        let text = example(lines).replace("aead = \"rfc4106(gcm(aes))\"\n", "");
        let text = text.replace(&format!("key = \"{KEY}\"\n"), "");
        read(&text).map(|sas| sas[0].suite.to_string())
    };
    let key = |octets: usize| format!("key = \"0x{}\"\n", "ab".repeat(octets));
    let mac = format!("integrity = \"hmac(sha1)\"\nintegrity_{}", key(20));
    for (lines, name) in [
        (format!("suite = \"aes-gcm-16-256\"\n{}", key(36)), "AES-GCM-16-256"),
        (format!("aead = \"rfc4543(gcm(aes))\"\n{}", key(28)), "NULL-AUTH-AES-GMAC-192"),
        (format!("aead = \"rfc7539esp(chacha20,poly1305)\"\n{}", key(36)), "CHACHA20-POLY1305"),
        (format!("encryption = \"cipher_null\"\n{mac}"), "NULL/HMAC-SHA1-96"),
        (mac, "AH/HMAC-SHA1-96"),
    ] {
        assert_eq!(suite(&lines).as_deref(), Ok(name));
    }
}

#[test]
fn each_suite_that_the_kernel_is_given_is_read_by_its_names_there() {
    let key = |octets: usize| format!("\"0x{}\"", "ab".repeat(octets));
    let mut read_suites = 0;
    for suite in ::crypto::Suite::all() {
        let cipher = match suite.protection() {
            Protection::Ah(AhIntegrity::AesGmac(_)) => continue,
            Protection::Ah(_) => String::new(),
            Protection::Esp { encryption, .. } if !policy::is_built(encryption) => continue,
            Protection::Esp { encryption, integrity } => {
                let row = encryption.row();
                let (name, key) = (row.kernel[0], key(row.key_len + row.salt_len));
                match (integrity, row.key_len) {
                    (None, _) => format!("aead = \"{name}\"\nkey = {key}\n"),
                    (Some(_), 0) => format!("encryption = \"{name}\"\n"),
                    (Some(_), _) => format!("encryption = \"{name}\"\nencryption_key = {key}\n"),
                }
            }
        };
        let integrity = match suite.protection() {
            Protection::Esp { integrity, .. } => integrity,
            Protection::Ah(AhIntegrity::Mac(integrity)) => Some(integrity),
            Protection::Ah(AhIntegrity::AesGmac(_)) => None,
        };
        let mac = integrity.map_or_else(String::new, |integrity| {
            let row = integrity.row();
            format!("integrity = \"{}\"\nintegrity_key = {}\n", row.kernel, key(row.key_len))
        });
        let text = example(&format!("{cipher}{mac}"));
        let text = text.replacen("aead = \"rfc4106(gcm(aes))\"\n", "", 1);
        let text = text.replacen(&format!("key = \"{KEY}\"\n"), "", 1);
        let sas = read(&text).unwrap_or_else(|error| panic!("{suite}: {error}"));
        assert_eq!(sas[0].suite, suite);
        read_suites += 1;
    }
    assert!(read_suites >= 3 + 3 + 1 + 7 * (3 + 1 + 1), "{read_suites}");
}

#[test]
fn errors_say_where_and_what_to_write_and_no_key() {
    for (lines, why) in [
        ("spi = 0\n", "duplicate key"),
        ("suite = \"AES-GCM-16-128\"\n", "name its algorithms in one of these ways"),
        ("integrity_key = \"0x00\"\n", "go with encryption and integrity"),
        ("remote_port = 4500\n", "add encap = \"udp\""),
        ("if_id = 1\nspy = 1\n", "unknown field"),
    ] {
        let error = read(&example(lines)).expect_err(lines);
        assert!(error.contains(why) && error.contains("vpnd.toml: "), "{error}");
        assert!(error.contains("line "), "{error}");
        assert!(!error.contains("4443424134"), "{error}");
    }
    for (from, to, why) in [
        ("spi = 0x07", "spi = 0", "is no SPI"),
        ("spi = 0x07", "spi = 0x100000000", "an SPI has 32 bits"),
        ("destination = \"14.0.0.70\"", "destination = \"fd00::1\"", "two families"),
        ("source = \"14.0.0.0/24\"", "source = \"14.9.0.0/24\"", "has to hold them"),
        ("mode = \"transport\"", "mode = \"beet\"", "expected `transport` or `tunnel`"),
        ("0x4443", "0x443", "an even number of hexadecimal digits"),
        ("0x4443", "0x", "takes 20, 28 or 36 octets of key with its salt, not 18"),
        ("rfc4106(gcm(aes))", "gcm", "no aead \"gcm\"; there are rfc4106"),
        ("protocol = \"tcp\"", "destination_port = 80", "ports need a protocol"),
        ("direction = \"out\"\n", "", "missing field `direction`"),
        (KEY, "zz", "an even number"),
    ] {
        let error = read(&example("").replace(from, to)).expect_err(to);
        assert!(error.contains(why) && error.contains("line "), "{to}: {error}");
        assert!(!error.contains("4134333231"), "{error}");
    }
    // A number of TOML: 16 octets fit into one.
    for number in ["0x00112233445566778899aabbccddeeff", "0x4443424134333231", "7", "7.5"] {
        let text = example("").replace(&format!("\"{KEY}\""), number);
        let error = read(&text).expect_err("it has no quotes");
        assert!(error.contains("line ") && error.contains("in quotes"), "{error}");
        for shown in ["88962710306127702866241727433142015", "4919131752989213233", number] {
            assert!(!error.contains(&format!("{shown}`")), "{error}");
        }
    }
}

#[test]
fn a_key_may_have_a_file_that_nobody_else_may_read() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("sa.key");
    let text = example("").replace(&format!("\"{KEY}\""), &format!("{{ file = {file:?} }}"));
    assert!(read(&text).expect_err("it is not there").contains("sa.key: No such file"));
    fs::write(&file, format!("{KEY}\n")).expect("writable");
    fs::set_permissions(&file, Permissions::from_mode(0o640)).expect("ours");
    let error = read(&text).expect_err("others may read it");
    assert!(error.contains("others may use it; close it with: chmod 600"), "{error}");
    fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("ours");
    assert_eq!(read(&text).expect("valid")[0].key.len(), 20);
    fs::write(&file, "secret\n").expect("writable");
    let error = read(&text).expect_err("no key");
    assert!(error.contains("no key: it has to hold 0x") && !error.contains("secret"), "{error}");
}

#[test]
fn a_file_with_keys_in_it_is_for_its_owner_alone() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("vpnd.toml");
    fs::write(&file, example("")).expect("writable");
    fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("ours");
    let error = Config::read(&file).expect_err("everybody reads it").to_string();
    assert!(error.contains("chmod 600") && error.contains("key = { file ="), "{error}");
    fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("ours");
    assert_eq!(Config::read(&file).expect("valid").sa.len(), 1);
}
