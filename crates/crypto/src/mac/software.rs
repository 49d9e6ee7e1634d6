//! HMACs and AES without any instruction made for cryptography: RustCrypto's, with the feature `force-soft`.

use aes::Aes128;
use aes::cipher::generic_array::GenericArray;
use aes::cipher::{BlockEncrypt, NewBlockCipher};
use hmac_0_12::Mac;
use sha1::Sha1;
use sha2::{Sha256, Sha384, Sha512};
use zeroize::Zeroizing;

/// A scheduled key: a message starts from a copy.
pub(super) enum Hmac {
    Sha1(hmac_0_12::Hmac<Sha1>),
    Sha256(hmac_0_12::Hmac<Sha256>),
    Sha384(hmac_0_12::Hmac<Sha384>),
    Sha512(hmac_0_12::Hmac<Sha512>),
}

/// The length of the longest of them.
pub(super) struct Tag {
    octets: Zeroizing<[u8; 64]>,
    len: usize,
}

impl Hmac {
    pub(super) fn sha1(key: &[u8]) -> Self {
        Self::Sha1(keyed(key))
    }

    pub(super) fn sha2_256(key: &[u8]) -> Self {
        Self::Sha256(keyed(key))
    }

    pub(super) fn sha2_384(key: &[u8]) -> Self {
        Self::Sha384(keyed(key))
    }

    pub(super) fn sha2_512(key: &[u8]) -> Self {
        Self::Sha512(keyed(key))
    }

    pub(super) fn tag(&self, parts: &[&[u8]]) -> Tag {
        match self {
            Self::Sha1(key) => tag(key, parts),
            Self::Sha256(key) => tag(key, parts),
            Self::Sha384(key) => tag(key, parts),
            Self::Sha512(key) => tag(key, parts),
        }
    }
}

fn keyed<M: hmac_0_12::digest::KeyInit>(key: &[u8]) -> M {
    M::new_from_slice(key).expect("an HMAC takes any key")
}

fn tag<M: Mac + Clone>(key: &M, parts: &[&[u8]]) -> Tag {
    let mut mac = key.clone();
    parts.iter().for_each(|part| mac.update(part));
    let made = mac.finalize().into_bytes();
    let mut octets = Zeroizing::new([0; 64]);
    octets[..made.len()].copy_from_slice(&made);
    Tag { octets, len: made.len() }
}

impl AsRef<[u8]> for Tag {
    fn as_ref(&self) -> &[u8] {
        &self.octets[..self.len]
    }
}

/// Fixsliced AES-128.
pub(super) struct Aes(Aes128);

impl super::chain::Aes for Aes {
    fn new(key: &[u8; 16]) -> Self {
        Self(Aes128::new(GenericArray::from_slice(key)))
    }

    fn encrypt(&self, block: &mut [u8; 16]) {
        self.0.encrypt_block(GenericArray::from_mut_slice(block));
    }
}
