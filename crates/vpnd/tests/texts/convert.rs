//! `vpnctl policy convert`: configurations as they are found, and what is made of them, to the letter.
//!
//! Each `NAME.FORMAT.conf` in `tests/convert` has a `NAME.xml` with the policy and a `NAME.report` with what is
//! printed with it. `UPDATE_EXPECTED=1 cargo test -p vpn-daemon --test texts convert` writes them again, for review.

use super::migrations::is_checked;
use convert::source::{File, Files};
use convert::{Converted, Finding, Format, Options, convert};
use proptest::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use vpnd::config::Config;
use zeroize::Zeroizing;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/convert")
}

/// Files that exist in memory only.
#[derive(Default)]
pub(crate) struct Memory(pub(crate) Vec<(&'static str, String)>);

impl Files for Memory {
    fn include(&mut self, pattern: &str, _from: &str) -> Result<Vec<File>, String> {
        let matching = self.0.iter().filter(|(name, _)| *name == pattern);
        Ok(matching.map(|(name, text)| file(name, text)).collect())
    }
}

pub(crate) fn file(name: &str, text: &str) -> File {
    File { name: name.into(), text: Zeroizing::new(text.to_owned()) }
}

fn swanctl(text: &str, options: &Options) -> Result<Converted, Finding> {
    convert(Format::Swanctl, file("swanctl.conf", text), None, &mut Memory::default(), options)
}

/// Holds a text against a file, or writes the file where that is wanted.
fn expect(path: &Path, text: &str) {
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        fs::write(path, text).expect("writable");
    }
    let expected = fs::read_to_string(path).unwrap_or_default();
    assert_eq!(text, expected, "{} is not as expected; see UPDATE_EXPECTED above", path.display());
}

#[test]
fn configurations_become_the_expected_policies() {
    let mut seen = 0;
    for entry in fs::read_dir(directory()).expect("it is there") {
        let path = entry.expect("readable").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("UTF-8").to_owned();
        let Some(stem) = name.strip_suffix(".conf") else { continue };
        let (stem, format) = stem.split_once('.').expect("NAME.FORMAT.conf");
        let read = |name: &str| fs::read_to_string(directory().join(name)).ok();
        let text = read(&name).expect("readable");
        let secrets = format!("{stem}.ipsec.secrets");
        let secrets = read(&secrets).map(|text| file(&secrets, &text));
        let wanted = if format == "swanctl" { Format::Swanctl } else { Format::Ipsec };
        assert_eq!(Format::of(&text), wanted, "{name}");
        let options = Options::default();
        let converted =
            convert(wanted, file(&name, &text), secrets, &mut Memory::default(), &options);
        let converted = converted.expect(stem);
        toml::from_str::<Config>(&converted.settings).expect("lines for vpnd.toml");
        let report =
            format!("{}{}\n\n{}", converted.report(), converted.settings, converted.summary());
        assert!(!report.contains("never to be shown"), "{report}");
        is_checked(&converted, &name).expect("check accepts it");
        expect(&directory().join(format!("{stem}.xml")), &converted.xml);
        expect(&directory().join(format!("{stem}.report")), &(report + "\n"));
        seen += 1;
    }
    assert!(seen >= 3, "{seen} configurations");
}

#[test]
fn the_other_end_is_the_mirror_image() {
    let text = fs::read_to_string(directory().join("site.swanctl.conf")).expect("it is there");
    let here = swanctl(&text, &Options::default()).expect("converted");
    let peer = Options { peer: true, ..Options::default() };
    let there = swanctl(&text, &peer).expect("converted");
    let read = |xml: &str| policy::xml::read("policy", xml).expect("a policy").policy;
    let (here, there) = (read(&here.xml), read(&there.xml));
    let (here, there) = (&here.tunnels[0], &there.tunnels[0]);
    assert_eq!((&here.local, &here.remote), (&there.remote, &there.local));
    assert_eq!(here.credential, there.credential);
    assert_eq!(here.proposals, there.proposals);
    assert_eq!(here.children[0].local, there.children[0].remote);
    assert_eq!(there.children[0].remote[0].to_string(), "10.1.0.0/16");
}

#[test]
fn the_default_offer_is_that_of_strongswan() {
    let text = "connections { a { remote_addrs = 192.0.2.2
        local { auth = psk } remote { auth = psk }
        children { c { remote_ts = 10.2.0.0/16 } } } }
        secrets { ike { secret = a-key-of-sixteen-octets } }";
    let options = Options { local_address: "192.0.2.1".parse().ok(), ..Options::default() };
    let converted = swanctl(text, &options).expect("converted");
    assert_eq!(converted.findings, []);
    let policy = policy::xml::read("policy", &converted.xml).expect("a policy").policy;
    let tunnel = &policy.tunnels[0];
    assert_eq!(tunnel.proposals.len(), 2, "AEAD, and the rest");
    assert_eq!(tunnel.children[0].local[0].to_string(), "192.0.2.1");
    assert!(tunnel.children[0].pfs.offer.is_empty() && tunnel.children[0].pfs.accept_none);

    // Without an address there is no host to protect.
    let alone = swanctl(text, &Options::default()).expect("read");
    assert!(alone.is_incomplete() && alone.tunnels == (0, 0), "{}", alone.report());
}

