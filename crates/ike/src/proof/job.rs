//! Work with certificates that is too slow for the engine: it goes out as a [`Job`] and comes back as [`Done`].
//!
//! A job is a value: the engine's driver decides where and when it runs, fetches the revocation lists it asks
//! for, and tells it the time.

use super::certificate::Certificate;
use super::crl::Crl;
use super::key::PrivateKey;
use super::ocsp::Ocsp;
use super::outside::{self, Order, OutsideKey, Unsigned};
use super::path::{Judge, Link, Path, out_of_time};
use super::revocation::Statements;
use super::scheme::{Hash, Scheme};
use super::signature::{self, Flaw, Plan};
use super::trust::{KeyHash, Trust};
use crate::crypto::tally::{self, Operation};
use crate::failure::facts::{NotWithSha2, UnknownRevocation};
use crate::failure::{Facts, Failure, FailureKind, facts};
use crate::ticket::Fingerprint;
use crate::wire::header::IkeSpi;
use crate::wire::registry::{AuthMethod, HashId};
use policy::{DistinguishedName, Identity, Signature as Rules};
use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A proof to check, one to make, or first one and then the other.
pub struct Job {
    spi: IkeSpi,
    trust: Arc<Trust>,
    claim: Option<Box<Claim>>,
    signing: Option<Signing>,
    /// The signature that a key outside has made.
    made: Option<Box<Made>>,
}

/// Names its IKE SA and its parts, not what they hold.
impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("spi", &self.spi)
            .field("checks", &self.claim.is_some())
            .field("signs", &self.signing.is_some())
            .finish_non_exhaustive()
    }
}

/// A peer's proof, yet to be checked.
pub(crate) struct Claim {
    pub rules: Rules,
    pub identity: Identity,
    /// Its own certificate first.
    pub certificates: Vec<Vec<u8>>,
    pub method: AuthMethod,
    pub signature: Vec<u8>,
    /// The octets that it has signed.
    pub octets: Vec<u8>,
    /// Answers of OCSP responders that it sent along.
    pub ocsp: Vec<Vec<u8>>,
    /// The results for the revocation lists that were asked for; `None`: none was asked for yet.
    pub fetched: Option<Vec<Fetched>>,
}

/// The issuer whose list was asked for, and the list or the reason why there is none.
type Fetched = (DistinguishedName, Result<Arc<Crl>, String>);

/// The proof that this side is to make.
pub(crate) struct Signing {
    pub rules: Rules,
    pub identity: Identity,
    pub octets: Vec<u8>,
    /// Hash algorithms that the peer has named.
    pub hashes: Option<Vec<HashId>>,
    /// Authorities that the peer trusts; none named: any.
    pub requested: Vec<KeyHash>,
    /// The peer wants answers of OCSP responders.
    pub ocsp: bool,
}

/// This side's AUTH payload and the certificates that go with it.
pub(crate) struct Evidence {
    pub method: AuthMethod,
    pub data: Vec<u8>,
    pub certificates: Vec<Vec<u8>>,
    /// Answers of OCSP responders about them.
    pub ocsp: Vec<Vec<u8>>,
}

/// Where a job has got to.
pub enum Step {
    /// To be given to [`crate::Engine::handle_done`].
    Done(Done),
    /// It needs revocation lists first.
    Fetch(Box<Fetch>),
    /// It needs a signature by a key that is not in this process.
    Sign(Box<Sign>),
}

/// The end of a job.
pub struct Done {
    pub(crate) spi: IkeSpi,
    pub(crate) outcome: Result<Proved, Failure>,
}

/// The result of a job that went well.
#[derive(Default)]
pub(crate) struct Proved {
    /// Of this side, where one was wanted.
    pub proof: Option<Evidence>,
    /// A warning to the operator about the peer's proof.
    pub warning: Option<String>,
    /// The check of the peer's proof, where there was one.
    pub checked: Option<Checked>,
}

/// A peer's proof that was found good.
#[derive(Clone, Copy)]
pub(crate) struct Checked {
    /// The time after 1970 until which it may be relied on: until then the peer's certificates are valid, and so is the
    /// knowledge about their revocation.
    pub until: Duration,
    /// The fingerprint of the trust store that it was checked with.
    pub trust: Fingerprint,
}

/// A job that waits for a signature.
pub struct Sign {
    spi: IkeSpi,
    trust: Arc<Trust>,
    octets: Vec<u8>,
    draft: Draft,
}

