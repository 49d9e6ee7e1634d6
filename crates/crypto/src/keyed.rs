//! The keys of one direction of one SA for as long as it lives, whichever provider serves it.

use crate::cipher::{Aad, Cipher, Forged};
use crate::provider::{CipherError, Provider};
use crate::suite::Suite;
use crate::work::Amount;
use policy::Secret;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// A cipher whose provider can be changed while packets pass.
///
/// The key stays here, so that another provider's cipher can be made of it; a packet costs a load and a comparison more
/// than without. Most never change: the parts that only a change needs have a place of their own.
pub struct Keyed {
    suite: Suite,
    key: Secret,
    /// The cipher that the SA began with, and its provider.
    first: Box<dyn Cipher>,
    by: Provider,
    /// The index in [`Provider::ALL`] of the provider whose cipher is in use; that cipher has been made.
    serving: AtomicU8,
    others: OnceLock<Box<Made>>,
    /// Packets and octets that are accounted for.
    attributed: [AtomicU64; 2],
}

/// Ciphers by [`Provider`]. A cipher that was made once remains until the SA goes.
type Made = [OnceLock<Box<dyn Cipher>>; Provider::ALL.len()];

impl Keyed {
    /// Takes [`Suite::key_material_len`] octets.
    pub fn new(suite: Suite, key: Secret, by: Provider) -> Result<Self, CipherError> {
        Ok(Self {
            suite,
            first: by.cipher(suite, &key)?,
            key,
            by,
            serving: AtomicU8::new(by as u8),
            others: OnceLock::new(),
            attributed: Default::default(),
        })
    }

    /// The cipher of the provider that the SA began with, for a caller that wants its memory in the cache before it is
    /// used.
    #[inline]
    pub fn first(&self) -> &dyn Cipher {
        &*self.first
    }

    /// The key, for a successor that goes on with the SA.
    pub fn key(&self) -> &Secret {
        &self.key
    }

    /// The suite.
    #[inline]
    pub fn suite(&self) -> Suite {
        self.suite
    }

    /// The provider whose cipher serves now.
    #[inline]
    pub fn provider(&self) -> Provider {
        Provider::ALL[usize::from(self.serving.load(Ordering::Relaxed))]
    }

    /// Has another provider serve from the next packet on.
    pub fn serve_by(&self, provider: Provider) -> Result<(), CipherError> {
        if provider != self.by {
            let made = &self.others.get_or_init(Box::default)[provider as usize];
            if made.get().is_none() {
                // A cipher that another thread has just made is as good.
                _ = made.set(provider.cipher(self.suite, &self.key)?);
            }
        }
        self.serving.store(provider as u8, Ordering::Release);
        Ok(())
    }

    /// The part of the total amount of the SA that was added since the last call.
    pub fn attribute(&self, all: Amount) -> Amount {
        let [operations, octets] = &self.attributed;
        let [operations, octets] = [(operations, all.operations), (octets, all.octets)]
            .map(|(before, now)| now.saturating_sub(before.swap(now, Ordering::Relaxed)));
        Amount { operations, octets }
    }

    #[inline]
    fn cipher(&self) -> &dyn Cipher {
        let serving = self.serving.load(Ordering::Acquire);
        if serving == self.by as u8 {
            return &*self.first;
        }
        let made = self.others.get().and_then(|others| others[usize::from(serving)].get());
        &**made.expect("a cipher is made before it serves")
    }
}

impl Cipher for Keyed {
    #[inline]
    fn seal(&self, iv: &[u8], aad: Aad<'_>, plaintext: &[u8], trailer: &[u8], out: &mut [u8]) {
        self.cipher().seal(iv, aad, plaintext, trailer, out);
    }

    #[inline]
    fn open(&self, aad: Aad<'_>, sealed: &[u8], out: &mut [u8]) -> Result<usize, Forged> {
        self.cipher().open(aad, sealed, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::KeyBits;

    #[test]
    fn a_packet_of_one_provider_is_opened_by_the_others_with_the_same_keys() {
        let suite = Suite::AesGcm16(KeyBits::B256);
        let key = Secret::new((0..36).collect());
        let keyed = Keyed::new(suite, key, Provider::AwsLc).expect("it has the suite");
        let aad = Aad::Octets(b"header");
        let mut sealed = [0; 8 + 20 + 16];
        keyed.seal(&[7; 8], aad, &[1; 20], &[], &mut sealed);
        for provider in Provider::ALL {
            keyed.serve_by(provider).expect("it has the suite");
            let (mut again, mut opened) = ([0; 44], [0; 20]);
            keyed.seal(&[7; 8], aad, &[1; 20], &[], &mut again);
            assert_eq!(again, sealed, "{provider}");
            assert_eq!(keyed.open(aad, &sealed, &mut opened), Ok(20), "{provider}");
        }
    }

    #[test]
    fn a_provider_without_the_suite_does_not_begin_to_serve() {
        let suite = Suite::AesGcm16(KeyBits::B192);
        let keyed = Keyed::new(suite, Secret::new(vec![1; 28]), Provider::Portable)
            .expect("it has the suite");
        let refused = CipherError::Unsupported { provider: Provider::Ring, suite };
        assert_eq!(keyed.serve_by(Provider::Ring), Err(refused));
        keyed.seal(&[0; 8], Aad::Octets(&[]), &[1; 4], &[], &mut [0; 28]);
    }
}
