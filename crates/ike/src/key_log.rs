//! Keys for those who look into captured packets. Without a [`Sink`], which nobody has by default, none is ever copied.

use crate::negotiation::suite::IkeSuite;
use crate::wire::header::IkeSpi;
use ::crypto::{Suite, integrity_key_len};
use esp::plane::Spi;
use policy::{Integrity, Protection, Secret};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// Keys of one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectionKeys {
    /// The cipher's key; with an AEAD, the salt stands behind it.
    pub encryption: Secret,
    /// The MAC's key; empty with an AEAD.
    pub integrity: Secret,
}

impl DirectionKeys {
    /// `key`: the cipher's part, then the MAC's.
    pub(crate) fn split(key: &Secret, integrity: Option<Integrity>) -> Self {
        let behind = integrity.map_or(0, integrity_key_len);
        let (encryption, integrity) = key.expose().split_at(key.len().saturating_sub(behind));
        let [encryption, integrity] =
            [encryption, integrity].map(|octets| Secret::new(octets.to_vec()));
        Self { encryption, integrity }
    }
}

/// Keys of an IKE SA (RFC 7296 §2.14).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IkeKeys {
    /// SPI of its original initiator.
    pub initiator_spi: IkeSpi,
    /// SPI of its original responder.
    pub responder_spi: IkeSpi,
    /// Its algorithms.
    pub suite: IkeSuite,
    /// SK_ei and SK_ai.
    pub initiator: DirectionKeys,
    /// SK_er and SK_ar.
    pub responder: DirectionKeys,
}

/// Keys of one half of a Child SA (RFC 7296 §2.17).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EspKeys {
    /// SPI in its packets.
    pub spi: Spi,
    /// Its algorithms.
    pub suite: Suite,
    /// Extended sequence numbers.
    pub esn: bool,
    /// The sender's address at the time the SA was made.
    pub source: IpAddr,
    /// The receiver's address at the time the SA was made.
    pub destination: IpAddr,
    /// The keys.
    pub keys: DirectionKeys,
}

impl EspKeys {
    pub(crate) fn new(
        spi: Spi,
        suite: Suite,
        esn: bool,
        way: (IpAddr, IpAddr),
        key: &Secret,
    ) -> Self {
        let integrity = match suite.protection() {
            Protection::Esp { integrity, .. } => integrity,
            Protection::Ah(_) => None,
        };
        let keys = DirectionKeys::split(key, integrity);
        Self { spi, suite, esn, source: way.0, destination: way.1, keys }
    }
}

/// Keys of an SA that has come up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoggedKeys {
    /// An IKE SA, first or rekeyed.
    Ike(IkeKeys),
    /// One half of a Child SA, first or rekeyed.
    Esp(EspKeys),
}

/// Takes keys out of an engine ([`Engine::log_keys`](crate::Engine::log_keys)). Called by the thread that
/// drives the engine, which waits meanwhile.
#[derive(Clone)]
pub struct Sink(Arc<dyn Fn(LoggedKeys) + Send + Sync>);

impl Sink {
    /// Has `take` called with the keys of every SA.
    pub fn new(take: impl Fn(LoggedKeys) + Send + Sync + 'static) -> Self {
        Self(Arc::new(take))
    }

    pub(crate) fn take(&self, keys: LoggedKeys) {
        (self.0)(keys);
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sink")
    }
}
