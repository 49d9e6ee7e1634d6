//! Payloads as values (RFC 7296 §3.2 to §3.16).

use super::registry::{
    AuthMethod, GroupId, IdType, NotifyType, PayloadType, ProtocolId, TransformType,
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
    /// AUTH.
    Auth {
        /// How it was made.
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
    /// A payload this implementation does not interpret (CERT, CERTREQ, CP, EAP and unknown types without the critical bit).
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
    /// What it is for.
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
    /// Whether it carried an attribute this implementation does not know: such a transform must not be chosen
    /// (RFC 7296 §3.3.6).
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
    /// What the SPI belongs to; NONE without SPI.
    pub protocol: ProtocolId,
    /// SPI or nothing.
    pub spi: Vec<u8>,
    /// What it says.
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

impl Identification {
    /// The identity, where this implementation knows the type and the value is well-formed.
    pub fn identity(&self) -> Option<policy::Identity> {
        unimplemented!()
    }

    /// The payload body of an identity.
    pub fn of(identity: &policy::Identity) -> Self {
        let _ = identity;
        unimplemented!()
    }
}
