//! The policies that are written for many arguments are read as they should be.

use super::*;
use clap::{Parser, ValueEnum};
use policy::{Credential, Endpoint, Mode, Policy};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    new: New,
}

const ENDS: &str = "--local 192.0.2.1 --remote 192.0.2.2";
const LAN: &str = "--protect 10.1.0.0/24=10.2.0.0/24";

fn parse(words: &str) -> Result<New, clap::Error> {
    Line::try_parse_from(["new"].into_iter().chain(words.split_whitespace())).map(|line| line.new)
}

/// Writes the policies, and returns their texts and what was said.
fn written(words: &str) -> ([String; 2], String) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let new = New { output: directory.path().join("new"), ..parse(words).expect("arguments") };
    let told = new.run().unwrap_or_else(|error| panic!("{words}: {error}"));
    let texts = new.file_names().map(|name| {
        let path = new.output.join(name);
        let mode = fs::metadata(&path).expect("written").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", path.display());
        fs::read_to_string(path).expect("text")
    });
    (texts, told)
}

fn read(text: &str) -> Policy {
    let loaded = policy::xml::read("new.xml", text).unwrap_or_else(|errors| panic!("{errors}"));
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    loaded.policy
}

fn refused(words: &str) -> String {
    let new = match parse(words) {
        Ok(new) => new,
        Err(error) => return error.to_string(),
    };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let new = New { output: directory.path().to_owned(), ..new };
    let error = new.run().expect_err("they do not go together").to_string();
    assert_eq!(fs::read_dir(directory.path()).expect("readable").count(), 0, "nothing is written");
    error
}

/// The policy without what differs between the ends of one tunnel.
fn without_start(policy: &Policy) -> Policy {
    let mut policy = policy.clone();
    for tunnel in &mut policy.tunnels {
        let tunnel = std::sync::Arc::make_mut(tunnel);
        tunnel.auto_start = false;
        for child in &mut tunnel.children {
            let child = std::sync::Arc::make_mut(child);
            child.auto_start = false;
        }
    }
    policy
}

#[test]
fn all_that_is_offered_makes_good_policies_that_mirror_each_other() {
    let v6 = "--local 2001:db8::1 --remote 2001:db8::2";
    let certificates = "--certificates --local-id left.example.net --remote-id ops@example.net";
    let mut lines = vec![
        format!("{ENDS} {LAN}"),
        format!("{ENDS} {LAN} --protect 10.3.0.0/24=10.2.0.0/24 --protect 10.1.0.5=0.0.0.0/0"),
        format!("{ENDS} {LAN} --protect 2001:db8:1::/48=2001:db8:2::/48"),
        ENDS.to_owned(),
        v6.to_owned(),
        format!("{v6} --transport"),
        format!("{v6} --protect 2001:db8:1::/48=2001:db8:2::/48 --on-demand"),
        format!("{ENDS} {LAN} --local-id left.example.net --remote-id /C=NL/CN=right"),
        format!("--local 10.0.0.61 --remote 192.0.2.2 {LAN} --local-id 198.51.100.86"),
        format!("{ENDS} {LAN} {certificates}"),
        format!("{ENDS} {LAN} --certificates --no-crl --name br--anch"),
    ];
    let suites = Suite::value_variants().iter().map(|suite| suite.to_possible_value());
    let suites = suites.flatten().map(|suite| format!("{ENDS} --suite {}", suite.get_name()));
    lines.extend(suites.flat_map(|line| [format!("{line} {LAN}"), format!("{line} --transport")]));
    for end in ["left", "right", "both", "none"] {
        lines.push(format!("{ENDS} {LAN} --auto-start {end}"));
    }
    for line in &lines {
        let ([left, right], _) = written(line);
        let mirrored = policy::database::mirror("left.xml", &left, None);
        let mirrored = mirrored.unwrap_or_else(|errors| panic!("{line}: {errors}"));
        let mirrored = read(&mirrored.database.to_xml());
        assert_eq!(without_start(&mirrored), without_start(&read(&right)), "{line}");
    }
}

#[test]
fn the_policies_say_what_was_asked_for() {
    let (texts, told) = written(&format!("{ENDS} {LAN} --name branch"));
    let [left, right] = texts.each_ref().map(|text| read(text));
    let (tunnel, child) = left.child("branch_lan").expect("it is named so");
    assert_eq!(tunnel.name, "branch");
    assert_eq!((child.local[0].to_string(), child.mode), ("10.1.0.0/24".into(), Mode::Tunnel));
    let starts = |policy: &Policy| policy.tunnels[0].auto_start;
    assert_eq!((starts(&left), starts(&right)), (true, false));
    let key = |policy: &Policy| match &policy.tunnels[0].credential {
        Credential::PresharedKey(key) => key.expose().to_vec(),
        _ => Vec::new(),
    };
    assert_eq!((key(&left).len(), key(&left)), (32, key(&right)));
    for part in ["branch-left.xml: the policy of 192.0.2.1; this end starts", "systemctl enable"] {
        assert!(told.contains(part), "{told}");
    }
    let ([other, _], _) = written(&format!("{ENDS} {LAN}"));
    assert_ne!(key(&left), key(&read(&other)), "each tunnel has another key");

    let (texts, told) = written(&format!("{ENDS} --transport --auto-start none"));
    let policy = read(&texts[0]);
    let child = &policy.tunnels[0].children[0];
    assert_eq!((child.mode, child.remote[0].to_string()), (Mode::Transport, "192.0.2.2".into()));
    assert!(told.ends_with("    vpnctl activate site\n"), "{told}");
}

