//! CERT, CERTREQ and AUTH payloads (RFC 7296 §3.6 to §3.8): what this side proves itself with, and what the peer
//! claims.

use crate::context::Context;
use crate::discard::Discard;
use crate::failure::{Failure, FailureKind, facts};
use crate::proof::ocsp;
use crate::proof::signature::HASHES;
use crate::proof::trust::Trust;
use crate::proof::wishes::{Wanted, Wishes};
use crate::proof::{Claim, Evidence, Job, SignedOctets, Signing, psk};
use crate::wire::header::IkeSpi;
use crate::wire::parts::status;
use crate::wire::payload::Payload;
use crate::wire::registry::{AuthMethod, CertEncoding, NotifyType};
use policy::{Credential, Identity, IkeTunnel, Prf};
use std::sync::Arc;

/// Certificates of one peer that are looked at: its own, and those between it and an authority.
const MOST_CERTIFICATES: usize = 8;
/// Octets of all of them together.
const MOST_OCTETS: usize = 32 * 1024;
/// Authorities that are named in a request: a peer that needs the hint has few certificates to choose from.
const MOST_AUTHORITIES: usize = 32;
/// Returns `true` if signatures prove who the sides are.
pub(super) fn signs(tunnel: &IkeTunnel) -> bool {
    matches!(tunnel.credential, Credential::Signature(_))
}

/// The method of a tunnel's proofs, as far as the policy decides about it.
pub(super) fn method(tunnel: &IkeTunnel) -> AuthMethod {
    match signs(tunnel) {
        true => AuthMethod::DIGITAL_SIGNATURE,
        false => AuthMethod::SHARED_KEY_MIC,
    }
}

/// The hash algorithms that this side verifies, where one of the tunnels wants signatures (RFC 7427 §4).
pub(crate) fn announcement(wanted: Wanted) -> Option<Payload> {
    wanted.signatures.then(|| {
        status(
            NotifyType::SIGNATURE_HASH_ALGORITHMS,
            HASHES.iter().flat_map(|h| h.0.to_be_bytes()).collect(),
        )
    })
}

/// Asks for a certificate of the authorities that this side trusts, and for answers of OCSP responders.
pub(crate) fn request(wanted: Wanted, trust: &Trust) -> Vec<Payload> {
    // RFC 4806 §3.1: with no responder named, any will do.
    let ocsp = wanted.revocation.then(|| Payload::CertificateRequest {
        encoding: CertEncoding::OCSP_CONTENT,
        authorities: Vec::new(),
    });
    certificate_request(wanted, trust).into_iter().chain(ocsp).collect()
}

fn certificate_request(wanted: Wanted, trust: &Trust) -> Option<Payload> {
    let mut hashes = trust.authority_hashes();
    hashes.truncate(MOST_AUTHORITIES);
    let wanted = wanted.signatures && !hashes.is_empty();
    wanted.then(|| Payload::CertificateRequest {
        encoding: CertEncoding::X509_SIGNATURE,
        authorities: hashes.concat(),
    })
}

/// The proof of this side, or the work that it needs.
pub(super) enum Proving {
    /// It is there.
    Ready(Evidence),
    /// It takes a job.
    Signing(Signing),
}

/// Begins to prove that this side is who the tunnel says.
pub(super) fn prove(
    tunnel: &IkeTunnel,
    prf: Prf,
    octets: SignedOctets<'_>,
    wishes: &Wishes,
) -> Result<Proving, Failure> {
    match &tunnel.credential {
        Credential::PresharedKey(key) => Ok(Proving::Ready(Evidence {
            method: AuthMethod::SHARED_KEY_MIC,
            data: psk::sign(prf, key, octets).expose().to_vec(),
            certificates: Vec::new(),
            ocsp: Vec::new(),
        })),
        Credential::Signature(rules) => Ok(Proving::Signing(Signing {
            rules: rules.clone(),
            identity: tunnel.local.identity.clone(),
            octets: octets.concat(prf),
            hashes: wishes.hashes.clone(),
            requested: wishes.authorities.clone(),
            ocsp: wishes.ocsp,
        })),
    }
}

/// Proves that this side knows the SK_d of the session that it resumes.
pub(super) fn prove_resumed(prf: Prf, octets: SignedOctets<'_>) -> Evidence {
    Evidence {
        method: AuthMethod::SHARED_KEY_MIC,
        data: psk::sign_resumed(prf, octets).expose().to_vec(),
        certificates: Vec::new(),
        ocsp: Vec::new(),
    }
}

/// Checks that the peer knows the SK_d of the session that is resumed. Nothing is left to be checked.
pub(super) fn check_resumed(
    tunnel: &IkeTunnel,
    prf: Prf,
    octets: SignedOctets<'_>,
    (method, data): (AuthMethod, &[u8]),
) -> Result<Option<Claim>, Failure> {
    let good = method == AuthMethod::SHARED_KEY_MIC && psk::verify_resumed(prf, octets, data);
    good.then_some(None).ok_or_else(|| {
        let peer = &tunnel.remote.identity;
        failed(format!("{peer} does not prove that it knows the session that is resumed"))
    })
}

