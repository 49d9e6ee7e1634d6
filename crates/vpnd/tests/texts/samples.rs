//! The samples in `config/`: what they are worth as they are, and after the key is replaced.

use clap::Parser;
use cli::pki::{Alternatives, Authority, KeyKind, NewAuthority, Wanted};
use cli::policy_new::New;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use terminal::delegated::Format;
use terminal::report::Colour;
use vpnd::check::{Outcome, Request, check};
use vpnd::config::Config;

const LEFT: &str = include_str!("../../../../config/left.xml");
const RIGHT: &str = include_str!("../../../../config/right.xml");
/// The same as the other tests use them.
const TESTED: [&str; 2] = [
    include_str!("../../../../tests/policies/site/left.xml"),
    include_str!("../../../../tests/policies/site/right.xml"),
];

const PLACEHOLDER: &str = "Format=\"HEX\" Value=\"replace-with-the-output-of-openssl-rand-hex-32\"";

fn checked(text: &str, config: &Config) -> Outcome {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("policy.xml");
    fs::write(&path, text).expect("writable");
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("ours");
    let (lenient, format, colour) = (false, Format::Human, Colour(false));
    check(&Request { file: &path, config, lenient, format, colour })
}

/// Replaces what must be there.
fn changed(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "no {from:?} in the sample");
    text.replace(from, to)
}

#[test]
fn nobody_can_use_the_key_of_a_sample() {
    let older =
        changed(LEFT, PLACEHOLDER, "Format=\"ASCII\" Value=\"replace-this-key-before-use\"");
    for sample in [LEFT, RIGHT, &older] {
        let outcome = checked(sample, &Config::default());
        assert!(!outcome.is_good, "{}", outcome.output);
        let line = 1 + sample.lines().position(|l| l.contains("<IKEPresharedKey")).expect("a key");
        let said = &outcome.errors;
        assert!(said.contains(&format!("policy.xml:{line}:")), "{said}");
        assert!(said.contains("placeholder not replaced") && said.contains("openssl rand -hex 32"));
        assert!(said.contains("policy refused: 1 error\n"), "{said}");
    }
}

#[test]
fn a_sample_with_a_key_is_good_and_one_end_starts() {
    let key = format!("Format=\"HEX\" Value=\"{}\"", "5a".repeat(32));
    let [left, right] = [LEFT, RIGHT].map(|sample| {
        let outcome = checked(&changed(sample, PLACEHOLDER, &key), &Config::default());
        assert!(outcome.is_good && outcome.errors.is_empty(), "{}", outcome.errors);
        outcome.output
    });
    assert_eq!(left.matches("with the daemon").count(), 2, "{left}");
    assert_eq!(right.matches("on command").count(), 2, "{right}");
}

#[test]
fn the_samples_are_those_of_the_other_tests() {
    let body = |text: &str| {
        let (head, body) = text.split_once("-->").expect("a comment comes first");
        (head.lines().count(), body.to_owned())
    };
    for (sample, tested) in [LEFT, RIGHT].into_iter().zip(TESTED) {
        let sample = changed(
            sample,
            PLACEHOLDER,
            "Format=\"ASCII\" Value=\"tests-replace-this-key-before-use\"",
        );
        let sample = sample.replace("AutoStart=\"Yes\"", "AutoStart=\"No\"");
        assert_eq!(body(&sample), body(tested));
    }
}

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    new: New,
}

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config").join(name)
}

/// `UPDATE_EXPECTED=1` writes the samples.
#[test]
fn the_samples_with_certificates_are_what_policy_new_writes() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let line = "new --local 192.0.2.1 --remote 192.0.2.2 --protect 10.1.0.0/24=10.2.0.0/24 --certificates \
                --local-id left.example.net --remote-id right.example.net";
    let new = Line::try_parse_from(line.split_whitespace()).expect("arguments").new;
    New { output: directory.path().to_owned(), ..new }.run().expect("written");
    for (name, other) in [("left", "right"), ("right", "left")] {
        let text = fs::read_to_string(directory.path().join(format!("{name}.xml"))).expect("text");
        let text = changed(&text, &format!("{other}.xml"), &format!("certificates-{other}.xml"));
        let path = sample(&format!("certificates-{name}.xml"));
        if std::env::var_os("UPDATE_EXPECTED").is_some() {
            fs::write(&path, &text).expect("writable");
        }
        assert_eq!(fs::read_to_string(&path).expect("a sample"), text, "{}", path.display());
    }
}

#[test]
fn certificates_of_vpnctl_pki_are_all_that_the_samples_need() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let key = KeyKind::default();
    let new = NewAuthority { name: "VPN CA".to_owned(), days: 3650, crl_days: 365, key };
    let now = SystemTime::now();
    let mut authority = Authority::create(directory.path(), &new, now).expect("it is empty");
    for name in ["left", "right"] {
        let dns = vec![format!("{name}.example.net")];
        let wanted = Wanted {
            name: name.to_owned(),
            alternatives: Alternatives { dns, ..Alternatives::default() },
            days: None,
            key,
            server_auth: false,
            renew: false,
        };
        let issued = authority.issue(&wanted, now).expect("the first of its name");
        let text = fs::read_to_string(sample(&format!("certificates-{name}.xml"))).expect("text");
        let mut config = Config::default();
        config.certificates.directory = directory.path().join("nothing");
        let outcome = checked(&text, &config);
        assert!(outcome.is_good && outcome.errors.contains("no certificate of this side"));
        config.certificates.directory = issued.directory;
        let outcome = checked(&text, &config);
        assert!(outcome.is_good && outcome.errors.is_empty(), "{}", outcome.errors);
    }
}