#[test]
fn included_files_are_read_in_their_place() {
    let mut files = Memory(vec![
        ("conf.d/*.conf", "connections { a { remote_addrs = 192.0.2.2 } }".into()),
        ("child", "remote_ts = 10.2.0.0/16".into()),
        ("endless", "include endless".into()),
    ]);
    let text = "include conf.d/*.conf
        include none/*
        connections { a { local_addrs = 192.0.2.1
        local { auth = psk } remote { auth = psk }
        children { c { include child\n } } } }
        secrets { ike { secret = a-key-of-sixteen-octets } }";
    let options = Options::default();
    let main = file("main", text);
    let converted = convert(Format::Swanctl, main, None, &mut files, &options).expect("read");
    assert_eq!(converted.tunnels, (1, 1));
    let told: Vec<String> = converted.findings.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("main:2: not carried over: include none/*: there is no such file"));
    let endless = file("main", "include endless");
    let error = convert(Format::Swanctl, endless, None, &mut files, &options).expect_err("bounded");
    assert!(error.message.contains("too deeply"), "{error}");
}

#[test]
fn an_unreadable_configuration_is_told_with_its_line() {
    let said = |text: &str| swanctl(text, &Options::default()).expect_err(text).to_string();
    assert_eq!(
        said("connections {\n  a {\n"),
        "swanctl.conf:3: left out: the section \"a\" is not closed at the end of the file\n  help: add a }"
    );
    assert!(said("a {\n}\n}\n").starts_with("swanctl.conf:3: left out: a } closes no section"));
    assert!(said("\na b\n").starts_with("swanctl.conf:2: left out: neither = nor { follows \"a\""));
    assert!(said("a = \"b\n\n").starts_with("swanctl.conf:1: left out: a string in quotes"));
    assert!(said("a : b { }").contains("no section \"b\" to inherit from"));
    assert!(said("a { b : a { } }").contains("inherits too much, or itself"));
    let ipsec = |text: &str| {
        let file = file("ipsec.conf", text);
        convert(Format::Ipsec, file, None, &mut Memory::default(), &Options::default())
            .expect_err(text)
            .to_string()
    };
    assert!(ipsec("conn a\n\tleft\n").starts_with("ipsec.conf:2: left out: \"left\" is not name"));
    assert!(ipsec("\tleft=a\n").contains("belongs to no block"));
    assert!(ipsec("connections {\n}\n").contains("\"connections\" begins no block"));
}

#[test]
fn the_command_writes_files_of_its_own() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| directory.path().join(name);
    let vpnctl = |arguments: &[&str]| {
        let mut command = Command::new(testkit::vpnctl());
        command.args(["policy", "convert"]).args(arguments).current_dir(directory.path());
        command.output().expect("vpnctl is built")
    };
    let site = fs::read_to_string(self::directory().join("site.swanctl.conf")).expect("there");
    fs::write(path("swanctl.conf"), site).expect("writable");
    let arguments = ["swanctl.conf", "--output", "policy.xml", "--settings", "vpnd.toml"];
    let output = vpnctl(&arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(output.stdout.is_empty());
    assert!(said.contains("swanctl.conf:19: not carried over: updown = /usr/local"), "{said}");
    assert!(said.contains("\nsee what the policy means with: vpnd check policy.xml\n"), "{said}");
    assert!(
        said.contains("\ncopy the lines of vpnd.toml into the same sections of /etc/vpnd/"),
        "{said}"
    );
    let document =
        fs::read_to_string(self::directory().join("../../../../docs/migrate/from-strongswan.md"));
    assert!(
        document.expect("it is there").contains(&said),
        "docs/migrate/from-strongswan.md is stale:\n{said}"
    );
    assert_eq!(host::policy_file::read(&path("policy.xml")).expect("a policy").warnings.len(), 0);
    vpnd::config::Config::read(&path("vpnd.toml")).expect("settings");

    let again = vpnctl(&arguments);
    assert_eq!(again.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&again.stderr).contains("overwrite it with --force"));
    fs::remove_file(path("policy.xml")).expect("it was written");
    let half = vpnctl(&arguments);
    assert!(String::from_utf8_lossy(&half.stderr).contains("cannot write vpnd.toml"), "{half:?}");
    assert!(!path("policy.xml").exists(), "both files are written, or none");
    assert!(vpnctl(&[&arguments[..], &["--force"]].concat()).status.success());
    let missing = vpnctl(&["none.conf"]);
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert_eq!((missing.status.code(), missing.stdout.len()), (Some(1), 0));
    assert!(said.starts_with("vpnctl: cannot read none.conf: "), "{said}");
    let out = vpnctl(&["swanctl.conf", "--peer"]);
    assert!(String::from_utf8_lossy(&out.stdout).contains("IKE_TunnelName=\"gw-gw\""));
}

/// Words of both languages in any order.
fn words() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "connections",
        "secrets",
        "local",
        "remote",
        "children",
        "a",
        "b",
        "ike-1",
        "{",
        "}",
        "=",
        "\n",
        " ",
        "\t",
        ":",
        "a.b",
        ",",
        "\"",
        "\\",
        "#",
        "include x",
        "auth",
        "psk",
        "id",
        "192.0.2.1",
        "10.0.0.0/8",
        "proposals",
        "aes256-sha256-x25519",
        "default",
        "esp_proposals",
        "remote_ts",
        "remote_addrs",
        "secret",
        "rekey_time",
        "0",
        "1h",
        "version",
        "conn",
        "conn a\n",
        "config setup\n",
        "\tleft=",
        "\tright=192.0.2.2\n",
        "\talso=a\n",
        "\tauto=add\n",
        "\tauthby=secret\n",
        "%default",
        "%any",
        "PSK",
        "0x",
        "é",
        "\u{0}",
    ]);
    prop::collection::vec(word, 0..80).prop_map(|words| words.concat())
}

proptest! {
    #[test]
    fn no_text_is_too_strange(text in words(), more in ".{0,200}", at in 0..100_usize) {
        let mut text = text;
        if text.is_char_boundary(at.min(text.len())) {
            text.insert_str(at.min(text.len()), &more);
        }
        let options = Options { local_address: "192.0.2.9".parse().ok(), peer: at % 2 == 0 };
        for format in [Format::Swanctl, Format::Ipsec, Format::Strongswan, Format::Libreswan] {
            let secrets = (at % 3 == 0).then(|| file("secrets", &text));
            let mut files = Memory::default();
            if let Ok(converted) = convert(format, file("f", &text), secrets, &mut files, &options) {
                policy::xml::read("converted", &converted.xml).map_err(|e| TestCaseError::fail(e.to_string()))?;
            }
        }
    }

    /// Every setting of a connection is converted or reported.
    #[test]
    fn nothing_is_dropped_in_silence(
        name in "[a-z_]{3,12}", value in "[a-z0-9./-]{1,12}", place in 0..4_usize,
    ) {
        let mut inserted = ["", "", "", ""];
        let line = format!("{name} = {value}\n");
        inserted[place] = &line;
        let [connection, local, child, secret] = inserted;
        let text = format!(
            "connections {{ a {{ local_addrs = 192.0.2.1\n remote_addrs = 192.0.2.2\n {connection}
              local {{ auth = psk\n {local} }} remote {{ auth = psk }}
              children {{ c {{ local_ts = 10.1.0.0/16\n remote_ts = 10.2.0.0/16\n {child} }} }} }} }}
              secrets {{ ike {{ secret = a-key-of-sixteen-octets\n {secret} }} }}"
        );
        let converted = swanctl(&text, &Options::default()).expect("sound syntax");
        let plain = swanctl(&text.replace(&line, ""), &Options::default()).expect("sound syntax");
        let told = !converted.findings.is_empty() || converted.settings != plain.settings;
        prop_assert!(told || *converted.xml != *plain.xml, "{line} left no trace");
    }
}

#[test]
fn narrow_traffic_comes_first_and_tunnels_that_are_never_used_are_told() {
    let text = fs::read_to_string(directory().join("kernel.swanctl.conf")).expect("it is there");
    let converted = swanctl(&text, &Options::default()).expect("converted");
    let policy = policy::xml::read("policy", &converted.xml).expect("a policy").policy;
    let names: Vec<&str> = policy.tunnels[0].children.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["web", "office", "copy", "again", "all"]);
    let report = converted.report();
    for told in [
        "swanctl.conf:31: never used: covered by copy, line 25\n",
        "unique = never: in vpnd a new IKE SA of a peer always replaces its old one",
        "liveness_action = \"restart\" is that of 1 of 5 children",
        "mark_in = %unique: vpnd.toml has a number",
        "mark_in = 1 and mark_out = 2: vpnd has one value for both directions",
    ] {
        assert!(report.contains(told), "{told}\n{report}");
    }
    let section = "[tunnel.\"office\"]\ndataplane = \"xfrm\"\n# swanctl.conf:21\nmark = \"0x11/0xff\"\n\
                   # swanctl.conf:8\nif_id = 7\n# swanctl.conf:23\noffload = \"packet\"\n";
    assert!(converted.settings.contains(section), "{}", converted.settings);
}

#[test]
fn nothing_is_written_if_nothing_could_be_converted() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| directory.path().join(name);
    let old = "connections { a { version = 1\n dpd_delay = 30s\n local { auth = psk }\n children { c { } } } }\n";
    for text in [old, "secrets { ike { secret = a-key-of-sixteen-octets } }\n"] {
        fs::write(path("swanctl.conf"), text).expect("writable");
        let output = Command::new(testkit::vpnctl())
            .args([
                "policy",
                "convert",
                "swanctl.conf",
                "--output",
                "policy.xml",
                "--settings",
                "vpnd.toml",
            ])
            .current_dir(directory.path())
            .output()
            .expect("vpnctl is built");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        let end = "no tunnel of swanctl.conf could be converted, and nothing was written\n";
        assert!(said.ends_with(end), "{said}");
        assert!(
            output.stdout.is_empty() && !path("policy.xml").exists() && !path("vpnd.toml").exists()
        );
    }
}
