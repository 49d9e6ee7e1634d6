//! X.509 certificates (RFC 5280) as the proofs of IKE use them (RFC 4945).

use super::signed::Signed;
use policy::{DistinguishedName, Identity, KeyKind};
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;
use x509_cert::Certificate as X509;
use x509_cert::der::asn1::{ObjectIdentifier, UintRef};
use x509_cert::der::oid::AssociatedOid;
use x509_cert::der::{Decode, Encode, Reader, SliceReader};
use x509_cert::ext::pkix::name::{DistributionPointName, GeneralName};
use x509_cert::ext::pkix::{
    BasicConstraints, CrlDistributionPoints, KeyUsage, NameConstraints, SubjectAltName,
    SubjectKeyIdentifier,
};

/// Octets of the longest certificate that is read.
pub(crate) const LONGEST: usize = 16 * 1024;
/// Names and addresses of revocation lists that are kept of one certificate.
const MOST: usize = 64;

const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");
const P521: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.35");
const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");

/// A certificate that can be read; whether it is valid is another question.
#[derive(Clone)]
pub struct Certificate {
    der: Vec<u8>,
    subject: Option<DistinguishedName>,
    issuer: DistinguishedName,
    serial: Vec<u8>,
    names: Vec<Identity>,
    key: PublicKey,
    key_identifier: Option<Vec<u8>>,
    not_before: Duration,
    not_after: Duration,
    is_authority: bool,
    may_issue: bool,
    may_sign: bool,
    may_sign_crls: bool,
    names_crls: bool,
    constrains_names: bool,
    crl_urls: Vec<String>,
}

/// The key of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    /// Its kind.
    pub kind: KeyKind,
    /// Its size.
    pub bits: usize,
    /// The SubjectPublicKeyInfo, in DER.
    pub info: Vec<u8>,
}

/// Why a certificate cannot be used; completes "the certificate …".
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// It is not X.509 in DER.
    #[error("cannot be read: {0}")]
    Encoding(String),
    /// It is longer than any real one.
    #[error("has more than {LONGEST} octets")]
    TooLong,
    /// Its key is of a kind that is not supported.
    #[error(
        "has a key of the kind {0}; supported are RSA, ECDSA on P-256, P-384 and P-521, and Ed25519"
    )]
    Key(String),
    /// Its issuer has no name.
    #[error("names no issuer")]
    Issuer,
}

policy::readable_debug!(CertificateError);

impl Certificate {
    /// Reads the DER encoding of a certificate.
    ///
    /// # Errors
    /// If it is not one, or has a key that nothing here can use.
    pub fn read(der: &[u8]) -> Result<Self, CertificateError> {
        if der.len() > LONGEST {
            return Err(CertificateError::TooLong);
        }
        let certificate = X509::from_der(der).map_err(encoding)?;
        let tbs = certificate.tbs_certificate();
        let subject = tbs.subject().to_der().map_err(encoding)?;
        let issuer = tbs.issuer().to_der().map_err(encoding)?;
        let usage = tbs.get_extension::<KeyUsage>().map_err(encoding)?.map(|(_, usage)| usage);
        let constraints = tbs.get_extension::<BasicConstraints>().map_err(encoding)?;
        let alternatives = tbs.get_extension::<SubjectAltName>().map_err(encoding)?;
        let identifier = tbs.get_extension::<SubjectKeyIdentifier>().map_err(encoding)?;
        let points = tbs.get_extension::<CrlDistributionPoints>().map_err(encoding)?;
        let names = alternatives.map(|(_, SubjectAltName(names))| names).unwrap_or_default();
        Ok(Self {
            der: der.to_vec(),
            subject: DistinguishedName::from_der(&subject).ok(),
            issuer: DistinguishedName::from_der(&issuer).map_err(|_| CertificateError::Issuer)?,
            serial: tbs.serial_number().as_bytes().to_vec(),
            names: names.iter().filter_map(identity).take(MOST).collect(),
            key: public_key(tbs.subject_public_key_info())?,
            key_identifier: identifier.map(|(_, id)| id.0.as_bytes().to_vec()),
            not_before: tbs.validity().not_before.to_unix_duration(),
            not_after: tbs.validity().not_after.to_unix_duration(),
            is_authority: constraints.is_some_and(|(_, c)| c.ca),
            may_issue: usage.is_none_or(|usage| usage.key_cert_sign()),
            may_sign_crls: usage.is_none_or(|usage| usage.crl_sign()),
            // RFC 4945 §5.1.3.2
            may_sign: usage
                .is_none_or(|usage| usage.digital_signature() || usage.non_repudiation()),
            names_crls: points.is_some(),
            constrains_names: (tbs.extensions().into_iter().flatten())
                .any(|extension| extension.extn_id == NameConstraints::OID),
            crl_urls: points.map(|(_, points)| addresses(&points)).unwrap_or_default(),
        })
    }

