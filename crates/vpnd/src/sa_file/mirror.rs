//! The `[[sa]]` tables of the other end: the same SAs, with `in` and `out` exchanged.
//!
//! A table names the source and the destination of the ESP packets, which are the same for both ends. So the SPI and
//! the key of what one end sends become those of what the other end receives, and the other way round.

use super::{inlined, named, read, tables_of};
use crate::config::{Config, ConfigError, NATT_PORT, Sa};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use toml_edit::{DocumentMut, Item, Value};
use zeroize::Zeroizing;

/// The tables of the other end.
#[derive(Debug)]
pub(crate) struct Mirrored {
    /// The tables, with the comments of this end's.
    pub text: Zeroizing<String>,
    /// The files of keys that the tables name.
    pub key_files: BTreeSet<PathBuf>,
    /// The network cards that they name.
    pub devices: BTreeSet<String>,
}

/// There are no tables of the other end.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    /// The file of this end has an error.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A key file cannot be read.
    #[error("{}: {why}", .path.display())]
    Key {
        /// The file that names it.
        path: PathBuf,
        /// The key file and the reason.
        why: String,
    },
    /// The other end is behind an address translator, or uses another port.
    #[error(
        "{}: manual SA {name:?} has remote_port = {port}: the other end needs the port that it sees this end at, which is \
         not in this file; write its tables by hand, or remove remote_port first",
        .path.display()
    )]
    Port {
        /// The file.
        path: PathBuf,
        /// The name of the SA.
        name: String,
        /// Its port.
        port: u16,
    },
}

/// Reads a file with `[[sa]]` tables, such as `vpnd.toml`, or with lines of `ip xfrm`, and exchanges the ends; `-` is
/// standard input. `with_keys` puts keys of files into the text; `shared_key`: SAs of lines may have one key.
///
/// # Errors
/// As [`MirrorError`].
pub(crate) fn mirror_file(
    path: &Path,
    with_keys: bool,
    shared_key: bool,
) -> Result<Mirrored, MirrorError> {
    let named = named(path);
    let (text, mode) = read(path, shared_key)?;
    let sas = Config::parse(named, &text)?.sa;
    if mode & 0o077 != 0 && sas.iter().any(Sa::has_key) {
        return Err(ConfigError::Open(path.to_owned()).into());
    }
    if sas.is_empty() {
        return Err(ConfigError::NoSa(named.to_owned()).into());
    }
    check_ports(named, &sas)?;
    let text = match with_keys {
        true => inlined(&text).map_err(|why| MirrorError::Key { path: named.to_owned(), why })?,
        false => text,
    };
    let files = sas.iter().flat_map(Sa::key_files).filter(|_| !with_keys);
    let devices = sas.iter().filter_map(Sa::offload_device).map(str::to_owned);
    Ok(Mirrored {
        text: exchanged(&text),
        key_files: files.map(PathBuf::from).collect(),
        devices: devices.filter(|device| !device.is_empty()).collect(),
    })
}

fn check_ports(path: &Path, sas: &[Sa]) -> Result<(), MirrorError> {
    let other = sas.iter().find(|sa| sa.remote_port() != NATT_PORT);
    other.map_or(Ok(()), |sa| {
        let (path, name) = (path.to_owned(), sa.name().to_owned());
        Err(MirrorError::Port { path, name, port: sa.remote_port() })
    })
}

