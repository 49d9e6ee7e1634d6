//! Key exchange methods: Diffie-Hellman groups (RFC 7296 §3.4, RFC 3526, RFC 5114, RFC 5903, RFC 8031) with the checks
//! of RFC 6989, and ML-KEM (FIPS 203, draft-ietf-ipsecme-ikev2-mlkem).
//!
//! A new group needs its value with its row in `crates/algorithms/src/group.rs`, and its arithmetic here.

mod frozen;
mod modp;
#[cfg(test)]
mod tests;

use super::tally::{self, Operation};
use crypto::asymmetric::{AgreementKey, Curve, DecapsulationKey, MlKem, encapsulate};
use modp::{Exponent, Modp};
use policy::{Group, Secret};
use std::fmt;

/// The octet before an uncompressed point in SEC 1, which IKE leaves out (RFC 5903 §7).
const UNCOMPRESSED: u8 = 0x04;

/// The peer's public value is not one.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid {group} public value")]
pub struct InvalidPublicValue {
    /// The group.
    pub group: Group,
}

policy::readable_debug!(InvalidPublicValue);

/// The initiator's half of a key exchange; its memory is wiped when it is dropped or used up.
pub struct PrivateKey {
    group: Group,
    public_value: Vec<u8>,
    private_value: PrivateValue,
}

enum PrivateValue {
    Modp(&'static dyn Modp, Exponent),
    Curve(AgreementKey),
    Kem(DecapsulationKey),
}

/// Where the arithmetic of a group is.
enum Arithmetic {
    Modp(&'static dyn Modp),
    Curve(Curve),
    Kem(MlKem),
}

/// Returns `true` if a value may be a public value of the group. Only cheap checks are made: the length, and for MODP
/// the range (RFC 6989 §2.1). [`PrivateKey::agree`] finds a point that is not on its curve, or a value outside its
/// subgroup.
pub fn is_plausible(group: Group, value: &[u8]) -> bool {
    match arithmetic(group) {
        Arithmetic::Modp(modp) => modp.admits(value),
        Arithmetic::Curve(curve) => match curve {
            Curve::P256 => value.len() == 64,
            Curve::P384 => value.len() == 96,
            Curve::P521 => value.len() == 132,
            Curve::X25519 => value.len() == 32,
        },
        Arithmetic::Kem(set) => value.len() == encapsulation_key_len(set),
    }
}

/// Octets of an initiator's public value (FIPS 203, table 3).
fn encapsulation_key_len(set: MlKem) -> usize {
    match set {
        MlKem::MlKem512 => 800,
        MlKem::MlKem768 => 1184,
        MlKem::MlKem1024 => 1568,
    }
}

/// Octets of a responder's public value (FIPS 203, table 3).
fn ciphertext_len(set: MlKem) -> usize {
    match set {
        MlKem::MlKem512 => 768,
        MlKem::MlKem768 => 1088,
        MlKem::MlKem1024 => 1568,
    }
}

/// The responder's half of a key exchange.
pub struct Response {
    /// The KE payload's key exchange data.
    pub public_value: Vec<u8>,
    /// The shared secret.
    pub shared: Secret,
}

/// Answers an initiator's public value.
///
/// # Errors
/// As [`PrivateKey::agree`]; of ML-KEM, if the peer's value has the wrong length or is no encapsulation key (FIPS
/// 203 §7.2).
pub fn respond(group: Group, peer: &[u8]) -> Result<Response, InvalidPublicValue> {
    let Arithmetic::Kem(set) = arithmetic(group) else {
        let key = PrivateKey::generate(group);
        let shared = key.agree(peer)?;
        return Ok(Response { public_value: key.public_value, shared });
    };
    tally::count(Operation::Agree(group));
    let (public_value, shared) = encapsulate(set, peer).ok_or(InvalidPublicValue { group })?;
    Ok(Response { public_value, shared })
}

impl PrivateKey {
    /// Makes a fresh key pair from the system's randomness.
    pub fn generate(group: Group) -> Self {
        tally::count(Operation::Generate(group));
        let private_value = match arithmetic(group) {
            Arithmetic::Modp(modp) => PrivateValue::Modp(modp, Exponent::generate(modp)),
            Arithmetic::Curve(curve) => PrivateValue::Curve(AgreementKey::generate(curve)),
            Arithmetic::Kem(set) => PrivateValue::Kem(DecapsulationKey::generate(set)),
        };
        Self::from_private_value(group, private_value)
    }

