//! AES-GMAC (RFC 4543): AES-GCM of no text at all, with the whole packet as what is authenticated besides.

use crate::cipher::{Aad, Cipher, Forged};
use std::sync::{Mutex, PoisonError};

const IV: usize = 8;
const ICV: usize = 16;

/// AES-GMAC on top of a provider's AES-GCM.
pub(super) struct Gmac<C> {
    gcm: C,
    /// GCM wants what it authenticates in one piece, but a packet's header and the high half of its sequence number
    /// are elsewhere. It grows to the longest packet and is kept; its contents travel in the clear anyway.
    authenticated: Mutex<Vec<u8>>,
}

impl<C: Cipher> Gmac<C> {
    /// Takes AES-GCM of the same key ‖ salt (RFC 4543 §5.4).
    pub(super) fn new(gcm: C) -> Self {
        Self { gcm, authenticated: Mutex::default() }
    }

    /// RFC 4543 §3.3: header, IV, and everything up to the ICV.
    fn with_authenticated<T>(
        &self,
        aad: Aad<'_>,
        iv_and_text: &[u8],
        act: impl FnOnce(&C, Aad<'_>) -> T,
    ) -> T {
        let mut buffer = [0; 12];
        // A thread that panicked left octets behind, which go first of all.
        let mut authenticated = self.authenticated.lock().unwrap_or_else(PoisonError::into_inner);
        authenticated.clear();
        authenticated.extend_from_slice(aad.of_aead(&mut buffer));
        authenticated.extend_from_slice(iv_and_text);
        act(&self.gcm, Aad::Octets(&authenticated))
    }
}

impl<C: Cipher> Cipher for Gmac<C> {
    fn seal(&self, iv: &[u8], aad: Aad<'_>, plaintext: &[u8], trailer: &[u8], out: &mut [u8]) {
        let len = plaintext.len() + trailer.len();
        assert_eq!(out.len(), IV + len + ICV, "length of out");
        let (body, icv) = out.split_at_mut(IV + len);
        let (out_iv, text) = body.split_at_mut(IV);
        out_iv.copy_from_slice(iv);
        let (first, second) = text.split_at_mut(plaintext.len());
        first.copy_from_slice(plaintext);
        second.copy_from_slice(trailer);
        let mut sealed = [0; IV + ICV];
        self.with_authenticated(aad, body, |gcm, aad| gcm.seal(iv, aad, &[], &[], &mut sealed));
        icv.copy_from_slice(&sealed[IV..]);
    }

    fn open(&self, aad: Aad<'_>, sealed: &[u8], out: &mut [u8]) -> Result<usize, Forged> {
        let (body, icv) = sealed.split_last_chunk::<ICV>().ok_or(Forged)?;
        let (iv, text) = body.split_first_chunk::<IV>().ok_or(Forged)?;
        let out = out.get_mut(..text.len()).ok_or(Forged)?;
        let mut empty = [0; IV + ICV];
        empty[..IV].copy_from_slice(iv);
        empty[IV..].copy_from_slice(icv);
        self.with_authenticated(aad, body, |gcm, aad| gcm.open(aad, &empty, &mut []))?;
        out.copy_from_slice(text);
        Ok(out.len())
    }
}
