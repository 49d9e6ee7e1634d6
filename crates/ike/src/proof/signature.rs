//! Signatures of AUTH payloads: RFC 7427's, and the methods of RFC 7296 and RFC 4754 for peers that name no hash
//! algorithms.
//!
//! A signature with SHA-1 is never made. One is accepted only in the RSA method of RFC 7296, and if the policy names
//! SHA.

mod make;

pub(crate) use make::{Plan, sig_value, sign};

use super::certificate::PublicKey;
use super::scheme::{Hash, Scheme, count_hash};
use super::trust::listed;
use crate::crypto::tally::{self, Operation};
use crate::wire::registry::{AuthMethod, HashId};
use crypto::asymmetric;
use policy::{KeyKind, Signature as Rules};
use x509_cert::der::asn1::{AnyRef, ObjectIdentifier};
use x509_cert::der::{Decode, Reader, SliceReader, TagMode, TagNumber, Tagged};
use x509_cert::spki::{AlgorithmIdentifierRef, SubjectPublicKeyInfoRef};

/// The hash algorithms that this side verifies, in order of preference (RFC 8247 §3.2).
pub(crate) const HASHES: [HashId; 4] =
    [HashId::SHA2_256, HashId::SHA2_384, HashId::SHA2_512, HashId::IDENTITY];

const SHA2: [Hash; 3] = [Hash::Sha256, Hash::Sha384, Hash::Sha512];

const RSA_PSS: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.10");
const MGF1: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.8");
const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");
const NULL: &[u8] = &[0x05, 0x00];

fn hash_id(hash: Hash) -> HashId {
    match hash {
        Hash::Sha1 => HashId::SHA1,
        Hash::Sha256 => HashId::SHA2_256,
        Hash::Sha384 => HashId::SHA2_384,
        Hash::Sha512 => HashId::SHA2_512,
    }
}

fn salt_len(hash: Hash) -> u8 {
    u8::try_from(hash.output_len()).expect("a hash has at most 64 octets")
}

// ---- object identifiers

fn oid(hash: Hash) -> ObjectIdentifier {
    ObjectIdentifier::new_unwrap(match hash {
        Hash::Sha1 => "1.3.14.3.2.26",
        Hash::Sha256 => "2.16.840.1.101.3.4.2.1",
        Hash::Sha384 => "2.16.840.1.101.3.4.2.2",
        Hash::Sha512 => "2.16.840.1.101.3.4.2.3",
    })
}

fn with_rsa(hash: Hash) -> ObjectIdentifier {
    ObjectIdentifier::new_unwrap(match hash {
        Hash::Sha1 => "1.2.840.113549.1.1.5",
        Hash::Sha256 => "1.2.840.113549.1.1.11",
        Hash::Sha384 => "1.2.840.113549.1.1.12",
        Hash::Sha512 => "1.2.840.113549.1.1.13",
    })
}

fn with_ecdsa(hash: Hash) -> ObjectIdentifier {
    ObjectIdentifier::new_unwrap(match hash {
        Hash::Sha1 => "1.2.840.10045.4.1",
        Hash::Sha256 => "1.2.840.10045.4.3.2",
        Hash::Sha384 => "1.2.840.10045.4.3.3",
        Hash::Sha512 => "1.2.840.10045.4.3.4",
    })
}

// ---- algorithm identifiers (RFC 7427 Appendix A)

fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|p| p.len()).sum();
    let length = u8::try_from(length).expect("algorithm identifiers are short");
    let mut out = vec![tag, length];
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out
}

fn identifier(oid: ObjectIdentifier, parameters: &[u8]) -> Vec<u8> {
    der(0x30, &[&der(0x06, &[oid.as_bytes()]), parameters])
}

/// The AlgorithmIdentifier of a scheme, in DER.
fn encode(scheme: Scheme) -> Vec<u8> {
    match scheme {
        Scheme::Pkcs1(hash) => identifier(with_rsa(hash), NULL),
        Scheme::Ecdsa(hash) => identifier(with_ecdsa(hash), &[]),
        Scheme::Ed25519 => identifier(ED25519, &[]),
        Scheme::Pss(hash) => {
            let digest = identifier(oid(hash), NULL);
            let parameters = [
                der(0xa0, &[&digest]),
                der(0xa1, &[&identifier(MGF1, &digest)]),
                der(0xa2, &[&[0x02, 0x01, salt_len(hash)]]),
            ];
            identifier(RSA_PSS, &der(0x30, &[&parameters.concat()]))
        }
    }
}