#[test]
fn certificates_need_no_key_but_identities() {
    let line = format!("{ENDS} {LAN} --certificates --local-id left.example.net");
    let (texts, told) = written(&line);
    let Credential::Signature(signature) = &read(&texts[0]).tunnels[0].credential else {
        panic!("certificates")
    };
    assert!(signature.use_crl);
    assert!(!texts[0].contains("IKEPresharedKey"));
    for part in ["pki issue left --dns left.example.net\n", "pki issue right --ip 192.0.2.2\n"] {
        assert!(told.contains(part), "{told}");
    }
    let (texts, _) = written(&format!("{line} --no-crl"));
    let Credential::Signature(signature) = &read(&texts[0]).tunnels[0].credential else {
        panic!("certificates")
    };
    assert!(!signature.use_crl);
}

#[test]
fn an_end_behind_a_nat_has_the_address_of_the_nat_as_its_identity() {
    let line = format!("--local 10.0.0.61 --remote 192.0.2.2 {LAN} --local-id 198.51.100.86");
    let (texts, told) = written(&line);
    let [left, right] = texts.each_ref().map(|text| read(text));
    let (inner, outer) = (IpAddr::from([10, 0, 0, 61]), IpAddr::from([198, 51, 100, 86]));
    let endpoint = |address| Endpoint { identity: outer.into(), address: Some(address) };
    assert_eq!(left.tunnels[0].local, endpoint(inner));
    assert_eq!(right.tunnels[0].remote, endpoint(outer));
    assert!(told.contains("the policy of 10.0.0.61"), "{told}");
}

#[test]
fn every_element_has_a_comment() {
    let (texts, _) = written(&format!("{ENDS} {LAN} --protect 10.3.0.0/24=10.2.0.0/24"));
    for text in texts {
        let mut before = "";
        for line in text.lines() {
            if line.starts_with("  <I") {
                assert!(before.ends_with("-->"), "{line}\n{text}");
            }
            assert!(line.chars().count() <= 116, "{line}");
            before = line;
        }
    }
}

#[test]
fn a_key_from_a_file_is_used_as_it_is() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("key");
    fs::write(&file, format!("{}\n", "5a".repeat(20))).expect("writable");
    let (texts, told) = written(&format!("{ENDS} {LAN} --psk-file {}", file.display()));
    assert!(told.contains("key: a key of 20 octets, read as hexadecimal digits\n"), "{told}");
    let Credential::PresharedKey(key) = &read(&texts[1]).tunnels[0].credential else {
        panic!("a key")
    };
    assert_eq!(key.expose(), [0x5a; 20]);
    assert!(!told.contains("5a5a"));

    fs::write(&file, "short").expect("writable");
    let error = refused(&format!("{ENDS} {LAN} --psk-file {}", file.display()));
    assert!(error.contains("fewer than 16 octets") && error.contains("openssl rand"), "{error}");
}

#[test]
fn files_are_replaced_only_with_force() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let new = |words: &str| New {
        output: directory.path().to_owned(),
        ..parse(&format!("{ENDS} {LAN} {words}")).expect("arguments")
    };
    let right = directory.path().join("right.xml");
    fs::write(&right, "precious").expect("writable");
    let error = new("").run().expect_err("it exists").to_string();
    assert!(error.contains("right.xml exists; replace it with --force"), "{error}");
    assert!(!directory.path().join("left.xml").exists(), "both or neither");
    new("--force").run().expect("they may be replaced");
    assert!(fs::read_to_string(&right).expect("text").contains("<AIX_VPN"));
}

#[test]
fn options_that_contradict_each_other_are_refused_with_the_reason() {
    for (words, why) in [
        (format!("{ENDS} --protect 10.1.0.5/24=10.2.0.0/24"), "the network is 10.1.0.0/24"),
        (format!("{ENDS} --protect 10.1.0.0/33=10.2.0.0/24"), "is no network; write it like"),
        (format!("{ENDS} --protect 10.1.0.0/24"), "10.1.0.0/24=10.2.0.0/24"),
        (format!("{ENDS} --protect 10.1.0.0/24=2001:db8::/48"), "both need the same"),
        (format!("{ENDS} {LAN} --transport"), "cannot be used with"),
        (format!("{ENDS} {LAN} --on-demand --auto-start both"), "cannot be used with"),
        (format!("{ENDS} --certificates --psk-generate"), "cannot be used with"),
        (format!("{ENDS} --no-crl"), "--certificates"),
        ("--local 192.0.2.1 --remote 192.0.2.1".to_owned(), "name the other gateway"),
        ("--local 192.0.2.1 --remote 2001:db8::1".to_owned(), "both need the same"),
        (format!("{ENDS} --local-id 192.0.2.2"), "both sides have the identity 192.0.2.2"),
        (format!("{ENDS} --remote-id 10.0.0.5"), "--remote-id 10.0.0.5 is a private address"),
        (format!("{ENDS} --local-id a.example --remote-id a.example"), "a.example"),
        (format!("{ENDS} --name ../x"), "a name begins with a letter or digit"),
        (format!("{ENDS} {LAN} {LAN}"), "10.1.0.0/24=10.2.0.0/24 is given twice"),
    ] {
        let error = refused(&words);
        assert!(error.contains(why), "{words}: {error}");
    }
}