    /// Its octets.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// Whom it is for; `None` where only its alternative names say that.
    pub fn subject(&self) -> Option<&DistinguishedName> {
        self.subject.as_ref()
    }

    /// The issuer's name.
    pub fn issuer(&self) -> &DistinguishedName {
        &self.issuer
    }

    /// Its number among those of its issuer, big-endian.
    pub fn serial(&self) -> &[u8] {
        &self.serial
    }

    /// Its subject alternative names, as far as identities of IKE can be like them.
    pub fn names(&self) -> &[Identity] {
        &self.names
    }

    /// Its key.
    pub fn key(&self) -> &PublicKey {
        &self.key
    }

    /// First and last moment of its validity, since 1970.
    pub fn validity(&self) -> (Duration, Duration) {
        (self.not_before, self.not_after)
    }

    /// Returns `true` if it may sign other certificates.
    pub fn is_authority(&self) -> bool {
        self.is_authority
    }

    /// Returns `true` if its key usage, where it has one, lets it sign certificates (RFC 5280 §4.2.1.3).
    pub(crate) fn may_issue(&self) -> bool {
        self.may_issue
    }

    /// Returns `true` if its key usage, where it has one, lets its key sign a proof of identity (RFC 4945 §5.1.3.2).
    pub fn may_sign(&self) -> bool {
        self.may_sign
    }

    /// Returns `true` if its key usage, where it has one, lets it sign revocation lists (RFC 5280 §4.2.1.3).
    pub(super) fn may_sign_crls(&self) -> bool {
        self.may_sign_crls
    }

    /// Returns `true` if it says where revocation lists are, at addresses or otherwise.
    pub(super) fn names_crls(&self) -> bool {
        self.names_crls
    }

    /// Returns `true` if it says which names certificates below it may have.
    pub(super) fn constrains_names(&self) -> bool {
        self.constrains_names
    }

    /// The addresses of its issuer's revocation list.
    pub fn crl_urls(&self) -> &[String] {
        &self.crl_urls
    }

    /// Returns `true` if it belongs to the side with this identity (RFC 4945 §3.1). A subject alternative name, the
    /// subject, or for a Key ID the subject key identifier must match.
    pub fn is_for(&self, identity: &Identity) -> bool {
        match identity {
            Identity::Dn(name) => {
                self.subject.as_ref().is_some_and(|s| s.matches(name))
                    || self.names.iter().any(|n| n.matches(identity))
            }
            Identity::KeyId(id) => self.key_identifier.as_ref() == Some(id),
            _ => self.names.iter().any(|n| n.matches(identity)),
        }
    }

    /// Returns `true` if the other certificate has the name of this one's issuer and, where both name it, the issuer's
    /// key.
    pub(crate) fn may_be_issued_by(&self, other: &Self) -> bool {
        other.subject.as_ref() == Some(&self.issuer)
    }

    /// Returns `true` if the key of this SubjectPublicKeyInfo, in DER, has signed it.
    pub(super) fn is_signed_by(&self, key_info: &[u8]) -> bool {
        Signed::read(&self.der).is_ok_and(|signed| signed.is_by(key_info))
    }

