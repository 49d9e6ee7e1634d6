//! Preshared keys of a configuration, and which one is for a pair of identities.

use super::dialect::Dialect;
use super::identity::identity;
use super::source::{Location, Value};
use base64ct::{Base64, Base64Unpadded, Encoding};
use policy::{Identity, Secret};
use zeroize::Zeroizing;

/// A preshared key and whose it is.
pub(super) struct Key {
    pub location: Location,
    /// Identities it is for; none: everybody's.
    pub owners: Vec<Owner>,
    pub secret: Secret,
}

/// An identity that a key is for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Owner {
    Any,
    One(Identity),
}

impl Owner {
    /// Reads an identity; `None` if it cannot be read.
    pub fn read(text: &str, dialect: Dialect) -> Option<Self> {
        match identity(text, dialect) {
            Ok(None) => Some(Self::Any),
            Ok(Some(identity)) => Some(Self::One(identity)),
            Err(_) => None,
        }
    }
}

/// The octets of a key: hexadecimal after `0x`, Base64 after `0s`, else the text itself.
pub(super) fn secret(value: &Value) -> Result<Secret, &'static str> {
    let text = value.text.as_str();
    let secret = if let Some(hex) = text.strip_prefix("0x") {
        let digits = Zeroizing::new(hex.replace(['_', ':'], ""));
        Secret::from_hex(&digits).ok_or("the key is not hexadecimal after 0x")?
    } else if let Some(base64) = text.strip_prefix("0s") {
        let base64 = base64.trim();
        let decoded = Base64::decode_vec(base64).or_else(|_| Base64Unpadded::decode_vec(base64));
        Secret::new(decoded.map_err(|_| "the key is not Base64 after 0s")?)
    } else {
        Secret::new(text.as_bytes().to_vec())
    };
    match secret.is_empty() {
        true => Err("the key is empty"),
        false => Ok(secret),
    }
}

/// The key for a tunnel between these, as both daemons choose: one that names both sides before one that names one side,
/// and that before a key for everybody. A side may have several names.
pub(super) fn key_for<'k>(
    keys: &'k [Key],
    local: &[Identity],
    remote: &[Identity],
) -> Option<&'k Key> {
    let ranked = keys.iter().map(|key| ((rank(key, local), rank(key, remote)), key));
    // The first of the best; `max_by_key` alone would take the last.
    ranked
        .filter(|(rank, _)| *rank != (0, 0))
        .rev()
        .max_by_key(|(rank, _)| *rank)
        .map(|(_, key)| key)
}

/// How well the owners of a key fit a side.
fn rank(key: &Key, side: &[Identity]) -> u8 {
    match key.owners.as_slice() {
        [] => 1,
        owners => owners
            .iter()
            .map(|owner| match owner {
                Owner::Any => 1,
                Owner::One(one) if side.iter().any(|name| one.matches(name)) => 2,
                Owner::One(_) => 0,
            })
            .max()
            .unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_is_taken() {
        let location = Location { file: "secrets".into(), line: 1 };
        let key = |owners: &[&str], secret: &str| Key {
            location: location.clone(),
            owners: owners
                .iter()
                .filter_map(|owner| Owner::read(owner, Dialect::Strongswan))
                .collect(),
            secret: Secret::new(secret.as_bytes().to_vec()),
        };
        let keys = [
            key(&[], "everybody"),
            key(&["b.example"], "b"),
            key(&["a.example", "b.example"], "a and b"),
            key(&["%any", "c.example"], "any and c"),
        ];
        let fqdn = |name: &str| [Identity::Fqdn(name.to_owned())];
        let chosen = |a: &str, b: &str| {
            let key = key_for(&keys, &fqdn(a), &fqdn(b)).expect("one for everybody");
            String::from_utf8_lossy(key.secret.expose()).into_owned()
        };
        assert_eq!(chosen("a.example", "b.example"), "a and b");
        assert_eq!(chosen("x.example", "c.example"), "any and c");
        assert_eq!(chosen("x.example", "y.example"), "everybody");
    }

    #[test]
    fn three_spellings() {
        let location = Location { file: "secrets".into(), line: 1 };
        let read = |text: &str| secret(&Value::new(text, &location)).map(|s| s.expose().to_vec());
        assert_eq!(read("0x67617465"), Ok(b"gate".to_vec()));
        assert_eq!(read("0sZ2F0ZQ=="), Ok(b"gate".to_vec()));
        assert_eq!(read("0sZ2F0ZQ"), Ok(b"gate".to_vec()));
        assert_eq!(read("gate"), Ok(b"gate".to_vec()));
        for wrong in ["", "0x", "0x1", "0xzz", "0s*"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
