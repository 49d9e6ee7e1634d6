//! X.500 distinguished names (RFC 5280 §4.1.2.4).

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::asn1::{Any, BmpString};
use x509_cert::der::{Decode, Encode, Tag, Tagged};
use x509_cert::name::{RdnSequence, RelativeDistinguishedName};

/// Octets of the longest name that is read.
const LONGEST: usize = 4096;

/// A distinguished name that is not empty.
///
/// Two names are equal if their encodings are; whether they name the same side is [`DistinguishedName::matches`].
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DistinguishedName {
    der: Vec<u8>,
}

/// The problem with a distinguished name.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It names nobody.
    #[error("the distinguished name is empty")]
    Empty,
    /// It is longer than any real one.
    #[error("the distinguished name is longer than {LONGEST} octets")]
    TooLong,
    /// The encoding is not that of a name.
    #[error("the octets are not the DER encoding of a distinguished name")]
    Encoding,
    /// A part of the text is not `type=value`.
    #[error("{0:?} is not type=value, as in CN=gate.example.net")]
    Part(String),
    /// A type that is not known.
    #[error(
        "{0:?} is no attribute type; known are CN, C, O, OU, L, ST, DC, UID, serialNumber, emailAddress, or an OID like 2.5.4.3"
    )]
    Type(String),
    /// A value that cannot be read.
    #[error(
        "the value of {0:?} cannot be read: special characters are written with a backslash before them"
    )]
    Value(String),
}

impl NameError {
    fn of_part(part: &str) -> Self {
        Self::Part(part.trim().to_owned())
    }
}

crate::readable_debug!(NameError);

impl DistinguishedName {
    /// Reads the DER encoding of an RDNSequence.
    ///
    /// # Errors
    /// Returns an error if the octets are not one, or name nobody.
    pub fn from_der(der: &[u8]) -> Result<Self, NameError> {
        if der.len() > LONGEST {
            return Err(NameError::TooLong);
        }
        let rdns = RdnSequence::from_der(der).map_err(|_| NameError::Encoding)?;
        if rdns.is_empty() {
            return Err(NameError::Empty);
        }
        Ok(Self { der: der.to_vec() })
    }

    /// The DER encoding of the RDNSequence.
    pub fn as_der(&self) -> &[u8] {
        &self.der
    }

    /// Returns `true` if both name the same: text is compared without regard to case, to its string type and to the
    /// number of spaces (RFC 5280 §7.1), everything else octet by octet.
    pub fn matches(&self, other: &Self) -> bool {
        self.der == other.der || self.prepared() == other.prepared()
    }

    /// Returns `true` if this name begins with all RDNs of the other one, compared as in [`DistinguishedName::matches`];
    /// `None` if the answer depends on a string type that is only compared octet by octet.
    pub fn is_within(&self, above: &Self) -> Option<bool> {
        let (name, above) = (self.prepared(), above.prepared());
        if name.len() < above.len() {
            return Some(false);
        }
        let mut comparable = true;
        for (ours, theirs) in name.iter().zip(&above).filter(|(ours, theirs)| ours != theirs) {
            let same_types =
                ours.iter().map(|(kind, _)| kind).eq(theirs.iter().map(|(kind, _)| kind));
            let mut parts = ours.iter().chain(theirs);
            if !same_types || parts.all(|(_, value)| matches!(value, Value::Text(_))) {
                return Some(false);
            }
            comparable = false;
        }
        comparable.then_some(true)
    }

    fn rdns(&self) -> RdnSequence {
        RdnSequence::from_der(&self.der).expect("read before it was stored")
    }

    /// Feeds a hasher the same for names that match.
    pub(crate) fn hash_prepared(&self, hasher: &mut impl Hasher) {
        self.prepared().hash(hasher);
    }

    /// The form that is compared: the parts of each RDN, which is a set, are sorted.
    fn prepared(&self) -> Vec<Vec<(String, Value)>> {
        self.rdns()
            .iter()
            .map(|rdn| {
                let mut parts: Vec<_> =
                    rdn.iter().map(|a| (a.oid.to_string(), Value::of(&a.value))).collect();
                parts.sort();
                parts
            })
            .collect()
    }
}

/// An attribute's value, prepared for comparison.
#[derive(PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Value {
    Text(String),
    Other(Vec<u8>),
}

impl Value {
    fn of(value: &Any) -> Self {
        let text = match value.tag() {
            Tag::PrintableString | Tag::Utf8String | Tag::Ia5String => {
                std::str::from_utf8(value.value()).ok().map(str::to_owned)
            }
            Tag::BmpString => value.decode_as::<BmpString>().ok().map(|s| s.to_string()),
            _ => None,
        };
        match text {
            Some(text) => {
                let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
                Self::Text(words.join(" "))
            }
            None => Self::Other(value.to_der().unwrap_or_else(|_| value.value().to_vec())),
        }
    }
}

