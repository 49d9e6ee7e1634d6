//! D (RFC 7296 §3.11).

use super::Delete;
use crate::wire::reader::{Reader, WireError};
use crate::wire::registry::ProtocolId;

impl Delete {
    pub(super) fn read(body: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body, "Delete payload");
        let protocol = ProtocolId(reader.u8()?);
        let spi_size = reader.u8()?;
        let count = usize::from(reader.u16()?);
        match (protocol, spi_size) {
            (ProtocolId::IKE, 0) if count == 0 => {
                reader.finish()?;
                Ok(Self::IkeSa)
            }
            (ProtocolId::AH | ProtocolId::ESP, 4) => {
                // The octets are taken before anything is allocated for as many as the count claims.
                let (spis, _) = reader.take(count * 4)?.as_chunks::<4>();
                reader.finish()?;
                let spis = spis.iter().map(|spi| u32::from_be_bytes(*spi)).collect();
                Ok(Self::ChildSas { protocol, spis })
            }
            (ProtocolId::IKE | ProtocolId::AH | ProtocolId::ESP, _) => {
                Err(WireError::Malformed("Delete payload: SPIs do not fit the protocol"))
            }
            _ => Err(WireError::Malformed("Delete payload: no such protocol")),
        }
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::IkeSa => out.extend_from_slice(&[ProtocolId::IKE.0, 0, 0, 0]),
            Self::ChildSas { protocol, spis } => {
                let count = u16::try_from(spis.len())
                    .expect("what is sent is far smaller than 65,536 octets");
                out.extend_from_slice(&[protocol.0, 4]);
                out.extend_from_slice(&count.to_be_bytes());
                for spi in spis {
                    out.extend_from_slice(&spi.to_be_bytes());
                }
            }
        }
    }
}