fn decode(octets: &[u8]) -> Result<Scheme, String> {
    let algorithm = AlgorithmIdentifierRef::from_der(octets)
        .map_err(|e| format!("its algorithm identifier cannot be read ({e})"))?;
    if algorithm.parameters.is_none_or(|p| p.is_null()) {
        for hash in [Hash::Sha1, Hash::Sha256, Hash::Sha384, Hash::Sha512] {
            if algorithm.oid == with_rsa(hash) {
                return Ok(Scheme::Pkcs1(hash));
            }
            if algorithm.oid == with_ecdsa(hash) {
                return Ok(Scheme::Ecdsa(hash));
            }
        }
    }
    match algorithm.oid {
        ED25519 if algorithm.parameters.is_none() => Ok(Scheme::Ed25519),
        RSA_PSS => pss(algorithm.parameters).map(Scheme::Pss).ok_or_else(|| {
            "it is RSA (PSS) with parameters other than SHA-256, SHA-384 or SHA-512 for both hashes and a salt as \
             long as the hash"
                .to_owned()
        }),
        other => Err(format!("its algorithm {other} is not supported")),
    }
}

/// The hash of RSASSA-PSS-params (RFC 8017 §A.2.3): SHA-2, the same for the mask, and a salt of its length.
fn pss(parameters: Option<AnyRef<'_>>) -> Option<Hash> {
    let parameters = parameters.filter(|p| p.tag() == x509_cert::der::Tag::Sequence)?;
    hash_of_pss(parameters.value()).ok().flatten()
}

fn hash_of_pss(value: &[u8]) -> x509_cert::der::Result<Option<Hash>> {
    let mut reader = SliceReader::new(value)?;
    let explicit = TagMode::Explicit;
    let hash: Option<AlgorithmIdentifierRef<'_>> =
        reader.context_specific(TagNumber(0), explicit)?;
    let mask: Option<AlgorithmIdentifierRef<'_>> =
        reader.context_specific(TagNumber(1), explicit)?;
    let salt: Option<u8> = reader.context_specific(TagNumber(2), explicit)?;
    let trailer: Option<u8> = reader.context_specific(TagNumber(3), explicit)?;
    reader.finish()?;
    let (Some(hash), Some(mask)) = (hash.and_then(sha2), mask) else { return Ok(None) };
    let of_mask = mask.parameters.map(|p| p.decode_as::<AlgorithmIdentifierRef<'_>>());
    let same = mask.oid == MGF1 && of_mask.transpose()?.and_then(sha2) == Some(hash);
    let usual = salt == Some(salt_len(hash)) && trailer.unwrap_or(1) == 1;
    Ok((same && usual).then_some(hash))
}

fn sha2(algorithm: AlgorithmIdentifierRef<'_>) -> Option<Hash> {
    let plain = algorithm.parameters.is_none_or(|p| p.is_null());
    SHA2.into_iter().find(|hash| plain && oid(*hash) == algorithm.oid)
}

/// A curve of RFC 4754: its hash, its method, and the octets of a number.
struct Curve {
    hash: Hash,
    method: AuthMethod,
    octets: usize,
}

impl Curve {
    fn of(kind: KeyKind) -> Option<Self> {
        let (hash, method, octets) = match kind {
            KeyKind::EcdsaP256 => (Hash::Sha256, AuthMethod::ECDSA_SHA256_P256, 32),
            KeyKind::EcdsaP384 => (Hash::Sha384, AuthMethod::ECDSA_SHA384_P384, 48),
            KeyKind::EcdsaP521 => (Hash::Sha512, AuthMethod::ECDSA_SHA512_P521, 66),
            KeyKind::Rsa | KeyKind::Ed25519 => return None,
        };
        Some(Self { hash, method, octets })
    }
}

// ---- verifying

/// Why a signature proves nothing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// It is with none of SHA-2, and the policy does not name SHA-1.
    NotWithSha2,
    /// Another reason, which completes "the peer's signature does not count: …".
    Other(String),
}

