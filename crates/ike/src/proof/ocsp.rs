//! Answers of OCSP responders (RFC 6960), as they come beside a proof (RFC 4806).

use super::certificate::Certificate;
use super::signed::Signed;
use crate::crypto::tally;
use crypto::asymmetric::Hash;
use std::fmt;
use std::time::Duration;
use x509_cert::Certificate as X509;
use x509_cert::der::asn1::{AnyRef, GeneralizedTime, ObjectIdentifier, OctetStringRef, UintRef};
use x509_cert::der::{self, Decode, Reader, SliceReader, Tag, TagNumber, Tagged};
use x509_cert::ext::pkix::ExtendedKeyUsage;
use x509_cert::spki::SubjectPublicKeyInfoRef;

/// Octets of the longest answer that is read.
pub(crate) const LONGEST: usize = 16 * 1024;
/// The time by which the responder's clock may be ahead of this one.
const SKEW: Duration = Duration::from_secs(5 * 60);
/// The time for which a response is valid that does not name a time.
const UNLIMITED: Duration = Duration::from_secs(24 * 3600);

const BASIC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.48.1.1");
const OCSP_SIGNING: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.9");
const SHA1: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.14.3.2.26");
const SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.1");

/// An answer that can be read; whether it counts is another question.
#[derive(Clone)]
pub struct Ocsp {
    der: Vec<u8>,
    /// The part that is signed.
    octets: Vec<u8>,
    /// The contents of the AlgorithmIdentifier.
    algorithm: Vec<u8>,
    signature: Vec<u8>,
    /// Certificates of responders.
    certificates: Vec<Vec<u8>>,
    singles: Vec<Single>,
}

/// An answer's statement about one certificate.
#[derive(Clone)]
struct Single {
    hash: ObjectIdentifier,
    issuer_name: Vec<u8>,
    issuer_key: Vec<u8>,
    serial: Vec<u8>,
    status: Status,
    this_update: Duration,
    next_update: Option<Duration>,
}

/// The state of a certificate by an OCSP response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Status {
    Unknown,
    Good,
    /// Counts for more than any other answer.
    Revoked,
}

/// Why an answer cannot be used; completes "the OCSP response …".
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum OcspError {
    /// It is longer than any real one.
    #[error("has more than {LONGEST} octets")]
    TooLong,
    /// It is not a successful basic response in DER.
    #[error("cannot be read: {0}; a successful basic response (RFC 6960) in DER is wanted")]
    Encoding(String),
}

policy::readable_debug!(OcspError);

impl Ocsp {
    /// Reads the DER encoding of an OCSPResponse.
    ///
    /// # Errors
    /// If it is not one, or one that tells of an error.
    pub fn read(der: &[u8]) -> Result<Self, OcspError> {
        if der.len() > LONGEST {
            return Err(OcspError::TooLong);
        }
        read(der).map_err(|error| OcspError::Encoding(error.to_string()))
    }

    /// Its octets.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// From when until when it counts, since 1970: as long as all it says does.
    pub fn validity(&self) -> (Duration, Duration) {
        let from = self.singles.iter().map(|single| single.this_update).max();
        let until = self.singles.iter().map(Single::until).min();
        (from.unwrap_or_default(), until.unwrap_or_default())
    }

    /// Returns `true` if the response is about a certificate, judged by the issuer's name and the serial number; the
    /// issuer's key is not known here.
    pub(crate) fn is_about(&self, certificate: &Certificate) -> bool {
        self.singles.iter().any(|single| single.names(certificate))
    }

