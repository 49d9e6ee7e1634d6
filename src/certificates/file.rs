//! One file with certificates, private keys or revocation lists, as PEM or DER.

use super::pem::{self, PemError, Section};
use super::tokens;
use super::{Kind, MAX_FILES};
use host::writers::{Changeable, check_file};
use policy::Secret;
use rustix::fs::OFlags;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Largest file that is read, in octets: revocation lists of public authorities have several million.
const MAX_SIZE: u64 = 32 * 1024 * 1024;
/// Sections of one PEM file; the authorities of a whole distribution are some hundred and fifty.
const MAX_SECTIONS: usize = 1000;

/// A file cannot be used.
#[derive(thiserror::Error)]
#[error("{}: {problem}", .path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// The problem, and how to solve it.
    pub problem: Problem,
}

policy::readable_debug!(FileError);

/// A problem with a file.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Read(#[from] io::Error),
    /// It is a pipe, a device or the like.
    #[error("is no regular file; name the file itself")]
    Irregular,
    /// It is too large.
    #[error("larger than {MAX_SIZE} octets or {MAX_SECTIONS} sections; is it the right file?")]
    TooLarge,
    /// Others may change it.
    #[error(transparent)]
    Changeable(#[from] Changeable),
    /// A directory has more files than are read.
    #[error("more than {MAX_FILES} files in the directory")]
    TooMany,
    /// It is damaged.
    #[error("{0}")]
    Damaged(String),
    /// A key that a password protects.
    #[error(
        "the private key is encrypted, and vpnd has no password for it; store it without one: \
         openssl pkey -in {0} -out NEW.pem"
    )]
    Encrypted(String),
    /// A container of another format.
    #[error(
        "PKCS#12 is not read; take certificate and key out of it: openssl pkcs12 -in {0} -out NEW.pem -nodes"
    )]
    Pkcs12(String),
    /// PEM of something else.
    #[error("line {line}: a {label} is none of CERTIFICATE, X509 CRL and PRIVATE KEY{cure}")]
    Label {
        /// Line of the file.
        line: usize,
        /// The label of the PEM section.
        label: String,
        /// A hint for the operator.
        cure: &'static str,
    },
    /// Nothing is in it.
    #[error("neither PEM nor DER: it has to begin with -----BEGIN or an ASN.1 SEQUENCE")]
    Neither,
    /// A key in a token cannot be used.
    #[error("{0}")]
    Token(String),
}

policy::readable_debug!(Problem);

/// One certificate, key or list in a file.
#[derive(Debug)]
pub(super) struct Found {
    pub name: String,
    pub kind: Kind,
    /// In DER.
    pub octets: Secret,
}

/// The content of a file.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub found: Vec<Found>,
    /// Every user of this machine may read it.
    pub readable: bool,
}

/// Reads a file; `kind` is what DER in it is taken for.
pub(super) fn read(path: &Path, kind: Kind) -> Result<Content, FileError> {
    let (octets, readable) =
        octets(path).map_err(|problem| FileError { path: path.to_owned(), problem })?;
    let found = find(path, &octets, kind)
        .map_err(|problem| FileError { path: path.to_owned(), problem })?;
    Ok(Content { found, readable })
}

/// The octets of a file, and whether every user of this machine may read it.
pub(super) fn octets(path: &Path) -> Result<(Zeroizing<Vec<u8>>, bool), Problem> {
    // Nobody may be there to write into a pipe: opening it is not to wait for that.
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let mut file = File::options().read(true).custom_flags(nonblocking).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(Problem::Irregular);
    }
    check_file(path, &metadata)?;
    if metadata.len() > MAX_SIZE {
        return Err(Problem::TooLarge);
    }
    // Reserved in one piece: a buffer that grows leaves copies of a key in freed memory.
    let size = usize::try_from(metadata.len()).unwrap_or(0);
    let mut octets = Zeroizing::new(Vec::with_capacity(size + 1));
    (&mut file).take(MAX_SIZE).read_to_end(&mut octets)?;
    Ok((octets, metadata.mode() & 0o004 != 0))
}