/// All of a proof but its signature.
struct Draft {
    key: Arc<OutsideKey>,
    plan: Plan,
    /// Its data is missing.
    evidence: Evidence,
    /// Of the check of the peer's proof.
    warning: Option<String>,
    checked: Option<Checked>,
}

/// The end of a [`Sign`].
struct Made {
    sign: Sign,
    signature: Result<Vec<u8>, Unsigned>,
}

impl Sign {
    /// Has the key begin to sign.
    pub fn begin(&self) -> outside::Signature {
        let Draft { key, plan, .. } = &self.draft;
        tally::count(Operation::Sign(key.public.kind));
        key.sign(Order { scheme: plan.scheme, octets: self.octets.clone() })
    }

    /// Goes on with what has been had. The job asks once only.
    pub fn resume(self, signature: Result<Vec<u8>, Unsigned>) -> Job {
        let (spi, trust) = (self.spi, Arc::clone(&self.trust));
        let made = Some(Box::new(Made { sign: self, signature }));
        Job { spi, trust, claim: None, signing: None, made }
    }
}

impl Made {
    /// The proof, once it is sure that the signature is that of the certificate's key: the peer could not tell what is
    /// wrong.
    fn proved(self) -> Result<Proved, Failure> {
        let Self { sign: Sign { octets, draft, .. }, signature } = self;
        let Draft { key, plan, evidence, warning, checked } = draft;
        let kind = key.public.kind;
        let made = signature.and_then(|made| {
            let is_ecdsa = matches!(plan.scheme, Scheme::Ecdsa(_));
            let made = if is_ecdsa { signature::sig_value(&made) } else { Some(made) };
            let made = made
                .filter(|made| signature::is_by(&key.public, plan.scheme, &octets, made))
                .and_then(|made| plan.payload(kind, &made));
            made.ok_or_else(|| Unsigned {
                cause: format!("its signature ({}) is not that of the certificate's key", plan.scheme),
                cure: "see the documentation of the token whether it can make such signatures, and its log".into(),
            })
        });
        let (method, data) = made.map_err(|Unsigned { cause, cure }| {
            let key = key.item.clone();
            Failure::from(facts::Unsigned { key, cause, cure })
        })?;
        Ok(Proved { proof: Some(Evidence { method, data, ..evidence }), warning, checked })
    }
}

/// A job that waits for revocation lists.
pub struct Fetch {
    /// The lists that are wanted. The addresses are those of certificates that lead to an authority.
    pub wanted: Vec<Wanted>,
    job: Job,
}

/// The revocation list of one authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The issuer of the list.
    pub issuer: DistinguishedName,
    /// The issuer's SubjectPublicKeyInfo, in DER: this key must have signed the list. Another authority may have the
    /// same name.
    pub issuer_key: Vec<u8>,
    /// Its addresses. Any of them will do.
    pub urls: Vec<String>,
    /// Whether to fetch the list. If not, something else vouches for the certificate, and only a list that was fetched
    /// before is of interest: it may revoke the certificate.
    pub fetch: bool,
}

impl Fetch {
    /// Goes on with what has been had: for each that was wanted a list, or why there is none. The job asks once only.
    pub fn resume(self, results: Vec<Result<Arc<Crl>, String>>) -> Job {
        let mut job = self.job;
        if let Some(claim) = &mut job.claim {
            let issuers = self.wanted.into_iter().map(|w| w.issuer);
            claim.fetched = Some(issuers.zip(results).collect());
        }
        job
    }
}

impl Job {
    pub(crate) fn new(
        spi: IkeSpi,
        trust: Arc<Trust>,
        claim: Option<Claim>,
        signing: Option<Signing>,
    ) -> Self {
        Self { spi, trust, claim: claim.map(Box::new), signing, made: None }
    }

    /// Does the work. `unix_time` is the present, since 1970. Takes milliseconds, and does no I/O.
    pub fn run(mut self, unix_time: Duration) -> Step {
        if let Some(made) = self.made.take() {
            return self.done(made.proved());
        }
        let mut proved = Proved::default();
        let mut like = None;
        if let Some(claim) = &self.claim {
            match claim.check(&self.trust, unix_time) {
                Ok(Verdict::Valid { scheme, until }) => {
                    like = Some(scheme);
                    proved.warning = claim.warning(scheme);
                    proved.checked = Some(Checked { until, trust: *self.trust.digest() });
                }
                Ok(Verdict::Unknown(wanted)) => {
                    return Step::Fetch(Box::new(Fetch { wanted, job: self }));
                }
                Err(failure) => return self.done(Err(failure)),
            }
        }
        if let Some(signing) = &self.signing {
            match signing.sign(&self.trust, like, unix_time) {
                Ok(Attempt::Signed(proof)) => proved.proof = Some(proof),
                Ok(Attempt::Outside(draft)) => {
                    let draft = Draft { warning: proved.warning, checked: proved.checked, ..draft };
                    let octets = signing.octets.clone();
                    let (spi, trust) = (self.spi, self.trust);
                    return Step::Sign(Box::new(Sign { spi, trust, octets, draft }));
                }
                Err(why) => {
                    let kind = FailureKind::AuthenticationFailed;
                    return self.done(Err(Failure::with(kind, Facts::Unprovable(why))));
                }
            }
        }
        self.done(Ok(proved))
    }

