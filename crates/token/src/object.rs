//! Private keys in a token, and the public keys and certificates that go with them.

use crate::error::{Kind, TokenError, is_loss};
use crate::public_key;
use cryptoki::error::Error;
use cryptoki::object::{
    Attribute, AttributeType, CertificateType, KeyType, ObjectClass, ObjectHandle,
};
use cryptoki::session::Session;
use std::fmt;
use std::path::Path;

/// The name of a key in the URI; at least one of the two.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KeyName {
    pub object: Option<String>,
    pub id: Option<Vec<u8>>,
}

/// A private key.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub handle: ObjectHandle,
    /// SubjectPublicKeyInfo, in DER.
    pub public: Vec<u8>,
    /// The certificate in the token, if there is one with the same id.
    pub certificate: Option<Vec<u8>>,
}

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let object = self.object.as_ref().map(|object| format!("with the label {object:?}"));
        let id = self.id.as_ref().map(|id| format!("with the id {}", hex(id)));
        let words: Vec<String> = object.into_iter().chain(id).collect();
        f.write_str(&words.join(" and "))
    }
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// Attributes of one object.
#[derive(Default)]
struct Attributes {
    label: Option<String>,
    id: Vec<u8>,
    kind: Option<KeyType>,
    wants_pin: bool,
    may_sign: Option<bool>,
    modulus: Vec<u8>,
    exponent: Vec<u8>,
    parameters: Vec<u8>,
    point: Vec<u8>,
    info: Vec<u8>,
    value: Vec<u8>,
}

impl Attributes {
    /// Those of these kinds that the object has.
    fn read(
        session: &Session,
        object: ObjectHandle,
        kinds: &[AttributeType],
    ) -> Result<Self, Error> {
        let mut found = Self::default();
        // One by one: some modules refuse all if they do not know one.
        for kind in kinds {
            let all = match session.get_attributes(object, &[*kind]) {
                Ok(all) => all,
                Err(error) if is_loss(&error) => return Err(error),
                Err(_) => continue,
            };
            for attribute in all {
                match attribute {
                    Attribute::Label(label) => found.label = String::from_utf8(label).ok(),
                    Attribute::Id(id) => found.id = id,
                    Attribute::KeyType(kind) => found.kind = Some(kind),
                    Attribute::AlwaysAuthenticate(wants) => found.wants_pin = wants,
                    Attribute::Sign(may) => found.may_sign = Some(may),
                    Attribute::Modulus(octets) => found.modulus = octets,
                    Attribute::PublicExponent(octets) => found.exponent = octets,
                    Attribute::EcParams(octets) => found.parameters = octets,
                    Attribute::EcPoint(octets) => found.point = octets,
                    Attribute::PublicKeyInfo(octets) => found.info = octets,
                    Attribute::Value(octets) => found.value = octets,
                    _ => {}
                }
            }
        }
        Ok(found)
    }

    /// The public key that they describe.
    fn public(&self) -> Option<Vec<u8>> {
        let is_rsa = !self.modulus.is_empty() && !self.exponent.is_empty();
        let is_ec = !self.parameters.is_empty() && !self.point.is_empty();
        let public = match (is_rsa, is_ec) {
            (true, _) => public_key::rsa(&self.modulus, &self.exponent),
            (false, true) => public_key::ec(&self.parameters, &self.point),
            (false, false) => None,
        };
        public.or_else(|| public_key::as_it_is(&self.info))
    }
}

const PUBLIC: [AttributeType; 5] = [
    AttributeType::Modulus,
    AttributeType::PublicExponent,
    AttributeType::EcParams,
    AttributeType::EcPoint,
    AttributeType::PublicKeyInfo,
];

