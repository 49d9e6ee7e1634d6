//! AEADs of ring, which does not wipe keys.

use crate::cipher::Forged;
use crate::in_place::{self, Aead, Nonce};
use ::ring::aead::{self, Aad, LessSafeKey, Tag, UnboundKey};
use policy::KeyBits;

/// ChaCha20-Poly1305.
pub(super) const CHACHA20_POLY1305: &aead::Algorithm = &aead::CHACHA20_POLY1305;

/// AES-128-GCM or AES-256-GCM.
pub(super) fn gcm(bits: KeyBits) -> &'static aead::Algorithm {
    match bits {
        KeyBits::B128 => &aead::AES_128_GCM,
        KeyBits::B192 => unreachable!("ring is not asked for AES-192"),
        KeyBits::B256 => &aead::AES_256_GCM,
    }
}

/// Takes key ‖ salt.
pub(super) fn aead(algorithm: &'static aead::Algorithm, key_material: &[u8]) -> Aead<LessSafeKey> {
    Aead::new(key_material, |key| {
        LessSafeKey::new(
            UnboundKey::new(algorithm, key).expect("the length of the key was checked"),
        )
    })
}

impl in_place::Key for LessSafeKey {
    fn seal(&self, nonce: Nonce, aad: &[u8], body: &mut [u8]) -> [u8; 16] {
        let nonce = aead::Nonce::assume_unique_for_key(nonce);
        let tag = self
            .seal_in_place_separate_tag(nonce, Aad::from(aad), body)
            .expect("a packet is far below any limit");
        tag.as_ref().try_into().expect("the tags of both are of 16 octets")
    }

    fn open(
        &self,
        nonce: Nonce,
        aad: &[u8],
        body: &mut [u8],
        icv: &[u8; 16],
    ) -> Result<(), Forged> {
        let nonce = aead::Nonce::assume_unique_for_key(nonce);
        self.open_in_place_separate_tag(nonce, Aad::from(aad), Tag::from(*icv), body, 0..)
            .map(|_| ())
            .map_err(|_| Forged)
    }
}