impl FromStr for DistinguishedName {
    type Err = NameError;

    /// Reads `CN=gate.example.net,O=Example,C=NL` (RFC 4514, the most specific part first) or
    /// `/C=NL/O=Example/CN=gate.example.net` (the order of the encoding).
    fn from_str(text: &str) -> Result<Self, NameError> {
        let text = text.trim();
        if text.len() > LONGEST {
            return Err(NameError::TooLong);
        }
        let rdns = match text.strip_prefix('/') {
            Some(rest) => slashed(rest),
            None => split(text, &[',', ';']).into_iter().rev().map(str::to_owned).collect(),
        };
        if text.is_empty() || rdns.is_empty() {
            return Err(NameError::Empty);
        }
        let mut name = RdnSequence::default();
        for rdn in &rdns {
            let parts = split(rdn, &['+']).into_iter().map(attribute);
            let parts = parts.collect::<Result<Vec<_>, _>>()?;
            let whole = RelativeDistinguishedName::try_from(parts);
            name.push(whole.map_err(|_| NameError::Part(rdn.clone()))?);
        }
        let der = name.to_der().map_err(|_| NameError::Value(text.to_owned()))?;
        Self::from_der(&der)
    }
}

/// The parts of a name with slashes. A slash that begins no `type=` belongs to the value before it.
fn slashed(text: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for part in split(text, &['/']) {
        match parts.last_mut() {
            Some(last) if !part.contains('=') => {
                last.push('/');
                last.push_str(part);
            }
            _ => parts.push(part.to_owned()),
        }
    }
    parts
}

/// Splits at separators that no backslash precedes.
fn split<'t>(text: &'t str, separators: &[char]) -> Vec<&'t str> {
    let mut parts = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, c) in text.char_indices() {
        if !escaped && separators.contains(&c) {
            parts.push(&text[start..at]);
            start = at + c.len_utf8();
        }
        escaped = c == '\\' && !escaped;
    }
    parts.push(&text[start..]);
    parts
}

fn attribute(part: &str) -> Result<AttributeTypeAndValue, NameError> {
    let (kind, value) = part.split_once('=').ok_or_else(|| NameError::of_part(part))?;
    let kind = match kind.trim() {
        "" => return Err(NameError::of_part(part)),
        "E" | "EMAIL" | "email" | "Email" => "emailAddress",
        "S" => "ST",
        other => other,
    };
    // A blank at the end counts if a backslash precedes it.
    let trimmed = value.trim();
    let kept = if trimmed.ends_with('\\') && value.trim_start() != trimmed { 1 } else { 0 };
    let value = &value.trim_start()[..trimmed.len() + kept];
    if value.is_empty() {
        return Err(NameError::of_part(part));
    }
    if AttributeTypeAndValue::from_str(&format!("{kind}=x")).is_err() {
        return Err(NameError::Type(kind.to_owned()));
    }
    let read = AttributeTypeAndValue::from_str(&format!("{kind}={}", unescaped_slashes(value)));
    let read = read.map_err(|_| NameError::Value(kind.to_owned()))?;
    let text = matches!(read.value.tag(), Tag::PrintableString | Tag::Utf8String | Tag::Ia5String);
    if text && std::str::from_utf8(read.value.value()).is_err() {
        return Err(NameError::Value(kind.to_owned()));
    }
    Ok(read)
}

/// A slash needs a backslash only in the notation with slashes; RFC 4514 knows none before it.
fn unescaped_slashes(value: &str) -> String {
    value.replace("\\/", "/")
}

impl fmt::Display for DistinguishedName {
    /// The text form of RFC 4514.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rdns().fmt(f)
    }
}

