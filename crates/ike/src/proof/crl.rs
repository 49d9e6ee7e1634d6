//! Certificate revocation lists (RFC 5280 §5).

use super::certificate::{self, Certificate};
use super::signed::Signed;
use policy::DistinguishedName;
use std::fmt;
use std::time::Duration;
use webpki::{CertRevocationList, OwnedCertRevocationList};
use x509_cert::crl::CertificateList;
use x509_cert::der::{self, Decode, Encode};
use x509_cert::ext::pkix::crl::IssuingDistributionPoint;

/// Octets of the longest list that is read.
const LONGEST: usize = 64 * 1024 * 1024;

/// A revocation list that can be read. Its signature is checked where it is used, under the key of the certificate's
/// issuer.
pub struct Crl {
    issuer: DistinguishedName,
    this_update: Duration,
    next_update: Option<Duration>,
    scope: Option<Scope>,
    list: CertRevocationList<'static>,
    der: Vec<u8>,
}

/// The certificates of its issuer that a list is about, where it is not about all of them (RFC 5280 §5.2.5).
struct Scope {
    only_authorities: bool,
    only_others: bool,
    /// The certificates that say where revocation lists are name one of these addresses.
    urls: Vec<String>,
}

/// Why a list cannot be used; completes "the revocation list …".
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum CrlError {
    /// It is longer than any that is read.
    #[error("has more than {LONGEST} octets")]
    TooLong,
    /// It is not X.509 in DER, version 2, or has what is not supported.
    #[error("cannot be read: {0}; a complete version 2 list of one authority, in DER, is wanted")]
    Encoding(String),
}

policy::readable_debug!(CrlError);

impl Crl {
    /// Reads the DER encoding of a list.
    ///
    /// # Errors
    /// If it is not a complete list of one authority.
    pub fn read(der: &[u8]) -> Result<Self, CrlError> {
        if der.len() > LONGEST {
            return Err(CrlError::TooLong);
        }
        let read: CertificateList = CertificateList::from_der(der).map_err(encoding)?;
        let read = read.tbs_cert_list;
        let issuer = read.issuer.to_der().map_err(encoding)?;
        let list: CertRevocationList<'static> = OwnedCertRevocationList::from_der(der)
            .map_err(|e| CrlError::Encoding(format!("{e:?}")))?
            .into();
        let scope = list.issuing_distribution_point().map(Scope::read).transpose();
        Ok(Self {
            issuer: DistinguishedName::from_der(&issuer).map_err(encoding)?,
            this_update: read.this_update.to_unix_duration(),
            next_update: read.next_update.map(|t| t.to_unix_duration()),
            scope: scope.map_err(encoding)?,
            list,
            der: der.to_vec(),
        })
    }

    /// The issuer of the certificates that it is about.
    pub fn issuer(&self) -> &DistinguishedName {
        &self.issuer
    }

    /// When it was made, since 1970.
    pub fn this_update(&self) -> Duration {
        self.this_update
    }

    /// Until when it counts, since 1970; `None`: for ever.
    pub fn next_update(&self) -> Option<Duration> {
        self.next_update
    }

    /// Its octets.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// Returns `true` if the key of this SubjectPublicKeyInfo, in DER, has signed it.
    pub fn is_signed_by(&self, key_info: &[u8]) -> bool {
        Signed::read(&self.der).is_ok_and(|signed| signed.is_by(key_info))
    }

    /// Returns `true` if it tells whether this certificate is revoked, provided that the certificate's issuer has
    /// signed it.
    pub(super) fn is_about(&self, certificate: &Certificate) -> bool {
        self.issuer == *certificate.issuer()
            && self.scope.as_ref().is_none_or(|scope| scope.holds(certificate))
    }

    /// Returns `true` if it holds the number of a certificate that it is about.
    pub(super) fn revokes(&self, certificate: &Certificate) -> bool {
        // An entry that cannot be read may be the certificate's.
        !self.list.find_serial(certificate.serial()).is_ok_and(|entry| entry.is_none())
    }

    /// Returns `true` if the list is valid at this time since 1970.
    pub fn is_current(&self, unix_time: Duration) -> bool {
        self.next_update.is_none_or(|until| unix_time < until)
    }
}

fn encoding(error: impl fmt::Display) -> CrlError {
    CrlError::Encoding(error.to_string())
}

impl Scope {
    /// Reads the extension issuingDistributionPoint. webpki has refused lists about some reasons only, and those about
    /// certificates of other issuers.
    fn read(extension: &[u8]) -> der::Result<Self> {
        let point = IssuingDistributionPoint::from_der(extension)?;
        let urls = point.distribution_point.iter().flat_map(certificate::urls).collect();
        let only_authorities = point.only_contains_ca_certs;
        Ok(Self { only_authorities, only_others: point.only_contains_user_certs, urls })
    }

    fn holds(&self, certificate: &Certificate) -> bool {
        let left_out =
            if certificate.is_authority() { self.only_others } else { self.only_authorities };
        !left_out
            && (!certificate.names_crls()
                || certificate.crl_urls().iter().any(|url| self.urls.contains(url)))
    }
}

impl fmt::Debug for Crl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Crl({})", self.issuer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{
        BasicConstraints, CertificateParams, CertificateRevocationListParams, IsCa, Issuer,
        KeyIdMethod, KeyPair, PKCS_ECDSA_P384_SHA384, PKCS_ECDSA_P521_SHA512, PKCS_ED25519,
        PKCS_RSA_SHA256, PublicKeyData, SerialNumber, date_time_ymd,
    };

    fn list(key: KeyPair) -> Crl {
        let mut params = CertificateParams::new(vec![]).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2026, 1, 1),
            next_update: date_time_ymd(2026, 2, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: vec![],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&Issuer::new(params, key)).expect("signs");
        Crl::read(list.der()).expect("a list")
    }

    #[test]
    fn the_key_that_signed_it_is_told_from_another() {
        let kinds =
            [&PKCS_ECDSA_P384_SHA384, &PKCS_ECDSA_P521_SHA512, &PKCS_ED25519, &PKCS_RSA_SHA256];
        for kind in kinds {
            let [key, other] =
                [(); 2].map(|()| KeyPair::generate_for(kind).expect("a kind that is supported"));
            let (info, other) = (key.subject_public_key_info(), other.subject_public_key_info());
            let mut list = list(key);
            assert!(list.is_signed_by(&info), "{:?}", kind);
            assert!(!list.is_signed_by(&other));
            assert!(!list.is_signed_by(&info[1..]));
            let last = list.der.len() - 1;
            list.der[last] ^= 1;
            assert!(!list.is_signed_by(&info));
        }
    }
}