    /// Returns `true` if it names itself as its issuer.
    pub fn is_self_issued(&self) -> bool {
        self.subject.as_ref() == Some(&self.issuer)
    }

    /// Every name it has, for people.
    pub fn all_names(&self) -> String {
        let names = self.subject.iter().map(ToString::to_string);
        names.chain(self.names.iter().map(ToString::to_string)).collect::<Vec<_>>().join(", ")
    }
}

fn encoding(error: x509_cert::der::Error) -> CertificateError {
    CertificateError::Encoding(error.to_string())
}

impl fmt::Display for Certificate {
    /// Enough to find it: its subject (or first name), and its issuer.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.subject, self.names.first()) {
            (Some(subject), _) => write!(f, "{subject}")?,
            (None, Some(name)) => write!(f, "{name}")?,
            (None, None) => f.write_str("without a name")?,
        }
        write!(f, " (issued by {})", self.issuer)
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Certificate({self})")
    }
}

fn identity(name: &GeneralName) -> Option<Identity> {
    match name {
        GeneralName::Rfc822Name(name) => text(name.as_str()).map(Identity::UserFqdn),
        GeneralName::DnsName(name) => text(name.as_str()).map(Identity::Fqdn),
        GeneralName::DirectoryName(name) => {
            DistinguishedName::from_der(&name.to_der().ok()?).ok().map(Identity::Dn)
        }
        GeneralName::IpAddress(octets) => {
            let octets = octets.as_bytes();
            let v4 = <[u8; 4]>::try_from(octets).map(IpAddr::from);
            v4.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from)).ok().map(Identity::from)
        }
        _ => None,
    }
}

/// A certificate's text is logged before anything is proved, so it must not look like lines of the log.
fn text(text: &str) -> Option<String> {
    (!text.chars().any(char::is_control)).then(|| text.to_owned())
}

/// Those of complete lists of the certificate's issuer: not of lists about some reasons only, or of other issuers.
fn addresses(points: &CrlDistributionPoints) -> Vec<String> {
    let complete = points.0.iter().filter(|p| p.crl_issuer.is_none() && p.reasons.is_none());
    complete.filter_map(|p| p.distribution_point.as_ref()).flat_map(urls).take(MOST).collect()
}

/// The addresses of a distribution point (RFC 5280 §4.2.1.13).
pub(super) fn urls(point: &DistributionPointName) -> Vec<String> {
    let names = match point {
        DistributionPointName::FullName(names) => names.as_slice(),
        DistributionPointName::NameRelativeToCRLIssuer(_) => &[],
    };
    names
        .iter()
        .filter_map(|name| match name {
            GeneralName::UniformResourceIdentifier(url) => text(url.as_str()),
            _ => None,
        })
        .collect()
}

type SubjectPublicKeyInfo = x509_cert::spki::SubjectPublicKeyInfoOwned;

fn public_key(info: &SubjectPublicKeyInfo) -> Result<PublicKey, CertificateError> {
    let (kind, bits) = match info.algorithm.oid {
        RSA => (KeyKind::Rsa, rsa_bits(info.subject_public_key.raw_bytes()).map_err(encoding)?),
        EC => match info.algorithm.parameters.as_ref().and_then(|p| p.decode_as().ok()) {
            Some(P256) => (KeyKind::EcdsaP256, 256),
            Some(P384) => (KeyKind::EcdsaP384, 384),
            Some(P521) => (KeyKind::EcdsaP521, 521),
            Some(other) => return Err(CertificateError::Key(format!("EC on {other}"))),
            None => return Err(CertificateError::Key("EC on a curve without a name".into())),
        },
        ED25519 => (KeyKind::Ed25519, 256),
        other => return Err(CertificateError::Key(other.to_string())),
    };
    Ok(PublicKey { kind, bits, info: info.to_der().map_err(encoding)? })
}

