//! Reading a PIN from where the URI says. It is read for each login and kept nowhere.

use crate::error::{Kind, TokenError};
use crate::uri::PinSource;
use aws_lc_rs::pbkdf2;
use cryptoki::types::AuthPin;
use rustix::fs::OFlags;
use std::fs::File;
use std::io::{self, Read};
use std::num::NonZeroU32;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Octets of the longest PIN that is read.
const LONGEST: u64 = 1024;

/// A PIN. Dropping it wipes it.
pub(crate) struct Pin(Zeroizing<String>);

impl Pin {
    /// The PIN for a login.
    pub fn for_login(&self) -> AuthPin {
        self.0.to_string().into()
    }
}

/// Rounds of the derivation of a [`Fingerprint`]: some hundredths of a second, which count as time of the token.
const ROUNDS: NonZeroU32 = NonZeroU32::new(100_000).expect("not zero");

/// Knows a PIN again, and does not tell it: few PINs are possible, and whoever reads this process's memory could try
/// them all if that were cheap.
pub(crate) struct Fingerprint {
    salt: [u8; 16],
    derived: Zeroizing<[u8; 32]>,
}

impl Fingerprint {
    pub fn of(pin: &Pin) -> Self {
        let mut salt = [0; 16];
        aws_lc_rs::rand::fill(&mut salt).expect("the system has random octets");
        let mut derived = Zeroizing::new([0; 32]);
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, ROUNDS, &salt, pin.0.as_bytes(), &mut *derived);
        Self { salt, derived }
    }

    pub fn is_of(&self, pin: &Pin) -> bool {
        let (algorithm, pin) = (pbkdf2::PBKDF2_HMAC_SHA256, pin.0.as_bytes());
        pbkdf2::verify(algorithm, ROUNDS, &self.salt, pin, &*self.derived).is_ok()
    }
}

impl PinSource {
    /// The file that is read.
    ///
    /// # Errors
    /// If it is a credential, and the service manager passes none.
    pub fn file(&self) -> Result<PathBuf, TokenError> {
        match self {
            Self::File(path) => Ok(path.clone()),
            Self::Credential(name) => match std::env::var_os("CREDENTIALS_DIRECTORY") {
                Some(directory) => Ok(PathBuf::from(directory).join(name)),
                None => Err(TokenError::new(
                    Kind::Pin,
                    format!(
                        "the PIN is to be the credential {name:?}, but the service manager passes no credentials"
                    ),
                    format!("add to the unit of vpnd: LoadCredential={name}:/etc/vpnd/{name}"),
                )),
            },
        }
    }

    /// A remark about the file, if everybody may read it.
    pub(crate) fn remark(&self) -> Option<String> {
        let path = self.file().ok()?;
        let mode = std::fs::metadata(&path).ok()?.mode();
        let path = path.display();
        (mode & 0o004 != 0).then(|| {
            format!("{path}: every user of this machine can read the PIN in it; close it with: chmod 600 {path}")
        })
    }

    pub(crate) fn read(&self) -> Result<Pin, TokenError> {
        let path = self.file()?;
        // Nobody may be there to write into a pipe: opening it is not to wait for that.
        let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
        let file = File::options().read(true).custom_flags(nonblocking).open(&path);
        let mut file = file.map_err(|error| unreadable(&path, &error))?;
        let metadata = file.metadata().map_err(|error| unreadable(&path, &error))?;
        if !metadata.is_file() {
            return Err(trouble(&path, "is no regular file".into(), "name the file itself".into()));
        }
        if metadata.mode() & 0o002 != 0 {
            let cure = format!("close it with: chmod 600 {}", path.display());
            return Err(trouble(
                &path,
                "may be changed by every user of this machine".into(),
                cure,
            ));
        }
        let mut octets =
            Zeroizing::new(Vec::with_capacity(usize::try_from(LONGEST).unwrap_or(0) + 1));
        (&mut file)
            .take(LONGEST + 1)
            .read_to_end(&mut octets)
            .map_err(|error| unreadable(&path, &error))?;
        let text =
            std::str::from_utf8(&octets).ok().map(|text| text.trim_end_matches(['\r', '\n']));
        let text = text.filter(|text| !text.is_empty() && octets.len() as u64 <= LONGEST);
        let Some(text) = text else {
            let cure = "write the PIN into it, as one line of text".into();
            return Err(trouble(&path, "is empty, too long or no text".into(), cure));
        };
        Ok(Pin(Zeroizing::new(text.to_owned())))
    }
}

fn unreadable(path: &Path, error: &io::Error) -> TokenError {
    let cure = "write the PIN into it, with root as owner and mode 0600".into();
    trouble(path, format!("cannot be read: {error}"), cure)
}

fn trouble(path: &Path, what: String, cure: String) -> TokenError {
    TokenError::new(Kind::Pin, format!("the file {} with the PIN {what}", path.display()), cure)
}

#[cfg(test)]
impl Pin {
    pub fn of(text: &str) -> Self {
        Self(Zeroizing::new(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn files_are_checked_as_those_of_keys_are() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("pin");
        let source = PinSource::File(path.clone());
        let error = |words: &str| {
            let error = source.read().err().expect("not usable").to_string();
            assert!(error.contains(words) && !error.contains("1234"), "{error}");
        };
        error("cannot be read");
        let write = |text: &str, mode| {
            fs::write(&path, text).expect("writable");
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("ours");
        };
        write("1234\n", 0o602);
        error("may be changed by every user");
        for text in ["", "\n", &"1".repeat(2000)] {
            write(text, 0o600);
            error("empty, too long or no text");
        }
        write("1234\r\n", 0o600);
        assert_eq!(source.remark(), None);
        assert_eq!(*source.read().expect("usable").0, "1234");
        write("1234", 0o644);
        assert!(source.remark().expect("everybody reads it").contains("chmod 600"));
        assert!(source.read().is_ok());
        error_of_directory(directory.path());
    }

    #[test]
    fn a_fingerprint_knows_its_pin_and_no_two_are_the_same() {
        let pin = Pin::of;
        let [one, other] = [(); 2].map(|()| Fingerprint::of(&pin("1234")));
        assert!(one.is_of(&pin("1234")) && other.is_of(&pin("1234")) && !one.is_of(&pin("1235")));
        assert!(one.salt != other.salt && *one.derived != *other.derived);
    }

    fn error_of_directory(path: &std::path::Path) {
        let error = PinSource::File(path.into()).read().err().expect("no file").to_string();
        assert!(error.contains("is no regular file"), "{error}");
    }
}
