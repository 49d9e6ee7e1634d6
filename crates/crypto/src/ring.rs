//! AEADs of ring, which does not wipe keys.

use crate::cipher::{Cipher, Forged};
use crate::gmac::Gmac;
use crate::in_place::{self, Aead, Nonce};
use crate::suite::Suite;
use ::ring::aead::{self, Aad, LessSafeKey, Tag, UnboundKey};
use policy::KeyBits;

/// ring's algorithm for a suite; `None`: ring does not have it.
pub(super) fn algorithm(suite: Suite) -> Option<&'static aead::Algorithm> {
    match suite {
        Suite::ChaCha20Poly1305 => Some(&aead::CHACHA20_POLY1305),
        Suite::AesGcm16(KeyBits::B128) | Suite::AesGmac(KeyBits::B128) => Some(&aead::AES_128_GCM),
        Suite::AesGcm16(KeyBits::B256) | Suite::AesGmac(KeyBits::B256) => Some(&aead::AES_256_GCM),
        Suite::AesGcm16(KeyBits::B192) | Suite::AesGmac(KeyBits::B192) => None,
        Suite::AesCbcMac(..) | Suite::NullMac(_) | Suite::DesCbcMac(..) | Suite::Ah(_) => None,
    }
}

/// The cipher of a suite; `key_material` has [`Suite::key_material_len`] octets.
pub(super) fn cipher(suite: Suite, key_material: &[u8]) -> Box<dyn Cipher> {
    let algorithm = algorithm(suite).expect("ring is not asked for a suite that it lacks");
    let aead = Aead::new(key_material, |key| {
        LessSafeKey::new(
            UnboundKey::new(algorithm, key).expect("the length of the key was checked"),
        )
    });
    match suite {
        Suite::AesGmac(_) => Box::new(Gmac::new(aead)),
        _ => Box::new(aead),
    }
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
