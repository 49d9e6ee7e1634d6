//! PKCS#11 URIs (RFC 7512) that name a private key.
//!
//! Written here rather than taken from a crate: the one that there is (`pk11-uri-parser`) neither decodes percent signs
//! nor keeps a PIN out of its errors.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

const SCHEME: &str = "pkcs11:";
/// Octets of the longest URI that is read.
const LONGEST: usize = 4096;

/// A URI that names a private key in a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uri {
    /// The token that it must be.
    pub token: TokenName,
    /// CKA_LABEL of the key.
    pub object: Option<String>,
    /// CKA_ID of the key.
    pub id: Option<Vec<u8>>,
    /// The shared library of the token's driver.
    pub module_path: Option<PathBuf>,
    /// Where the PIN is.
    pub pin_source: Option<PinSource>,
}

/// The attributes that tell one token from others; those that are absent fit every token.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenName {
    /// Label of the token.
    pub token: Option<String>,
    /// Its manufacturer.
    pub manufacturer: Option<String>,
    /// Its serial number.
    pub serial: Option<String>,
    /// Its model.
    pub model: Option<String>,
    /// Number of its slot.
    pub slot_id: Option<u64>,
    /// Description of its slot.
    pub slot_description: Option<String>,
    /// Manufacturer of its slot.
    pub slot_manufacturer: Option<String>,
}

/// Where a PIN is; never the PIN itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PinSource {
    /// A file.
    File(PathBuf),
    /// A credential that the service manager passes (`LoadCredential=` of systemd).
    Credential(String),
}

/// Why a URI cannot be used.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UriError {
    /// It is of another scheme.
    #[error("a PKCS#11 URI begins with pkcs11:")]
    Scheme,
    /// It is too long.
    #[error("the PKCS#11 URI is longer than {LONGEST} octets; is it the right file?")]
    TooLong,
    /// An attribute without a value.
    #[error(
        "the PKCS#11 URI has {0:?} where an attribute is wanted, as in token=NAME; attributes are separated by ; \
         before the question mark, and by & after it"
    )]
    Form(String),
    /// An attribute that has no meaning here.
    #[error(
        "the PKCS#11 URI has the attribute {0:?}, which is not known here; known are token, manufacturer, serial, \
         model, slot-id, slot-description, slot-manufacturer, object, id and type, and after the question mark \
         module-path and pin-source"
    )]
    Unknown(String),
    /// An attribute that is there twice.
    #[error("the PKCS#11 URI has the attribute {0} twice; leave one of them")]
    Twice(String),
    /// A character that must be encoded.
    #[error(
        "the attribute {attribute} of the PKCS#11 URI has the character {character:?}; write it as {encoded}"
    )]
    Character {
        /// The attribute.
        attribute: String,
        /// The character.
        character: char,
        /// The same in percent-encoding.
        encoded: String,
    },
    /// A percent sign without two hexadecimal digits.
    #[error(
        "the attribute {0} of the PKCS#11 URI has a percent sign without two hexadecimal digits behind it; a percent \
         sign itself is written as %25"
    )]
    Percent(String),
    /// Octets that are no UTF-8.
    #[error("the attribute {0} of the PKCS#11 URI is no UTF-8; only id may have any octets")]
    Utf8(String),
    /// A slot that is no number.
    #[error("slot-id of the PKCS#11 URI is a decimal number")]
    Slot,
    /// Another kind of object.
    #[error(
        "the PKCS#11 URI names an object of the type {0:?}; a private key is wanted: write type=private, or leave it out"
    )]
    Type(String),
    /// Neither a label nor an id.
    #[error(
        "the PKCS#11 URI names no object; add object=LABEL or id=%01, as pkcs11-tool --list-objects shows them"
    )]
    NoObject,
    /// The PIN itself.
    #[error(
        "the PKCS#11 URI has the PIN in it (pin-value), where everyone sees it who sees the URI; put the PIN into a file \
         of mode 0600 and name that: pin-source=file:/etc/vpnd/token.pin"
    )]
    PinValue,
    /// The PIN is somewhere that is not supported.
    #[error(
        "pin-source of the PKCS#11 URI is neither a file (file:/etc/vpnd/token.pin) nor a credential of the service \
         manager (credential:NAME); vpnd starts no program to ask for a PIN"
    )]
    PinSource,
    /// A module by its name.
    #[error(
        "the PKCS#11 URI has module-name; name the file instead: module-path=/usr/lib/.../MODULE.so"
    )]
    ModuleName,
    /// A module in no certain place.
    #[error("module-path of the PKCS#11 URI does not begin with /; name the whole path")]
    ModulePath,
}

