//! Certificates and signatures that are not accepted for a reason that the policy decides.

use std::fmt;

/// A certificate of which nothing says whether it is revoked, although the policy wants to know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct UnknownRevocation {
    /// The certificate: its subject and issuer.
    pub certificate: String,
    /// The reasons for which each revocation list does not say it.
    pub reasons: Vec<String>,
}

impl fmt::Display for UnknownRevocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { certificate, reasons } = self;
        write!(
            f,
            "whether the certificate {certificate} is revoked is not known, and the policy wants to know: {}; provide a \
             current revocation list",
            reasons.join("; ")
        )
    }
}

/// A signature of RSA whose method names no hash algorithm, and that is with none of SHA-2. The policy does not accept
/// SHA-1.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct NotWithSha2 {
    /// The certificate: its subject and issuer.
    pub certificate: String,
}

impl fmt::Display for NotWithSha2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the signature of {} does not count: it is not that of its certificate's key with SHA-2",
            self.certificate
        )
    }
}
