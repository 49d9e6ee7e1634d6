//! Payloads as values (RFC 7296 §3.2 to §3.16).

mod delete;
mod identification;
mod notify;
mod security_association;
mod traffic_selector;

use super::reader::{Reader, WireError};
use super::registry::{
    AuthMethod, CertEncoding, GroupId, IdType, NotifyType, PayloadType, ProtocolId, TransformType,
};
use policy::Selector;

/// One payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// SA: proposals in order of preference.
    Sa(Vec<Proposal>),
    /// KE.
    KeyExchange {
        /// Group of the public value.
        group: GroupId,
        /// Public value.
        data: Vec<u8>,
    },
    /// IDi.
    IdInitiator(Identification),
    /// IDr.
    IdResponder(Identification),
    /// CERT.
    Certificate {
        /// The encoding of the data.
        encoding: CertEncoding,
        /// The certificate, list or answer.
        data: Vec<u8>,
    },
    /// CERTREQ.
    CertificateRequest {
        /// The encoding that is asked for.
        encoding: CertEncoding,
        /// For X.509 the SHA-1 hashes of the trusted authorities' keys, one after the other.
        authorities: Vec<u8>,
    },
    /// AUTH.
    Auth {
        /// The method of the proof.
        method: AuthMethod,
        /// Its value.
        data: Vec<u8>,
    },
    /// Ni or Nr: 16 to 256 octets.
    Nonce(Vec<u8>),
    /// N.
    Notify(Notify),
    /// D.
    Delete(Delete),
    /// V.
    VendorId(Vec<u8>),
    /// TSi.
    TsInitiator(Vec<TrafficSelector>),
    /// TSr.
    TsResponder(Vec<TrafficSelector>),
    /// A payload this implementation does not interpret (CP, EAP and unknown types without the critical bit).
    Other {
        /// Its type.
        kind: PayloadType,
        /// Its body.
        data: Vec<u8>,
    },
}

/// One proposal of an SA payload (RFC 7296 §3.3.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// Its number, from 1.
    pub number: u8,
    /// Its purpose.
    pub protocol: ProtocolId,
    /// Sender's SPI: 0, 4 or 8 octets.
    pub spi: Vec<u8>,
    /// Transforms in the order sent.
    pub transforms: Vec<Transform>,
}

/// One transform (RFC 7296 §3.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Transform {
    /// Its type.
    pub kind: TransformType,
    /// Its ID within the type.
    pub id: u16,
    /// Key Length attribute in bits.
    pub key_length: Option<u16>,
    /// It carried an unknown attribute: such a transform must not be chosen (RFC 7296 §3.3.6).
    pub unknown_attribute: bool,
}

/// Body of IDi and IDr (RFC 7296 §3.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identification {
    /// Its type.
    pub kind: IdType,
    /// Its value.
    pub data: Vec<u8>,
}

/// Body of N (RFC 7296 §3.10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notify {
    /// The protocol that the SPI belongs to; NONE without SPI.
    pub protocol: ProtocolId,
    /// SPI or nothing.
    pub spi: Vec<u8>,
    /// The type of the notification.
    pub kind: NotifyType,
    /// Its data.
    pub data: Vec<u8>,
}

/// Body of D (RFC 7296 §3.11).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delete {
    /// The IKE SA that carries it.
    IkeSa,
    /// Child SAs by the sender's inbound SPIs.
    ChildSas {
        /// ESP or AH.
        protocol: ProtocolId,
        /// SPIs.
        spis: Vec<u32>,
    },
}

/// One traffic selector (RFC 7296 §3.13.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrafficSelector {
    /// IPv4 or IPv6 range.
    Range(Selector),
    /// OPAQUE ports (start 65535, end 0), or a type this implementation does not know: never matched.
    Unsupported {
        /// The TS type number.
        kind: u8,
    },
}

impl Payload {
    /// Its type.
    pub fn kind(&self) -> PayloadType {
        match self {
            Self::Sa(_) => PayloadType::SA,
            Self::KeyExchange { .. } => PayloadType::KE,
            Self::IdInitiator(_) => PayloadType::IDI,
            Self::IdResponder(_) => PayloadType::IDR,
            Self::Certificate { .. } => PayloadType::CERT,
            Self::CertificateRequest { .. } => PayloadType::CERTREQ,
            Self::Auth { .. } => PayloadType::AUTH,
            Self::Nonce(_) => PayloadType::NONCE,
            Self::Notify(_) => PayloadType::NOTIFY,
            Self::Delete(_) => PayloadType::DELETE,
            Self::VendorId(_) => PayloadType::VENDOR_ID,
            Self::TsInitiator(_) => PayloadType::TSI,
            Self::TsResponder(_) => PayloadType::TSR,
            Self::Other { kind, .. } => *kind,
        }
    }

