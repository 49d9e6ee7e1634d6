//! Ciphers of ring. It works in place only, so plaintext and ciphertext are copied first, and it does not wipe keys.

use super::{Aad, Cipher, Forged};
use ::ring::aead::{self, LessSafeKey, Nonce, Tag, UnboundKey};
use policy::KeyBits;
use zeroize::Zeroizing;

const IV: usize = 8;
const ICV: usize = 16;

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

/// An AEAD with a nonce of salt ‖ IV.
pub(super) struct Aead {
    key: LessSafeKey,
    salt: Zeroizing<[u8; 4]>,
}

impl Aead {
    /// Takes key ‖ salt of the length the suite asks for (RFC 4106 §8.1, RFC 7634 §2).
    pub(super) fn new(algorithm: &'static aead::Algorithm, key_material: &[u8]) -> Self {
        let (key, salt) =
            key_material.split_last_chunk::<4>().expect("the length of the key was checked");
        let key = UnboundKey::new(algorithm, key).expect("the length of the key was checked");
        Self { key: LessSafeKey::new(key), salt: Zeroizing::new(*salt) }
    }

    // RFC 4106 §4, RFC 7634 §2
    fn nonce(&self, iv: &[u8; IV]) -> Nonce {
        let mut nonce = [0; 12];
        nonce[..4].copy_from_slice(&*self.salt);
        nonce[4..].copy_from_slice(iv);
        Nonce::assume_unique_for_key(nonce)
    }
}

impl Cipher for Aead {
    fn seal(&self, iv: &[u8], aad: Aad<'_>, plaintext: &[u8], trailer: &[u8], out: &mut [u8]) {
        let len = plaintext.len() + trailer.len();
        assert_eq!(out.len(), IV + len + ICV, "length of out");
        let iv: &[u8; IV] = iv.try_into().expect("the IV of an AEAD has 8 octets");
        let (out_iv, rest) = out.split_at_mut(IV);
        out_iv.copy_from_slice(iv);
        let (body, icv) = rest.split_at_mut(len);
        let (first, second) = body.split_at_mut(plaintext.len());
        first.copy_from_slice(plaintext);
        second.copy_from_slice(trailer);
        let mut buffer = [0; 12];
        let aad = aead::Aad::from(aad.of_aead(&mut buffer));
        let tag = self
            .key
            .seal_in_place_separate_tag(self.nonce(iv), aad, body)
            .expect("a packet is far below any limit");
        icv.copy_from_slice(tag.as_ref());
    }

    fn open(&self, aad: Aad<'_>, sealed: &[u8], out: &mut [u8]) -> Result<usize, Forged> {
        let (iv, rest) = sealed.split_first_chunk::<IV>().ok_or(Forged)?;
        let (ciphertext, icv) = rest.split_last_chunk::<ICV>().ok_or(Forged)?;
        let out = out.get_mut(..ciphertext.len()).ok_or(Forged)?;
        out.copy_from_slice(ciphertext);
        let mut buffer = [0; 12];
        let aad = aead::Aad::from(aad.of_aead(&mut buffer));
        let opened =
            self.key.open_in_place_separate_tag(self.nonce(iv), aad, Tag::from(*icv), out, 0..);
        if opened.is_err() {
            out.fill(0);
            return Err(Forged);
        }
        Ok(out.len())
    }
}