impl fmt::Debug for DistinguishedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DistinguishedName({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> DistinguishedName {
        text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn both_notations_are_the_same_name() {
        let slashes = name("/C=NL/O=Example/OU=Lab/CN=left.example.net");
        assert_eq!(slashes, name("CN=left.example.net,OU=Lab,O=Example,C=NL"));
        assert_eq!(slashes, name(" CN = left.example.net; OU=Lab, O=Example , C=NL "));
        assert_eq!(slashes.to_string(), "CN=left.example.net,OU=Lab,O=Example,C=NL");
        assert_eq!(DistinguishedName::from_der(slashes.as_der()), Ok(slashes));
    }

    #[test]
    fn the_encoding_is_that_of_openssl() {
        // openssl req -subj /C=NL/CN=a
        let der = [
            0x30, 0x19, 0x31, 0x0b, 0x30, 0x09, 0x06, 0x03, 0x55, 0x04, 0x06, 0x13, 0x02, b'N',
            b'L', 0x31, 0x0a, 0x30, 0x08, 0x06, 0x03, 0x55, 0x04, 0x03, 0x0c, 0x01, b'a',
        ];
        assert_eq!(name("/C=NL/CN=a").as_der(), der);
    }

    #[test]
    fn case_spaces_and_string_types_make_no_difference() {
        let a = name("CN=Gate  One,O=Example");
        assert!(a.matches(&name("cn=gate one,o=EXAMPLE")));
        // The same as a PrintableString.
        let printable = name("2.5.4.3=#130847617465204f6e65");
        assert!(a.matches(&printable.below("O=Example")));
        assert!(!a.matches(&name("CN=Gate Two,O=Example")));
        assert!(!a.matches(&name("O=Example,CN=Gate One")), "the order counts");
        assert!(!a.matches(&name("CN=Gate One,O=Example,C=NL")));
        assert!(!name("CN=a").matches(&name("OU=a")));
    }

    impl DistinguishedName {
        /// This RDN below another.
        fn below(&self, above: &str) -> Self {
            let mut rdns = name(above).rdns();
            self.rdns().iter().for_each(|rdn| rdns.push(rdn.clone()));
            Self::from_der(&rdns.to_der().expect("encodes")).expect("a name")
        }
    }

    #[test]
    fn an_rdn_is_a_set() {
        assert!(name("OU=Sales+CN=J Smith,DC=net").matches(&name("CN=j smith+OU=sales,DC=net")));
    }

    #[test]
    fn a_name_is_within_those_that_it_begins_with() {
        let is_within = |text: &str, above: &str| name(text).is_within(&name(above));
        for above in ["O=EXAMPLE", "OU=lab,O=Example", "CN=a,OU=Lab,O=Example"] {
            assert_eq!(is_within("CN=a,OU=Lab,O=Example", above), Some(true), "{above}");
        }
        for above in ["OU=Lab", "O=Exam", "OU=Sales,O=Example", "CN=b,CN=a,OU=Lab,O=Example"] {
            assert_eq!(is_within("CN=a,OU=Lab,O=Example", above), Some(false), "{above}");
        }
        // A TeletexString.
        let teletex = "2.5.4.10=#14074578616d706c65";
        assert_eq!(is_within(teletex, teletex), Some(true));
        assert_eq!(is_within("CN=a,O=Example", teletex), None);
        assert_eq!(is_within("CN=a,OU=Example", teletex), Some(false), "another type of attribute");
        let above = name("OU=Lab").below(teletex);
        assert_eq!(name("CN=a,OU=Sales,O=Example").is_within(&above), Some(false));
    }

    #[test]
    fn special_characters_are_escaped_both_ways() {
        for text in ["CN=Smith\\, J,O=a\\+b", "CN=a/b,O=x", "CN=\\#1,O=x", "CN=x\\ ,O=y"] {
            assert_eq!(name(text).to_string(), text);
        }
        assert_eq!(name("/O=x/CN=host/a.example"), name("CN=host/a.example,O=x"));
        assert_eq!(name("/O=x/CN=a\\/b=c"), name("CN=a/b=c,O=x"));
    }

    #[test]
    fn wrong_text_is_told() {
        let error = |text: &str| text.parse::<DistinguishedName>().expect_err(text);
        assert_eq!(error(""), NameError::Empty);
        assert_eq!(error("/"), NameError::Part(String::new()));
        assert_eq!(error("left.example.net"), NameError::Part("left.example.net".into()));
        assert_eq!(error("XY=a"), NameError::Type("XY".into()));
        assert_eq!(error("CN="), NameError::Part("CN=".into()));
        assert_eq!(error("CN=a\\zb"), NameError::Value("CN".into()));
        assert_eq!(error("CN=a\\ff"), NameError::Value("CN".into()));
        assert_eq!(error(&format!("CN={}", "a".repeat(5000))), NameError::TooLong);
    }

    #[test]
    fn octets_that_are_no_name_are_refused() {
        assert_eq!(DistinguishedName::from_der(&[]), Err(NameError::Encoding));
        assert_eq!(DistinguishedName::from_der(&[0x30, 0x00]), Err(NameError::Empty));
        let mut longer = name("CN=a").as_der().to_vec();
        longer.push(0);
        assert_eq!(DistinguishedName::from_der(&longer), Err(NameError::Encoding));
    }
}
