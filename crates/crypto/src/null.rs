//! A cipher that only copies: neither secrecy nor integrity. It is what the bench of whole tunnels subtracts, in a
//! build of its own.

#![forbid(unsafe_code)]

use crate::cipher::{Aad, Cipher, Forged};
use crate::suite::Suite;

/// Stands for any AEAD.
pub(super) struct Copying(pub(super) Suite);

impl Cipher for Copying {
    fn seal(&self, iv: &[u8], _: Aad<'_>, plaintext: &[u8], trailer: &[u8], out: &mut [u8]) {
        let (head, rest) = out.split_at_mut(iv.len());
        head.copy_from_slice(iv);
        let (body, rest) = rest.split_at_mut(plaintext.len());
        body.copy_from_slice(plaintext);
        let (end, icv) = rest.split_at_mut(trailer.len());
        end.copy_from_slice(trailer);
        icv.fill(0);
    }

    fn open(&self, _: Aad<'_>, sealed: &[u8], out: &mut [u8]) -> Result<usize, Forged> {
        let text = sealed.get(self.0.iv_len()..).ok_or(Forged)?;
        let text =
            text.len().checked_sub(self.0.icv_len()).map(|len| &text[..len]).ok_or(Forged)?;
        out.get_mut(..text.len()).ok_or(Forged)?.copy_from_slice(text);
        Ok(text.len())
    }
}
