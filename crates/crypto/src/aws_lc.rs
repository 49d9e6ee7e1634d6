//! Ciphers of AWS-LC.

use crate::cipher::{Aad, Cipher, Forged};
use crate::gmac::Gmac;
use crate::mac;
use crate::suite::{Suite, mac_of};
use crate::with_mac::{self, CbcMac, NullMac};
use aws_lc_rs::aead::{self, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::cipher::{
    self, DecryptingKey, DecryptionContext, EncryptingKey, EncryptionContext, UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;
use policy::KeyBits;
use zeroize::Zeroizing;

const IV: usize = 8;
const ICV: usize = 16;

/// The cipher of a suite; `key` has [`Suite::key_material_len`] octets.
pub(super) fn cipher(suite: Suite, key: &[u8]) -> Box<dyn Cipher> {
    match suite {
        Suite::AesGcm16(bits) => Box::new(gcm(bits, key)),
        Suite::AesGmac(bits) => Box::new(Gmac::new(gcm(bits, key))),
        Suite::ChaCha20Poly1305 => Box::new(Aead::new(&aead::CHACHA20_POLY1305, key)),
        Suite::AesCbcMac(bits, integrity) => {
            let (key, mac_key) = key.split_at(bits.octets());
            Box::new(CbcMac::new(
                Cbc::new(bits, key),
                integrity,
                mac::Key::new(mac_of(integrity), mac_key),
            ))
        }
        // It has no DES that aws-lc-rs gives.
        #[cfg(feature = "legacy")]
        Suite::DesCbcMac(keys, integrity) => {
            let (key, mac_key) = key.split_at(keys.octets());
            crate::des::cipher(keys, key, integrity, mac::Key::new(mac_of(integrity), mac_key))
        }
        Suite::NullMac(integrity) => {
            Box::new(NullMac::new(integrity, mac::Key::new(mac_of(integrity), key)))
        }
        #[cfg(not(feature = "legacy"))]
        Suite::DesCbcMac(..) => unreachable!("refused before"),
        Suite::Ah(_) => unreachable!("its ICV is made by another one's cipher"),
    }
}

fn gcm(bits: KeyBits, key: &[u8]) -> Aead {
    let algorithm = match bits {
        KeyBits::B128 => &aead::AES_128_GCM,
        KeyBits::B192 => &aead::AES_192_GCM,
        KeyBits::B256 => &aead::AES_256_GCM,
    };
    Aead::new(algorithm, key)
}

/// An AEAD with a nonce of salt ‖ IV; AWS-LC wipes the key when it is dropped.
struct Aead {
    key: LessSafeKey,
    salt: Zeroizing<[u8; 4]>,
}

impl Aead {
    /// Takes key ‖ salt of the length the suite asks for (RFC 4106 §8.1, RFC 7634 §2).
    fn new(algorithm: &'static aead::Algorithm, key_material: &[u8]) -> Self {
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
        assert_eq!(out.len(), IV + plaintext.len() + trailer.len() + ICV, "length of out");
        let iv: &[u8; IV] = iv.try_into().expect("the IV of an AEAD has 8 octets");
        let (out_iv, rest) = out.split_at_mut(IV);
        out_iv.copy_from_slice(iv);
        let (ciphertext, trailer_and_icv) = rest.split_at_mut(plaintext.len());
        let mut buffer = [0; 12];
        self.key
            .seal_out_of_place_scatter(
                self.nonce(iv),
                aead::Aad::from(aad.of_aead(&mut buffer)),
                plaintext,
                ciphertext,
                trailer,
                trailer_and_icv,
            )
            .expect("the lengths fit together and a packet is far below any limit");
    }

    fn open(&self, aad: Aad<'_>, sealed: &[u8], out: &mut [u8]) -> Result<usize, Forged> {
        let (iv, rest) = sealed.split_first_chunk::<IV>().ok_or(Forged)?;
        let (ciphertext, icv) = rest.split_last_chunk::<ICV>().ok_or(Forged)?;
        let out = out.get_mut(..ciphertext.len()).ok_or(Forged)?;
        let mut buffer = [0; 12];
        let aad = aead::Aad::from(aad.of_aead(&mut buffer));
        match self.key.open_separate_gather(self.nonce(iv), aad, ciphertext, icv, out) {
            Ok(()) => Ok(out.len()),
            Err(_) => {
                out.fill(0);
                Err(Forged)
            }
        }
    }
}

/// AES-CBC; AWS-LC wipes the key when it is dropped.
struct Cbc {
    encrypt: EncryptingKey,
    decrypt: DecryptingKey,
}

impl Cbc {
    /// Takes a key of that length.
    fn new(bits: KeyBits, key: &[u8]) -> Self {
        let aes = match bits {
            KeyBits::B128 => &cipher::AES_128,
            KeyBits::B192 => &cipher::AES_192,
            KeyBits::B256 => &cipher::AES_256,
        };
        let [encrypting, decrypting] = [key; 2]
            .map(|key| UnboundCipherKey::new(aes, key).expect("the length of the key was checked"));
        Self {
            encrypt: EncryptingKey::cbc(encrypting).expect("AES has a CBC mode"),
            decrypt: DecryptingKey::cbc(decrypting).expect("AES has a CBC mode"),
        }
    }
}

impl with_mac::Cbc<16> for Cbc {
    fn encrypt(&self, iv: &[u8; 16], blocks: &mut [u8]) {
        self.encrypt
            .less_safe_encrypt(blocks, EncryptionContext::Iv128(FixedLength::from(*iv)))
            .expect("whole blocks with an IV of one block");
    }

    fn decrypt(&self, iv: &[u8; 16], blocks: &mut [u8]) {
        self.decrypt
            .decrypt(blocks, DecryptionContext::Iv128(FixedLength::from(*iv)))
            .expect("whole blocks with an IV of one block");
    }
}
