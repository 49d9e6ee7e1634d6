//! Private keys that are not in this process, as in a token: the job waits until such a key has signed.
//!
//! A [`Signer`] knows its key and how it signs. It may take its time: the engine's driver waits for it beside
//! everything else.

use super::certificate::{CertificateError, PublicKey};
pub use super::scheme::{Hash, Scheme};
use policy::KeyKind;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// Signs with one private key, which it does not give away.
pub trait Signer: Send + Sync + fmt::Debug {
    /// Begins to sign. RSA answers with as many octets as the modulus has, ECDSA with r and s, one after the other.
    fn sign(&self, order: Order) -> Signature;

    /// Returns `true` if it can sign with RSASSA-PSS.
    fn knows_pss(&self) -> bool;
}

/// A signature to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The algorithm; neither SHA-1 nor Ed25519.
    pub scheme: Scheme,
    /// The octets to sign, not hashed yet.
    pub octets: Vec<u8>,
}

/// A signature, some time later.
pub type Signature = Pin<Box<dyn Future<Output = Result<Vec<u8>, Unsigned>> + Send>>;

/// A key did not sign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsigned {
    /// The cause, a whole sentence without its end.
    pub cause: String,
    /// The remedy, likewise.
    pub cure: String,
}

/// A private key outside of this process.
#[derive(Clone, Debug)]
pub struct OutsideKey {
    /// The place of the key, for people: the token and the object in it.
    pub place: String,
    /// Where it is configured; messages about it begin with this.
    pub(crate) item: String,
    pub(crate) public: PublicKey,
    pub(crate) signer: Arc<dyn Signer>,
}

impl OutsideKey {
    /// A key with this SubjectPublicKeyInfo (DER).
    ///
    /// # Errors
    /// If it is of a kind that nothing here can use.
    pub fn new(
        place: String,
        public: &[u8],
        signer: Arc<dyn Signer>,
    ) -> Result<Self, CertificateError> {
        Ok(Self { place, item: String::new(), public: PublicKey::read(public)?, signer })
    }

    /// Its kind.
    pub fn kind(&self) -> KeyKind {
        self.public.kind
    }

    /// Begins to sign.
    pub fn sign(&self, order: Order) -> Signature {
        self.signer.sign(order)
    }
}

#[cfg(test)]
mod tests;