    /// Reads what follows the generic header of a payload; `critical` is that header's C bit. A payload of an unknown
    /// type is kept as `Other` and skipped, or an error if it is critical, which is answered with
    /// UNSUPPORTED_CRITICAL_PAYLOAD.
    pub(super) fn read(kind: PayloadType, critical: bool, body: &[u8]) -> Result<Self, WireError> {
        match kind {
            PayloadType::SA => security_association::read(body).map(Self::Sa),
            PayloadType::KE => {
                let mut reader = Reader::new(body, "KE payload");
                let group = GroupId(reader.u16()?);
                reader.take(2)?;
                Ok(Self::KeyExchange { group, data: reader.rest().to_vec() })
            }
            PayloadType::IDI => Identification::read(body).map(Self::IdInitiator),
            PayloadType::IDR => Identification::read(body).map(Self::IdResponder),
            PayloadType::CERT => {
                let mut reader = Reader::new(body, "CERT payload");
                let encoding = CertEncoding(reader.u8()?);
                Ok(Self::Certificate { encoding, data: reader.rest().to_vec() })
            }
            PayloadType::CERTREQ => {
                let mut reader = Reader::new(body, "CERTREQ payload");
                let encoding = CertEncoding(reader.u8()?);
                Ok(Self::CertificateRequest { encoding, authorities: reader.rest().to_vec() })
            }
            PayloadType::AUTH => {
                let mut reader = Reader::new(body, "AUTH payload");
                let method = AuthMethod(reader.u8()?);
                reader.take(3)?;
                Ok(Self::Auth { method, data: reader.rest().to_vec() })
            }
            // RFC 7296 §3.9
            PayloadType::NONCE if !(16..=256).contains(&body.len()) => {
                Err(WireError::Malformed("nonce: it must have 16 to 256 octets"))
            }
            PayloadType::NONCE => Ok(Self::Nonce(body.to_vec())),
            PayloadType::NOTIFY => Notify::read(body).map(Self::Notify),
            PayloadType::DELETE => Delete::read(body).map(Self::Delete),
            PayloadType::VENDOR_ID => Ok(Self::VendorId(body.to_vec())),
            PayloadType::TSI => traffic_selector::read(body).map(Self::TsInitiator),
            PayloadType::TSR => traffic_selector::read(body).map(Self::TsResponder),
            PayloadType::SK | PayloadType::SKF => Err(WireError::Malformed(
                "message: an Encrypted payload among payloads read in the clear",
            )),
            // RFC 7296 §2.5: the bit is ignored where the type is known, though its content is not interpreted.
            PayloadType::CP | PayloadType::EAP => Ok(Self::Other { kind, data: body.to_vec() }),
            _ if critical => Err(WireError::UnsupportedCritical(kind)),
            _ => Ok(Self::Other { kind, data: body.to_vec() }),
        }
    }

    /// Writes what follows the generic header.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Sa(proposals) => security_association::write(proposals, out),
            Self::KeyExchange { group, data } => {
                out.extend_from_slice(&group.0.to_be_bytes());
                out.extend_from_slice(&[0, 0]);
                out.extend_from_slice(data);
            }
            Self::IdInitiator(id) | Self::IdResponder(id) => id.write(out),
            Self::Certificate { encoding, data }
            | Self::CertificateRequest { encoding, authorities: data } => {
                out.push(encoding.0);
                out.extend_from_slice(data);
            }
            Self::Auth { method, data } => {
                out.extend_from_slice(&[method.0, 0, 0, 0]);
                out.extend_from_slice(data);
            }
            Self::Nonce(data) | Self::VendorId(data) | Self::Other { data, .. } => {
                out.extend_from_slice(data);
            }
            Self::Notify(notify) => notify.write(out),
            Self::Delete(delete) => delete.write(out),
            Self::TsInitiator(selectors) | Self::TsResponder(selectors) => {
                traffic_selector::write(selectors, out);
            }
        }
    }
}
