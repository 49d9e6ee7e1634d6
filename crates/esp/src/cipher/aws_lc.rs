//! Ciphers of AWS-LC.

use super::{Aad, Cipher, Forged, Suite, mac};
use aws_lc_rs::aead::{self, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::cipher::{
    self, DecryptingKey, DecryptionContext, EncryptingKey, EncryptionContext, UnboundCipherKey,
};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::iv::FixedLength;
use policy::{Integrity, KeyBits};
use zeroize::Zeroizing;

const IV: usize = 8;
const ICV: usize = 16;
const BLOCK: usize = 16;

/// ChaCha20-Poly1305.
pub(super) const CHACHA20_POLY1305: &aead::Algorithm = &aead::CHACHA20_POLY1305;

/// AES-GCM.
pub(super) fn gcm(bits: KeyBits) -> &'static aead::Algorithm {
    match bits {
        KeyBits::B128 => &aead::AES_128_GCM,
        KeyBits::B192 => &aead::AES_192_GCM,
        KeyBits::B256 => &aead::AES_256_GCM,
    }
}

/// An AEAD with a nonce of salt ‖ IV; AWS-LC wipes the key when it is dropped.
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

/// A MAC over everything, cut to the length of the ICV.
struct Icv {
    key: mac::Key,
    len: usize,
}

impl Icv {
    fn new(integrity: Integrity, key: &[u8]) -> Self {
        let key = mac::Key::new(super::mac_of(integrity), key);
        Self { key, len: Suite::NullMac(integrity).icv_len() }
    }

    fn tag(&self, aad: Aad<'_>, body: &[u8]) -> mac::Tag {
        let mut buffer = [0; 12];
        let (before, after) = aad.of_mac(&mut buffer);
        self.key.tag(&[before, body, after])
    }

    fn write(&self, aad: Aad<'_>, body: &[u8], icv: &mut [u8]) {
        icv.copy_from_slice(&self.tag(aad, body).as_ref()[..self.len]);
    }

    /// Everything but the ICV, which is checked.
    fn check<'a>(&self, aad: Aad<'_>, sealed: &'a [u8]) -> Result<&'a [u8], Forged> {
        let end = sealed.len().checked_sub(self.len).ok_or(Forged)?;
        let (body, icv) = sealed.split_at(end);
        let tag = self.tag(aad, body);
        verify_slices_are_equal(&tag.as_ref()[..self.len], icv).map_err(|_| Forged)?;
        Ok(body)
    }
}

/// AES-CBC, and a MAC over everything. AWS-LC wipes the AES key when it is dropped.
pub(super) struct CbcMac {
    encrypt: EncryptingKey,
    decrypt: DecryptingKey,
    icv: Icv,
}

impl CbcMac {
    /// Takes cipher key ‖ integrity key of the lengths the suite asks for (RFC 7296 §2.17).
    pub(super) fn new(bits: KeyBits, integrity: Integrity, key_material: &[u8]) -> Self {
        let aes = match bits {
            KeyBits::B128 => &cipher::AES_128,
            KeyBits::B192 => &cipher::AES_192,
            KeyBits::B256 => &cipher::AES_256,
        };
        let (cipher_key, integrity_key) = key_material.split_at(bits.octets());
        let key =
            || UnboundCipherKey::new(aes, cipher_key).expect("the length of the key was checked");
        Self {
            encrypt: EncryptingKey::cbc(key()).expect("AES has a CBC mode"),
            decrypt: DecryptingKey::cbc(key()).expect("AES has a CBC mode"),
            icv: Icv::new(integrity, integrity_key),
        }
    }
}

impl Cipher for CbcMac {
    fn seal(&self, iv: &[u8], aad: Aad<'_>, plaintext: &[u8], trailer: &[u8], out: &mut [u8]) {
        let len = plaintext.len() + trailer.len();
        assert_eq!(len % BLOCK, 0, "plaintext and trailer are padded to the block");
        assert_eq!(out.len(), BLOCK + len + self.icv.len, "length of out");
        let iv: &[u8; BLOCK] = iv.try_into().expect("the IV of CBC has 16 octets");
        let (body, icv) = out.split_at_mut(BLOCK + len);
        let (out_iv, ciphertext) = body.split_at_mut(BLOCK);
        out_iv.copy_from_slice(iv);
        let (first, second) = ciphertext.split_at_mut(plaintext.len());
        first.copy_from_slice(plaintext);
        second.copy_from_slice(trailer);
        self.encrypt
            .less_safe_encrypt(ciphertext, EncryptionContext::Iv128(FixedLength::from(*iv)))
            .expect("whole blocks with an IV of one block");
        self.icv.write(aad, body, icv);
    }

    fn open(&self, aad: Aad<'_>, sealed: &[u8], out: &mut [u8]) -> Result<usize, Forged> {
        let body = self.icv.check(aad, sealed)?;
        let (iv, ciphertext) = body.split_first_chunk::<BLOCK>().ok_or(Forged)?;
        let out = out.get_mut(..ciphertext.len()).ok_or(Forged)?;
        if ciphertext.len() % BLOCK != 0 {
            return Err(Forged);
        }
        out.copy_from_slice(ciphertext);
        self.decrypt
            .decrypt(out, DecryptionContext::Iv128(FixedLength::from(*iv)))
            .expect("whole blocks with an IV of one block");
        Ok(out.len())
    }
}

/// No cipher (RFC 2410), and a MAC over everything.
pub(super) struct NullMac(Icv);

impl NullMac {
    /// Takes the integrity key.
    pub(super) fn new(integrity: Integrity, key: &[u8]) -> Self {
        Self(Icv::new(integrity, key))
    }
}

impl Cipher for NullMac {
    fn seal(&self, iv: &[u8], aad: Aad<'_>, plaintext: &[u8], trailer: &[u8], out: &mut [u8]) {
        let len = plaintext.len() + trailer.len();
        assert!(iv.is_empty(), "NULL has no IV");
        assert_eq!(out.len(), len + self.0.len, "length of out");
        let (body, icv) = out.split_at_mut(len);
        let (first, second) = body.split_at_mut(plaintext.len());
        first.copy_from_slice(plaintext);
        second.copy_from_slice(trailer);
        self.0.write(aad, body, icv);
    }

    fn open(&self, aad: Aad<'_>, sealed: &[u8], out: &mut [u8]) -> Result<usize, Forged> {
        let body = self.0.check(aad, sealed)?;
        out.get_mut(..body.len()).ok_or(Forged)?.copy_from_slice(body);
        Ok(body.len())
    }
}
