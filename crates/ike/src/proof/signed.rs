//! The outermost form that certificates and revocation lists share (RFC 5280 §4.1, §5.1).

use super::algorithms::ALGORITHMS;
use rustls_pki_types::SubjectPublicKeyInfoDer;
use webpki::RawPublicKeyEntity;
use x509_cert::der::asn1::{AnyRef, BitStringRef};
use x509_cert::der::{self, Decode, Reader, SliceReader};

/// The parts of what is signed.
pub(super) struct Signed<'a> {
    /// The octets that are signed.
    pub octets: &'a [u8],
    /// The contents of the AlgorithmIdentifier.
    pub algorithm: &'a [u8],
    pub signature: &'a [u8],
}

impl<'a> Signed<'a> {
    /// Reads the parts of a SEQUENCE.
    pub fn read(octets: &'a [u8]) -> der::Result<Self> {
        let mut reader = SliceReader::new(AnyRef::from_der(octets)?.value())?;
        let signed = Self::read_from(&mut reader)?;
        reader.finish()?;
        Ok(signed)
    }

    /// Reads the parts where more may follow.
    pub fn read_from(reader: &mut SliceReader<'a>) -> der::Result<Self> {
        Ok(Self {
            octets: reader.tlv_bytes()?,
            algorithm: AnyRef::decode(reader)?.value(),
            signature: BitStringRef::decode(reader)?.raw_bytes(),
        })
    }

    /// Returns `true` if the key of this SubjectPublicKeyInfo, in DER, has made the signature.
    pub fn is_by(&self, key_info: &[u8]) -> bool {
        let info = SubjectPublicKeyInfoDer::from(key_info);
        let Ok(key) = RawPublicKeyEntity::try_from(&info) else { return false };
        ALGORITHMS.iter().any(|algorithm| {
            algorithm.signature_alg_id().as_ref() == self.algorithm
                && key.verify_signature(*algorithm, self.octets, self.signature).is_ok()
        })
    }
}
