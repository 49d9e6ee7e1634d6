//! Public keys as SubjectPublicKeyInfo, from the attributes of objects.

use x509_cert::Certificate;
use x509_cert::der::asn1::{
    Any, AnyRef, BitString, Null, ObjectIdentifier, OctetStringRef, UintRef,
};
use x509_cert::der::{Decode, Encode, Tag};
use x509_cert::spki::{AlgorithmIdentifier, SubjectPublicKeyInfo};

const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");

/// An RSA key of this modulus and public exponent, both big-endian.
pub(crate) fn rsa(modulus: &[u8], exponent: &[u8]) -> Option<Vec<u8>> {
    let [modulus, exponent] = [modulus, exponent]
        .map(|octets| UintRef::new(octets).and_then(|number| number.to_der()).ok());
    let key = [modulus?, exponent?].concat();
    let key = Any::new(Tag::Sequence, key).ok()?.to_der().ok()?;
    info(RSA, Any::from(Null), &key)
}

/// A key on a curve: CKA_EC_PARAMS and CKA_EC_POINT. The point is an OCTET STRING, but some modules leave its header
/// out.
pub(crate) fn ec(parameters: &[u8], point: &[u8]) -> Option<Vec<u8>> {
    let curve = Any::from_der(parameters).ok()?;
    let point = <&OctetStringRef>::from_der(point).map_or(point, |wrapped| wrapped.as_bytes());
    info(EC, curve, point)
}

/// The key of a certificate.
pub(crate) fn of_certificate(der: &[u8]) -> Option<Vec<u8>> {
    let certificate = Certificate::from_der(der).ok()?;
    certificate.tbs_certificate().subject_public_key_info().to_der().ok()
}

/// A key that is one already.
pub(crate) fn as_it_is(der: &[u8]) -> Option<Vec<u8>> {
    let info = SubjectPublicKeyInfo::<AnyRef<'_>, BitString>::from_der(der).ok()?;
    info.to_der().ok()
}

fn info(oid: ObjectIdentifier, parameters: Any, key: &[u8]) -> Option<Vec<u8>> {
    let algorithm = AlgorithmIdentifier { oid, parameters: Some(parameters) };
    let subject_public_key = BitString::from_bytes(key).ok()?;
    SubjectPublicKeyInfo { algorithm, subject_public_key }.to_der().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
    use aws_lc_rs::rsa::KeySize;
    use aws_lc_rs::signature::{ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, KeyPair, RsaKeyPair};

    #[test]
    fn an_rsa_key_is_put_together() {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).expect("a key");
        let public = pair.public_key();
        let (modulus, exponent) = (public.modulus(), public.exponent());
        let made = rsa(
            modulus.big_endian_without_leading_zero(),
            exponent.big_endian_without_leading_zero(),
        );
        let wanted: PublicKeyX509Der<'_> = public.as_der().expect("it can be written");
        assert_eq!(made.expect("it can be written"), wanted.as_ref());
        assert_eq!(as_it_is(wanted.as_ref()).as_deref(), Some(wanted.as_ref()));
    }

    #[test]
    fn a_point_may_have_a_header() {
        let pair = EcdsaKeyPair::generate(&ECDSA_P384_SHA384_ASN1_SIGNING).expect("a key");
        let wanted: PublicKeyX509Der<'_> = pair.public_key().as_der().expect("it can be written");
        let p384 = ObjectIdentifier::new_unwrap("1.3.132.0.34").to_der().expect("short");
        let point: &[u8] = pair.public_key().as_ref();
        let wrapped = OctetStringRef::new(point).and_then(|p| p.to_der()).expect("short");
        for point in [point, &wrapped] {
            assert_eq!(ec(&p384, point).as_deref(), Some(wanted.as_ref()));
        }
        assert_eq!(ec(b"P-384", point), None);
        assert_eq!(as_it_is(point), None);
    }
}
