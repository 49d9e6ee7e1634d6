//! Reads name, key identifier and usages of an authority from its certificate.
//!
//! rcgen has this with a feature that compiles only together with its feature `crypto`.

use super::key::{Key, first};
use rcgen::string::BmpString;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, DnValue, Error, Issuer, KeyIdMethod,
    KeyUsagePurpose,
};
use rsa::pkcs8::Document;
use x509_cert::Certificate;
use x509_cert::der::{Decode, Tag, Tagged};
use x509_cert::ext::pkix::{KeyUsage, SubjectKeyIdentifier};
use x509_cert::name::Name;

/// Reads the text of the certificate's file.
pub(super) fn read(text: &str, key: Key) -> Result<Issuer<'static, Key>, Error> {
    let (_, document) = Document::from_pem(first(text)).map_err(unreadable)?;
    let certificate = Certificate::from_der(document.as_bytes()).map_err(unreadable)?;
    let certificate = certificate.tbs_certificate();
    let mut params = CertificateParams::default();
    params.distinguished_name = distinguished_name(certificate.subject())?;
    let identifier = certificate.get_extension::<SubjectKeyIdentifier>().map_err(unreadable)?;
    params.key_identifier_method = match identifier {
        Some((_, identifier)) => KeyIdMethod::PreSpecified(identifier.0.as_bytes().to_vec()),
        None => key.identifier(),
    };
    // rcgen asks whether it may sign revocation lists, and for no other usage. Without the extension it may.
    params.key_usages = match certificate.get_extension::<KeyUsage>().map_err(unreadable)? {
        None => vec![],
        Some((_, usage)) if usage.crl_sign() => vec![KeyUsagePurpose::CrlSign],
        Some(_) => vec![KeyUsagePurpose::KeyCertSign],
    };
    Ok(Issuer::new(params, key))
}

fn unreadable<T>(_: T) -> Error {
    Error::CouldNotParseCertificate
}

/// The same name for rcgen, which writes it as it was.
fn distinguished_name(name: &Name) -> Result<DistinguishedName, Error> {
    let mut made = DistinguishedName::new();
    for part in name.iter_rdn() {
        let mut attributes = part.iter();
        // rcgen has one attribute for each part.
        let (Some(attribute), None) = (attributes.next(), attributes.next()) else {
            return Err(Error::CouldNotParseCertificate);
        };
        let arcs: Vec<u64> = attribute.oid.arcs().map(u64::from).collect();
        let octets = attribute.value.value();
        let text = std::str::from_utf8(octets).map_err(unreadable);
        let value = match attribute.value.tag() {
            Tag::BmpString => DnValue::BmpString(BmpString::from_utf16be(octets.to_vec())?),
            Tag::Ia5String => DnValue::Ia5String(text?.try_into()?),
            Tag::PrintableString => DnValue::PrintableString(text?.try_into()?),
            Tag::TeletexString => DnValue::TeletexString(text?.try_into()?),
            Tag::Utf8String => DnValue::Utf8String(text?.to_owned()),
            _ => return Err(Error::CouldNotParseCertificate),
        };
        made.push(DnType::from_oid(&arcs), value);
    }
    Ok(made)
}
