//! Files of postquantum preshared keys (RFC 8784): one key in each, by whose name both sides know it.

use super::file::{self, FileError, Problem};
use super::{Loaded, MAX_FILES, Source};
use host::writers::check_directory;
use policy::{Ppk, Secret};
use std::io;
use std::path::{Path, PathBuf};

/// Octets of a key: RFC 8784 §6 wants 256 bits of entropy.
const ENOUGH: usize = 32;

/// Reads the files of a source. The name of a file is that of the key.
pub(super) fn load(source: &Source, loaded: &mut Loaded) {
    let files = match files(source) {
        Ok(files) => files,
        Err(problem) => {
            let path = source.path.clone();
            return loaded.errors.push(FileError { path, problem });
        }
    };
    for path in files {
        if let Err(problem) = add(&path, loaded) {
            loaded.errors.push(FileError { path, problem });
        }
    }
}

fn files(source: &Source) -> Result<Vec<PathBuf>, Problem> {
    match std::fs::metadata(&source.path) {
        Ok(metadata) if !metadata.is_dir() => return Ok(vec![source.path.clone()]),
        Ok(metadata) => check_directory(&source.path, &metadata)?,
        Err(error) if source.optional && error.kind() == io::ErrorKind::NotFound => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(error.into()),
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&source.path)? {
        let path = entry?.path();
        // Those of editors and of the system begin with a point or end with a tilde.
        if id(&path).is_some() && path.is_file() {
            files.push(path);
        }
        if files.len() > MAX_FILES {
            return Err(Problem::TooMany);
        }
    }
    files.sort();
    Ok(files)
}

fn id(path: &Path) -> Option<&str> {
    path.file_name().and_then(|name| name.to_str()).filter(|name| Ppk::is_id(name))
}

fn add(path: &Path, loaded: &mut Loaded) -> Result<(), Problem> {
    let id = id(path).ok_or_else(|| {
        damaged("the name of the file is the name of the PPK: use letters, digits and . _ @ + = -")
    })?;
    let (octets, readable) = file::octets(path)?;
    let key = key(&octets).map_err(damaged)?;
    let path = path.display();
    if readable {
        loaded.warnings.push(format!(
            "{path}: every user of this machine can read the PPK in it; close it with: chmod 600 {path}"
        ));
    }
    if key.expose().len() < ENOUGH {
        loaded.warnings.push(format!(
            "{path}: the PPK has {} octets; a quantum computer may find fewer than {ENOUGH} random ones; \
             make one with: openssl rand -hex 32 | sed s/^/0x/",
            key.expose().len()
        ));
    }
    match loaded.material.ppks.insert(id.to_owned(), key) {
        Some(_) => Err(damaged("another file has a PPK of this name; remove one of the two")),
        None => Ok(()),
    }
}

fn damaged(text: &str) -> Problem {
    Problem::Damaged(text.to_owned())
}

/// The octets that a file stands for: hexadecimal digits behind `0x`, or the line as it is.
fn key(octets: &[u8]) -> Result<Secret, &'static str> {
    let line = octets.strip_suffix(b"\n").unwrap_or(octets);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.is_empty() {
        return Err("the file is empty; make a PPK with: openssl rand -hex 32 | sed s/^/0x/");
    }
    if line.contains(&b'\n') {
        return Err("the file has more than one line; a PPK is one line");
    }
    let Some(digits) = line.strip_prefix(b"0x") else { return Ok(Secret::new(line.to_vec())) };
    let wrong = "0x is not followed by pairs of hexadecimal digits; correct the file";
    let made = std::str::from_utf8(digits).ok().and_then(Secret::from_hex).ok_or(wrong)?;
    if made.is_empty() {
        return Err("no digit follows 0x; make a PPK with: openssl rand -hex 32 | sed s/^/0x/");
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_is_a_line_or_hexadecimal_digits() {
        let read = |text: &str| key(text.as_bytes()).map(|key| key.expose().to_vec());
        assert_eq!(read("0x00ffA1\n"), Ok(vec![0, 0xff, 0xa1]));
        assert_eq!(read("a line \r\n"), Ok(b"a line ".to_vec()));
        for (wrong, why) in [
            ("", "empty"),
            ("\n", "empty"),
            ("a\nb\n", "more than one line"),
            ("0x", "no digit"),
            ("0x0", "pairs"),
            ("0xgg", "pairs"),
        ] {
            let refused = read(wrong).expect_err(wrong);
            assert!(refused.contains(why), "{wrong:?}: {refused}");
        }
    }

    #[test]
    fn files_of_a_directory_are_read_by_their_names() {
        let directory = tempfile::tempdir().expect("a directory");
        let put = |name: &str, text: &str, mode| {
            let path = directory.path().join(name);
            fs::write(&path, text).expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
        };
        put("site-1", &format!("0x{}\n", "5a".repeat(32)), 0o600);
        put("short", "seven", 0o604);
        put("broken", "0xzz", 0o600);
        put(".hidden", "0xzz", 0o600);
        put("copy~", "0xzz", 0o600);
        let mut loaded = Loaded::default();
        load(&Source { path: directory.path().to_owned(), optional: false }, &mut loaded);
        let ids: Vec<&String> = loaded.material.ppks.keys().collect();
        assert_eq!(ids, ["short", "site-1"]);
        assert_eq!(loaded.material.ppks["site-1"].expose(), [0x5a; 32]);
        let errors: Vec<String> = loaded.errors.iter().map(ToString::to_string).collect();
        assert!(errors.len() == 1 && errors[0].contains("broken: 0x is not"), "{errors:?}");
        let expected = ["short: every user", "short: the PPK has 5 octets"];
        let told = |text: &&str| loaded.warnings.iter().any(|warning| warning.contains(*text));
        assert!(loaded.warnings.len() == 2 && expected.iter().all(told), "{:?}", loaded.warnings);
        let absent = Source { path: directory.path().join("absent"), optional: true };
        load(&absent, &mut loaded);
        assert_eq!(loaded.errors.len(), 1);
        load(&Source { optional: false, ..absent }, &mut loaded);
        assert_eq!(loaded.errors.len(), 2);
    }
}