policy::readable_debug!(UriError);

impl Uri {
    /// Returns `true` if a text is such a URI rather than something else.
    pub fn is_one(text: &str) -> bool {
        text.get(..SCHEME.len()).is_some_and(|start| start.eq_ignore_ascii_case(SCHEME))
    }

    fn path(&mut self, name: &str, value: Vec<u8>) -> Result<(), UriError> {
        let token = &mut self.token;
        match name {
            "token" => token.token = Some(text(name, value)?),
            "manufacturer" => token.manufacturer = Some(text(name, value)?),
            "serial" => token.serial = Some(text(name, value)?),
            "model" => token.model = Some(text(name, value)?),
            "slot-id" => {
                token.slot_id = Some(text(name, value)?.parse().map_err(|_| UriError::Slot)?);
            }
            "slot-description" => token.slot_description = Some(text(name, value)?),
            "slot-manufacturer" => token.slot_manufacturer = Some(text(name, value)?),
            "object" => self.object = Some(text(name, value)?),
            "id" => self.id = Some(value),
            "type" if value == b"private" => {}
            "type" => return Err(UriError::Type(text(name, value)?)),
            _ => return Err(UriError::Unknown(name.into())),
        }
        Ok(())
    }

    fn query(&mut self, name: &str, value: Vec<u8>) -> Result<(), UriError> {
        match name {
            "module-path" => {
                let path = PathBuf::from(text(name, value)?);
                if !path.is_absolute() {
                    return Err(UriError::ModulePath);
                }
                self.module_path = Some(path);
            }
            "module-name" => return Err(UriError::ModuleName),
            "pin-source" => self.pin_source = Some(pin_source(&text(name, value)?)?),
            _ => return Err(UriError::Unknown(name.into())),
        }
        Ok(())
    }
}

fn text(name: &str, value: Vec<u8>) -> Result<String, UriError> {
    String::from_utf8(value).map_err(|_| UriError::Utf8(name.into()))
}

fn pin_source(text: &str) -> Result<PinSource, UriError> {
    let path = text.strip_prefix("file://").or_else(|| text.strip_prefix("file:")).unwrap_or(text);
    if path.starts_with('/') {
        return Ok(PinSource::File(path.into()));
    }
    let credential = text
        .strip_prefix("credential:")
        .filter(|name| !name.is_empty() && !name.contains('/') && !name.starts_with('.'));
    credential.map(|name| PinSource::Credential(name.to_owned())).ok_or(UriError::PinSource)
}

impl FromStr for Uri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        if text.len() > LONGEST {
            return Err(UriError::TooLong);
        }
        if !Self::is_one(text) {
            return Err(UriError::Scheme);
        }
        let rest = &text[SCHEME.len()..];
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut uri = Self::default();
        let mut seen = BTreeSet::new();
        for (part, separator) in [(path, ';'), (query, '&')] {
            for attribute in part.split(separator).filter(|_| !part.is_empty()) {
                let (name, value) = attribute
                    .split_once('=')
                    .ok_or_else(|| UriError::Form(attribute.chars().take(32).collect()))?;
                // Before anything is said about it.
                if name == "pin-value" {
                    return Err(UriError::PinValue);
                }
                if !seen.insert(name) {
                    return Err(UriError::Twice(name.to_owned()));
                }
                let value = decoded(name, value, separator == '&')?;
                match separator {
                    ';' => uri.path(name, value)?,
                    _ => uri.query(name, value)?,
                }
            }
        }
        match (&uri.object, &uri.id) {
            (None, None) => Err(UriError::NoObject),
            _ => Ok(uri),
        }
    }
}

