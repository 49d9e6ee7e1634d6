//! IDi and IDr (RFC 7296 §3.5).

use super::Identification;
use crate::wire::reader::{Reader, WireError};
use crate::wire::registry::IdType;
use policy::{DistinguishedName, Identity};
use std::net::{Ipv4Addr, Ipv6Addr};

impl Identification {
    /// The identity, where this implementation knows the type and the value is well-formed.
    pub fn identity(&self) -> Option<Identity> {
        match self.kind {
            IdType::IPV4_ADDR => {
                <[u8; 4]>::try_from(&*self.data).ok().map(|a| Identity::Ipv4(Ipv4Addr::from(a)))
            }
            IdType::IPV6_ADDR => {
                <[u8; 16]>::try_from(&*self.data).ok().map(|a| Identity::Ipv6(Ipv6Addr::from(a)))
            }
            IdType::FQDN => self.text().map(Identity::Fqdn),
            IdType::RFC822_ADDR => self.text().map(Identity::UserFqdn),
            IdType::DER_ASN1_DN => DistinguishedName::from_der(&self.data).ok().map(Identity::Dn),
            IdType::KEY_ID if !self.data.is_empty() => Some(Identity::KeyId(self.data.clone())),
            _ => None,
        }
    }

    /// The payload body of an identity.
    pub fn of(identity: &Identity) -> Self {
        let (kind, data) = match identity {
            Identity::Ipv4(address) => (IdType::IPV4_ADDR, address.octets().to_vec()),
            Identity::Ipv6(address) => (IdType::IPV6_ADDR, address.octets().to_vec()),
            Identity::Fqdn(name) => (IdType::FQDN, name.clone().into_bytes()),
            Identity::UserFqdn(name) => (IdType::RFC822_ADDR, name.clone().into_bytes()),
            Identity::KeyId(octets) => (IdType::KEY_ID, octets.clone()),
            Identity::Dn(name) => (IdType::DER_ASN1_DN, name.as_der().to_vec()),
        };
        Self { kind, data }
    }

    pub(super) fn read(body: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body, "Identification payload");
        let kind = IdType(reader.u8()?);
        reader.take(3)?;
        Ok(Self { kind, data: reader.rest().to_vec() })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.kind.0, 0, 0, 0]);
        out.extend_from_slice(&self.data);
    }

    /// A name as RFC 7296 §3.5 wants it: text without terminators. Other control characters could only deceive a
    /// person who reads a log.
    fn text(&self) -> Option<String> {
        let text = std::str::from_utf8(&self.data).ok()?;
        let valid = !text.is_empty() && !text.chars().any(char::is_control);
        valid.then(|| text.to_owned())
    }
}
