//! Certificates, private keys, revocation lists and postquantum preshared keys as files; [`ike::proof::trust`] takes
//! their octets. In place of a private key, a file may have the PKCS#11 URI of one in a token.
//!
//! ```no_run
//! # async fn example(policy: std::sync::Arc<policy::Policy>) -> Result<(), vpn::StartError> {
//! use vpn::certificates::{Sources, load};
//! use vpn::ike::proof::trust::Trust;
//!
//! let loaded = load(&Sources::below("/etc/vpnd".as_ref()));
//! for error in &loaded.errors {
//!     eprintln!("{error}");
//! }
//! let (trust, defects) = Trust::new(loaded.material);
//! for defect in &defects {
//!     eprintln!("{defect}");
//! }
//! let gateway = vpn::Gateway::builder(policy).trust(trust).start().await?;
//! # Ok(())
//! # }
//! ```

mod file;
pub(crate) mod pem;
mod ppk;
mod ticket_keys;
pub mod tokens;

pub use file::{FileError, Problem};

use file::{Content, Found};
use host::writers::check_directory;
use ike::proof::trust::{Item, Material};
use policy::Secret;
use std::io;
use std::path::{Path, PathBuf};
use tokens::Tokens;

/// Ends of file names in a directory that are read; others (requests, serial numbers, notes) are passed over.
const SUFFIXES: &[&str] = &["pem", "crt", "cer", "der", "key", "crl", "ocsp", "p12", "pfx"];
/// Files of one directory.
const MAX_FILES: usize = 10_000;

/// Where files are: each path is a file or a directory of files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// Certificates of the authorities that are trusted.
    pub authorities: Vec<Source>,
    /// This side's certificates and intermediate ones.
    pub certificates: Vec<Source>,
    /// Private keys of this side's certificates.
    pub private_keys: Vec<Source>,
    /// Certificate revocation lists.
    pub crls: Vec<Source>,
    /// Answers of OCSP responders about this side's certificates, for peers that want them.
    pub ocsp: Vec<Source>,
    /// Postquantum preshared keys (RFC 8784): a file has the name of its key.
    pub ppks: Vec<Source>,
    /// Keys of tickets of session resumption (RFC 5723), the newest first.
    pub ticket_keys: Vec<Source>,
    /// Private keys in tokens, beside those whose URIs are in the files of private keys.
    pub tokens: Tokens,
}

/// A file or a directory of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The file or directory.
    pub path: PathBuf,
    /// It may be absent.
    pub optional: bool,
}

impl Sources {
    /// The subdirectories `ca`, `certs`, `private`, `crls`, `ocsp` and `ppk` of a directory, and its file `ticket_keys`,
    /// any of which may be absent.
    pub fn below(directory: &Path) -> Self {
        Self {
            authorities: optional(directory.join("ca")),
            certificates: optional(directory.join("certs")),
            private_keys: optional(directory.join("private")),
            crls: optional(directory.join("crls")),
            ocsp: optional(directory.join("ocsp")),
            ppks: optional(directory.join("ppk")),
            ticket_keys: optional(directory.join("ticket_keys")),
            tokens: Tokens::default(),
        }
    }
}

fn optional(path: PathBuf) -> Vec<Source> {
    vec![Source { path, optional: true }]
}

/// The content that a file is expected to have if it does not say so itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Authority,
    Certificate,
    PrivateKey,
    /// The URI of a private key in a token.
    TokenKey,
    Crl,
    Ocsp,
}

/// All that was read.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The content of the files. Each item is named by its file, with the line if the file has several.
    pub material: Material,
    /// Files that cannot be used.
    pub errors: Vec<FileError>,
    /// Problems that do not prevent the use of a file, each a text for the operator.
    pub warnings: Vec<String>,
}

