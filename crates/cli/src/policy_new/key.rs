//! The preshared key of a new policy.

use std::fmt::Write;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Octets of a key that is made here.
const LENGTH: usize = 32;
/// Octets that a key must have at least. A shorter one can be guessed from a recorded handshake.
const SHORTEST: usize = 16;
/// Octets of a file that are read at most.
const LONGEST: u64 = 4096;

/// A key as it stands in a policy.
#[derive(Clone)]
pub struct Key {
    /// The value of `Format`.
    pub format: &'static str,
    /// The value of `Value`.
    pub value: Zeroizing<String>,
}

/// A key cannot be made or read.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read.
    #[error("cannot read the key {}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file holds no key.
    #[error("{}: {why}; make a key with: openssl rand -hex 32", .path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
}

impl Key {
    /// A key of random octets.
    pub fn generate() -> Self {
        let mut octets = Zeroizing::new([0; LENGTH]);
        getrandom::fill(&mut *octets).expect("the system's random number generator works");
        let mut value = Zeroizing::new(String::with_capacity(2 * LENGTH));
        for octet in octets.iter() {
            // Writing to a String cannot fail.
            let _ = write!(value, "{octet:02x}");
        }
        Self { format: "HEX", value }
    }

    /// Reads a key from a file; `-` is standard input.
    ///
    /// # Errors
    /// Where it cannot be read, or is no key.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        // Reserved in one piece: a buffer that grows leaves copies of the key in freed memory.
        let mut octets = Zeroizing::new(Vec::with_capacity(LONGEST as usize + 1));
        let from: &mut dyn Read = match path.to_str() {
            Some("-") => &mut io::stdin().lock(),
            _ => &mut File::open(path)
                .map_err(|source| KeyError::Read { path: path.to_owned(), source })?,
        };
        from.take(LONGEST + 1)
            .read_to_end(&mut octets)
            .map_err(|source| KeyError::Read { path: path.to_owned(), source })?;
        Self::of(&octets).map_err(|why| KeyError::Unfit { path: path.to_owned(), why })
    }

    /// The key in the octets of a file.
    fn of(octets: &[u8]) -> Result<Self, String> {
        if octets.len() as u64 > LONGEST {
            return Err(format!("the file has more than {LONGEST} octets"));
        }
        let text = std::str::from_utf8(octets).map_err(|_| "the file is no text".to_owned())?;
        // The end of the line is not part of the key; blanks are.
        let text = text.strip_suffix('\n').unwrap_or(text);
        let text = text.strip_suffix('\r').unwrap_or(text);
        if !text.bytes().all(|b| b.is_ascii_graphic() || b == b' ') || text.trim() != text {
            let why = "the key must be one line of printable ASCII characters, without blanks at its ends";
            return Err(why.to_owned());
        }
        let is_hex = text.bytes().all(|b| b.is_ascii_hexdigit());
        let is_hex = is_hex && text.len() % 2 == 0 && text.len() >= 2 * SHORTEST;
        if text.len() < SHORTEST {
            return Err(format!("the key has fewer than {SHORTEST} octets and can be guessed"));
        }
        let format = if is_hex { "HEX" } else { "ASCII" };
        Ok(Self { format, value: Zeroizing::new(text.to_owned()) })
    }

    /// How the file was read, for people.
    pub fn description(&self) -> String {
        match self.format {
            "HEX" => {
                format!("a key of {} octets, read as hexadecimal digits", self.value.len() / 2)
            }
            _ => format!("a key of {} octets, read as text", self.value.len()),
        }
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({})", self.description())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_hexadecimal_or_text() {
        let of = |text: &str| Key::of(text.as_bytes()).map(|key| (key.format, key.description()));
        let hex = "0123456789abcdef0123456789ABCDEF\n";
        assert_eq!(of(hex).expect("a key").1, "a key of 16 octets, read as hexadecimal digits");
        assert_eq!(of("correct horse battery staple\r\n").expect("a key").0, "ASCII");
        // Too few digits for a key of hexadecimal digits, but enough characters.
        assert_eq!(of("0123456789abcdef").expect("a key").0, "ASCII");
        for bad in
            ["", "short", " with blanks at the ends ", "two lines, of which\none is too many"]
        {
            assert!(of(bad).is_err(), "{bad:?}");
        }
        assert!(Key::of(&[0xff; 40]).is_err());
        assert!(Key::of(&[b'a'; 5000]).is_err());
    }

    #[test]
    fn keys_are_random_and_not_printed() {
        let [one, other] = [(); 2].map(|()| Key::generate());
        assert_eq!((one.format, one.value.len()), ("HEX", 64));
        assert_ne!(*one.value, *other.value);
        assert!(!format!("{one:?}").contains(one.value.as_str()));
    }
}
