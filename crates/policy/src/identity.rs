//! Identities of peers (RFC 7296 §3.5). No domain name is looked up: it is compared as text.
//!
//! Two identities of different types are different, even if their texts are the same. A text for people therefore names the
//! type wherever the value alone would be read as another type.

use crate::DistinguishedName;
use quick_xml::escape::escape;
use std::borrow::Cow;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A reason to doubt that a name is the one that its writer means. A peer may send such a name all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// The text of an ID_FQDN is an address.
    Address,
    /// The text of an ID_FQDN has a wildcard, and none is applied.
    Wildcard,
    /// The text of an ID_FQDN has characters that no domain name has.
    NotADomain,
    /// The text of an ID_RFC822_ADDR is not `user@domain`.
    NotAUser,
}

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

    /// A reason to look at the identity again; `None` if it looks as such an identity does.
    pub fn doubt(&self) -> Option<Doubt> {
        match self {
            Self::Fqdn(name) if name.parse::<IpAddr>().is_ok() => Some(Doubt::Address),
            Self::Fqdn(name) if name.contains('*') => Some(Doubt::Wildcard),
            Self::Fqdn(name) if !is_domain_name(name) => Some(Doubt::NotADomain),
            Self::UserFqdn(name) => {
                let parts = name.rsplit_once('@');
                let good = parts.is_some_and(|(user, domain)| {
                    !user.is_empty()
                        && user.bytes().all(|b| b.is_ascii_graphic())
                        && is_domain_name(domain)
                });
                (!good).then_some(Doubt::NotAUser)
            }
            Self::Fqdn(_) | Self::Ipv4(_) | Self::Ipv6(_) | Self::KeyId(_) | Self::Dn(_) => None,
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

    /// The name of the type, as the element of a policy has it: `IPV4_Address`, `FQDN`, `Key_ID`, ….
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Ipv4(_) => "IPV4_Address",
            Self::Ipv6(_) => "IPV6_Address",
            Self::Fqdn(_) => "FQDN",
            Self::UserFqdn(_) => "User_FQDN",
            Self::Dn(_) => "ASN1_DN",
            Self::KeyId(_) => "Key_ID",
        }
    }

    /// The value without its type, as the attribute `Value` of a policy has it. A key ID is escaped unless it is text of
    /// letters, digits, blanks and ASCII punctuation other than the backslash.
    pub fn value(&self) -> Cow<'_, str> {
        match self {
            Self::Ipv4(a) => a.to_string().into(),
            Self::Ipv6(a) => a.to_string().into(),
            Self::Fqdn(text) | Self::UserFqdn(text) => text.into(),
            Self::KeyId(octets) => match std::str::from_utf8(octets) {
                Ok(text) if text.chars().all(is_shown) => text.into(),
                _ => octets.escape_ascii().to_string().into(),
            },
            Self::Dn(name) => name.to_string().into(),
        }
    }

    /// The element of a policy with this identity: `<FQDN Value="gate.example.net">`.
    pub fn element(&self) -> String {
        format!("<{} Value=\"{}\">", self.kind(), escape(self.value()))
    }

    /// Type and value: `FQDN branch-7`, `Key_ID branch-7`. An address alone says what it is.
    pub fn qualified(&self) -> String {
        match self.address() {
            Some(address) => address.to_string(),
            None => format!("{} {}", self.kind(), self.value()),
        }
    }

    /// The identities of other types with the same value: a peer that is configured with this value may send one of them.
    pub fn of_other_types(&self) -> Vec<Self> {
        let value = match self {
            Self::KeyId(octets) => String::from_utf8_lossy(octets),
            other => other.value(),
        };
        let mut all = vec![
            Self::Fqdn(value.to_string()),
            Self::UserFqdn(value.to_string()),
            Self::KeyId(value.as_bytes().to_vec()),
        ];
        all.extend(value.parse::<IpAddr>().ok().map(Self::from));
        all.extend(value.parse().ok().map(Self::Dn));
        all.retain(|other| other.kind() != self.kind());
        all
    }

    /// Returns `true` if a reader takes the value alone for an identity of this type.
    fn is_plain(&self) -> bool {
        match self {
            Self::Ipv4(_) | Self::Ipv6(_) => true,
            Self::Fqdn(name) => is_read_as_domain(name),
            Self::UserFqdn(name) => name.rsplit_once('@').is_some_and(|(user, host)| {
                !user.is_empty()
                    && !user.contains(|c: char| c.is_whitespace() || "/=".contains(c))
                    && is_read_as_domain(host)
            }),
            Self::Dn(name) => !name.to_string().is_empty(),
            Self::KeyId(_) => false,
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

fn is_domain_name(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

fn is_read_as_domain(name: &str) -> bool {
    !name.is_empty()
        && name.chars().all(|c| c.is_alphanumeric() || "-_.*".contains(c))
        && name.parse::<IpAddr>().is_err()
}

/// Returns `true` for a character that is shown as it is: signs that steer a terminal, or that nobody sees, are not.
fn is_shown(c: char) -> bool {
    c.is_alphanumeric() || c == ' ' || c.is_ascii_punctuation() && c != '\\'
}

impl From<IpAddr> for Identity {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(a) => Self::Ipv4(a),
            IpAddr::V6(a) => Self::Ipv6(a),
        }
    }
}

/// The value, with its type before it where the value alone would be read as another type: `gate.example.net`,
/// `Key_ID gate.example.net`, `FQDN 192.0.2.1`. Identities that do not match have different texts.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = if self.is_plain() { self.value() } else { self.qualified().into() };
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_that_looks_strange_is_doubted_and_not_refused() {
        let fqdn = |name: &str| Identity::Fqdn(name.into());
        let user = |name: &str| Identity::UserFqdn(name.into());
        for (identity, doubt) in [
            (fqdn("gate_1.example.net"), None),
            (fqdn("branch-7"), None),
            (fqdn("192.0.2.1"), Some(Doubt::Address)),
            (fqdn("2001:db8::1"), Some(Doubt::Address)),
            (fqdn("*.example.net"), Some(Doubt::Wildcard)),
            (fqdn("[hub]"), Some(Doubt::NotADomain)),
            (fqdn("the hub"), Some(Doubt::NotADomain)),
            (fqdn("büro"), Some(Doubt::NotADomain)),
            (user("ops@example.net"), None),
            (user("ops"), Some(Doubt::NotAUser)),
            (user("@example.net"), Some(Doubt::NotAUser)),
            (user("ann lee@example.net"), Some(Doubt::NotAUser)),
            (Identity::KeyId(b"[hub]".to_vec()), None),
        ] {
            assert_eq!(identity.doubt(), doubt, "{identity:?}");
            assert_eq!(crate::validate::rules::identity(&identity), Ok(()), "{identity:?}");
        }
        for text in ["", "a\nb", "a\u{0}"] {
            assert!(crate::validate::rules::identity(&fqdn(text)).is_err(), "{text:?}");
            assert!(crate::validate::rules::identity(&user(text)).is_err(), "{text:?}");
        }
    }

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

    #[test]
    fn a_text_names_the_type_where_the_value_alone_would_be_read_as_another() {
        let fqdn = |name: &str| Identity::Fqdn(name.into());
        let user = |name: &str| Identity::UserFqdn(name.into());
        let key_id = |text: &str| Identity::KeyId(text.into());
        let dn = |name: &str| Identity::Dn(name.parse().expect("a name"));
        let address = |text: &str| Identity::from(text.parse::<IpAddr>().expect("an address"));
        for (identity, text) in [
            (fqdn("branch-7"), "branch-7"),
            (fqdn("*.example.net"), "*.example.net"),
            (fqdn("192.0.2.1"), "FQDN 192.0.2.1"),
            (fqdn("2001:db8::1"), "FQDN 2001:db8::1"),
            (fqdn("ann@example.net"), "FQDN ann@example.net"),
            (fqdn("CN=gate"), "FQDN CN=gate"),
            (fqdn("Key_ID branch-7"), "FQDN Key_ID branch-7"),
            (fqdn("[branch]"), "FQDN [branch]"),
            (user("ann@example.net"), "ann@example.net"),
            (user("branch-7"), "User_FQDN branch-7"),
            (user("CN=ann@example.net"), "User_FQDN CN=ann@example.net"),
            (key_id("branch-7"), "Key_ID branch-7"),
            (key_id("192.0.2.1"), "Key_ID 192.0.2.1"),
            (key_id("\u{1}"), "Key_ID \\x01"),
            (key_id("\\x01"), "Key_ID \\\\x01"),
            (key_id("Ann's büro"), "Key_ID Ann's büro"),
            (key_id("a\u{202e}b"), "Key_ID a\\xe2\\x80\\xaeb"),
            (dn("CN=gate"), "CN=gate"),
            (address("192.0.2.1"), "192.0.2.1"),
            (address("2001:db8::1"), "2001:db8::1"),
        ] {
            assert_eq!(identity.to_string(), text);
        }
        assert_eq!(fqdn("branch-7").qualified(), "FQDN branch-7");
        assert_eq!(key_id("branch-7").value(), "branch-7");
        assert_eq!(fqdn("a<\"b\"").element(), "<FQDN Value=\"a&lt;&quot;b&quot;\">");
    }

    proptest! {
        /// Identities of different types have different texts, whatever their values are.
        #[test]
        fn identities_of_different_types_have_different_texts(
            text in prop_oneof![
                "[a-z0-9.:=@/ _-]{1,12}", "(Key_ID|FQDN|User_FQDN|ASN1_DN) [a-z0-9.@=]{1,8}", "192\\.0\\.2\\.[0-9]",
            ]
        ) {
            let mut all = vec![
                Identity::Fqdn(text.clone()), Identity::UserFqdn(text.clone()), Identity::KeyId(text.clone().into()),
            ];
            all.extend(text.parse::<IpAddr>().ok().map(Identity::from));
            all.extend(text.parse().ok().map(Identity::Dn));
            let texts: std::collections::BTreeSet<String> = all.iter().map(ToString::to_string).collect();
            prop_assert_eq!(texts.len(), all.len(), "{:?}", texts);
        }
    }
}
