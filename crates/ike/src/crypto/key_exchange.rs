//! Diffie-Hellman groups (RFC 7296 §3.4, RFC 3526, RFC 5903, RFC 8031) with the checks of RFC 6989.

use policy::{Group, Secret};

/// The peer's public value is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid {group} public value")]
pub struct InvalidPublicValue {
    /// The group.
    pub group: Group,
}

/// This side's half of a key exchange.
pub struct PrivateKey {}

impl PrivateKey {
    /// Makes a fresh key pair.
    pub fn generate(group: Group) -> Self {
        let _ = group;
        unimplemented!()
    }

    /// The group.
    pub fn group(&self) -> Group {
        unimplemented!()
    }

    /// The KE payload's key exchange data: MODP padded to the modulus' length, ECP `x | y` without a prefix, X25519 32
    /// octets.
    pub fn public_value(&self) -> &[u8] {
        unimplemented!()
    }

    /// The shared secret g^ir as RFC 7296 §2.14 (MODP, padded), RFC 5903 §7 (x coordinate) and RFC 8031 define it.
    pub fn agree(self, peer: &[u8]) -> Result<Secret, InvalidPublicValue> {
        let _ = peer;
        unimplemented!()
    }
}