impl PublicKey {
    /// Reads a SubjectPublicKeyInfo in DER.
    pub(crate) fn read(der: &[u8]) -> Result<Self, CertificateError> {
        public_key(&SubjectPublicKeyInfo::from_der(der).map_err(encoding)?)
    }
}

/// Bits of the modulus of an RSAPublicKey (RFC 8017 §A.1.1).
fn rsa_bits(der: &[u8]) -> x509_cert::der::Result<usize> {
    let mut reader = SliceReader::new(der)?;
    reader.sequence(|reader| -> x509_cert::der::Result<usize> {
        let modulus = UintRef::decode(reader)?;
        UintRef::decode(reader)?;
        let octets = modulus.as_bytes();
        let zeros = octets.first().map_or(0, |first| first.leading_zeros());
        Ok((octets.len() * 8).saturating_sub(zeros as usize))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proof::crl::Crl;
    use proptest::prelude::*;
    use rcgen::{CertificateParams, CrlDistributionPoint, KeyPair, SanType};

    fn example() -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["a.example".into()]).expect("a name");
        params.subject_alt_names.push(SanType::IpAddress("192.0.2.1".parse().expect("an address")));
        params
            .subject_alt_names
            .push(SanType::Rfc822Name("a@b.example".try_into().expect("ASCII")));
        let key = KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("signs").der().to_vec()
    }

    #[test]
    fn names_are_those_of_the_certificate_and_no_part_of_them() {
        let certificate = Certificate::read(&example()).expect("a certificate");
        let fqdn = |name: &str| Identity::Fqdn(name.into());
        let user = |name: &str| Identity::UserFqdn(name.into());
        let address = |a: [u8; 4]| Identity::Ipv4(a.into());
        let yes =
            [fqdn("a.example"), fqdn("A.EXAMPLE"), user("a@B.example"), address([192, 0, 2, 1])];
        assert!(yes.iter().all(|name| certificate.is_for(name)));
        let no = [
            fqdn("b.a.example"),
            fqdn("example"),
            fqdn("a@b.example"),
            fqdn("192.0.2.1"),
            user("A@b.example"),
            user("a.example"),
            address([192, 0, 2, 2]),
            Identity::KeyId(b"a.example".to_vec()),
            Identity::Dn("CN=a.example".parse().expect("a name")),
        ];
        assert!(!no.iter().any(|name| certificate.is_for(name)));
    }

    #[test]
    fn a_name_that_would_write_lines_of_its_own_is_no_name() {
        let forged = "a.example\nINFO tunnel up\x1b[2J";
        let mut params = CertificateParams::new(vec!["b.example".into()]).expect("a name");
        let name = || forged.try_into().expect("ASCII");
        params.subject_alt_names.extend([SanType::DnsName(name()), SanType::Rfc822Name(name())]);
        params.crl_distribution_points = [forged, "http://b.example/"]
            .map(|u| CrlDistributionPoint { uris: vec![u.into()] })
            .into();
        let der = params.self_signed(&KeyPair::generate().expect("a key")).expect("signs");
        let certificate = Certificate::read(der.der()).expect("a certificate");
        assert_eq!(certificate.names(), [Identity::Fqdn("b.example".into())]);
        assert_eq!(certificate.crl_urls(), ["http://b.example/"]);
        assert!(!certificate.all_names().chars().any(char::is_control));
    }

    proptest! {
        #[test]
        fn no_octets_can_panic(octets in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Certificate::read(&octets);
            let _ = Crl::read(&octets);
        }

        #[test]
        fn no_damage_can_panic(at in any::<prop::sample::Index>(), octet: u8, cut in any::<prop::sample::Index>()) {
            static WHOLE: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(example);
            let mut octets = WHOLE.clone();
            let at = at.index(octets.len());
            octets[at] = octet;
            if let Ok(certificate) = Certificate::read(&octets) {
                let _ = (certificate.to_string(), certificate.all_names());
            }
            octets.truncate(cut.index(octets.len()));
            let _ = Certificate::read(&octets);
        }
    }
}
