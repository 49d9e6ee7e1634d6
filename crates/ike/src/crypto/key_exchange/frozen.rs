//! A key exchange under way in a frozen engine.

use super::{Arithmetic, Exponent, PrivateKey, PrivateValue, arithmetic};
use crate::frozen::values::{group_of, meaning, secret};
use ::frozen::{Field, Reader, Unthawable, Writer};
use crypto::asymmetric::{AgreementKey, DecapsulationKey};

const GROUP: Field = Field::new(1);
const PUBLIC: Field = Field::new(2);
const PRIVATE: Field = Field::new(3);

impl PrivateKey {
    pub(crate) fn freeze(&self, to: &mut Writer<'_>) {
        let Self { group, public_value, private_value } = self;
        to.number(GROUP, group.row().number);
        to.octets(PUBLIC, public_value);
        let private_value = match private_value {
            PrivateValue::Modp(_, exponent) => exponent.octets(),
            PrivateValue::Curve(key) => key.private_value(),
            PrivateValue::Kem(key) => key.octets(),
        };
        to.octets(PRIVATE, private_value.expose());
    }

    pub(crate) fn thaw(mut from: Reader<'_>) -> Result<Self, Unthawable> {
        let group = meaning(&mut from, GROUP, group_of)?;
        // It has been sent. A library may not know it of a private key that comes from elsewhere.
        let public_value = from.octets(PUBLIC)?.to_vec();
        let octets = secret(&mut from, PRIVATE)?;
        let octets = octets.expose();
        let private_value = match arithmetic(group) {
            Arithmetic::Modp(modp) => (octets.len() == modp.exponent_len())
                .then(|| PrivateValue::Modp(modp, Exponent::of(modp, octets))),
            Arithmetic::Curve(curve) => {
                AgreementKey::from_private_value(curve, octets).map(PrivateValue::Curve)
            }
            Arithmetic::Kem(set) => {
                DecapsulationKey::from_octets(set, octets).map(PrivateValue::Kem)
            }
        };
        let private_value = private_value.ok_or_else(|| from.invalid(PRIVATE))?;
        from.end()?;
        Ok(Self { group, public_value, private_value })
    }
}
