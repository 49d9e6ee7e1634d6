//! The algorithms by which certificates, revocation lists and OCSP answers may be signed, for rustls-webpki. The crate
//! crypto verifies.

use crypto::asymmetric::{self, Hash, Scheme};
use policy::KeyKind;
use rustls_pki_types::{
    AlgorithmIdentifier, InvalidSignature, SignatureVerificationAlgorithm, alg_id,
};

/// All of them. RSA keys have 2048 to 8192 bits.
pub(super) const ALGORITHMS: &[&dyn SignatureVerificationAlgorithm] = &[
    &ecdsa(KeyKind::EcdsaP256, Hash::Sha256),
    &ecdsa(KeyKind::EcdsaP256, Hash::Sha384),
    &ecdsa(KeyKind::EcdsaP256, Hash::Sha512),
    &ecdsa(KeyKind::EcdsaP384, Hash::Sha256),
    &ecdsa(KeyKind::EcdsaP384, Hash::Sha384),
    &ecdsa(KeyKind::EcdsaP384, Hash::Sha512),
    &ecdsa(KeyKind::EcdsaP521, Hash::Sha256),
    &ecdsa(KeyKind::EcdsaP521, Hash::Sha384),
    &ecdsa(KeyKind::EcdsaP521, Hash::Sha512),
    &Algorithm {
        kind: KeyKind::Ed25519,
        scheme: Scheme::Ed25519,
        of_key: alg_id::ED25519,
        of_signature: alg_id::ED25519,
    },
    &rsa(Scheme::Pkcs1(Hash::Sha256), alg_id::RSA_PKCS1_SHA256),
    &rsa(Scheme::Pkcs1(Hash::Sha384), alg_id::RSA_PKCS1_SHA384),
    &rsa(Scheme::Pkcs1(Hash::Sha512), alg_id::RSA_PKCS1_SHA512),
    &rsa(Scheme::Pkcs1(Hash::Sha256), without_parameters(SHA256_WITH_RSA)),
    &rsa(Scheme::Pkcs1(Hash::Sha384), without_parameters(SHA384_WITH_RSA)),
    &rsa(Scheme::Pkcs1(Hash::Sha512), without_parameters(SHA512_WITH_RSA)),
    &rsa(Scheme::Pss(Hash::Sha256), alg_id::RSA_PSS_SHA256),
    &rsa(Scheme::Pss(Hash::Sha384), alg_id::RSA_PSS_SHA384),
    &rsa(Scheme::Pss(Hash::Sha512), alg_id::RSA_PSS_SHA512),
];

/// The OBJECT IDENTIFIERs of RFC 4055 §5 alone. The parameter NULL has to stand after them, but some authorities leave
/// it out, and RFC 4055 asks those who verify to take both.
const SHA256_WITH_RSA: &[u8] = &[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b];
const SHA384_WITH_RSA: &[u8] = &[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0c];
const SHA512_WITH_RSA: &[u8] = &[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0d];

#[derive(Debug)]
struct Algorithm {
    kind: KeyKind,
    scheme: Scheme,
    of_key: AlgorithmIdentifier,
    of_signature: AlgorithmIdentifier,
}

const fn without_parameters(oid: &'static [u8]) -> AlgorithmIdentifier {
    AlgorithmIdentifier::from_slice(oid)
}

const fn rsa(scheme: Scheme, of_signature: AlgorithmIdentifier) -> Algorithm {
    Algorithm { kind: KeyKind::Rsa, scheme, of_key: alg_id::RSA_ENCRYPTION, of_signature }
}

const fn ecdsa(kind: KeyKind, hash: Hash) -> Algorithm {
    let of_key = match kind {
        KeyKind::EcdsaP256 => alg_id::ECDSA_P256,
        KeyKind::EcdsaP384 => alg_id::ECDSA_P384,
        KeyKind::EcdsaP521 => alg_id::ECDSA_P521,
        KeyKind::Rsa | KeyKind::Ed25519 => panic!("no curve of ECDSA"),
    };
    let of_signature = match hash {
        Hash::Sha256 => alg_id::ECDSA_SHA256,
        Hash::Sha384 => alg_id::ECDSA_SHA384,
        Hash::Sha512 => alg_id::ECDSA_SHA512,
        Hash::Sha1 => panic!("no signature with SHA-1 counts"),
    };
    Algorithm { kind, scheme: Scheme::Ecdsa(hash), of_key, of_signature }
}

impl SignatureVerificationAlgorithm for Algorithm {
    fn verify_signature(
        &self,
        key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        match asymmetric::verify(self.kind, self.scheme, key, message, signature) {
            true => Ok(()),
            false => Err(InvalidSignature),
        }
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.of_key
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.of_signature
    }
}