/// The octets of a value. `/`, `?` and `|` may stand as they are in the part after the question mark only.
fn decoded(attribute: &str, value: &str, in_query: bool) -> Result<Vec<u8>, UriError> {
    let mut octets = Vec::with_capacity(value.len());
    let mut rest = value.chars();
    while let Some(character) = rest.next() {
        match character {
            '%' => {
                let digits: Option<Vec<u32>> =
                    [rest.next(), rest.next()].map(|c| c?.to_digit(16)).into_iter().collect();
                let octet = digits.and_then(|d| u8::try_from(d[0] << 4 | d[1]).ok());
                octets.push(octet.ok_or_else(|| UriError::Percent(attribute.to_owned()))?);
            }
            c if c.is_ascii_alphanumeric() || "-._~:[]@!$'()*+,=".contains(c) => {
                octets.push(u8::try_from(c).unwrap_or_default());
            }
            c if !in_query && c == '&' || in_query && "/?|".contains(c) => {
                octets.push(u8::try_from(c).unwrap_or_default());
            }
            character => {
                let mut buffer = [0; 4];
                let octets = character.encode_utf8(&mut buffer).bytes();
                let encoded = octets.map(|octet| format!("%{octet:02X}")).collect();
                let attribute = attribute.to_owned();
                return Err(UriError::Character { attribute, character, encoded });
            }
        }
    }
    Ok(octets)
}

/// As a person calls it: `token "vpn"`.
impl fmt::Display for TokenName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = [
            ("token", &self.token),
            ("manufacturer", &self.manufacturer),
            ("serial number", &self.serial),
            ("model", &self.model),
            ("slot", &self.slot_description),
            ("slot's manufacturer", &self.slot_manufacturer),
        ];
        let slot = self.slot_id.map(|slot| format!("slot {slot}"));
        let words: Vec<String> = named
            .iter()
            .filter_map(|(what, value)| Some(format!("{what} {:?}", value.as_ref()?)))
            .chain(slot)
            .collect();
        if words.is_empty() { f.write_str("any token") } else { f.write_str(&words.join(", ")) }
    }
}

/// The token and the object in it: `token "vpn", object "left", id 01`.
impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.token)?;
        if let Some(object) = &self.object {
            write!(f, ", object {object:?}")?;
        }
        if let Some(id) = &self.id {
            let id: String = id.iter().map(|octet| format!("{octet:02x}")).collect();
            write!(f, ", id {id}")?;
        }
        Ok(())
    }
}

