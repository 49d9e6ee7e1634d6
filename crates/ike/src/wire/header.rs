//! The IKE header (RFC 7296 §3.1).

use super::reader::{Reader, WireError};
use super::registry::{ExchangeType, PayloadType};
use std::fmt;

/// SPI of an IKE SA; zero means "none yet".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IkeSpi(pub u64);

impl fmt::Display for IkeSpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for IkeSpi {
    /// As it is displayed: a JSON number would lose digits.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

const VERSION_2_0: u8 = 0x20;
const INITIATOR: u8 = 0x08;
const HIGHER_VERSION: u8 = 0x10;
const RESPONSE: u8 = 0x20;

/// The 28 octets every message starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// SPI of the IKE SA's original initiator.
    pub initiator_spi: IkeSpi,
    /// SPI of the IKE SA's original responder.
    pub responder_spi: IkeSpi,
    /// Type of the first payload.
    pub next_payload: PayloadType,
    /// Exchange.
    pub exchange: ExchangeType,
    /// I flag: the sender is the IKE SA's original initiator.
    pub from_initiator: bool,
    /// R flag.
    pub response: bool,
    /// V flag: the sender speaks a higher major version (never set in what is sent).
    pub higher_version: bool,
    /// Minor version as received (0 in what is sent).
    pub minor_version: u8,
    /// Message ID.
    pub message_id: u32,
}

impl Header {
    /// Octets of a header.
    pub const LEN: usize = 28;

    /// Reads the header of a datagram and checks major version and that the length field is the datagram's.
    pub fn parse(datagram: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(datagram, "IKE header");
        let initiator_spi = IkeSpi(reader.u64()?);
        let responder_spi = IkeSpi(reader.u64()?);
        let next_payload = PayloadType(reader.u8()?);
        let version = reader.u8()?;
        let exchange = ExchangeType(reader.u8()?);
        let flags = reader.u8()?;
        let message_id = reader.u32()?;
        let length = reader.u32()?;
        let (major, minor) = (version >> 4, version & 0x0f);
        if major != 2 {
            return Err(WireError::Version(major, minor));
        }
        if usize::try_from(length) != Ok(datagram.len()) {
            return Err(WireError::Malformed("message length"));
        }
        if initiator_spi == IkeSpi(0) {
            return Err(WireError::Malformed("initiator SPI: it is zero"));
        }
        Ok(Self {
            initiator_spi,
            responder_spi,
            next_payload,
            exchange,
            from_initiator: flags & INITIATOR != 0,
            response: flags & RESPONSE != 0,
            higher_version: flags & HIGHER_VERSION != 0,
            minor_version: minor,
            message_id,
        })
    }

    /// Writes the header of a message of `len` octets. Version 2.0 and no V flag, whatever was received.
    pub(super) fn write(&self, next_payload: PayloadType, len: usize, out: &mut Vec<u8>) {
        let len = u32::try_from(len).expect("what is sent is far smaller than 4 GiB");
        let mut flags = 0;
        if self.from_initiator {
            flags |= INITIATOR;
        }
        if self.response {
            flags |= RESPONSE;
        }
        out.extend_from_slice(&self.initiator_spi.0.to_be_bytes());
        out.extend_from_slice(&self.responder_spi.0.to_be_bytes());
        out.extend_from_slice(&[next_payload.0, VERSION_2_0, self.exchange.0, flags]);
        out.extend_from_slice(&self.message_id.to_be_bytes());
        out.extend_from_slice(&len.to_be_bytes());
    }
}
