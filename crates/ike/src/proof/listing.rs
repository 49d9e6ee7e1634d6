//! The loaded certificates, keys and lists, as a listing for people.

use super::certificate::Certificate;
use super::crl::Crl;
use super::ocsp::Ocsp;
use policy::KeyKind;
use std::fmt;
use std::time::Duration;

/// One loaded item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its purpose.
    pub role: Role,
    /// Where it came from, as its loader called it.
    pub item: String,
    /// Whom it is for; empty where a certificate has only alternative names, and for revocation lists.
    pub subject: String,
    /// The issuer's name.
    pub issuer: String,
    /// Subject alternative names.
    pub names: Vec<String>,
    /// Serial number, hexadecimal; empty for revocation lists.
    pub serial: String,
    /// Kind and bits of the key; `None` for revocation lists.
    pub key: Option<(KeyKind, usize)>,
    /// Where the private key came from, as its loader called it; `None` but for a certificate of this side.
    pub private_key: Option<String>,
    /// The place of that key if it is not in this process: the token and the object in it.
    pub token: Option<String>,
    /// From when it counts, since 1970.
    pub not_before: Duration,
    /// Until when it counts, since 1970; `None`: for ever.
    pub not_after: Option<Duration>,
}

/// The purpose of a loaded item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Trusted to sign the certificates of peers.
    Authority,
    /// Between an authority and the certificates of sides.
    Intermediate,
    /// Proves who this side is.
    Own,
    /// Certificates that are revoked.
    RevocationList,
    /// Tells peers that a certificate of this side is not revoked.
    OcspResponse,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Authority => "authority",
            Self::Intermediate => "intermediate",
            Self::Own => "own",
            Self::RevocationList => "revocation list",
            Self::OcspResponse => "OCSP response",
        })
    }
}

impl Listed {
    pub(super) fn certificate(role: Role, item: &str, certificate: &Certificate) -> Self {
        let (not_before, not_after) = certificate.validity();
        Self {
            role,
            item: item.to_owned(),
            subject: certificate.subject().map(ToString::to_string).unwrap_or_default(),
            issuer: certificate.issuer().to_string(),
            names: certificate.names().iter().map(ToString::to_string).collect(),
            serial: certificate.serial().iter().map(|o| format!("{o:02x}")).collect(),
            key: Some((certificate.key().kind, certificate.key().bits)),
            private_key: None,
            token: None,
            not_before,
            not_after: Some(not_after),
        }
    }

    pub(super) fn own(
        item: &str,
        certificate: &Certificate,
        private_key: String,
        token: Option<String>,
    ) -> Self {
        let private_key = Some(private_key);
        Self { private_key, token, ..Self::certificate(Role::Own, item, certificate) }
    }

    pub(super) fn ocsp(item: &str, answer: &Ocsp, about: &Certificate) -> Self {
        let (this_update, next_update) = answer.validity();
        let key = None;
        let role = Role::OcspResponse;
        let (not_before, not_after) = (this_update, Some(next_update));
        Self { key, not_before, not_after, ..Self::certificate(role, item, about) }
    }

    /// A revocation list that came from somewhere.
    pub fn crl(item: &str, crl: &Crl) -> Self {
        Self {
            role: Role::RevocationList,
            item: item.to_owned(),
            subject: String::new(),
            issuer: crl.issuer().to_string(),
            names: Vec::new(),
            serial: String::new(),
            key: None,
            private_key: None,
            token: None,
            not_before: crl.this_update(),
            not_after: crl.next_update(),
        }
    }
}
