//! N (RFC 7296 §3.10).

use super::Notify;
use crate::wire::reader::{Reader, WireError};
use crate::wire::registry::{NotifyType, ProtocolId};

impl Notify {
    /// A notification about the IKE SA or the exchange itself: no protocol, no SPI.
    pub fn new(kind: NotifyType, data: Vec<u8>) -> Self {
        Self { protocol: ProtocolId::NONE, spi: Vec::new(), kind, data }
    }

    pub(super) fn read(body: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body, "Notify payload");
        let protocol = ProtocolId(reader.u8()?);
        let spi_size = usize::from(reader.u8()?);
        let kind = NotifyType(reader.u16()?);
        let spi = reader.take(spi_size)?.to_vec();
        // RFC 7296 §3.10: without SPI the protocol is ignored.
        let protocol = if spi.is_empty() { ProtocolId::NONE } else { protocol };
        Ok(Self { protocol, spi, kind, data: reader.rest().to_vec() })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let spi_size = u8::try_from(self.spi.len()).expect("an SPI has 0, 4 or 8 octets");
        let protocol = if self.spi.is_empty() { ProtocolId::NONE } else { self.protocol };
        out.extend_from_slice(&[protocol.0, spi_size]);
        out.extend_from_slice(&self.kind.0.to_be_bytes());
        out.extend_from_slice(&self.spi);
        out.extend_from_slice(&self.data);
    }
}
