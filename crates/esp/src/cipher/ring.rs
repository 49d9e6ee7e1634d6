//! Ciphers of ring. It works in place only, so plaintext and ciphertext are copied first, and it does not wipe keys.

use super::{Aad, Cipher, Forged};
use ::ring::aead::{self, LessSafeKey, Nonce, Tag, UnboundKey};
use zeroize::Zeroizing;

const GCM_IV: usize = 8;
const GCM_ICV: usize = 16;

/// AES-128-GCM or AES-256-GCM.
pub(super) struct Gcm {
    key: LessSafeKey,
    salt: Zeroizing<[u8; 4]>,
}

impl Gcm {
    /// Takes key ‖ salt (RFC 4106 §8.1); the length of the key, 16 or 32 octets, tells the algorithm.
    pub(super) fn new(key_material: &[u8]) -> Self {
        let (key, salt) =
            key_material.split_last_chunk::<4>().expect("the length of the key was checked");
        let algorithm = if key.len() == 16 { &aead::AES_128_GCM } else { &aead::AES_256_GCM };
        let key = UnboundKey::new(algorithm, key).expect("the length of the key was checked");
        Self { key: LessSafeKey::new(key), salt: Zeroizing::new(*salt) }
    }

    // RFC 4106 §4
    fn nonce(&self, iv: &[u8; GCM_IV]) -> Nonce {
        let mut nonce = [0; 12];
        nonce[..4].copy_from_slice(&*self.salt);
        nonce[4..].copy_from_slice(iv);
        Nonce::assume_unique_for_key(nonce)
    }
}

impl Cipher for Gcm {
    fn seal(&self, iv: &[u8], aad: Aad<'_>, plaintext: &[u8], trailer: &[u8], out: &mut [u8]) {
        let len = plaintext.len() + trailer.len();
        assert_eq!(out.len(), GCM_IV + len + GCM_ICV, "length of out");
        let iv: &[u8; GCM_IV] = iv.try_into().expect("the IV of GCM has 8 octets");
        let (out_iv, rest) = out.split_at_mut(GCM_IV);
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
            .expect("a packet is far below the limit of GCM");
        icv.copy_from_slice(tag.as_ref());
    }

    fn open(&self, aad: Aad<'_>, sealed: &[u8], out: &mut [u8]) -> Result<usize, Forged> {
        let (iv, rest) = sealed.split_first_chunk::<GCM_IV>().ok_or(Forged)?;
        let (ciphertext, icv) = rest.split_last_chunk::<GCM_ICV>().ok_or(Forged)?;
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
