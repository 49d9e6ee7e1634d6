//! Suites with a MAC over everything: CBC, encrypt-then-MAC, and no cipher at all (RFC 2410).

use crate::cipher::{Aad, Cipher, Forged};
use crate::equal::is_equal;
use crate::mac;
use crate::suite::Suite;
use policy::Integrity;

/// A MAC over everything, cut to the length of the ICV.
struct Icv {
    key: mac::Key,
    len: usize,
}

impl Icv {
    fn new(integrity: Integrity, key: mac::Key) -> Self {
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
        if is_equal(&tag.as_ref()[..self.len], icv) { Ok(body) } else { Err(Forged) }
    }
}

/// The key of a block cipher in CBC mode. Both work in place, on whole blocks.
pub(super) trait Cbc<const BLOCK: usize>: Send + Sync {
    fn encrypt(&self, iv: &[u8; BLOCK], blocks: &mut [u8]);
    fn decrypt(&self, iv: &[u8; BLOCK], blocks: &mut [u8]);
}

/// A block cipher in CBC mode, and a MAC over everything.
pub(super) struct CbcMac<C, const BLOCK: usize> {
    cbc: C,
    icv: Icv,
}

impl<C: Cbc<BLOCK>, const BLOCK: usize> CbcMac<C, BLOCK> {
    /// Takes the integrity with its key.
    pub(super) fn new(cbc: C, integrity: Integrity, key: mac::Key) -> Self {
        Self { cbc, icv: Icv::new(integrity, key) }
    }
}

impl<C: Cbc<BLOCK>, const BLOCK: usize> Cipher for CbcMac<C, BLOCK> {
    fn seal(&self, iv: &[u8], aad: Aad<'_>, plaintext: &[u8], trailer: &[u8], out: &mut [u8]) {
        let len = plaintext.len() + trailer.len();
        assert_eq!(len % BLOCK, 0, "plaintext and trailer are padded to the block");
        assert_eq!(out.len(), BLOCK + len + self.icv.len, "length of out");
        let iv: &[u8; BLOCK] = iv.try_into().expect("the IV of CBC is a block");
        let (body, icv) = out.split_at_mut(BLOCK + len);
        let (out_iv, ciphertext) = body.split_at_mut(BLOCK);
        out_iv.copy_from_slice(iv);
        let (first, second) = ciphertext.split_at_mut(plaintext.len());
        first.copy_from_slice(plaintext);
        second.copy_from_slice(trailer);
        self.cbc.encrypt(iv, ciphertext);
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
        self.cbc.decrypt(iv, out);
        Ok(out.len())
    }
}

/// No cipher (RFC 2410), and a MAC over everything.
pub(super) struct NullMac(Icv);

impl NullMac {
    /// Takes the integrity with its key.
    pub(super) fn new(integrity: Integrity, key: mac::Key) -> Self {
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