    /// The group.
    pub fn group(&self) -> Group {
        self.group
    }

    /// The KE payload's key exchange data: MODP padded to the modulus' length, ECP `x | y` without a prefix, X25519 32
    /// octets, ML-KEM the encapsulation key.
    pub fn public_value(&self) -> &[u8] {
        &self.public_value
    }

    /// The shared secret g^ir as RFC 7296 §2.14 (MODP, padded), RFC 5903 §7 (x coordinate) and RFC 8031 define it.
    ///
    /// # Errors
    /// If the peer's value has the wrong length, is 0, 1 or p − 1, is outside the subgroup of group 24 or no point of
    /// the curve (RFC 6989 §2), or makes X25519 give zero (RFC 8031 §5). A ciphertext of ML-KEM of the right length
    /// always gives a secret, of which only its maker knows the same (FIPS 203 §7.3).
    pub fn agree(&self, peer: &[u8]) -> Result<Secret, InvalidPublicValue> {
        let invalid = InvalidPublicValue { group: self.group };
        let expected = match arithmetic(self.group) {
            Arithmetic::Kem(set) => ciphertext_len(set),
            // Both sides' values have one length.
            Arithmetic::Modp(_) | Arithmetic::Curve(_) => self.public_value.len(),
        };
        if peer.len() != expected {
            return Err(invalid);
        }
        tally::count(Operation::Agree(self.group));
        match &self.private_value {
            PrivateValue::Modp(modp, exponent) => modp.agree(peer, exponent).ok_or(invalid),
            PrivateValue::Curve(key) => match self.group {
                Group::Curve25519 => key.agree(peer),
                _ => key.agree(&[&[UNCOMPRESSED], peer].concat()),
            }
            .ok_or(invalid),
            PrivateValue::Kem(key) => key.decapsulate(peer).ok_or(invalid),
        }
    }

    fn from_private_value(group: Group, private_value: PrivateValue) -> Self {
        let public_value = match &private_value {
            PrivateValue::Modp(modp, exponent) => modp.public_value(exponent),
            PrivateValue::Curve(key) => match group {
                Group::Curve25519 => key.public_key(),
                _ => key.public_key().split_off(1),
            },
            PrivateValue::Kem(key) => key.encapsulation_key(),
        };
        Self { group, public_value, private_value }
    }
}

fn arithmetic(group: Group) -> Arithmetic {
    match group {
        Group::Modp1024 => Arithmetic::Modp(&*modp::MODP_1024),
        Group::Modp1536 => Arithmetic::Modp(&*modp::MODP_1536),
        Group::Modp2048 => Arithmetic::Modp(&*modp::MODP_2048),
        Group::Modp3072 => Arithmetic::Modp(&*modp::MODP_3072),
        Group::Modp4096 => Arithmetic::Modp(&*modp::MODP_4096),
        Group::Modp2048Sub256 => Arithmetic::Modp(&*modp::MODP_2048_256),
        Group::Ecp256 => Arithmetic::Curve(Curve::P256),
        Group::Ecp384 => Arithmetic::Curve(Curve::P384),
        Group::Ecp521 => Arithmetic::Curve(Curve::P521),
        Group::Curve25519 => Arithmetic::Curve(Curve::X25519),
        Group::MlKem512 => Arithmetic::Kem(MlKem::MlKem512),
        Group::MlKem768 => Arithmetic::Kem(MlKem::MlKem768),
        Group::MlKem1024 => Arithmetic::Kem(MlKem::MlKem1024),
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey({})", self.group)
    }
}
