//! Errors of the library can be read wherever they are printed: a program prints the one that its `main` returns by
//! `Debug`, which is to be its `Display`. Messages have only words that readers know, and those of `ike` only words of its
//! RFCs.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};

/// The crates whose errors a program that embeds the library meets.
const CRATES: &[&str] =
    &["policy", "crypto", "esp", "ike", "net", "userspace", "xfrm", "floor", "host", "token"];

#[test]
fn public_errors_have_a_debug_for_readers() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    collect(&root.join("src"), &mut files);
    CRATES.iter().for_each(|name| collect(&root.join("crates").join(name).join("src"), &mut files));
    let (mut found, mut readable) = (Vec::new(), 0);
    for file in files {
        let text = fs::read_to_string(&file).expect("readable");
        readable += text.matches("::readable_debug!(").count();
        for name in unreadable(&text) {
            found.push(format!("{}: {name}", file.display()));
        }
    }
    assert!(found.is_empty(), "derive no Debug, use policy::readable_debug!: {found:#?}");
    assert!(readable > 30, "{readable} errors");
}

#[test]
fn an_error_with_a_derived_debug_is_found() {
    let text = "#[derive(Debug, thiserror::Error)]\n#[error(\"a\")]\npub struct A;\n\
                #[derive(Clone, Debug)]\npub enum B {}\nimpl std::error::Error for B {}\n\
                #[derive(thiserror::Error)]\npub struct C;\npolicy::readable_debug!(C);\n\
                #[derive(Debug, thiserror::Error)]\nstruct Private;\n";
    assert_eq!(unreadable(text), ["A", "B"]);
}

/// Words in messages that readers who are not native speakers stumble over.
const STUMBLING: &[&str] = &["anew", "to be had", "besides", "of late", "as none"];

#[test]
fn messages_have_only_words_that_readers_know() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    collect(&root.join("src"), &mut files);
    for entry in fs::read_dir(root.join("crates")).expect("a directory").flatten() {
        let sources = entry.path().join("src");
        if sources.is_dir() {
            collect(&sources, &mut files);
        }
    }
    let (mut found, mut lines) = (Vec::new(), 0);
    // Messages of tests are for developers.
    let of_test = |file: &Path| {
        let inside = file.strip_prefix(&root).expect("below the root");
        inside.ends_with("tests.rs") || inside.components().any(|part| part.as_os_str() == "tests")
    };
    for file in files.iter().filter(|file| !of_test(file)) {
        let text = fs::read_to_string(file).expect("readable");
        lines += text.lines().count();
        // A text can go on in the next line.
        let joined: String =
            text.split("\\\n").enumerate().fold(String::new(), |all, (number, part)| {
                all + if number == 0 { part } else { part.trim_start() }
            });
        for line in joined.lines().filter(|line| !line.trim_start().starts_with("//")) {
            if let Some(word) = stumbling(line) {
                found.push(format!("{}: {word:?} in {}", file.display(), line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "write it plainly: {found:#?}");
    assert!(lines > 100_000, "{lines} lines");
}

#[test]
fn a_word_of_a_message_is_found_and_one_of_the_code_is_not() {
    let table = r#"let anew = Table::new(["NOT TO BE HAD"]);"#;
    assert_eq!(stumbling(table), Some("to be had"));
    assert_eq!(stumbling(r#""a line that goes on: begin anew""#), Some("anew"));
    assert_eq!(stumbling(r#"map.insert("key", anew); // "anew""#), None);
}

/// A word of [`STUMBLING`] in a string of this line.
fn stumbling(line: &str) -> Option<&'static str> {
    let code = line.split(" // ").next().unwrap_or(line).to_lowercase();
    let texts: Vec<&str> = code.split('"').skip(1).step_by(2).collect();
    let has = |word: &&&str| {
        let words = format!(" {word}");
        texts.iter().any(|text| format!(" {text}").contains(&words))
    };
    STUMBLING.iter().find(has).copied()
}

/// The crate of RFC 7296 keeps facts as values: the words of a policy and of programs are for the crate `diagnosis`.
#[test]
fn ike_names_no_program_and_no_element_of_a_policy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let schema = fs::read_to_string(root.join("crates/policy/src/xml/schema.rs"));
    let schema = schema.expect("the vocabulary of AIX_VPN");
    let is_special = |word: &&str| {
        let starts = ["IKE", "IPSec", "ESP_", "AH_", "vpn:"];
        let is_name = word.chars().all(|c| c.is_ascii_alphanumeric() || "_:".contains(c));
        is_name && starts.iter().any(|start| word.starts_with(start))
    };
    let words: Vec<&str> = schema
        .split('"')
        .filter(is_special)
        .chain(["AIX_VPN", "vpnctl", "vpnd.toml", "(encap)"])
        .collect();
    assert!(words.len() > 60, "only {} words", words.len());
    let (mut files, mut found) = (Vec::new(), Vec::new());
    collect(&root.join("crates/ike/src"), &mut files);
    for file in files.iter().filter(|file| !file.ends_with("tests.rs")) {
        let text = fs::read_to_string(file).expect("readable");
        let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        for line in text.lines() {
            if let Some(word) = words.iter().find(|word| has_word(line, word)) {
                found.push(format!("{}: {word:?} in {}", file.display(), line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "tell it in crates/diagnosis: {found:#?}");
}

#[test]
fn a_word_of_a_policy_is_told_from_one_of_the_protocol() {
    assert!(has_word("correct IKELocalIdentity\"", "IKELocalIdentity"));
    assert!(!has_word("ExchangeType::IKE_AUTH", "IKE_AuthenticationMethod"));
    assert!(!has_word("ESP_TFC_PADDING_NOT_SUPPORTED", "ESP_TFC"));
}

/// Returns `true` if a line has this word, and not only as a part of another one.
fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + word.len()..]);
        !before.ends_with(is_part) && !after.starts_with(is_part)
    })
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The public errors of a file whose `Debug` is derived.
fn unreadable(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut derived = "";
    for line in text.lines() {
        if let Some(traits) = line.strip_prefix("#[derive(") {
            derived = traits;
        }
        let item = ["pub struct ", "pub enum "].iter().find_map(|start| line.strip_prefix(start));
        let private = ["struct ", "enum ", "pub("].iter().any(|start| line.starts_with(start));
        if let Some(item) = item {
            let end = item.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(item.len());
            let name = &item[..end];
            let by_hand = text.lines().any(|line| {
                line.starts_with("impl") && line.contains(&format!("Error for {name} {{"))
            });
            if derived.contains("Debug") && (derived.contains("thiserror::Error") || by_hand) {
                found.push(name);
            }
        }
        if item.is_some() || private {
            derived = "";
        }
    }
    found
}
