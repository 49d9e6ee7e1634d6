//! The IKE header (RFC 7296 §3.1).

use super::reader::WireError;
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
    /// V flag: the sender speaks a higher major version.
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
        let _ = datagram;
        unimplemented!()
    }
}
