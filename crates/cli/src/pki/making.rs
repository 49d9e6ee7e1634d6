//! Keys, certificates and revocation lists (RFC 5280), as IKE needs them (RFC 4945 §5).

use super::error::PkiError;
use super::index::Index;
use super::issuer;
use super::key::{Key, KeyKind};
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyUsagePurpose, RevokedCertParams, SanType,
    SerialNumber,
};
use std::fmt::Write;
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use time::OffsetDateTime;
use zeroize::Zeroizing;

/// The identities of a certificate, beside its subject.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Alternatives {
    /// Domain names.
    pub dns: Vec<String>,
    /// Addresses.
    pub ip: Vec<IpAddr>,
    /// Mail addresses.
    pub email: Vec<String>,
}

/// A certificate that is wanted.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The common name, and the name of the files.
    pub name: String,
    /// The identities.
    pub alternatives: Alternatives,
    /// Days until it expires; `None`: a year, or the life of the authority if that is shorter.
    pub days: Option<u32>,
    /// The kind of the key.
    pub key: KeyKind,
    /// For clients that demand it: an extended key usage with serverAuth.
    pub server_auth: bool,
    /// Another certificate of this name is valid, and stays so.
    pub renew: bool,
}

impl Alternatives {
    /// All of them, as a policy names them. A certificate without alternatives proves its subject alone.
    pub fn identities(&self, name: &str) -> Vec<String> {
        let texts = self.dns.iter().cloned();
        let texts = texts.chain(self.ip.iter().map(ToString::to_string));
        let mut all: Vec<String> = texts.chain(self.email.iter().cloned()).collect();
        if all.is_empty() {
            all.push(format!("/CN={name}"));
        }
        all
    }

    fn names(&self) -> Result<Vec<SanType>, PkiError> {
        let mut names = Vec::new();
        for name in &self.dns {
            names.push(SanType::DnsName(Self::ascii(name, "domain name")?));
        }
        names.extend(self.ip.iter().copied().map(SanType::IpAddress));
        for name in &self.email {
            names.push(SanType::Rfc822Name(Self::ascii(name, "mail address")?));
        }
        Ok(names)
    }

    fn ascii(text: &str, form: &str) -> Result<Ia5String, PkiError> {
        Ia5String::try_from(text)
            .map_err(|_| PkiError::Arguments(format!("{text:?} is no {form}; write it in ASCII")))
    }
}

/// Octets of a serial number: 126 of the bits are random (RFC 5280 §4.1.2.2 allows 20 octets).
pub(super) type Serial = [u8; 16];

/// A random serial number: positive, and without a zero octet in front.
pub(super) fn serial() -> Serial {
    let mut octets = Serial::default();
    getrandom::fill(&mut octets).expect("the system's random number generator works");
    octets[0] = octets[0] & 0x3f | 0x40;
    octets
}

/// Hexadecimal digits.
pub(super) fn hex(octets: &[u8]) -> String {
    octets.iter().fold(String::new(), |mut text, octet| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{octet:02x}");
        text
    })
}

fn octets(hex: &str) -> Option<Vec<u8>> {
    let digits = hex.is_ascii().then_some(hex)?;
    let pairs = (0..digits.len()).step_by(2).map(|at| digits.get(at..at + 2));
    pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}

fn making(what: impl Into<String>) -> impl FnOnce(rcgen::Error) -> PkiError {
    let what = what.into();
    move |source| PkiError::Making { what, source }
}

/// Makes a key; returns it and its file's text.
pub(super) fn key(kind: KeyKind) -> Result<(Key, Zeroizing<String>), PkiError> {
    let made = Key::generate(kind).and_then(|key| key.to_pem().map(|text| (key, text)));
    made.map_err(making("making a private key"))
}