/// Reads all files. One that cannot be used does not keep the others from being read.
pub fn load(sources: &Sources) -> Loaded {
    let mut loaded = Loaded::default();
    let mut uris = sources.tokens.named();
    let places = [
        (Kind::Authority, &sources.authorities),
        (Kind::Certificate, &sources.certificates),
        (Kind::PrivateKey, &sources.private_keys),
        (Kind::Crl, &sources.crls),
        (Kind::Ocsp, &sources.ocsp),
    ];
    for (kind, sources) in places {
        for source in sources {
            let files = files(source).unwrap_or_else(|problem| {
                loaded.errors.push(FileError { path: source.path.clone(), problem });
                Vec::new()
            });
            for path in files {
                match file::read(&path, kind) {
                    Ok(content) => uris.extend(loaded.add(&path, content, kind)),
                    Err(error) => loaded.errors.push(error),
                }
            }
        }
    }
    for source in &sources.ppks {
        ppk::load(source, &mut loaded);
    }
    for source in &sources.ticket_keys {
        loaded.add_ticket_keys(source);
    }
    tokens::open(&sources.tokens, uris, &mut loaded);
    loaded
}

impl Loaded {
    /// Adds the ticket keys of a file.
    fn add_ticket_keys(&mut self, source: &Source) {
        let path = &source.path;
        if source.optional && matches!(path.try_exists(), Ok(false)) {
            return;
        }
        let read = file::octets(path).and_then(|(octets, readable)| {
            let keys = ticket_keys::keys(&octets).map_err(Problem::Damaged)?;
            Ok((keys, readable))
        });
        match read {
            Ok((keys, readable)) => {
                self.material.ticket_keys.extend(keys);
                let shown = path.display();
                self.warnings.extend(readable.then(|| {
                    format!(
                        "{shown}: every user of this machine can read the ticket keys in it; close it with: chmod 600 {shown}"
                    )
                }));
            }
            Err(problem) => self.errors.push(FileError { path: path.clone(), problem }),
        }
    }

    /// Adds the content of a file. Returns the URIs in it.
    fn add(&mut self, path: &Path, content: Content, place: Kind) -> Vec<(PathBuf, String)> {
        let mut uris = Vec::new();
        let file = path;
        let has_key = content.found.iter().any(|found| found.kind == Kind::PrivateKey);
        let path = path.display();
        if has_key && content.readable {
            self.warnings.push(format!(
                "{path}: every user of this machine can read the private key in it; close it with: chmod 600 {path}"
            ));
        }
        if has_key && place == Kind::Authority {
            self.warnings.push(format!(
                "{path}: the private key of an authority lies here; vpnd does not need it, and who has it can pass for \
                 every peer: keep it on another machine"
            ));
        }
        for Found { name, kind, octets } in content.found {
            match kind {
                Kind::Authority => self.material.authorities.push(public(name, &octets)),
                Kind::Certificate => self.material.certificates.push(public(name, &octets)),
                Kind::Crl => self.material.crls.push(public(name, &octets)),
                Kind::Ocsp => self.material.ocsp.push(public(name, &octets)),
                // The key of an authority proves nothing about this side.
                Kind::PrivateKey if place == Kind::Authority => {}
                Kind::PrivateKey => self.material.keys.push(Item { name, der: octets }),
                Kind::TokenKey => {
                    let uri = String::from_utf8_lossy(octets.expose()).into_owned();
                    uris.push((file.to_owned(), uri));
                }
            }
        }
        uris
    }
}

fn public(name: String, octets: &Secret) -> Item {
    Item { name, der: octets.expose().to_vec() }
}

/// The files of a source, by name.
fn files(source: &Source) -> Result<Vec<PathBuf>, Problem> {
    let metadata = match std::fs::metadata(&source.path) {
        Ok(metadata) => metadata,
        Err(error) if source.optional && error.kind() == io::ErrorKind::NotFound => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(error.into()),
    };
    if !metadata.is_dir() {
        return Ok(vec![source.path.clone()]);
    }
    check_directory(&source.path, &metadata)?;
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&source.path)? {
        let path = entry?.path();
        let suffix = path.extension().and_then(|suffix| suffix.to_str()).unwrap_or_default();
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let wanted = SUFFIXES.iter().any(|known| known.eq_ignore_ascii_case(suffix));
        if wanted && !hidden && path.is_file() {
            files.push(path);
        }
        if files.len() > MAX_FILES {
            return Err(Problem::TooMany);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests;