/// The payloads of a proof, apart from the identity.
pub(super) fn payloads(proof: &Evidence) -> (Vec<Payload>, Payload) {
    let auth = Payload::Auth { method: proof.method, data: proof.data.clone() };
    let certificates = proof.certificates.iter().map(|der| Payload::Certificate {
        encoding: CertEncoding::X509_SIGNATURE,
        data: der.clone(),
    });
    let answers = proof.ocsp.iter().map(|der| Payload::Certificate {
        encoding: CertEncoding::OCSP_CONTENT,
        data: der.clone(),
    });
    (certificates.chain(answers).collect(), auth)
}

/// The parts of a peer's message that say who it is.
pub(super) struct Said<'a> {
    pub identity: Identity,
    pub method: AuthMethod,
    pub data: &'a [u8],
    pub payloads: &'a [Payload],
}

/// Checks a preshared key at once; of a signature the claim is left to be checked.
pub(super) fn check(
    cx: &mut Context<'_>,
    tunnel: &IkeTunnel,
    prf: Prf,
    octets: SignedOctets<'_>,
    said: Said<'_>,
) -> Result<Option<Claim>, Failure> {
    let Said { identity, method, data, payloads } = said;
    match &tunnel.credential {
        Credential::PresharedKey(_) if method != AuthMethod::SHARED_KEY_MIC => Err(failed(
            format!("{identity} proves itself by {method}, the policy expects a preshared key"),
        )),
        Credential::PresharedKey(key) => {
            psk::verify(prf, key, octets, data).then_some(None).ok_or_else(|| {
                let (local, remote) = (tunnel.local.identity.clone(), identity);
                facts::Proof { by_us: true, certificate: false, local, remote, ppk: None }.into()
            })
        }
        Credential::Signature(_) if method == AuthMethod::SHARED_KEY_MIC => Err(failed(format!(
            "{identity} proves itself by a preshared key, the policy expects a certificate"
        ))),
        Credential::Signature(rules) => {
            let (certificates, ocsp) = certificates(cx, &identity, payloads)?;
            let claim = Claim {
                rules: rules.clone(),
                identity,
                certificates,
                method,
                signature: data.to_vec(),
                octets: octets.concat(prf),
                ocsp,
                fetched: None,
            };
            Ok(Some(claim))
        }
    }
}

/// Certificates, and answers of OCSP responders.
type Documents = (Vec<Vec<u8>>, Vec<Vec<u8>>);

fn certificates(
    cx: &mut Context<'_>,
    identity: &Identity,
    payloads: &[Payload],
) -> Result<Documents, Failure> {
    let mut certificates: Vec<Vec<u8>> = Vec::new();
    let mut answers: Vec<Vec<u8>> = Vec::new();
    let mut by_address = false;
    for payload in payloads {
        let Payload::Certificate { encoding, data } = payload else { continue };
        match *encoding {
            CertEncoding::X509_SIGNATURE => {
                let octets: usize = certificates.iter().map(Vec::len).sum::<usize>() + data.len();
                if certificates.len() == MOST_CERTIFICATES || octets > MOST_OCTETS {
                    let detail = format!(
                        "{identity} sends more than {MOST_CERTIFICATES} certificates, or {MOST_OCTETS} octets of them; \
                         its own and those between it and its authority are enough"
                    );
                    return Err(Failure::new(FailureKind::BadCertificate, detail));
                }
                certificates.push(data.clone());
            }
            CertEncoding::HASH_AND_URL_OF_CERTIFICATE | CertEncoding::HASH_AND_URL_OF_BUNDLE => {
                by_address = true;
            }
            CertEncoding::OCSP_CONTENT
                if answers.len() < MOST_CERTIFICATES && data.len() <= ocsp::LONGEST =>
            {
                answers.push(data.clone());
            }
            _ => cx.out.discard(Discard::CertificateEncoding),
        }
    }
    if certificates.is_empty() && by_address {
        // RFC 7296 §3.6: we have not sent HTTP_CERT_LOOKUP_SUPPORTED.
        let detail = format!(
            "{identity} sends only the address of its certificate (hash and URL); have it send the certificate itself"
        );
        return Err(Failure::new(FailureKind::BadCertificate, detail));
    }
    Ok((certificates, answers))
}

/// The peer does not accept our signature; why, only its operator is told.
pub(super) fn unaccepted(tunnel: &IkeTunnel) -> Failure {
    facts::Proof::of(tunnel, false).into()
}

fn failed(detail: String) -> Failure {
    Failure::new(FailureKind::AuthenticationFailed, detail)
}

/// Hands a job out.
pub(super) fn hand_out(
    cx: &mut Context<'_>,
    spi: IkeSpi,
    claim: Option<Claim>,
    signing: Option<Signing>,
) {
    let trust = Arc::clone(cx.trust);
    cx.out.jobs.push_back(Job::new(spi, trust, claim, signing));
}