impl fmt::Display for PinSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Credential(name) => write!(f, "the credential {name:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Uri {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn error(text: &str) -> UriError {
        text.parse::<Uri>().expect_err(text)
    }

    /// The examples of RFC 7512 that name a private key by an object or an id.
    #[test]
    fn the_examples_of_the_standard() {
        let uri = read(
            "pkcs11:token=The%20Software%20PKCS%2311%20Softtoken;manufacturer=Snake%20Oil,%20Inc.;model=1.0;\
             object=my-certificate;type=private;id=%69%95%3E%5C%F4%BD%EC%91;serial=?pin-source=file:/etc/token_pin",
        );
        assert_eq!(uri.token.token.as_deref(), Some("The Software PKCS#11 Softtoken"));
        assert_eq!(uri.token.manufacturer.as_deref(), Some("Snake Oil, Inc."));
        assert_eq!(uri.token.model.as_deref(), Some("1.0"));
        assert_eq!(uri.token.serial.as_deref(), Some(""));
        assert_eq!(uri.object.as_deref(), Some("my-certificate"));
        assert_eq!(uri.id.as_deref(), Some(&b"\x69\x95\x3e\x5c\xf4\xbd\xec\x91"[..]));
        assert_eq!(uri.pin_source, Some(PinSource::File("/etc/token_pin".into())));
        let uri = read("pkcs11:object=my-sign-key;type=private?module-path=/mnt/libmypkcs11.so.1");
        assert_eq!(uri.module_path, Some("/mnt/libmypkcs11.so.1".into()));
        let uri = read("pkcs11:slot-description=Sun%20Metaslot;slot-id=327;object=k");
        assert_eq!((uri.token.slot_id, uri.token.token), (Some(327), None));
        // A semicolon and an e with an accent in the value of an attribute.
        let uri = read("pkcs11:token=My%20token%25%20created%20by%20Joe;object=a%3Bb%c3%a9");
        assert_eq!(uri.token.token.as_deref(), Some("My token% created by Joe"));
        assert_eq!(uri.object.as_deref(), Some("a;bé"));
    }

    #[test]
    fn pins_are_named_and_never_given() {
        let of = |source: &str| read(&format!("pkcs11:object=k?pin-source={source}")).pin_source;
        let file = Some(PinSource::File("/etc/pin".into()));
        assert_eq!(
            [of("file:/etc/pin"), of("file:///etc/pin"), of("/etc/pin")],
            [(); 3].map(|()| file.clone())
        );
        assert_eq!(of("credential:vpn.pin"), Some(PinSource::Credential("vpn.pin".into())));
        for source in [
            "%7cpinentry",
            "|pinentry",
            "http://host/pin",
            "pin",
            "credential:",
            "credential:../shadow",
        ] {
            assert_eq!(error(&format!("pkcs11:object=k?pin-source={source}")), UriError::PinSource);
        }
        for text in [
            "pkcs11:object=k?pin-value=1234",
            "pkcs11:object=k?pin-value=12%3",
            "pkcs11:pin-value=1234;object=k",
        ] {
            let error = error(text);
            assert_eq!(error, UriError::PinValue);
            assert!(!error.to_string().contains("12"), "{error}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(error("object=k"), UriError::Scheme);
        assert_eq!(error("pkcs11"), UriError::Scheme);
        assert_eq!(error("pkcs11:"), UriError::NoObject);
        assert_eq!(error("pkcs11:token=a"), UriError::NoObject);
        assert_eq!(error("pkcs11:object"), UriError::Form("object".into()));
        assert_eq!(error("pkcs11:object=k;"), UriError::Form(String::new()));
        assert_eq!(error("pkcs11:object=k;object=l"), UriError::Twice("object".into()));
        assert_eq!(error("pkcs11:Object=k"), UriError::Unknown("Object".into()));
        assert_eq!(error("pkcs11:object=k;x-vendor=1"), UriError::Unknown("x-vendor".into()));
        assert_eq!(error("pkcs11:object=k?object=l"), UriError::Twice("object".into()));
        assert_eq!(error("pkcs11:object=k?token=l"), UriError::Unknown("token".into()));
        assert_eq!(error("pkcs11:object=k;type=cert"), UriError::Type("cert".into()));
        assert_eq!(error("pkcs11:object=k;slot-id=x"), UriError::Slot);
        assert_eq!(error("pkcs11:object=%ff"), UriError::Utf8("object".into()));
        assert_eq!(error("pkcs11:object=k?module-name=softhsm2"), UriError::ModuleName);
        assert_eq!(error("pkcs11:object=k?module-path=softhsm2.so"), UriError::ModulePath);
        for percent in ["%", "%4", "%g0", "%+1", "a%2"] {
            assert_eq!(error(&format!("pkcs11:id={percent}")), UriError::Percent("id".into()));
        }
        let long = format!("pkcs11:object={}", "k".repeat(LONGEST));
        assert_eq!(error(&long), UriError::TooLong);
    }

    #[test]
    fn characters_that_must_be_encoded_are_shown_so() {
        for (text, wanted) in
            [("a b", "%20"), ("a/b", "%2F"), ("a#b", "%23"), ("é", "%C3%A9"), ("a\nb", "%0A")]
        {
            let UriError::Character { encoded, .. } = error(&format!("pkcs11:object={text}"))
            else {
                panic!("{text:?}");
            };
            assert_eq!(encoded, wanted);
        }
        assert_eq!(read("pkcs11:object=a&b").object.as_deref(), Some("a&b"));
    }

    #[test]
    fn a_key_is_called_by_its_token_and_object() {
        let uri = read("PKCS11:token=vpn;object=left;id=%0a%01?module-path=/lib/m.so");
        assert_eq!(uri.to_string(), "token \"vpn\", object \"left\", id 0a01");
        assert_eq!(read("pkcs11:slot-id=3;id=%01").to_string(), "slot 3, id 01");
        assert_eq!(read("pkcs11:id=%01").to_string(), "any token, id 01");
    }
}
