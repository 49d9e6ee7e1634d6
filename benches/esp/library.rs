//! The library's call alone, with as little around it as possible: the reference for the packet path.

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

const ICV: usize = 16;

/// Octets of padding, its length and the next header.
const TRAILER: usize = 4;

/// A key, and octets to seal and to open with it.
pub struct Library {
    key: LessSafeKey,
    plain: Vec<u8>,
    sealed: Vec<u8>,
    opened: Vec<u8>,
    nonce: u64,
}

impl Library {
    /// For texts of so many octets.
    pub fn new(len: usize) -> Self {
        let key = UnboundKey::new(&AES_128_GCM, &[7; 16]).expect("a key of 16 octets");
        let mut library = Self {
            key: LessSafeKey::new(key),
            plain: vec![3; len],
            sealed: vec![0; len + ICV],
            opened: vec![0; len],
            nonce: 0,
        };
        library.seal();
        library
    }

    /// Seals under the next nonce.
    pub fn seal(&mut self) {
        self.nonce += 1;
        let (text, icv) = self.sealed.split_at_mut(self.plain.len());
        self.key
            .seal_out_of_place_scatter(
                nonce(self.nonce),
                Aad::from([0; 8]),
                &self.plain,
                text,
                &[],
                icv,
            )
            .expect("the lengths fit");
    }

    /// Seals the last octets as a part of their own, as a trailer that stands elsewhere.
    pub fn seal_scattered(&mut self) {
        self.nonce += 1;
        let (plain, trailer) = self.plain.split_at(self.plain.len() - TRAILER);
        let (text, rest) = self.sealed.split_at_mut(plain.len());
        self.key
            .seal_out_of_place_scatter(
                nonce(self.nonce),
                Aad::from([0; 8]),
                plain,
                text,
                trailer,
                rest,
            )
            .expect("the lengths fit");
    }

    /// Opens what was sealed last.
    pub fn open(&mut self) {
        let (text, icv) = self.sealed.split_at(self.plain.len());
        self.key
            .open_separate_gather(nonce(self.nonce), Aad::from([0; 8]), text, icv, &mut self.opened)
            .expect("it is authentic");
    }
}

fn nonce(number: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}
