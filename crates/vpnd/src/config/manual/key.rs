//! A key: in the file itself, or in one of its own. Nothing here repeats what it has read.

use super::{Deserialize, Deserializer, MapAccess, Secret, Visitor, de, fmt};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Octets of the longest file: no key is longer.
const MAX_FILE: u64 = 1024;

/// A key that was read.
pub(super) struct Key {
    octets: Secret,
    /// The file that has it; `None`: the configuration itself.
    file: Option<PathBuf>,
}

impl Key {
    /// The file that has it; `None`: the configuration itself.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    pub fn into_secret(self) -> Secret {
        self.octets
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Key;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key; write \"0x…\", or { file = \"/etc/vpnd/sa.key\" }")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Key, E> {
                let octets = hexadecimal(text).ok_or_else(|| {
                    E::custom("a key is written as 0x and an even number of hexadecimal digits")
                })?;
                Ok(Key { octets, file: None })
            }

            // The deserializer would repeat a number that it does not expect.
            fn visit_i64<E: de::Error>(self, _: i64) -> Result<Key, E> {
                Err(unquoted())
            }

            fn visit_u64<E: de::Error>(self, _: u64) -> Result<Key, E> {
                Err(unquoted())
            }

            fn visit_i128<E: de::Error>(self, _: i128) -> Result<Key, E> {
                Err(unquoted())
            }

            fn visit_u128<E: de::Error>(self, _: u128) -> Result<Key, E> {
                Err(unquoted())
            }

            fn visit_f64<E: de::Error>(self, _: f64) -> Result<Key, E> {
                Err(unquoted())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Key, A::Error> {
                let Some((name, path)) = map.next_entry::<String, PathBuf>()? else {
                    return Err(de::Error::missing_field("file"));
                };
                if name != "file" {
                    return Err(de::Error::unknown_field(&name, &["file"]));
                }
                let octets = read(&path).map_err(|why| {
                    de::Error::custom(format!("the key file {}: {why}", path.display()))
                })?;
                Ok(Key { octets, file: Some(path) })
            }
        }
        deserializer.deserialize_any(Either)
    }
}

fn unquoted<E: de::Error>() -> E {
    E::custom("a key is written in quotes, as in \"0x…\"")
}

/// Reads a file with the key in hexadecimal, which nobody but its owner may read.
pub(crate) fn read(path: &Path) -> Result<Secret, String> {
    if !path.is_absolute() {
        return Err("name it from the root on, as in /etc/vpnd/sa.key".to_owned());
    }
    let failed = |error: std::io::Error| error.to_string();
    // Nobody may be there to write into a pipe: opening it is not to wait for that.
    let nonblocking = nix::fcntl::OFlag::O_NONBLOCK.bits();
    let file = File::options().read(true).custom_flags(nonblocking).open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err("no regular file".to_owned());
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(format!("others may use it; close it with: chmod 600 {}", path.display()));
    }
    let mut octets = Zeroizing::new(Vec::with_capacity(usize::try_from(MAX_FILE).unwrap_or(0)));
    file.take(MAX_FILE).read_to_end(&mut octets).map_err(failed)?;
    let text = std::str::from_utf8(&octets).ok().map(str::trim);
    text.and_then(hexadecimal)
        .ok_or_else(|| "no key: it has to hold 0x and an even number of hexadecimal digits".into())
}

fn hexadecimal(text: &str) -> Option<Secret> {
    Secret::from_hex(text.strip_prefix("0x")?).filter(|key| !key.is_empty())
}
