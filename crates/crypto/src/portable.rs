//! Ciphers without any instruction made for cryptography, in constant time: what remains where hardware is not to be
//! used, and what it is compared with.
//!
//! AES is fixsliced; it and the hash functions are RustCrypto's in the last versions whose software back end is chosen
//! by a cargo feature (`force-soft`). Newer ones choose when the whole program is built (`--cfg aes_backend="soft"`),
//! which every embedder of this crate would have to know. ChaCha20-Poly1305 has no such instructions anywhere, and
//! comes as it is. Keys of AES are not wiped.

mod gcm;

use crate::cipher::{Cipher, Forged};
use crate::gmac::Gmac;
use crate::in_place::{self, Aead, Nonce};
use crate::mac;
use crate::suite::{Suite, mac_of};
use crate::with_mac::{self, CbcMac, NullMac};
use aes::cipher::consts::{U8, U16};
use aes::cipher::generic_array::GenericArray;
use aes::cipher::{BlockCipher, BlockDecrypt, BlockEncrypt, NewBlockCipher};
use aes::{Aes128, Aes192, Aes256};
use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::{ChaCha20Poly1305, KeyInit};
use gcm::Gcm;
use policy::KeyBits;

const BLOCK: usize = 16;
/// The number of blocks that are worked on at once.
const BATCH: usize = 8;

/// The cipher of a suite; `key` has [`Suite::key_material_len`] octets.
pub(super) fn cipher(suite: Suite, key: &[u8]) -> Box<dyn Cipher> {
    match suite {
        Suite::AesGcm16(KeyBits::B128) => Box::new(gcm::<Aes128>(key)),
        Suite::AesGcm16(KeyBits::B192) => Box::new(gcm::<Aes192>(key)),
        Suite::AesGcm16(KeyBits::B256) => Box::new(gcm::<Aes256>(key)),
        Suite::AesGmac(KeyBits::B128) => Box::new(Gmac::new(gcm::<Aes128>(key))),
        Suite::AesGmac(KeyBits::B192) => Box::new(Gmac::new(gcm::<Aes192>(key))),
        Suite::AesGmac(KeyBits::B256) => Box::new(Gmac::new(gcm::<Aes256>(key))),
        Suite::ChaCha20Poly1305 => Box::new(Aead::new(key, |key| {
            ChaCha20Poly1305::new_from_slice(key).expect("the length of the key was checked")
        })),
        Suite::AesCbcMac(bits, integrity) => {
            let (key, mac_key) = key.split_at(bits.octets());
            let mac = mac::Key::portable(mac_of(integrity), mac_key);
            match bits {
                KeyBits::B128 => Box::new(CbcMac::new(Cbc(aes::<Aes128>(key)), integrity, mac)),
                KeyBits::B192 => Box::new(CbcMac::new(Cbc(aes::<Aes192>(key)), integrity, mac)),
                KeyBits::B256 => Box::new(CbcMac::new(Cbc(aes::<Aes256>(key)), integrity, mac)),
            }
        }
        #[cfg(feature = "legacy")]
        Suite::DesCbcMac(keys, integrity) => {
            let (key, mac_key) = key.split_at(keys.octets());
            crate::des::cipher(keys, key, integrity, mac::Key::portable(mac_of(integrity), mac_key))
        }
        Suite::NullMac(integrity) => {
            Box::new(NullMac::new(integrity, mac::Key::portable(mac_of(integrity), key)))
        }
        #[cfg(not(feature = "legacy"))]
        Suite::DesCbcMac(..) => unreachable!("refused before"),
        Suite::Ah(_) => unreachable!("its ICV is made by another one's cipher"),
    }
}

/// AES with a key of any of its lengths.
trait Aes:
    BlockCipher<BlockSize = U16, ParBlocks = U8> + BlockEncrypt + BlockDecrypt + Send + Sync
{
}
impl Aes for Aes128 {}
impl Aes for Aes192 {}
impl Aes for Aes256 {}

fn aes<A: NewBlockCipher>(key: &[u8]) -> A {
    A::new(GenericArray::from_slice(key))
}

fn gcm<A: Aes + NewBlockCipher>(key_material: &[u8]) -> Aead<Gcm<A>> {
    Aead::new(key_material, |key| Gcm::new(aes(key)))
}

impl in_place::Key for ChaCha20Poly1305 {
    fn seal(&self, nonce: Nonce, aad: &[u8], body: &mut [u8]) -> [u8; 16] {
        self.encrypt_inout_detached(&nonce.into(), aad, body.into())
            .expect("a packet is far below any limit")
            .into()
    }

    fn open(
        &self,
        nonce: Nonce,
        aad: &[u8],
        body: &mut [u8],
        icv: &[u8; 16],
    ) -> Result<(), Forged> {
        self.decrypt_inout_detached(&nonce.into(), aad, body.into(), icv.into()).map_err(|_| Forged)
    }
}

/// AES-CBC.
struct Cbc<A>(A);

impl<A: Aes> with_mac::Cbc<BLOCK> for Cbc<A> {
    fn encrypt(&self, iv: &[u8; BLOCK], blocks: &mut [u8]) {
        let mut last = *iv;
        for block in blocks.chunks_exact_mut(BLOCK) {
            xor(block, &last);
            self.0.encrypt_block(GenericArray::from_mut_slice(block));
            last.copy_from_slice(block);
        }
    }

    fn decrypt(&self, iv: &[u8; BLOCK], blocks: &mut [u8]) {
        let mut last = *iv;
        for batch in blocks.chunks_mut(BATCH * BLOCK) {
            let mut opened = [GenericArray::default(); BATCH];
            let whole = batch.chunks_exact(BLOCK);
            opened.iter_mut().zip(whole).for_each(|(to, from)| to.copy_from_slice(from));
            self.0.decrypt_par_blocks(GenericArray::from_mut_slice(&mut opened));
            for (block, mut opened) in batch.chunks_exact_mut(BLOCK).zip(opened) {
                xor(&mut opened, &last);
                last.copy_from_slice(block);
                block.copy_from_slice(&opened);
            }
        }
    }
}

fn xor(to: &mut [u8], from: &[u8]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to ^= from);
}
