//! The path from a certificate to an authority (RFC 5280 §6, RFC 4945 §5). rustls-webpki decides; this module puts its
//! refusals in words.

use super::certificate::Certificate;
use super::crl::Crl;
use super::trust::{RSA_BITS, Trust};
use policy::KeyKind;
use rustls_pki_types::{CertificateDer, SignatureVerificationAlgorithm, TrustAnchor, UnixTime};
use std::sync::Arc;
use std::time::Duration;
use webpki::aws_lc_rs as algorithms;
use webpki::{
    EndEntityCert, Error, ExpirationPolicy, ExtendedKeyUsageValidator, KeyPurposeIdIter, KeyUsage,
    RequiredEkuNotFoundContext, RevocationCheckDepth, RevocationOptionsBuilder,
    UnknownStatusPolicy, VerifiedPath, anchor_from_trusted_cert,
};

const ALGORITHMS: &[&dyn SignatureVerificationAlgorithm] = &[
    algorithms::ECDSA_P256_SHA256,
    algorithms::ECDSA_P256_SHA384,
    algorithms::ECDSA_P256_SHA512,
    algorithms::ECDSA_P384_SHA256,
    algorithms::ECDSA_P384_SHA384,
    algorithms::ECDSA_P384_SHA512,
    algorithms::ECDSA_P521_SHA256,
    algorithms::ECDSA_P521_SHA384,
    algorithms::ECDSA_P521_SHA512,
    algorithms::ED25519,
    algorithms::RSA_PKCS1_2048_8192_SHA256,
    algorithms::RSA_PKCS1_2048_8192_SHA384,
    algorithms::RSA_PKCS1_2048_8192_SHA512,
    algorithms::RSA_PKCS1_2048_8192_SHA256_ABSENT_PARAMS,
    algorithms::RSA_PKCS1_2048_8192_SHA384_ABSENT_PARAMS,
    algorithms::RSA_PKCS1_2048_8192_SHA512_ABSENT_PARAMS,
    algorithms::RSA_PSS_2048_8192_SHA256_LEGACY_KEY,
    algorithms::RSA_PSS_2048_8192_SHA384_LEGACY_KEY,
    algorithms::RSA_PSS_2048_8192_SHA512_LEGACY_KEY,
];

/// Extended key usages that fit: server and client authentication, IPsec IKE, its intermediate use, any.
const USAGES: [&[usize]; 5] = [
    &[1, 3, 6, 1, 5, 5, 7, 3, 1],
    &[1, 3, 6, 1, 5, 5, 7, 3, 2],
    &[1, 3, 6, 1, 5, 5, 7, 3, 17],
    &[1, 3, 6, 1, 5, 5, 8, 2, 2],
    &[2, 5, 29, 37, 0],
];

/// RFC 4945 §5.1.3.12: no extended key usage, or one that fits.
struct Usage;

impl ExtendedKeyUsageValidator for Usage {
    fn validate(&self, purposes: KeyPurposeIdIter<'_, '_>) -> Result<(), Error> {
        let mut present = Vec::new();
        for purpose in purposes {
            present.push(purpose?.to_decoded_oid());
        }
        if present.is_empty() || present.iter().any(|p| USAGES.contains(&p.as_slice())) {
            return Ok(());
        }
        let required = KeyUsage::client_auth();
        Err(Error::RequiredEkuNotFoundContext(RequiredEkuNotFoundContext { required, present }))
    }
}

/// The basis for judging a certificate.
pub(super) struct Judge<'a> {
    pub trust: &'a Trust,
    /// The certificates that came along, to lead to an authority.
    pub others: &'a [Certificate],
    /// Since 1970.
    pub unix_time: Duration,
}

/// Revocation lists, and why others could not be fetched.
pub(super) struct Revocation<'a> {
    pub crls: Vec<&'a Arc<Crl>>,
    pub missing: Vec<String>,
}

