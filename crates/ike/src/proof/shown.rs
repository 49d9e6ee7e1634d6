//! Certificates of authorities as rustls-webpki sees them: without the name constraints that it cannot check.
//!
//! The signatures are those of the whole certificates, and are verified as such.

use super::algorithms::ALGORITHMS;
use super::certificate::Certificate;
use super::constraints::is_of_library;
use super::signed::Signed;
use rustls_pki_types::{AlgorithmIdentifier, InvalidSignature, SignatureVerificationAlgorithm};
use std::borrow::Cow;
use x509_cert::der::asn1::{Any, AnyRef, OctetString};
use x509_cert::der::oid::AssociatedOid;
use x509_cert::der::{self, Decode, Encode, Reader, SliceReader, Tag, Tagged};
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::NameConstraints;

/// The name constraints that rustls-webpki sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    /// Domain names and addresses only.
    Checkable,
    /// rustls-webpki sees no name constraints.
    Nothing,
}

/// A certificate, and its encoding for rustls-webpki.
#[derive(Clone, Debug)]
pub(super) struct Shown<'a> {
    pub of: &'a Certificate,
    pub der: Cow<'a, [u8]>,
}

impl<'a> Shown<'a> {
    pub fn new(certificate: &'a Certificate, sight: Sight) -> Self {
        let whole = certificate.der();
        let der = match certificate.constrains_names() {
            // rustls-webpki refuses a certificate that cannot be rewritten, or ignores it as an authority.
            true => rewritten(whole, sight).map_or(Cow::Borrowed(whole), Cow::Owned),
            false => Cow::Borrowed(whole),
        };
        Self { of: certificate, der }
    }

    /// Returns `true` if rustls-webpki does not see the certificate as it is.
    pub fn is_changed(&self) -> bool {
        *self.der != *self.of.der()
    }
}

/// The certificate with the constraints that are seen; its other octets are the same.
fn rewritten(whole: &[u8], sight: Sight) -> der::Result<Vec<u8>> {
    let certificate = children(whole)?;
    let (tbs, signature) = certificate.split_first().ok_or(Tag::Sequence.value_error())?;
    let mut tbs = children(tbs)?;
    let extensions = tbs.pop().ok_or(Tag::Sequence.value_error())?;
    let tag = AnyRef::from_der(extensions)?.tag();
    let [list] = children(extensions)?[..] else { return Err(tag.value_error().into()) };
    let mut kept = Vec::new();
    for der in children(list)? {
        let extension = Extension::from_der(der)?;
        match extension.extn_id == NameConstraints::OID {
            true => kept.extend(seen(extension, sight)?),
            false => kept.extend(der),
        }
    }
    let extensions = Any::new(tag, Any::new(Tag::Sequence, kept)?.to_der()?)?.to_der()?;
    let tbs = Any::new(Tag::Sequence, [tbs.concat(), extensions].concat())?.to_der()?;
    Any::new(Tag::Sequence, [tbs, signature.concat()].concat())?.to_der()
}

/// The extension with the constraints that are seen; nothing if there are none.
fn seen(extension: Extension, sight: Sight) -> der::Result<Vec<u8>> {
    let constraints = NameConstraints::from_der(extension.extn_value.as_bytes())?;
    let [permitted_subtrees, excluded_subtrees] =
        [constraints.permitted_subtrees, constraints.excluded_subtrees].map(|subtrees| {
            let mut subtrees = subtrees.unwrap_or_default();
            subtrees.retain(|subtree| sight == Sight::Checkable && is_of_library(subtree));
            (!subtrees.is_empty()).then_some(subtrees)
        });
    let constraints = NameConstraints { permitted_subtrees, excluded_subtrees };
    if constraints.permitted_subtrees.is_none() && constraints.excluded_subtrees.is_none() {
        return Ok(Vec::new());
    }
    Extension { extn_value: OctetString::new(constraints.to_der()?)?, ..extension }.to_der()
}

/// The encodings within an encoding.
fn children(der: &[u8]) -> der::Result<Vec<&[u8]>> {
    let mut reader = SliceReader::new(AnyRef::from_der(der)?.value())?;
    let mut children = Vec::new();
    while !reader.is_finished() {
        children.push(reader.tlv_bytes()?);
    }
    Ok(children)
}

/// The algorithms of certificates, which verify the signature of a changed certificate over the whole one.
pub(super) struct Algorithms<'a>(Vec<OfWhole<'a>>);

impl<'a> Algorithms<'a> {
    pub fn new(shown: &'a [Shown<'a>]) -> Self {
        Self(ALGORITHMS.iter().map(|inner| OfWhole { inner: *inner, shown }).collect())
    }

    pub fn all(&self) -> Vec<&dyn SignatureVerificationAlgorithm> {
        self.0.iter().map(|a| -> &dyn SignatureVerificationAlgorithm { a }).collect()
    }
}

#[derive(Debug)]
struct OfWhole<'a> {
    inner: &'static dyn SignatureVerificationAlgorithm,
    shown: &'a [Shown<'a>],
}

impl SignatureVerificationAlgorithm for OfWhole<'_> {
    fn verify_signature(
        &self,
        key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        let changed = self.shown.iter().find(|shown| {
            shown.is_changed()
                && Signed::read(&shown.der).is_ok_and(|signed| signed.octets == message)
        });
        let whole = changed.map(|shown| Signed::read(shown.of.der()).map(|signed| signed.octets));
        let message = whole.transpose().map_err(|_| InvalidSignature)?.unwrap_or(message);
        self.inner.verify_signature(key, message, signature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.inner.public_key_alg_id()
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.inner.signature_alg_id()
    }
}

/// Returns `true` if each certificate of a path is signed by the next one, as a whole. A copy of an authority without
/// its constraints looks to rustls-webpki like the authority.
pub(super) fn is_signed(path: &[&Certificate]) -> bool {
    path.windows(2).all(|link| link[0].is_signed_by(&link[1].key().info))
}
