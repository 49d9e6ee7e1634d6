//! Identities of peers (RFC 7296 §3.5). No domain name is looked up: it is compared as text.

use crate::DistinguishedName;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An identity as it stands in a policy and in an ID payload.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Identity {
    /// ID_IPV4_ADDR.
    Ipv4(Ipv4Addr),
    /// ID_IPV6_ADDR.
    Ipv6(Ipv6Addr),
    /// ID_FQDN, compared without regard to ASCII case.
    Fqdn(String),
    /// ID_RFC822_ADDR, `user@domain`.
    UserFqdn(String),
    /// ID_KEY_ID, opaque octets.
    KeyId(Vec<u8>),
    /// ID_DER_ASN1_DN, compared as RFC 5280 §7.1 has it.
    Dn(DistinguishedName),
}

impl Identity {
    /// Returns `true` if both name the same side: domain names are compared without regard to ASCII case, distinguished
    /// names as [`DistinguishedName::matches`] does, everything else octet by octet.
    pub fn matches(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Fqdn(a), Self::Fqdn(b)) => a.eq_ignore_ascii_case(b),
            (Self::UserFqdn(a), Self::UserFqdn(b)) => {
                match (a.rsplit_once('@'), b.rsplit_once('@')) {
                    (Some((user_a, a)), Some((user_b, b))) => {
                        user_a == user_b && a.eq_ignore_ascii_case(b)
                    }
                    _ => a == b,
                }
            }
            (Self::Dn(a), Self::Dn(b)) => a.matches(b),
            _ => self == other,
        }
    }

    /// The address, if the identity is one.
    pub fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Ipv4(address) => Some(IpAddr::V4(*address)),
            Self::Ipv6(address) => Some(IpAddr::V6(*address)),
            _ => None,
        }
    }

    /// A number that is the same for identities that match, to find them by; others may have it, too.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        match self {
            Self::Fqdn(name) => name.to_ascii_lowercase().hash(&mut hasher),
            Self::UserFqdn(name) => match name.rsplit_once('@') {
                Some((user, domain)) => (user, domain.to_ascii_lowercase()).hash(&mut hasher),
                None => name.hash(&mut hasher),
            },
            Self::Dn(name) => name.hash_prepared(&mut hasher),
            other => other.hash(&mut hasher),
        }
        hasher.finish()
    }
}

impl From<IpAddr> for Identity {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(a) => Self::Ipv4(a),
            IpAddr::V6(a) => Self::Ipv6(a),
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ipv4(a) => a.fmt(f),
            Self::Ipv6(a) => a.fmt(f),
            Self::Fqdn(s) | Self::UserFqdn(s) => f.write_str(s),
            Self::KeyId(octets) => write!(f, "{}", octets.escape_ascii()),
            Self::Dn(name) => name.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_that_match_have_one_fingerprint() {
        let fqdn = |name: &str| Identity::Fqdn(name.into());
        let user = |name: &str| Identity::UserFqdn(name.into());
        let dn = |name: &str| Identity::Dn(name.parse().expect("a name"));
        let pairs = [
            (fqdn("Gate.example.net"), fqdn("gate.EXAMPLE.net")),
            (user("ann@Example.net"), user("ann@example.NET")),
            (dn("CN=Gate,O=Example  Ltd"), dn("CN=gate,O=example ltd")),
            (Identity::KeyId(vec![1, 2]), Identity::KeyId(vec![1, 2])),
        ];
        for (one, other) in &pairs {
            assert!(one.matches(other));
            assert_eq!(one.fingerprint(), other.fingerprint());
        }
        let distinct: std::collections::BTreeSet<u64> =
            pairs.iter().map(|(one, _)| one.fingerprint()).collect();
        assert_eq!(distinct.len(), pairs.len());
        assert_ne!(user("Ann@example.net").fingerprint(), user("ann@example.net").fingerprint());
    }
}
