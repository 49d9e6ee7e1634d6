//! Certificate revocation lists (RFC 5280 §5).

use policy::DistinguishedName;
use std::fmt;
use std::time::Duration;
use webpki::{CertRevocationList, OwnedCertRevocationList};
use x509_cert::crl::CertificateList;
use x509_cert::der::{Decode, Encode};

/// Octets of the longest list that is read.
const LONGEST: usize = 64 * 1024 * 1024;

/// A revocation list that can be read. Its signature is checked where it is used, under the key of the certificate's
/// issuer.
pub struct Crl {
    issuer: DistinguishedName,
    this_update: Duration,
    next_update: Option<Duration>,
    pub(crate) list: CertRevocationList<'static>,
}

/// Why a list cannot be used; completes "the revocation list …".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CrlError {
    /// It is longer than any that is read.
    #[error("has more than {LONGEST} octets")]
    TooLong,
    /// It is not X.509 in DER, version 2, or has what is not supported.
    #[error("cannot be read: {0}; a complete version 2 list of one authority, in DER, is wanted")]
    Encoding(String),
}

impl Crl {
    /// Reads the DER encoding of a list.
    ///
    /// # Errors
    /// Where it is not a complete list of one authority.
    pub fn read(der: &[u8]) -> Result<Self, CrlError> {
        if der.len() > LONGEST {
            return Err(CrlError::TooLong);
        }
        let encoding = |e: &dyn fmt::Display| CrlError::Encoding(e.to_string());
        let read: CertificateList = CertificateList::from_der(der).map_err(|e| encoding(&e))?;
        let read = read.tbs_cert_list;
        let issuer = read.issuer.to_der().map_err(|e| encoding(&e))?;
        let list = OwnedCertRevocationList::from_der(der)
            .map_err(|e| CrlError::Encoding(format!("{e:?}")))?;
        Ok(Self {
            issuer: DistinguishedName::from_der(&issuer).map_err(|e| encoding(&e))?,
            this_update: read.this_update.to_unix_duration(),
            next_update: read.next_update.map(|t| t.to_unix_duration()),
            list: list.into(),
        })
    }

    /// Whose certificates it is about.
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

    /// Whether it counts at this time since 1970.
    pub fn is_current(&self, unix_time: Duration) -> bool {
        self.next_update.is_none_or(|until| unix_time < until)
    }
}

impl fmt::Debug for Crl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Crl({})", self.issuer)
    }
}