    /// Its statement about a certificate that `issuer` has signed.
    ///
    /// # Errors
    /// The reason for which the response cannot be used at this time.
    pub(crate) fn status(
        &self,
        certificate: &Certificate,
        issuer: &Certificate,
        unix_time: Duration,
        max_age: Option<Duration>,
    ) -> Result<Status, String> {
        let single = (self.singles.iter())
            .find(|single| single.names(certificate) && single.is_key_of(issuer))
            .ok_or("it is about another certificate")?;
        if !self.is_signed_for(issuer, unix_time) {
            return Err(format!("it is signed neither by {issuer} nor by a responder of it"));
        }
        if single.this_update > unix_time + SKEW || single.until() <= unix_time {
            return Err("it is outdated, or of the future".into());
        }
        // RFC 4806 §6
        if max_age.is_some_and(|age| single.this_update + age <= unix_time) {
            return Err("it is older than the configuration allows".into());
        }
        Ok(single.status)
    }

    /// Until when, since 1970, it says that a certificate is good; `None`: it does not say so now.
    pub(crate) fn vouches_until(
        &self,
        certificate: &Certificate,
        issuer: &Certificate,
        unix_time: Duration,
        max_age: Option<Duration>,
    ) -> Option<Duration> {
        let status = self.status(certificate, issuer, unix_time, max_age);
        status.ok().filter(|status| *status == Status::Good)?;
        let single = (self.singles.iter())
            .find(|single| single.names(certificate) && single.is_key_of(issuer))?;
        let aged = max_age.map(|age| single.this_update.saturating_add(age));
        Some(aged.map_or(single.until(), |aged| aged.min(single.until())))
    }

    /// RFC 6960 §4.2.2.2: the issuer itself signs, or one to whom it has given a certificate for that.
    fn is_signed_for(&self, issuer: &Certificate, unix_time: Duration) -> bool {
        let (octets, algorithm) = (self.octets.as_slice(), self.algorithm.as_slice());
        let signed = Signed { octets, algorithm, signature: &self.signature };
        signed.is_by(&issuer.key().info)
            || self.certificates.iter().filter_map(|der| Certificate::read(der).ok()).any(
                |responder| {
                    let (from, until) = responder.validity();
                    Some(responder.issuer()) == issuer.subject()
                        && (from..=until).contains(&unix_time)
                        && signed.is_by(&responder.key().info)
                        && is_for_ocsp(&responder)
                        && responder.is_signed_by(&issuer.key().info)
                },
            )
    }
}

impl fmt::Debug for Ocsp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ocsp({} octets)", self.der.len())
    }
}

impl Single {
    fn until(&self) -> Duration {
        self.next_update.unwrap_or(self.this_update + UNLIMITED)
    }

    fn hash(&self, octets: &[u8]) -> Option<Vec<u8>> {
        let hash = match self.hash {
            SHA1 => Hash::Sha1,
            SHA256 => Hash::Sha256,
            _ => return None,
        };
        Some(tally::digest(hash, octets))
    }

    fn names(&self, certificate: &Certificate) -> bool {
        self.serial == stripped(certificate.serial())
            && self.hash(certificate.issuer().as_der()).as_ref() == Some(&self.issuer_name)
    }

    fn is_key_of(&self, issuer: &Certificate) -> bool {
        let info = SubjectPublicKeyInfoRef::from_der(&issuer.key().info);
        let hash = info.ok().and_then(|info| self.hash(info.subject_public_key.raw_bytes()));
        hash.as_ref() == Some(&self.issuer_key)
    }
}

fn is_for_ocsp(responder: &Certificate) -> bool {
    let usage = X509::from_der(responder.der())
        .and_then(|read| read.tbs_certificate().get_extension::<ExtendedKeyUsage>());
    usage.is_ok_and(|usage| usage.is_some_and(|(_, usage)| usage.0.contains(&OCSP_SIGNING)))
}

/// Without the zeros that DER puts before what would be negative.
fn stripped(serial: &[u8]) -> &[u8] {
    let zeros = serial.iter().take_while(|octet| **octet == 0).count();
    &serial[zeros..]
}

