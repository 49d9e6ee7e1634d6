//! Each package that is published has everything that a registry and docs.rs show of it, and depends on published packages
//! only. `.ci/nightly` builds the packages as a registry would get them.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Limits of crates.io.
const MOST_KEYWORDS: usize = 5;
const LONGEST_KEYWORD: usize = 20;
/// A longer description is cut off where packages are listed.
const LONGEST_DESCRIPTION: usize = 120;

#[test]
fn published_packages_have_all_that_a_registry_shows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let workspace = read(&root.join("Cargo.toml"));
    let inherited = &workspace["workspace"]["package"];
    let (mut wrong, mut described) = (Vec::new(), BTreeSet::new());
    for (name, manifest) in packages(&root) {
        if !is_published(&manifest) {
            continue;
        }
        let package = &manifest["package"];
        let field = |key: &str| match package.get(key) {
            Some(Value::Table(table)) if table.get("workspace") == Some(&Value::Boolean(true)) => {
                inherited.get(key)
            }
            value => value,
        };
        let text = |key: &str| field(key).and_then(Value::as_str).unwrap_or_default();
        let list = |key: &str| {
            let values = field(key).and_then(Value::as_array).into_iter().flatten();
            values.filter_map(Value::as_str).collect::<Vec<_>>()
        };
        let mut check = |good: bool, what: &str| {
            if !good {
                wrong.push(format!("{name}: {what}"));
            }
        };
        let description = text("description");
        check(!description.is_empty() && description.len() <= LONGEST_DESCRIPTION, "description");
        check(!description.ends_with('.'), "a description is no sentence");
        check(described.insert(description.to_owned()), "another package is described so");
        for key in ["version", "edition", "rust-version", "license", "repository"] {
            check(!text(key).is_empty(), key);
        }
        check(root.join(text("readme")).is_file() && !text("readme").is_empty(), "readme");
        let keywords = list("keywords");
        check((1..=MOST_KEYWORDS).contains(&keywords.len()), "between one and five keywords");
        check(keywords.iter().all(|word| word.len() <= LONGEST_KEYWORD), "a long keyword");
        check(!list("categories").is_empty(), "categories");
        // Without this, docs.rs leaves out whatever a feature brings.
        let on_request =
            manifest.get("features").and_then(Value::as_table).is_some_and(|features| {
                let default = features.get("default").and_then(Value::as_array);
                let is_default = |name: &str| {
                    default.is_some_and(|all| all.iter().any(|f| f.as_str() == Some(name)))
                };
                features.keys().any(|name| name == "serde" && !is_default(name))
            });
        let docs = package.get("metadata").and_then(|metadata| metadata.get("docs"));
        check(!on_request || docs.is_some(), "the features that docs.rs shows");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn published_packages_depend_on_published_packages_with_a_version() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let workspace = read(&root.join("Cargo.toml"));
    let known = workspace["workspace"]["dependencies"].as_table().expect("the workspace has some");
    let packages = packages(&root);
    let published: BTreeSet<&str> =
        packages.iter().filter(|(_, m)| is_published(m)).map(|(name, _)| name.as_str()).collect();
    let mut wrong = Vec::new();
    for (name, manifest) in packages.iter().filter(|(_, m)| is_published(m)) {
        // Cargo leaves dependencies of tests out if they have no version.
        for section in ["dependencies", "build-dependencies"] {
            let Some(dependencies) = manifest.get(section).and_then(Value::as_table) else {
                continue;
            };
            for dependency in dependencies.keys() {
                let Some(Value::Table(table)) = known.get(dependency) else { continue };
                let Some(package) = table.get("package").and_then(Value::as_str) else { continue };
                let is_here = table.contains_key("path");
                if is_here && !(table.contains_key("version") && published.contains(package)) {
                    wrong.push(format!("{name} depends on {package}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_product_does_not_depend_on_the_laboratory() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let with = packages(&root).into_iter().filter(|(name, manifest)| {
        let dependencies = manifest.get("dependencies").and_then(Value::as_table);
        name != "vpn-lab" && dependencies.is_some_and(|all| all.contains_key("lab"))
    });
    let with: Vec<String> = with.map(|(name, _)| name).collect();
    assert_eq!(with, [""; 0]);
}

/// The packages of the workspace by name.
fn packages(root: &Path) -> BTreeMap<String, Table> {
    let crates = fs::read_dir(root.join("crates")).expect("the crates");
    let directories = crates.map(|entry| entry.expect("it can be read").path());
    let manifests = directories.chain([root.to_owned()]).map(|d: PathBuf| d.join("Cargo.toml"));
    let named = |manifest: Table| {
        (manifest["package"]["name"].as_str().expect("a name").to_owned(), manifest)
    };
    manifests.filter(|path| path.is_file()).map(|path| named(read(&path))).collect()
}

fn is_published(manifest: &Table) -> bool {
    manifest["package"].get("publish") != Some(&Value::Boolean(false))
}

fn read(path: &Path) -> Table {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.parse().unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}
