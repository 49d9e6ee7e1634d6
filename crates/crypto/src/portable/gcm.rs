//! GCM (NIST SP 800-38D) with nonces of 12 octets. The version of RustCrypto's that could do without instructions ties
//! its users to old versions of other crates, so that AES and the multiplication are put together here.

use super::{Aes, BATCH, BLOCK, xor};
use crate::cipher::Forged;
use crate::equal::is_equal;
use crate::in_place::{self, Nonce};
use aes::cipher::generic_array::GenericArray;
use polyval::hazmat::FieldElement;

/// The key of AES-GCM.
pub(super) struct Gcm<A> {
    aes: A,
    hash: FieldElement,
}

impl<A: Aes> Gcm<A> {
    pub(super) fn new(aes: A) -> Self {
        let mut block = GenericArray::default();
        aes.encrypt_block(&mut block);
        // GHASH is POLYVAL of reversed blocks with the reversed key times x (RFC 8452, Appendix A).
        let hash = FieldElement::from(<[u8; BLOCK]>::from(block)).reverse().mulx();
        Self { aes, hash }
    }

    /// Encrypts or decrypts, which are the same.
    fn apply_keystream(&self, nonce: &Nonce, body: &mut [u8]) {
        // The first counter is for the ICV.
        let mut counter = 2_u32;
        for batch in body.chunks_mut(BATCH * BLOCK) {
            let mut stream = [GenericArray::default(); BATCH];
            for block in &mut stream {
                *block = counter_block(nonce, counter);
                counter = counter.wrapping_add(1);
            }
            self.aes.encrypt_par_blocks(GenericArray::from_mut_slice(&mut stream));
            batch.chunks_mut(BLOCK).zip(&stream).for_each(|(to, from)| xor(to, from));
        }
    }

    fn icv(&self, nonce: &Nonce, aad: &[u8], ciphertext: &[u8]) -> [u8; BLOCK] {
        let mut state = FieldElement::default();
        let mut absorb = |block: u128| state = (state + block.into()) * self.hash;
        for part in [aad, ciphertext] {
            for octets in part.chunks(BLOCK) {
                let mut block = [0; BLOCK];
                block[..octets.len()].copy_from_slice(octets);
                absorb(u128::from_be_bytes(block));
            }
        }
        let [aad_bits, ciphertext_bits] = [aad, ciphertext].map(|part| part.len() as u128 * 8);
        absorb(aad_bits << 64 | ciphertext_bits);
        let mut icv = counter_block(nonce, 1);
        self.aes.encrypt_block(&mut icv);
        xor(&mut icv, &u128::from(state).to_be_bytes());
        icv.into()
    }
}

fn counter_block(nonce: &Nonce, counter: u32) -> aes::Block {
    let mut block = aes::Block::default();
    block[..nonce.len()].copy_from_slice(nonce);
    block[nonce.len()..].copy_from_slice(&counter.to_be_bytes());
    block
}

impl<A: Aes> in_place::Key for Gcm<A> {
    fn seal(&self, nonce: Nonce, aad: &[u8], body: &mut [u8]) -> [u8; BLOCK] {
        self.apply_keystream(&nonce, body);
        self.icv(&nonce, aad, body)
    }

    fn open(
        &self,
        nonce: Nonce,
        aad: &[u8],
        body: &mut [u8],
        icv: &[u8; BLOCK],
    ) -> Result<(), Forged> {
        if !is_equal(&self.icv(&nonce, aad, body), icv) {
            return Err(Forged);
        }
        self.apply_keystream(&nonce, body);
        Ok(())
    }
}