/// RFC 6960 §4.2.1
fn read(octets: &[u8]) -> der::Result<Ocsp> {
    let mut outer = SliceReader::new(AnyRef::from_der(octets)?.value())?;
    let status = AnyRef::decode(&mut outer)?;
    if (status.tag(), status.value()) != (Tag::Enumerated, &[0]) {
        return Err(wrong_value(Tag::Enumerated));
    }
    let bytes = tagged(&mut outer, 0)?.ok_or_else(|| wrong_value(Tag::Sequence))?;
    let mut bytes = SliceReader::new(AnyRef::from_der(bytes)?.value())?;
    if ObjectIdentifier::decode(&mut bytes)? != BASIC {
        return Err(wrong_value(Tag::ObjectIdentifier));
    }
    let basic = <&OctetStringRef>::decode(&mut bytes)?.as_bytes();

    let mut basic = SliceReader::new(AnyRef::from_der(basic)?.value())?;
    let signed = Signed::read_from(&mut basic)?;
    let mut certificates = Vec::new();
    if let Some(all) = tagged(&mut basic, 0)? {
        let mut all = SliceReader::new(AnyRef::from_der(all)?.value())?;
        while !all.is_finished() {
            certificates.push(all.tlv_bytes()?.to_vec());
        }
    }

    let mut parts = SliceReader::new(AnyRef::from_der(signed.octets)?.value())?;
    tagged(&mut parts, 0)?;
    // The responder's name or the hash of its key: its signature tells as much.
    AnyRef::decode(&mut parts)?;
    GeneralizedTime::decode(&mut parts)?;
    let mut answers = SliceReader::new(AnyRef::decode(&mut parts)?.value())?;
    let mut singles = Vec::new();
    while !answers.is_finished() {
        singles.push(single(AnyRef::decode(&mut answers)?.value())?);
    }
    Ok(Ocsp {
        der: octets.to_vec(),
        octets: signed.octets.to_vec(),
        algorithm: signed.algorithm.to_vec(),
        signature: signed.signature.to_vec(),
        certificates,
        singles,
    })
}

fn wrong_value(tag: Tag) -> der::Error {
    tag.value_error().into()
}

fn single(octets: &[u8]) -> der::Result<Single> {
    let mut reader = SliceReader::new(octets)?;
    let mut id = SliceReader::new(AnyRef::decode(&mut reader)?.value())?;
    let mut algorithm = SliceReader::new(AnyRef::decode(&mut id)?.value())?;
    let hash = ObjectIdentifier::decode(&mut algorithm)?;
    let issuer_name = <&OctetStringRef>::decode(&mut id)?.as_bytes().to_vec();
    let issuer_key = <&OctetStringRef>::decode(&mut id)?.as_bytes().to_vec();
    let serial = UintRef::decode(&mut id)?.as_bytes();
    let status = match AnyRef::decode(&mut reader)?.tag() {
        Tag::ContextSpecific { number: TagNumber(0), .. } => Status::Good,
        Tag::ContextSpecific { number: TagNumber(1), .. } => Status::Revoked,
        _ => Status::Unknown,
    };
    let this_update = GeneralizedTime::decode(&mut reader)?.to_unix_duration();
    let next_update = match tagged(&mut reader, 0)? {
        Some(time) => Some(GeneralizedTime::from_der(time)?.to_unix_duration()),
        None => None,
    };
    let serial = stripped(serial).to_vec();
    Ok(Single { hash, issuer_name, issuer_key, serial, status, this_update, next_update })
}

/// The contents of an EXPLICIT context-specific tag, if that is next.
fn tagged<'a>(reader: &mut SliceReader<'a>, number: u32) -> der::Result<Option<&'a [u8]>> {
    if reader.is_finished() {
        return Ok(None);
    }
    let expected = Tag::ContextSpecific { constructed: true, number: TagNumber(number) };
    if Tag::peek(reader)? != expected {
        return Ok(None);
    }
    AnyRef::decode(reader).map(|any| Some(any.value()))
}
