//! The samples in `config/`: what they are worth as they are, and after the key is replaced.

use cli::check::{Format, Outcome, Request, check};
use cli::config::Config;
use cli::report::Colour;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const LEFT: &str = include_str!("../../../config/left.xml");
const RIGHT: &str = include_str!("../../../config/right.xml");
/// The same as the other tests use them.
const TESTED: [&str; 2] = [
    include_str!("../../../tests/policies/site/left.xml"),
    include_str!("../../../tests/policies/site/right.xml"),
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

#[test]
fn the_samples_lie_where_the_readme_says() {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config");
    for name in ["left.xml", "right.xml", "certificates-left.xml", "certificates-right.xml"] {
        assert!(config.join(name).is_file(), "{name}");
    }
}
