//! DES and triple DES in CBC mode (RFC 2405, RFC 2451), of RustCrypto and in software: for peers that have nothing
//! better.

use crate::cipher::Cipher;
use crate::mac;
use crate::with_mac::{self, CbcMac};
use des::cipher::{
    Array, BlockCipherDecrypt, BlockCipherEncrypt, BlockSizeUser, KeyInit, consts::U8,
};
use des::{Des, TdesEde3};
use policy::{DesKeys, Integrity};

const BLOCK: usize = 8;

/// The cipher of keys of that number, whose octets have been counted, with a MAC.
pub(super) fn cipher(
    keys: DesKeys,
    key: &[u8],
    integrity: Integrity,
    mac: mac::Key,
) -> Box<dyn Cipher> {
    match keys {
        DesKeys::One => Box::new(CbcMac::new(Cbc(scheduled::<Des>(key)), integrity, mac)),
        DesKeys::Three => Box::new(CbcMac::new(Cbc(scheduled::<TdesEde3>(key)), integrity, mac)),
    }
}

fn scheduled<C: KeyInit>(key: &[u8]) -> C {
    C::new_from_slice(key).expect("the length of the key was checked")
}

/// A key, wiped when it is dropped.
struct Cbc<C>(C);

impl<C> with_mac::Cbc<BLOCK> for Cbc<C>
where
    C: BlockSizeUser<BlockSize = U8> + BlockCipherEncrypt + BlockCipherDecrypt + Send + Sync,
{
    fn encrypt(&self, iv: &[u8; BLOCK], blocks: &mut [u8]) {
        let mut last = Array::from(*iv);
        for block in blocks.as_chunks_mut::<BLOCK>().0 {
            last.iter_mut().zip(&*block).for_each(|(state, octet)| *state ^= octet);
            self.0.encrypt_block(&mut last);
            *block = last.into();
        }
    }

    fn decrypt(&self, iv: &[u8; BLOCK], blocks: &mut [u8]) {
        let mut last = *iv;
        for block in blocks.as_chunks_mut::<BLOCK>().0 {
            let mut opened = Array::from(*block);
            self.0.decrypt_block(&mut opened);
            opened.iter_mut().zip(last).for_each(|(octet, before)| *octet ^= before);
            last = std::mem::replace(block, opened.into());
        }
    }
}
