//! Making signatures: the algorithm that the peer takes, then the signature, then the AUTH payload.

use super::{Curve, SHA2, encode, hash_id};
use crate::crypto::tally::{self, Operation};
use crate::proof::key::PrivateKey;
use crate::proof::scheme::{Hash, Scheme, count_hash};
use crate::wire::registry::{AuthMethod, HashId};
use policy::KeyKind;
use x509_cert::der::asn1::{Any, UintRef};
use x509_cert::der::{Decode, Encode, Reader, SliceReader, Tag};

/// The algorithm of a signature to make, and its form in the AUTH payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub scheme: Scheme,
    method: AuthMethod,
}

impl Plan {
    /// Chooses what the peer takes: `hashes` are those it has named, `like` how it has signed itself. A key without
    /// `pss` signs with RSA the older way only.
    ///
    /// # Errors
    /// If it takes nothing that the key can do; completes "we cannot sign: …".
    pub fn new(
        kind: KeyKind,
        pss: bool,
        hashes: Option<&[HashId]>,
        like: Option<Scheme>,
    ) -> Result<Self, String> {
        let hashes = hashes.unwrap_or_default();
        if kind == KeyKind::Ed25519 {
            let known = hashes.contains(&HashId::IDENTITY);
            return known.then_some(Self::tagged(Scheme::Ed25519)).ok_or_else(|| {
                "our key is Ed25519, which the peer does not know (it does not name the identity hash, RFC 8420); use \
                 an ECDSA or RSA certificate with this peer"
                    .into()
            });
        }
        if let Some(curve) = Curve::of(kind) {
            let scheme = Scheme::Ecdsa(curve.hash);
            return Ok(match hashes.contains(&hash_id(curve.hash)) {
                true => Self::tagged(scheme),
                false => Self { scheme, method: curve.method },
            });
        }
        let hash = SHA2.into_iter().find(|hash| hashes.contains(&hash_id(*hash)));
        Ok(match (hash, like) {
            // RFC 8247 §3.2: PSS is what every peer knows. One that signs the older way may know only that.
            (Some(hash), Some(Scheme::Pkcs1(_))) => Self::tagged(Scheme::Pkcs1(hash)),
            (Some(hash), _) if pss => Self::tagged(Scheme::Pss(hash)),
            (Some(hash), _) => Self::tagged(Scheme::Pkcs1(hash)),
            // RFC 7296 §3.8: the method names no hash algorithm. The peer knows the one that it has used itself.
            (None, Some(Scheme::Pkcs1(theirs))) if SHA2.contains(&theirs) => Self::older(theirs),
            // Signatures with SHA-1 are verified, but not made.
            (None, _) => Self::older(Hash::Sha256),
        })
    }

    /// With an algorithm identifier before the signature (RFC 7427 §3).
    fn tagged(scheme: Scheme) -> Self {
        Self { scheme, method: AuthMethod::DIGITAL_SIGNATURE }
    }

    fn older(hash: Hash) -> Self {
        Self { scheme: Scheme::Pkcs1(hash), method: AuthMethod::RSA_DIGITAL_SIGNATURE }
    }

    /// The method and the data of the AUTH payload for a signature. One of ECDSA is an ECDSA-Sig-Value.
    pub fn payload(self, kind: KeyKind, signature: &[u8]) -> Option<(AuthMethod, Vec<u8>)> {
        if self.method == AuthMethod::DIGITAL_SIGNATURE {
            let algorithm = encode(self.scheme);
            let length = u8::try_from(algorithm.len()).expect("algorithm identifiers are short");
            return Some((self.method, [&[length], &algorithm[..], signature].concat()));
        }
        match Curve::of(kind) {
            Some(curve) => Some((self.method, fixed(signature, curve.octets)?)),
            None => Some((self.method, signature.to_vec())),
        }
    }
}

/// Signs with what the peer takes, with a key of this process.
///
/// # Errors
/// If it takes nothing that the key can do; completes "we cannot sign: …".
pub(crate) fn sign(
    key: &PrivateKey,
    hashes: Option<&[HashId]>,
    like: Option<Scheme>,
    octets: &[u8],
) -> Result<(AuthMethod, Vec<u8>), String> {
    let plan = Plan::new(key.kind(), true, hashes, like)?;
    tally::count(Operation::Sign(key.kind()));
    count_hash(plan.scheme);
    let made = match key {
        PrivateKey::Here(key) => key.sign(plan.scheme, octets),
        PrivateKey::Outside(_) => None,
    };
    let made = made.and_then(|made| plan.payload(key.kind(), &made));
    made.ok_or_else(|| "the cryptographic library failed".to_owned())
}

/// r and s, one after the other (RFC 4754 §7), from ECDSA-Sig-Value.
fn fixed(der: &[u8], octets: usize) -> Option<Vec<u8>> {
    let mut reader = SliceReader::new(der).ok()?;
    let read = reader.sequence(|reader| -> x509_cert::der::Result<_> {
        Ok([UintRef::decode(reader)?, UintRef::decode(reader)?])
    });
    let mut out = Vec::with_capacity(2 * octets);
    for number in read.ok()? {
        out.resize(out.len() + octets.checked_sub(number.as_bytes().len())?, 0);
        out.extend_from_slice(number.as_bytes());
    }
    Some(out)
}

/// ECDSA-Sig-Value (RFC 3279 §2.2.3) from r and s, one after the other.
pub(crate) fn sig_value(fixed: &[u8]) -> Option<Vec<u8>> {
    let (r, s) = fixed.split_at_checked(fixed.len() / 2).filter(|(r, s)| r.len() == s.len())?;
    let [r, s] = [r, s].map(|octets| UintRef::new(octets).and_then(|number| number.to_der()).ok());
    Any::new(Tag::Sequence, [r?, s?].concat()).ok()?.to_der().ok()
}
