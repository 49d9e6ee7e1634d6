//! The corpus of every fuzz target, replayed.

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

/// Files beside the corpus that fuzzing begins with, too.
const SEEDS: [(&str, &str); 3] = [
    ("policy_xml", "../../tests/policies/bad"),
    ("policy_xml", "../../tests/policies/good"),
    ("policy_xml", "../policy/fixtures"),
];

#[test]
fn every_seed_passes() {
    for (name, directory) in SEEDS {
        let target = fuzzing::TARGETS.iter().find(|(other, _)| *other == name);
        let (_, target) = target.expect("the target is there");
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
        for entry in fs::read_dir(&directory).expect("the directory can be read") {
            let file = entry.expect("the directory can be read").path();
            target(&fs::read(&file).expect("the file can be read"));
        }
    }
}

#[test]
fn every_file_of_every_corpus_passes() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, target) in fuzzing::TARGETS {
        let mut files: Vec<_> = fs::read_dir(corpus.join(name))
            .unwrap_or_else(|error| panic!("fuzz/corpus/{name}: {error}"))
            .map(|entry| entry.expect("the directory can be read").path())
            .collect();
        files.sort();
        assert!(files.len() >= 10, "fuzz/corpus/{name} has {} files", files.len());
        for file in files {
            let octets = fs::read(&file).expect("the file can be read");
            let passed = catch_unwind(|| target(&octets));
            assert!(passed.is_ok(), "{} is a finding", file.display());
        }
    }
}
