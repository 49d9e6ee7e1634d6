//! The IKE daemon at the other end, as its Vendor ID names it (RFC 7296 §3.12).

mod frozen;

use crate::wire::payload::Payload;
use std::collections::BTreeMap;
use std::fmt;

/// Identifies this implementation to itself, so that two of it can agree on what the RFCs leave open.
pub(crate) const VENDOR_ID: &[u8] = b"vpnd IKEv2/ESP userspace 1";

/// The MD5 of the word strongSwan.
const STRONGSWAN: [u8; 16] = 0x882f_e56d_6fd2_0dbc_2251_613b_2ebe_5beb_u128.to_be_bytes();

/// Octets of a version that are kept.
const LONGEST_VERSION: usize = 32;

/// An IKE daemon. A peer may claim to be any of them, so nothing may depend on it but advice, and when this side begins
/// to send on a Child SA.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Product {
    /// Its kind.
    pub kind: ProductKind,
    /// Its version, if it tells that; printable ASCII without blanks.
    pub version: Option<String>,
}

/// The IKE daemons that this one can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum ProductKind {
    /// This one.
    Vpnd,
    /// libreswan, with `send-vendorid=yes`.
    Libreswan,
    /// strongSwan, with `charon.send_vendor_id = yes`.
    Strongswan,
    /// OpenIKED, unless its configuration has `set novendorid`.
    OpenIked,
}

impl ProductKind {
    /// Stable lower-case name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Vpnd => "vpnd",
            Self::Libreswan => "libreswan",
            Self::Strongswan => "strongswan",
            Self::OpenIked => "openiked",
        }
    }
}

impl fmt::Display for ProductKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vpnd => "vpnd",
            Self::Libreswan => "libreswan",
            Self::Strongswan => "strongSwan",
            Self::OpenIked => "OpenIKED",
        })
    }
}

impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.version {
            Some(version) => write!(f, "{} {version}", self.kind),
            None => write!(f, "{}", self.kind),
        }
    }
}

impl Product {
    /// A product whose version is not known.
    pub fn new(kind: ProductKind) -> Self {
        Self { kind, version: None }
    }

    /// The sender of a message of IKE_SA_INIT, if one of its Vendor IDs is known here.
    pub(crate) fn of(payloads: &[Payload]) -> Option<Self> {
        payloads.iter().find_map(|payload| match payload {
            Payload::VendorId(id) => Self::named_by(id),
            _ => None,
        })
    }

    fn named_by(id: &[u8]) -> Option<Self> {
        match id {
            VENDOR_ID => Some(Self::new(ProductKind::Vpnd)),
            _ if id == STRONGSWAN => Some(Self::new(ProductKind::Strongswan)),
            _ => {
                let prefixes = [
                    (ProductKind::Libreswan, b"OE-Libreswan-".as_slice()),
                    (ProductKind::OpenIked, b"OpenIKED-"),
                ];
                prefixes.into_iter().find_map(|(kind, prefix)| {
                    Some(Self { kind, version: printable(id.strip_prefix(prefix)?) })
                })
            }
        }
    }
}

/// A version that can be shown; `None` if nothing of it can.
fn printable(version: &[u8]) -> Option<String> {
    let octets = version.iter().take(LONGEST_VERSION).take_while(|o| o.is_ascii_graphic());
    let text: String = octets.map(|o| char::from(*o)).collect();
    (!text.is_empty()).then_some(text)
}

/// The products that were last met as the peers of phase 1 tunnels, by name. They outlive the sessions, so that a
/// failure can be explained afterwards.
#[derive(Default)]
pub(crate) struct Products(BTreeMap<String, Product>);

impl Products {
    /// The peer of a tunnel has introduced itself, or not.
    pub fn note(&mut self, tunnel: &str, product: Option<Product>) {
        match product {
            Some(product) => drop(self.0.insert(tunnel.to_owned(), product)),
            None => drop(self.0.remove(tunnel)),
        }
    }

    /// The policy no longer has the tunnel.
    pub fn forget(&mut self, tunnel: &str) {
        self.0.remove(tunnel);
    }

    pub fn of(&self, tunnel: &str) -> Option<&Product> {
        self.0.get(tunnel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ids: &[&[u8]]) -> Option<String> {
        let payloads: Vec<Payload> = ids.iter().map(|id| Payload::VendorId(id.to_vec())).collect();
        Product::of(&payloads).map(|product| product.to_string())
    }

    #[test]
    fn known_vendor_ids_name_a_product() {
        assert_eq!(of(&[VENDOR_ID]).as_deref(), Some("vpnd"));
        assert_eq!(of(&[b"strange", b"OE-Libreswan-5.2"]).as_deref(), Some("libreswan 5.2"));
        assert_eq!(of(&[b"OpenIKED-7.4"]).as_deref(), Some("OpenIKED 7.4"));
        let strongswan = b"\x88\x2f\xe5\x6d\x6f\xd2\x0d\xbc\x22\x51\x61\x3b\x2e\xbe\x5b\xeb";
        assert_eq!(of(&[strongswan]).as_deref(), Some("strongSwan"));
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[b"", b"OpenIKED", b"strongSwan"]), None);
    }

    #[test]
    fn a_version_holds_only_what_can_be_shown() {
        assert_eq!(of(&[b"OE-Libreswan-5.2\x1b[2J"]).as_deref(), Some("libreswan 5.2"));
        assert_eq!(of(&[b"OE-Libreswan-\xff"]).as_deref(), Some("libreswan"));
        let long = [b"OE-Libreswan-".as_slice(), &[b'5'; 1000]].concat();
        assert_eq!(of(&[&long]).map(|text| text.len()), Some("libreswan ".len() + LONGEST_VERSION));
    }
}
