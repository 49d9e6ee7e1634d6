//! The output of `vpnd check` for whole policy files: for each `NAME.xml` exactly the text in `NAME.expected`.
//!
//! `UPDATE_EXPECTED=1 cargo test -p vpn-daemon --test texts policies` writes the present output; read the difference as
//! somebody who does not know the program.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use terminal::delegated::Format;
use terminal::report::Colour;
use vpnd::check::{Outcome, Request, check};
use vpnd::config::Config;

/// Files that must be refused.
const BAD: &str = "../../tests/policies/bad";
/// Files that must be loaded.
const GOOD: &str = "../../tests/policies/good";
/// The samples that the format is known from, and others like them.
const SAMPLES: &str = "../policy/fixtures";

fn files(directory: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
    let entries = fs::read_dir(&directory).expect("the directory is there");
    let paths = entries.map(|entry| entry.expect("readable").path());
    let mut files: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|e| e == "xml")).collect();
    files.sort();
    files
}

/// The output of the command for a copy that only its owner can read, as it should be.
fn said(file: &Path, lenient: bool, format: Format) -> Outcome {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let copy = directory.path().join(file.file_name().expect("it is a file"));
    fs::copy(file, &copy).expect("readable");
    fs::set_permissions(&copy, Permissions::from_mode(0o600)).expect("ours");
    let (mut config, colour) = (Config::default(), Colour(false));
    // Where there are no certificates, whatever this machine has.
    config.certificates.directory = directory.path().to_owned();
    let outcome = check(&Request { file: &copy, config: &config, lenient, format, colour });
    let prefix = format!("{}/", directory.path().display());
    Outcome {
        output: outcome.output.replace(&prefix, ""),
        errors: outcome.errors.replace(&prefix, ""),
        ..outcome
    }
}

/// Compares everything with what is expected, or writes that; returns the differences.
fn compare(directory: &str, must_be_good: Option<bool>) -> Vec<String> {
    let update = std::env::var_os("UPDATE_EXPECTED").is_some();
    let mut wrong = Vec::new();
    for file in files(directory) {
        let said = said(&file, false, Format::Human);
        let text = said.output + &said.errors;
        if must_be_good.is_some_and(|good| good != said.is_good) {
            wrong.push(format!("{}: refused: {}\n{text}", file.display(), !said.is_good));
        }
        let expected = file.with_extension("expected");
        if update {
            fs::write(&expected, &text).expect("writable");
        } else if fs::read_to_string(&expected).unwrap_or_default() != text {
            wrong.push(format!("{} is not what is said:\n{text}", expected.display()));
        }
    }
    wrong
}

#[test]
fn each_file_is_told_what_is_expected() {
    let directories = [(BAD, Some(false)), (GOOD, Some(true)), (SAMPLES, None)];
    let wrong: Vec<_> = directories.into_iter().flat_map(|(d, good)| compare(d, good)).collect();
    assert!(
        wrong.is_empty(),
        "{}\n\n{} files; UPDATE_EXPECTED=1 accepts what is said now",
        wrong.join("\n"),
        wrong.len()
    );
}

/// The shape that `docs/reference/policy-diagnostics.md` promises to editors.
#[test]
fn findings_as_json_name_their_place() {
    let bad = files(BAD);
    let json = |name: &str, lenient| {
        let file = bad.iter().find(|path| path.to_string_lossy().contains(name));
        let said = said(file.expect("there is such a file"), lenient, Format::Json);
        assert_eq!(said.errors, "");
        let value: serde_json::Value = serde_json::from_str(&said.output).expect("one object");
        assert_eq!(value["valid"], said.is_good);
        value
    };
    let misspelt = json("value_misspelt", false);
    let finding = serde_json::json!({
        "severity": "error",
        "message": "IKE_Encryption cannot be \"AES-CBC-265\"",
        "help": "did you mean \"AES-CBC-256\"?",
        "line": 6,
        "column": 35,
        "length": 11,
        "element": "IKETransform",
        "attribute": "IKE_Encryption",
        "source": "    <IKETransform IKE_Encryption=\"AES-CBC-265\"/>",
    });
    let whole = serde_json::json!({
        "file": misspelt["file"],
        "valid": false,
        "tunnels": 0,
        "omitted": 0,
        "findings": [finding],
    });
    assert_eq!(misspelt, whole);

    let unheard = json("attribute_unheard_of", true);
    assert_eq!(
        (&unheard["tunnels"], &unheard["findings"][0]["severity"]),
        (&1.into(), &"warning".into())
    );
    let encoding = json("not_utf8", false);
    assert_eq!(encoding["findings"][0]["severity"], "error");
    assert_eq!(encoding["findings"][0].get("line"), None, "it concerns the file");
}