/// Verifies a signature that came with a method; tells how it was made.
///
/// # Errors
/// The reason for which the signature proves nothing.
pub(crate) fn verify(
    key: &PublicKey,
    rules: &Rules,
    method: AuthMethod,
    data: &[u8],
    octets: &[u8],
) -> Result<Scheme, Flaw> {
    if !rules.keys.contains(&key.kind) {
        return Err(Flaw::Other(format!(
            "it is made with a key of the kind {}, the policy wants {}",
            key.kind,
            listed(&rules.keys)
        )));
    }
    tally::count(Operation::Verify(key.kind));
    match (method, key.kind) {
        (AuthMethod::RSA_DIGITAL_SIGNATURE, KeyKind::Rsa) => {
            with_any_hash(key, rules, data, octets)
        }
        _ => with_named_hash(key, method, data, octets).map_err(Flaw::Other),
    }
}

/// RFC 7296 §3.8: this method names no hash algorithm.
fn with_any_hash(
    key: &PublicKey,
    rules: &Rules,
    data: &[u8],
    octets: &[u8],
) -> Result<Scheme, Flaw> {
    let hashes = SHA2.into_iter().chain(rules.sha1.then_some(Hash::Sha1));
    let mut schemes = hashes.map(Scheme::Pkcs1);
    schemes.find(|scheme| check(*scheme, key, octets, data)).ok_or_else(|| match rules.sha1 {
        true => Flaw::Other("it is not that of its certificate's key".to_owned()),
        false => Flaw::NotWithSha2,
    })
}

fn with_named_hash(
    key: &PublicKey,
    method: AuthMethod,
    data: &[u8],
    octets: &[u8],
) -> Result<Scheme, String> {
    match method {
        AuthMethod::DIGITAL_SIGNATURE => {
            let split = data
                .split_first()
                .and_then(|(length, rest)| rest.split_at_checked(usize::from(*length)));
            let (algorithm, signature) = split.ok_or("it is cut short")?;
            let scheme = decode(algorithm)?;
            if !is_for(key.kind, scheme) {
                return Err(match scheme {
                    Scheme::Pkcs1(Hash::Sha1) | Scheme::Ecdsa(Hash::Sha1) => {
                        format!("{scheme} can be forged (RFC 8247 §3.2); let the peer use SHA-256")
                    }
                    _ => format!("{scheme} is not for a key of the kind {}", key.kind),
                });
            }
            check(scheme, key, octets, signature).then_some(scheme).ok_or_else(|| wrong(scheme))
        }
        _ => {
            let curve = Curve::of(key.kind).filter(|c| c.method == method).ok_or_else(|| {
                format!("the method {method} is not for a key of the kind {}", key.kind)
            })?;
            let scheme = Scheme::Ecdsa(curve.hash);
            let signature = (data.len() == 2 * curve.octets).then(|| sig_value(data)).flatten();
            signature
                .is_some_and(|signature| check(scheme, key, octets, &signature))
                .then_some(scheme)
                .ok_or_else(|| wrong(scheme))
        }
    }
}

/// Returns `true` if a signature is of these octets by this key.
pub(crate) fn is_by(key: &PublicKey, scheme: Scheme, octets: &[u8], signature: &[u8]) -> bool {
    is_for(key.kind, scheme) && check(scheme, key, octets, signature)
}

fn wrong(scheme: Scheme) -> String {
    format!("{scheme} by another key than its certificate's, or of other octets")
}

fn check(scheme: Scheme, key: &PublicKey, octets: &[u8], signature: &[u8]) -> bool {
    count_hash(scheme);
    let info = SubjectPublicKeyInfoRef::from_der(&key.info);
    let key_octets = info.ok().and_then(|info| info.subject_public_key.as_bytes());
    key_octets.is_some_and(|octets_of_key| {
        asymmetric::verify(key.kind, scheme, octets_of_key, octets, signature)
    })
}

/// Returns `true` if keys of this kind sign so. Signatures with SHA-1 count only where a caller says so.
fn is_for(kind: KeyKind, scheme: Scheme) -> bool {
    match (kind, scheme) {
        (KeyKind::Rsa, Scheme::Pkcs1(hash) | Scheme::Pss(hash)) => hash != Hash::Sha1,
        (KeyKind::EcdsaP256 | KeyKind::EcdsaP384 | KeyKind::EcdsaP521, Scheme::Ecdsa(hash)) => {
            hash != Hash::Sha1
        }
        (KeyKind::Ed25519, Scheme::Ed25519) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