fn find(path: &Path, octets: &[u8], kind: Kind) -> Result<Vec<Found>, Problem> {
    let source = path.display().to_string();
    if !pem::is_pem(octets) {
        return match octets.first() {
            Some(&SEQUENCE) => der(source, octets, kind).map(|found| vec![found]),
            _ if kind == Kind::PrivateKey && tokens::uri(octets).is_some() => {
                let octets = tokens::uri(octets).unwrap_or_default().as_bytes().to_vec();
                let octets = Secret::new(octets);
                Ok(vec![Found { name: source, kind: Kind::TokenKey, octets }])
            }
            _ => Err(Problem::Neither),
        };
    }
    let text = std::str::from_utf8(octets).map_err(|_| Problem::Neither)?;
    let sections = pem::sections(text).map_err(|error| match error {
        PemError::Encrypted { .. } => Problem::Encrypted(source.clone()),
        error => Problem::Damaged(error.to_string()),
    })?;
    if sections.len() > MAX_SECTIONS {
        return Err(Problem::TooLarge);
    }
    let several = sections.len() > 1;
    let found = sections.into_iter().map(|section| {
        let name = if several { format!("{source}:{}", section.line) } else { source.clone() };
        item(name, section, kind)
    });
    Ok(found.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

/// Reads a section according to its label. Parameters of a curve, which old OpenSSL writes before a key, are skipped.
fn item(name: String, mut section: Section<'_>, kind: Kind) -> Result<Option<Found>, Problem> {
    let kind = match section.label {
        "CERTIFICATE" | "X509 CERTIFICATE" if kind == Kind::Authority => Kind::Authority,
        "CERTIFICATE" | "X509 CERTIFICATE" => Kind::Certificate,
        "X509 CRL" => Kind::Crl,
        "OCSP RESPONSE" => Kind::Ocsp,
        "PRIVATE KEY" | "RSA PRIVATE KEY" | "EC PRIVATE KEY" => Kind::PrivateKey,
        "EC PARAMETERS" | "DH PARAMETERS" => return Ok(None),
        "ENCRYPTED PRIVATE KEY" => return Err(Problem::Encrypted(name)),
        label => {
            let cure = match label {
                "TRUSTED CERTIFICATE" => "; convert it: openssl x509 -in OLD.pem -out NEW.pem",
                "OPENSSH PRIVATE KEY" => "; convert a copy: ssh-keygen -p -m PKCS8 -f COPY",
                "CERTIFICATE REQUEST" | "NEW CERTIFICATE REQUEST" => {
                    "; a request has to be signed by an authority first"
                }
                "PKCS7" => "; convert it: openssl pkcs7 -in OLD.p7b -print_certs -out NEW.pem",
                _ => "",
            };
            return Err(Problem::Label { line: section.line, label: label.to_owned(), cure });
        }
    };
    Ok(Some(Found { name, kind, octets: Secret::new(std::mem::take(&mut *section.octets)) }))
}

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;

fn der(name: String, octets: &[u8], kind: Kind) -> Result<Found, Problem> {
    // The elements of a SEQUENCE behind its length in one to five octets (X.690 §8.1.3).
    let header = match octets.get(1) {
        Some(length @ 0x81..=0x84) => 2 + usize::from(length & 0x7f),
        _ => 2,
    };
    let content = octets.get(header..).unwrap_or_default();
    match kind {
        // RFC 5208 §6: an encrypted key begins with the algorithm, all others with their version.
        Kind::PrivateKey if content.first() == Some(&SEQUENCE) => Err(Problem::Encrypted(name)),
        // RFC 7292 §4: a version of 3, which no other of these has.
        _ if content.starts_with(&[INTEGER, 1, 3]) => Err(Problem::Pkcs12(name)),
        kind => Ok(Found { name, kind, octets: Secret::new(octets.to_vec()) }),
    }
}