    fn done(self, outcome: Result<Proved, Failure>) -> Step {
        Step::Done(Done { spi: self.spi, outcome })
    }
}

enum Verdict {
    Valid {
        scheme: Scheme,
        /// The time after 1970 until which the proof may be relied on.
        until: Duration,
    },
    /// These revocation lists are needed first.
    Unknown(Vec<Wanted>),
}

impl Claim {
    fn check(&self, trust: &Trust, unix_time: Duration) -> Result<Verdict, Failure> {
        let Some((first, rest)) = self.certificates.split_first() else {
            return Err(not_accepted(format!(
                "{} sent no certificate; have it send the one that it signs with",
                self.identity
            )));
        };
        let leaf = Certificate::read(first).map_err(|e| {
            not_accepted(format!("the certificate that {} sent {e}", self.identity))
        })?;
        // Others may be of a kind that is of no use here.
        let others = few_alike(rest.iter().filter_map(|der| Certificate::read(der).ok()));
        if !leaf.is_for(&self.identity) {
            return Err(not_accepted(format!(
                "the certificate {leaf} is not for {}: it is for {}; name the peer in the policy as its certificate \
                 does, or have one issued with this name as subject alternative name",
                self.identity,
                leaf.all_names()
            )));
        }
        let judge = Judge { trust, others: &others, unix_time };
        let path = judge.path(&leaf).map_err(not_accepted)?;
        // Before anything is fetched: the one who asks has the key.
        let scheme =
            signature::verify(leaf.key(), &self.rules, self.method, &self.signature, &self.octets)
                .map_err(|flaw| match flaw {
                    Flaw::NotWithSha2 => NotWithSha2 { certificate: leaf.to_string() }.into(),
                    Flaw::Other(why) => {
                        not_accepted(format!("the signature of {leaf} does not count: {why}"))
                    }
                })?;
        let wanted = match self.rules.use_crl {
            true => self.check_revocation(trust, &path, unix_time)?,
            false => Vec::new(),
        };
        if !wanted.is_empty() {
            return Ok(Verdict::Unknown(wanted));
        }
        let mut until = path.until();
        if self.rules.use_crl {
            let statements = self.statements(trust, unix_time);
            let vouched = path.links().map(|link| statements.vouched_until(link));
            until = vouched.fold(until, Duration::min);
        }
        Ok(Verdict::Valid { scheme, until })
    }

    /// Checks that no certificate of a path is revoked. Returns the lists to look for before that is certain.
    ///
    /// # Errors
    /// If one is revoked, or if it remains unknown and the configuration does not accept that.
    fn check_revocation(
        &self,
        trust: &Trust,
        path: &Path,
        unix_time: Duration,
    ) -> Result<Vec<Wanted>, Failure> {
        let statements = self.statements(trust, unix_time);
        let mut wanted = Vec::new();
        let mut unknown = None;
        for link in path.links() {
            let vouched_for = statements.vouch_for(link).map_err(not_accepted)?;
            if !vouched_for {
                unknown = unknown.or(Some(link));
            }
            if !link.certificate.crl_urls().is_empty() {
                wanted.push(Wanted {
                    issuer: link.certificate.issuer().clone(),
                    issuer_key: link.issuer.key().info.clone(),
                    urls: link.certificate.crl_urls().to_vec(),
                    fetch: !vouched_for,
                });
            }
        }
        match unknown {
            _ if self.fetched.is_none() && !wanted.is_empty() => Ok(wanted),
            Some(link) if !trust.lenient_revocation => Err(self.unknown(&statements, link).into()),
            _ => Ok(Vec::new()),
        }
    }

