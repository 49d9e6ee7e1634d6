//! The content of a ticket: the state of an IKE SA that RFC 5723 §5 takes "from the ticket".

use crate::crypto::tally;
use crate::wire::header::IkeSpi;
use crate::wire::payload::{Identification, Proposal, Transform};
use crate::wire::reader::{Reader, WireError};
use crate::wire::registry::{AuthMethod, ProtocolId, TransformType};
use ::crypto::asymmetric::Hash;
use policy::Secret;
use zeroize::Zeroizing;

/// SHA-256 of something that is as long as it likes, or must not stand in a ticket.
pub type Fingerprint = [u8; 32];

/// Transforms of the suite of an IKE SA, at most: four, and seven additional key exchanges.
const MOST_TRANSFORMS: usize = 11;
/// Octets of SK_d, at most.
const LONGEST_SK_D: usize = 64;

/// The content of a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// When the ticket expires, in seconds since 1970.
    pub expires: u64,
    /// When both sides last proved who they are without a ticket, in seconds since 1970.
    pub proved: u64,
    /// Until when that proof may be relied on, in seconds since 1970: the certificates of the proof, and what is known
    /// about their revocation, are valid until then.
    pub proof_until: u64,
    /// The resumptions since that proof.
    pub resumptions: u8,
    /// The method by which the initiator gave that proof.
    pub method: AuthMethod,
    /// The fingerprint of the phase 1 tunnel's name.
    pub tunnel: Fingerprint,
    /// The fingerprint of the initiator's ID payload.
    pub initiator: Fingerprint,
    /// The fingerprint of the responder's ID payload.
    pub responder: Fingerprint,
    /// The fingerprint of what the initiator's proof was checked with.
    pub credential: Fingerprint,
    /// SHA-256 of the last postquantum preshared key in SK_d.
    pub ppk: Option<Fingerprint>,
    /// SK_d withstands a quantum computer.
    pub quantum_safe: bool,
    /// The SPIs of the IKE SA: the original initiator's and the original responder's.
    pub spis: (IkeSpi, IkeSpi),
    /// The algorithms of the IKE SA.
    pub suite: Proposal,
    /// SK_d of the IKE SA.
    pub sk_d: Secret,
}

/// The fingerprint of octets in several parts, each with its length.
pub(crate) fn fingerprint(parts: &[&[u8]]) -> Fingerprint {
    let lengths = parts.iter().map(|part| u32::try_from(part.len()).unwrap_or(u32::MAX));
    let lengths: Vec<u8> = lengths.flat_map(u32::to_be_bytes).collect();
    let octets = Zeroizing::new([&lengths[..], &parts.concat()].concat());
    let hash = tally::digest(Hash::Sha256, &octets).try_into();
    hash.expect("SHA-256 makes 32 octets")
}

/// The fingerprint of an ID payload.
pub(crate) fn fingerprint_of_id(id: &Identification) -> Fingerprint {
    fingerprint(&[&[id.kind.0], id.data.as_slice()])
}

impl Content {
    /// Its octets.
    pub(super) fn write(&self) -> Secret {
        // All room at once: a vector that grows leaves copies of the secret behind.
        let mut out = Vec::with_capacity(super::LONGEST);
        for time in [self.expires, self.proved, self.proof_until] {
            out.extend_from_slice(&time.to_be_bytes());
        }
        out.extend_from_slice(&[self.resumptions, self.method.0]);
        for print in [&self.tunnel, &self.initiator, &self.responder, &self.credential] {
            out.extend_from_slice(print);
        }
        out.push(u8::from(self.ppk.is_some()));
        out.extend_from_slice(&self.ppk.unwrap_or_default());
        out.push(u8::from(self.quantum_safe));
        for spi in [self.spis.0, self.spis.1] {
            out.extend_from_slice(&spi.0.to_be_bytes());
        }
        let transforms = &self.suite.transforms;
        out.push(u8::try_from(transforms.len()).expect("a suite has few transforms"));
        for transform in transforms {
            out.push(transform.kind.0);
            out.extend_from_slice(&transform.id.to_be_bytes());
            out.extend_from_slice(&transform.key_length.unwrap_or(0).to_be_bytes());
        }
        out.push(u8::try_from(self.sk_d.len()).expect("SK_d is as long as the output of a PRF"));
        out.extend_from_slice(self.sk_d.expose());
        Secret::new(out)
    }

    /// Reads what [`Content::write`] has written.
    pub(super) fn read(octets: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(octets, "ticket");
        let [expires, proved, proof_until] = [reader.u64()?, reader.u64()?, reader.u64()?];
        let (resumptions, method) = (reader.u8()?, AuthMethod(reader.u8()?));
        let [tunnel, initiator] = [reader.array()?, reader.array()?];
        let [responder, credential] = [reader.array()?, reader.array()?];
        let (has_ppk, ppk) = (flag(&mut reader)?, reader.array()?);
        let quantum_safe = flag(&mut reader)?;
        let spis = (IkeSpi(reader.u64()?), IkeSpi(reader.u64()?));
        let count = usize::from(reader.u8()?);
        if count > MOST_TRANSFORMS {
            return Err(WireError::TooMany("transforms of a ticket"));
        }
        let mut transforms = Vec::with_capacity(count);
        for _ in 0..count {
            let (kind, id) = (TransformType(reader.u8()?), reader.u16()?);
            let key_length = Some(reader.u16()?).filter(|length| *length != 0);
            transforms.push(Transform { kind, id, key_length, unknown_attribute: false });
        }
        let len = usize::from(reader.u8()?);
        if len > LONGEST_SK_D {
            return Err(WireError::Malformed("ticket"));
        }
        let sk_d = Secret::new(reader.take(len)?.to_vec());
        reader.finish()?;
        let suite = Proposal { number: 1, protocol: ProtocolId::IKE, spi: Vec::new(), transforms };
        Ok(Self {
            expires,
            proved,
            proof_until,
            resumptions,
            method,
            tunnel,
            initiator,
            responder,
            credential,
            ppk: has_ppk.then_some(ppk),
            quantum_safe,
            spis,
            suite,
            sk_d,
        })
    }
}

fn flag(reader: &mut Reader<'_>) -> Result<bool, WireError> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(WireError::Malformed("ticket")),
    }
}