/// The tables alone, each with the other direction. The text has been read as a configuration.
fn exchanged(text: &str) -> Zeroizing<String> {
    let before: DocumentMut = text.parse().unwrap_or_default();
    let mut after = DocumentMut::new();
    if let Some(sas) = before.get("sa") {
        after.insert("sa", sas.clone());
    }
    after.set_trailing(before.trailing().clone());
    for table in tables_of(&mut after) {
        if let Some(Item::Value(direction)) = table.get_mut("direction") {
            let other = if direction.as_str() == Some("in") { "out" } else { "in" };
            let decor = direction.decor().clone();
            *direction = Value::from(other);
            *direction.decor_mut() = decor;
        }
    }
    Zeroizing::new(after.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sa_file::tables;
    use proptest::prelude::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use vpn::manual::{ManualSa, SaDirection};

    /// A table of a pair of its own, in words that people use.
    fn table() -> impl Strategy<Value = (bool, bool, u32, u8, String)> {
        let spi = prop_oneof![1_u32..300, any::<u32>().prop_filter("no SPI", |spi| *spi != 0)];
        let lines = prop::sample::subsequence(
            vec![
                "mode = \"transport\"   # as the document has it",
                "offload = 'crypto'\noffload_device = \"eth4\"",
                "replay_window = 32",
                "esn = true",
                "# of the lab\nreqid = 0x07",
                "selector = { protocol = \"tcp\" }",
                "encap = \"udp\"\nremote_port = 4500",
            ],
            0..=7,
        );
        (any::<bool>(), any::<bool>(), spi, any::<u8>(), lines.prop_map(|lines| lines.join("\n")))
    }

    fn text_of(tables: &[(bool, bool, u32, u8, String)]) -> String {
        let mut text = String::from("# the left end\n");
        for (number, (outbound, six, spi, key, lines)) in tables.iter().enumerate() {
            let way = if *outbound { "\"out\" # from here" } else { "\"in\"" };
            let [from, to] = if *six { ["fd00::1", "fd00::2"] } else { ["10.0.0.1", "10.0.0.2"] };
            let key = format!("{number:04x}{}", format!("{key:02x}").repeat(18));
            let reqid = format!("reqid = {}", number + 7);
            let lines = lines.replace("reqid = 0x07", &reqid);
            text += &format!(
                "\n[[sa]]\nname = \"sa {number}\"\ndirection = {way}\nsource = \"{from}\"\ndestination = \"{to}\"\n\
                 spi = {spi:#x}\nsuite = \"AES-GCM-16-128\"\nkey = \"0x{key}\"\n{lines}\n"
            );
        }
        text + "\n# the end\n"
    }

    fn read_all(text: &str) -> Vec<ManualSa> {
        let sas = tables(Path::new("sas.toml"), text).expect("valid");
        sas.iter().map(|sa| sa.manual(64)).collect()
    }

    proptest! {
        #[test]
        fn a_mirror_of_a_mirror_is_the_same_text(all in prop::collection::vec(table(), 1..5)) {
            let text = text_of(&all);
            let there = exchanged(&text);
            prop_assert_eq!(&*exchanged(&there), text.as_str());
            for (here, there) in read_all(&text).into_iter().zip(read_all(&there)) {
                prop_assert_ne!(here.direction, there.direction);
                prop_assert_eq!(here.path.local.ip(), there.path.remote.ip());
                prop_assert_eq!(here.path.remote.ip(), there.path.local.ip());
                prop_assert_eq!(&here.selectors.local, &there.selectors.remote);
                prop_assert_eq!(&here.selectors.remote, &there.selectors.local);
                let back = ManualSa {
                    direction: here.direction, path: here.path, selectors: here.selectors.clone(), ..there
                };
                prop_assert_eq!(back, here);
            }
        }
    }

    fn file(directory: &Path, text: &str) -> PathBuf {
        let file = directory.join("vpnd.toml");
        fs::write(&file, text).expect("writable");
        fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("ours");
        file
    }

    #[test]
    fn only_the_tables_are_mirrored_and_told_what_else_the_other_end_needs() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let key = directory.path().join("sa.key");
        fs::write(&key, format!("0x{}\n", "1f".repeat(20))).expect("writable");
        fs::set_permissions(&key, Permissions::from_mode(0o600)).expect("ours");
        let table = text_of(&[(true, false, 7, 1, "offload_device = \"eth4\"".to_owned())]);
        let (before, rest) = table.split_once("key = ").expect("a key");
        let (_, after) = rest.split_once('\n').expect("a line");
        let text = format!("[esp]\ndevice = \"vpn7\"\n{before}key = {{ file = {key:?} }}\n{after}");
        let path = file(directory.path(), &text);
        let mirrored = mirror_file(&path, false, false).expect("valid");
        assert!(!mirrored.text.contains("vpn7"), "{}", *mirrored.text);
        assert_eq!(mirrored.key_files, BTreeSet::from([key]));
        assert_eq!(mirrored.devices, BTreeSet::from(["eth4".to_owned()]));
        assert_eq!(read_all(&mirrored.text)[0].direction, SaDirection::In);
        let mirrored = mirror_file(&path, true, false).expect("valid");
        assert!(mirrored.key_files.is_empty() && mirrored.text.contains("\"0x1f1f1f"));
    }

    #[test]
    fn a_file_that_has_no_mirror_is_refused() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let refused = |text: &str| {
            let path = file(directory.path(), text);
            mirror_file(&path, false, false).expect_err("no mirror").to_string()
        };
        assert!(refused("[esp]\n").contains("there is no [[sa]] table in it"));
        let udp = "encap = \"udp\"\nremote_port = 4501".to_owned();
        let error = refused(&text_of(&[(true, false, 7, 1, udp)]));
        assert!(error.contains("\"sa 0\" has remote_port = 4501"), "{error}");
        let path = file(directory.path(), &text_of(&[(true, false, 7, 1, String::new())]));
        fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("ours");
        let error = mirror_file(&path, false, false).expect_err("open").to_string();
        assert!(error.contains("holds keys of SAs, and others may use it"), "{error}");
    }
}
