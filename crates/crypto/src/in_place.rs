//! AEADs that work in place only, so that plaintext and ciphertext are copied first.

use crate::cipher::{Aad, Cipher, Forged};
use zeroize::Zeroizing;

const IV: usize = 8;
const ICV: usize = 16;

/// The nonce of an AEAD: salt ‖ IV (RFC 4106 §4, RFC 7634 §2).
pub(super) type Nonce = [u8; 12];

/// The key of such an AEAD.
pub(super) trait Key: Send + Sync {
    /// Encrypts `body` and gives its ICV.
    fn seal(&self, nonce: Nonce, aad: &[u8], body: &mut [u8]) -> [u8; ICV];

    /// Decrypts `body`. Where the ICV is not its own, what it holds afterwards is undefined.
    fn open(
        &self,
        nonce: Nonce,
        aad: &[u8],
        body: &mut [u8],
        icv: &[u8; ICV],
    ) -> Result<(), Forged>;
}

/// Such an AEAD with the salt of its nonces.
pub(super) struct Aead<K> {
    key: K,
    salt: Zeroizing<[u8; 4]>,
}

impl<K> Aead<K> {
    /// Takes key ‖ salt of the length the suite asks for (RFC 4106 §8.1, RFC 7634 §2).
    pub(super) fn new(key_material: &[u8], key: impl FnOnce(&[u8]) -> K) -> Self {
        let (octets, salt) =
            key_material.split_last_chunk::<4>().expect("the length of the key was checked");
        Self { key: key(octets), salt: Zeroizing::new(*salt) }
    }

    fn nonce(&self, iv: &[u8; IV]) -> Nonce {
        let mut nonce = [0; 12];
        nonce[..4].copy_from_slice(&*self.salt);
        nonce[4..].copy_from_slice(iv);
        nonce
    }
}

impl<K: Key> Cipher for Aead<K> {
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
        icv.copy_from_slice(&self.key.seal(self.nonce(iv), aad.of_aead(&mut buffer), body));
    }

    fn open(&self, aad: Aad<'_>, sealed: &[u8], out: &mut [u8]) -> Result<usize, Forged> {
        let (iv, rest) = sealed.split_first_chunk::<IV>().ok_or(Forged)?;
        let (ciphertext, icv) = rest.split_last_chunk::<ICV>().ok_or(Forged)?;
        let out = out.get_mut(..ciphertext.len()).ok_or(Forged)?;
        out.copy_from_slice(ciphertext);
        let mut buffer = [0; 12];
        let opened = self.key.open(self.nonce(iv), aad.of_aead(&mut buffer), out, icv);
        if opened.is_err() {
            out.fill(0);
        }
        opened.map(|()| out.len())
    }
}
