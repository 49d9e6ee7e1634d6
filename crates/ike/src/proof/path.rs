//! The path from a certificate to an authority (RFC 5280 §6, RFC 4945 §5). rustls-webpki decides; this module puts
//! its refusals in words.

use super::certificate::Certificate;
use super::constraints;
use super::shown::{Algorithms, Shown, Sight, is_signed};
use super::trust::{RSA_BITS, Trust};
use policy::KeyKind;
use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};
use std::cell::RefCell;
use std::time::Duration;
use webpki::{
    EndEntityCert, Error, ExtendedKeyUsageValidator, KeyPurposeIdIter, KeyUsage,
    RequiredEkuNotFoundContext, VerifiedPath, anchor_from_trusted_cert,
};

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

/// A valid path: a certificate, those between it and an authority, and last the authority.
pub(super) struct Path(Vec<Certificate>);

/// A certificate of a path, with the one whose key has signed it.
#[derive(Clone, Copy)]
pub(super) struct Link<'a> {
    pub certificate: &'a Certificate,
    pub issuer: &'a Certificate,
}

impl Path {
    /// Every certificate but the authority's. A name does not tell who has issued a certificate: several may have it.
    pub fn links(&self) -> impl Iterator<Item = Link<'_>> {
        let issuers = self.0.iter().skip(1);
        self.0.iter().zip(issuers).map(|(certificate, issuer)| Link { certificate, issuer })
    }

    /// Until when, since 1970, all of its certificates are valid.
    pub fn until(&self) -> Duration {
        self.0.iter().map(|c| c.validity().1).min().unwrap_or_default()
    }
}

impl Judge<'_> {
    /// The path from a certificate to an authority, if it is valid; revocation is not looked at.
    ///
    /// # Errors
    /// The text for the operator: the certificate that is not valid, the reason, and what to do.
    pub fn path(&self, leaf: &Certificate) -> Result<Path, String> {
        self.check_leaf(leaf)?;
        let breach = RefCell::new(None);
        let found = self.find(leaf, Sight::Checkable, &breach);
        let is_violation = matches!(found, Err(Error::NameConstraintViolation));
        if is_violation && breach.borrow().is_none() {
            // rustls-webpki does not say which name it is. If it sees no constraints, all of them are checked here.
            let _ = self.find(leaf, Sight::Nothing, &breach);
        }
        found.map_err(|error| match (&error, breach.take()) {
            (Error::NameConstraintViolation, Some(text)) => text,
            _ => self.explain(leaf, &error),
        })
    }

    /// The path, where rustls-webpki sees these constraints. `breach` is the text about a constraint that is not met.
    fn find(
        &self,
        leaf: &Certificate,
        sight: Sight,
        breach: &RefCell<Option<String>>,
    ) -> Result<Path, Error> {
        let authorities = self.trust.authorities.iter().filter(|a| self.is_current(a));
        let authorities: Vec<Shown<'_>> = authorities.map(|a| Shown::new(a, sight)).collect();
        let between: Vec<Shown<'_>> = self.between().map(|c| Shown::new(c, sight)).collect();
        let (authority_ders, between_ders) = (ders(&authorities), ders(&between));
        let readable = authority_ders.iter().zip(&authorities);
        let (anchors, authorities): (Vec<TrustAnchor<'_>>, Vec<&Certificate>) = readable
            .filter_map(|(der, shown)| Some((anchor_from_trusted_cert(der).ok()?, shown.of)))
            .unzip();
        let der = CertificateDer::from(leaf.der());
        let entity = EndEntityCert::try_from(&der)?;
        let time = UnixTime::since_unix_epoch(self.unix_time);
        let whole = |path: &VerifiedPath<'_>| {
            let used = path.intermediate_certificates().map(|used| {
                between.iter().find(|s| *s.der == *used.der().as_ref()).map(|shown| shown.of)
            });
            let anchor = anchors.iter().position(|anchor| std::ptr::eq(anchor, path.anchor()));
            let anchor = anchor.map(|at| authorities[at]);
            let whole = [Some(leaf)].into_iter().chain(used).chain([anchor]);
            whole.collect::<Option<Vec<_>>>().ok_or(Error::UnknownIssuer)
        };
        let algorithms = Algorithms::new(&between);
        let path = entity.verify_for_usage(
            &algorithms.all(),
            &anchors,
            &between_ders,
            time,
            Usage,
            None,
            Some(&|path| {
                let path = whole(path)?;
                // RFC 5280 §6.1.4 (n), which webpki leaves to its caller.
                if !path[1..path.len() - 1].iter().all(|c| c.may_issue()) {
                    return Err(Error::EndEntityUsedAsCa);
                }
                if between.iter().any(Shown::is_changed) && !is_signed(&path) {
                    return Err(Error::InvalidSignatureForPublicKey);
                }
                constraints::check(&path).map_err(|text| {
                    breach.borrow_mut().get_or_insert(text);
                    Error::NameConstraintViolation
                })
            }),
        )?;
        Ok(Path(whole(&path)?.into_iter().cloned().collect()))
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

    fn explain(&self, leaf: &Certificate, error: &Error) -> String {
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
                let present: Vec<String> = context
                    .present
                    .iter()
                    .map(|oid| oid.iter().map(ToString::to_string).collect::<Vec<_>>().join("."))
                    .collect();
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
}

fn ders<'s>(shown: &'s [Shown<'_>]) -> Vec<CertificateDer<'s>> {
    shown.iter().map(|shown| CertificateDer::from(&*shown.der)).collect()
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
            "the certificate {certificate} is valid only from {} on; use one that is valid now (or the clock here is wrong: it says {})",
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