impl Judge<'_> {
    /// The certificate and those between it and an authority, if they are valid; revocation is not looked at.
    ///
    /// # Errors
    /// The text for the operator: the certificate that is not valid, the reason, and what to do.
    pub fn path(&self, leaf: &Certificate) -> Result<Vec<Certificate>, String> {
        self.judge(leaf, None)
    }

    /// As [`Judge::path`], and none of them is revoked.
    ///
    /// # Errors
    /// Those of [`Judge::path`], a revoked certificate, or a revocation list that cannot be fetched.
    pub fn unrevoked(&self, leaf: &Certificate, revocation: &Revocation<'_>) -> Result<(), String> {
        self.judge(leaf, Some(revocation)).map(|_| ())
    }

    fn judge(
        &self,
        leaf: &Certificate,
        revocation: Option<&Revocation<'_>>,
    ) -> Result<Vec<Certificate>, String> {
        self.check_leaf(leaf)?;
        let authorities: Vec<CertificateDer<'_>> = (self.trust.authorities.iter())
            .filter(|a| self.is_current(a))
            .map(|a| CertificateDer::from(a.der()))
            .collect();
        let anchors: Vec<TrustAnchor<'_>> =
            authorities.iter().filter_map(|a| anchor_from_trusted_cert(a).ok()).collect();
        let others: Vec<CertificateDer<'_>> =
            self.between().map(|c| CertificateDer::from(c.der())).collect();
        let der = CertificateDer::from(leaf.der());
        let explain = |error: Error| self.explain(leaf, &error, revocation);
        let entity = EndEntityCert::try_from(&der).map_err(explain)?;
        let lists: Vec<_> = revocation.iter().flat_map(|r| &r.crls).map(|crl| &crl.list).collect();
        let strict = !self.trust.lenient_revocation;
        let options = match RevocationOptionsBuilder::new(&lists) {
            Ok(builder) => Some(
                builder
                    .with_depth(RevocationCheckDepth::Chain)
                    .with_expiration_policy(ExpirationPolicy::Enforce)
                    .with_status_policy(match strict {
                        true => UnknownStatusPolicy::Deny,
                        false => UnknownStatusPolicy::Allow,
                    })
                    .build(),
            ),
            Err(_) if revocation.is_some() && strict => {
                return Err(explain(Error::UnknownRevocationStatus));
            }
            Err(_) => None,
        };
        let time = UnixTime::since_unix_epoch(self.unix_time);
        // RFC 5280 §6.1.4 (n), which webpki leaves to its caller.
        let may_issue = |path: &VerifiedPath<'_>| {
            let mut used = path.intermediate_certificates();
            let may = |der: &[u8]| self.between().any(|c| c.der() == der && c.may_issue());
            match used.all(|used| may(used.der().as_ref())) {
                true => Ok(()),
                false => Err(Error::EndEntityUsedAsCa),
            }
        };
        let path = entity
            .verify_for_usage(ALGORITHMS, &anchors, &others, time, Usage, options, Some(&may_issue))
            .map_err(explain)?;
        let between = path
            .intermediate_certificates()
            .filter_map(|used| self.between().find(|c| c.der() == used.der().as_ref()));
        Ok([leaf].into_iter().chain(between).cloned().collect())
    }

    fn between(&self) -> impl Iterator<Item = &Certificate> {
        self.others.iter().chain(&self.trust.intermediates)
    }

    fn is_current(&self, certificate: &Certificate) -> bool {
        let (from, until) = certificate.validity();
        (from..=until).contains(&self.unix_time)
    }

    fn check_leaf(&self, leaf: &Certificate) -> Result<(), String> {
        if !leaf.may_sign() {
            return Err(format!(
                "the certificate {leaf} is not for signatures: its key usage has neither digitalSignature nor \
                 nonRepudiation; have it issued with one of them"
            ));
        }
        if leaf.key().kind == KeyKind::Rsa && leaf.key().bits < RSA_BITS {
            return Err(format!(
                "the certificate {leaf} has an RSA key of {} bits, which is too weak; make one with at least {RSA_BITS}",
                leaf.key().bits
            ));
        }
        out_of_time(leaf, self.unix_time).map_or(Ok(()), Err)
    }

    fn explain(
        &self,
        leaf: &Certificate,
        error: &Error,
        revocation: Option<&Revocation<'_>>,
    ) -> String {
        match error {
            Error::CertExpired { .. } | Error::CertNotValidYet { .. } => self
                .between()
                .find_map(|c| out_of_time(c, self.unix_time))
                .unwrap_or_else(|| format!("the certificate {leaf} is not valid now")),
            Error::UnknownIssuer => self.explain_unknown(leaf),
            Error::InvalidSignatureForPublicKey => format!(
                "the certificate {leaf}, or one above it, is not signed by the key of its issuer: the authority here \
                 has the same name but another key; compare the authority's certificate with the peer's"
            ),
            Error::RequiredEkuNotFoundContext(context) => {
                let oid = |oid: &Vec<usize>| {
                    oid.iter().map(ToString::to_string).collect::<Vec<_>>().join(".")
                };
                let present: Vec<String> = context.present.iter().map(oid).collect();
                format!(
                    "the certificate {leaf} is for other purposes (extended key usage {}); have it issued with \
                     serverAuth, clientAuth or ipsecIKE",
                    present.join(", ")
                )
            }
            Error::CaUsedAsEndEntity => format!(
                "the certificate {leaf} is that of an authority, and cannot prove who a side is; have one issued by it"
            ),
            Error::EndEntityUsedAsCa => format!(
                "the certificate {leaf} is issued by a side that is no authority (CA:TRUE is missing, or keyCertSign \
                 in its key usage)"
            ),
            Error::NameConstraintViolation => {
                format!("the certificate {leaf} has a name that its authority may not give")
            }
            Error::PathLenConstraintViolated => {
                format!("the certificate {leaf} is further from its authority than that allows")
            }
            Error::CertRevoked => self.explain_revoked(leaf, revocation),
            Error::UnknownRevocationStatus | Error::CrlExpired { .. } => {
                let missing = revocation.map(|r| r.missing.join("; ")).unwrap_or_default();
                let missing = match missing.as_str() {
                    "" => format!("none of {} is loaded", leaf.issuer()),
                    missing => missing.to_owned(),
                };
                format!(
                    "whether the certificate {leaf} is revoked is not known, and the policy wants to know \
                     (IKE_Flags_UseCRL): {missing}; provide a current revocation list"
                )
            }
            Error::InvalidCrlSignatureForPublicKey | Error::IssuerNotCrlSigner => format!(
                "the revocation list for the certificate {leaf} is not signed by the authority that it names, or that \
                 one may not sign lists"
            ),
            other => format!("the certificate {leaf} is not valid: {other}"),
        }
    }

    /// Names the first issuer that is not here.
    fn explain_unknown(&self, leaf: &Certificate) -> String {
        let mut last = leaf;
        for _ in 0..self.others.len() {
            match self.between().find(|c| last.may_be_issued_by(c)) {
                Some(next) if !next.is_self_issued() && next.der() != last.der() => last = next,
                _ => break,
            }
        }
        let named = self.trust.authorities.iter().find(|a| last.may_be_issued_by(a));
        if let Some(problem) = named.and_then(|a| out_of_time(a, self.unix_time)) {
            return format!("the authority of {leaf} does not count: {problem}");
        }
        let have: Vec<String> = (self.trust.authorities.iter())
            .filter_map(|a| a.subject().map(ToString::to_string))
            .collect();
        let have = match have.as_slice() {
            [] => "no authority is loaded at all".to_owned(),
            have => format!("the authorities here are {}", have.join("; ")),
        };
        format!(
            "the certificate {leaf} leads to {}, which is not trusted here: {have}; add its certificate to the \
             authorities, or have the peer send the certificates between",
            last.issuer()
        )
    }

    fn explain_revoked(&self, leaf: &Certificate, revocation: Option<&Revocation<'_>>) -> String {
        let revoked = |c: &&Certificate| {
            revocation.iter().flat_map(|r| &r.crls).any(|crl| {
                crl.issuer() == c.issuer()
                    && crl.list.find_serial(c.serial()).is_ok_and(|found| found.is_some())
            })
        };
        let which = [leaf].into_iter().chain(self.between()).find(revoked).unwrap_or(leaf);
        format!(
            "the certificate {which} is revoked by its issuer; its owner needs a new one, with a new key"
        )
    }
}

/// The fault of a certificate's validity period.
pub(super) fn out_of_time(certificate: &Certificate, unix_time: Duration) -> Option<String> {
    let (from, until) = certificate.validity();
    if unix_time > until {
        return Some(format!(
            "the certificate {certificate} has expired on {}; it must be renewed (or the clock here is wrong: it says {})",
            date(until),
            date(unix_time)
        ));
    }
    (unix_time < from).then(|| {
        format!(
            "the certificate {certificate} is valid only from {} on; is the clock here right? It says {}",
            date(from),
            date(unix_time)
        )
    })
}

/// A moment since 1970 in UTC, for people.
fn date(unix_time: Duration) -> String {
    x509_cert::der::DateTime::from_unix_duration(unix_time)
        .map_or_else(|_| "a time beyond the year 9999".to_owned(), |d| d.to_string())
}