/// Finds the private key of that name with its public key.
pub(crate) fn find(session: &Session, module: &Path, name: &KeyName) -> Result<Key, TokenError> {
    let of_call = |error: Error| TokenError::of_call(&error, module);
    let keys = search(session, ObjectClass::PRIVATE_KEY, name.object.as_ref(), name.id.as_ref())
        .map_err(of_call)?;
    let handle = match keys[..] {
        [handle] => handle,
        [] => {
            let all = search(session, ObjectClass::PRIVATE_KEY, None, None).map_err(of_call)?;
            let all = called(session, &all).map_err(of_call)?;
            return Err(trouble(
                format!("the token has no private key {name}; it has {all}"),
                "correct object or id in the URI; pkcs11-tool --login --list-objects shows all objects",
            ));
        }
        _ => {
            let all = called(session, &keys).map_err(of_call)?;
            return Err(trouble(
                format!("the token has several private keys {name}: {all}"),
                "add id or object to the URI, so that one of them fits",
            ));
        }
    };
    let mut kinds = vec![
        AttributeType::Label,
        AttributeType::Id,
        AttributeType::KeyType,
        AttributeType::AlwaysAuthenticate,
        AttributeType::Sign,
    ];
    kinds.extend(PUBLIC);
    let own = Attributes::read(session, handle, &kinds).map_err(of_call)?;
    if own.wants_pin {
        return Err(trouble(
            format!(
                "the private key {name} wants the PIN for each signature (CKA_ALWAYS_AUTHENTICATE)"
            ),
            "use another key of the token: vpnd signs without a person",
        ));
    }
    if own.may_sign == Some(false) {
        return Err(trouble(
            format!("the private key {name} may not sign (CKA_SIGN)"),
            "use a key that was made for signatures",
        ));
    }
    if !matches!(own.kind, Some(KeyType::RSA | KeyType::EC)) {
        return Err(trouble(
            format!("the private key {name} is neither RSA nor EC"),
            "use an RSA key, or an EC key on P-256, P-384 or P-521; Ed25519 works with keys in files",
        ));
    }
    // The objects of a key have its id, or else its label.
    let (label, id) = match own.id.is_empty() {
        true => (own.label.as_ref(), None),
        false => (None, Some(&own.id)),
    };
    let mut public = own.public();
    if public.is_none() {
        for object in search(session, ObjectClass::PUBLIC_KEY, label, id).map_err(of_call)? {
            let attributes = Attributes::read(session, object, &PUBLIC).map_err(of_call)?;
            public = public.or(attributes.public());
        }
    }
    let certificate = certificate(
        session,
        search(session, ObjectClass::CERTIFICATE, label, id).map_err(of_call)?,
    );
    let certificate = certificate.map_err(of_call)?;
    let Some(public) = public.or_else(|| public_key::of_certificate(certificate.as_deref()?))
    else {
        return Err(trouble(
            format!(
                "the token has neither a public key nor a certificate with the id or label of the private key {name}"
            ),
            "put the certificate into the token, with the same id (pkcs11-tool --write-object CERT.der --type cert --id 01)",
        ));
    };
    Ok(Key {
        handle,
        certificate: certificate
            .filter(|der| public_key::of_certificate(der).as_ref() == Some(&public)),
        public,
    })
}

fn search(
    session: &Session,
    class: ObjectClass,
    label: Option<&String>,
    id: Option<&Vec<u8>>,
) -> Result<Vec<ObjectHandle>, Error> {
    let mut template = vec![Attribute::Class(class)];
    template.extend(label.map(|label| Attribute::Label(label.clone().into_bytes())));
    template.extend(id.map(|id| Attribute::Id(id.clone())));
    session.find_objects(&template)
}

fn trouble(cause: String, cure: &str) -> TokenError {
    TokenError::new(Kind::Object, cause, cure)
}

fn certificate(session: &Session, all: Vec<ObjectHandle>) -> Result<Option<Vec<u8>>, Error> {
    for object in all {
        let kinds = [AttributeType::CertificateType, AttributeType::Value];
        let kind = session.get_attributes(object, &kinds[..1])?;
        if kind.contains(&Attribute::CertificateType(CertificateType::X_509)) {
            let value = Attributes::read(session, object, &kinds[1..])?.value;
            return Ok(Some(value).filter(|value| !value.is_empty()));
        }
    }
    Ok(None)
}

/// Labels and ids of objects.
fn called(session: &Session, all: &[ObjectHandle]) -> Result<String, Error> {
    let kinds = [AttributeType::Label, AttributeType::Id];
    let mut words = Vec::new();
    for object in all.iter().take(16) {
        let Attributes { label, id, .. } = Attributes::read(session, *object, &kinds)?;
        words.push(format!("{:?} (id {})", label.unwrap_or_default(), hex(&id)));
    }
    words.sort();
    Ok(if words.is_empty() { "none".to_owned() } else { words.join(", ") })
}