    fn statements<'a>(&'a self, trust: &'a Trust, unix_time: Duration) -> Statements<'a> {
        let fetched = self.fetched.iter().flatten().filter_map(|(_, result)| result.as_ref().ok());
        let mut crls: Vec<&Crl> = trust.crls.iter().chain(fetched).map(|crl| &**crl).collect();
        crls.sort_by_key(|crl| Reverse(crl.this_update()));
        let ocsp = self.ocsp.iter().filter_map(|der| Ocsp::read(der).ok()).collect();
        Statements { ocsp, crls, ocsp_max_age: trust.ocsp_max_age, unix_time }
    }

    /// The reasons for which nothing says whether a certificate is revoked.
    fn unknown(&self, statements: &Statements<'_>, link: Link<'_>) -> UnknownRevocation {
        let issuer = link.certificate.issuer();
        let failed = self.fetched.iter().flatten().filter_map(|(of, result)| {
            let why = result.as_ref().err().filter(|_| of == issuer)?;
            Some(format!("the list of {issuer} could not be fetched: {why}"))
        });
        let mut reasons: Vec<String> = failed.chain(statements.shortcomings(link)).collect();
        if reasons.is_empty() {
            reasons.push(format!("none of {issuer} is loaded"));
        }
        UnknownRevocation { certificate: link.certificate.to_string(), reasons }
    }

    fn warning(&self, scheme: Scheme) -> Option<String> {
        (scheme == Scheme::Pkcs1(Hash::Sha1)).then(|| {
            format!(
                "{} signs with SHA-1, which can be forged; let it use SHA-256, and name no SHA in the policy",
                self.identity
            )
        })
    }
}

/// The failure of a peer whose proof is not accepted, for a reason that is known in words only.
fn not_accepted(detail: String) -> Failure {
    Failure::new(FailureKind::BadCertificate, detail)
}

/// Certificates of which no more than two have the same subject, as that of an authority which another one vouches for
/// may: more would only make many ways to look for.
fn few_alike(certificates: impl Iterator<Item = Certificate>) -> Vec<Certificate> {
    let mut kept: Vec<Certificate> = Vec::new();
    for certificate in certificates {
        if kept.iter().filter(|c| c.subject() == certificate.subject()).count() < 2 {
            kept.push(certificate);
        }
    }
    kept
}

/// How far this side's proof has got.
enum Attempt {
    Signed(Evidence),
    /// The key is not in this process.
    Outside(Draft),
}

impl Signing {
    fn sign(
        &self,
        trust: &Trust,
        like: Option<Scheme>,
        unix_time: Duration,
    ) -> Result<Attempt, String> {
        let mut own = trust.own_for(&self.identity, &self.rules.keys)?;
        // RFC 7296 §3.7: the peer's request is a suggestion.
        own.sort_by_key(|own| {
            let is_asked_for = self.requested.is_empty()
                || self.requested.iter().any(|r| own.authorities.contains(r));
            let (from, _) = own.leaf().validity();
            (out_of_time(own.leaf(), unix_time).is_some(), !is_asked_for, Reverse(from))
        });
        let own = own.first().ok_or("there is no certificate")?;
        if let Some(problem) = out_of_time(own.leaf(), unix_time) {
            return Err(problem);
        }
        let hashes = self.hashes.as_deref();
        let certificates = own.chain.iter().map(|c| c.der().to_vec()).collect();
        let ocsp = own
            .staples
            .iter()
            .filter(|answer| self.ocsp && unix_time < answer.validity().1)
            .map(|answer| answer.der().to_vec())
            .collect();
        if let PrivateKey::Outside(key) = &*own.key {
            let plan = Plan::new(key.public.kind, key.signer.knows_pss(), hashes, like)?;
            let (method, data) = (AuthMethod::DIGITAL_SIGNATURE, Vec::new());
            let evidence = Evidence { method, data, certificates, ocsp };
            let draft =
                Draft { key: Arc::clone(key), plan, evidence, warning: None, checked: None };
            return Ok(Attempt::Outside(draft));
        }
        let (method, data) = signature::sign(&own.key, hashes, like, &self.octets)?;
        Ok(Attempt::Signed(Evidence { method, data, certificates, ocsp }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair};

    fn called(name: &str) -> Certificate {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        let der = params.self_signed(&KeyPair::generate().expect("a key")).expect("signs");
        Certificate::read(der.der()).expect("a certificate")
    }

    #[test]
    fn a_crowd_with_one_name_is_thinned_out() {
        let crowd = ["a", "b", "a", "a", "c", "a", "b"].map(called);
        let kept = few_alike(crowd.into_iter());
        let names: Vec<String> = kept.iter().map(Certificate::all_names).collect();
        assert_eq!(names, ["CN=a", "CN=b", "CN=a", "CN=c", "CN=b"]);
    }
}