/// The authority's key and name, which sign.
pub(super) struct Maker(Issuer<'static, Key>);

impl Maker {
    /// Makes an authority; returns it, and the text of its certificate's and of its key's file.
    pub fn new(
        name: &str,
        kind: KeyKind,
        validity: [SystemTime; 2],
    ) -> Result<(Self, String, Zeroizing<String>), PkiError> {
        let (key, key_text) = key(kind)?;
        let mut params = params(name, &key, &serial(), validity);
        // It certifies ends, and no other authority.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate =
            params.self_signed(&key).map_err(making("the authority's certificate"))?;
        Ok((Self(Issuer::new(params, key)), certificate.pem(), key_text))
    }

    /// Reads the authority's files.
    pub fn open(certificate: &Path, key: &Path) -> Result<Self, PkiError> {
        let pair = Key::from_pem(&read_secret(key)?).map_err(making(key.display().to_string()))?;
        let issuer = issuer::read(&read_secret(certificate)?, pair);
        issuer.map(Self).map_err(making(certificate.display().to_string()))
    }

    /// Signs a certificate, and returns the text of its file.
    pub fn issue(
        &self,
        wanted: &Wanted,
        key: &Key,
        serial: &Serial,
        validity: [SystemTime; 2],
    ) -> Result<String, PkiError> {
        let mut params = params(&wanted.name, key, serial, validity);
        params.subject_alt_names = wanted.alternatives.names()?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        // RFC 4945 §5.1.3.2
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // RFC 4945 §5.1.3.12 recommends to leave it out, but some clients demand serverAuth.
        if wanted.server_auth {
            params.extended_key_usages = vec![
                ExtendedKeyUsagePurpose::ServerAuth,
                ExtendedKeyUsagePurpose::ClientAuth,
                ExtendedKeyUsagePurpose::Other(IPSEC_IKE.to_vec()),
            ];
        }
        let certificate = params.signed_by(key, &self.0);
        Ok(certificate.map_err(making(format!("the certificate of {}", wanted.name)))?.pem())
    }

    /// Signs the list of what is revoked, and returns the text of its file.
    pub fn list(&self, index: &Index, validity: [SystemTime; 2]) -> Result<String, PkiError> {
        let [this_update, next_update] = validity.map(date);
        let revoked = index.ends.iter().filter_map(|entry| {
            let revoked = entry.revoked?;
            // One that is left out would go on being accepted.
            let serial = octets(&entry.serial).ok_or_else(|| PkiError::Serial {
                name: entry.name.clone(),
                serial: entry.serial.clone(),
            });
            Some(serial.map(|serial| RevokedCertParams {
                serial_number: SerialNumber::from(serial),
                revocation_time: date(revoked.0),
                reason_code: None,
                invalidity_date: None,
            }))
        });
        let params = CertificateRevocationListParams {
            this_update,
            next_update,
            crl_number: SerialNumber::from(index.crl_number),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect::<Result<_, PkiError>>()?,
            key_identifier_method: self.0.key().identifier(),
        };
        let list = params.signed_by(&self.0).and_then(|list| list.pem());
        list.map_err(making("the revocation list"))
    }
}

fn read_secret(path: &Path) -> Result<Zeroizing<String>, PkiError> {
    let text = fs::read_to_string(path);
    text.map(Zeroizing::new).map_err(|source| {
        let path = path.to_owned();
        PkiError::System { what: "read", path, source }
    })
}

/// id-kp-ipsecIKE (RFC 4945 §5.1.3.12).
const IPSEC_IKE: [u64; 9] = [1, 3, 6, 1, 5, 5, 7, 3, 17];

fn params(
    name: &str,
    key: &Key,
    serial: &Serial,
    [from, until]: [SystemTime; 2],
) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.serial_number = Some(SerialNumber::from_slice(serial));
    params.key_identifier_method = key.identifier();
    params.not_before = date(from);
    params.not_after = date(until);
    params
}

/// A moment, to the second, as rcgen takes it.
fn date(moment: SystemTime) -> OffsetDateTime {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    OffsetDateTime::UNIX_EPOCH + Duration::from_secs(since.as_secs())
}
