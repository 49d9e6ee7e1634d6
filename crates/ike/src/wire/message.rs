//! Unprotected messages: IKE_SA_INIT and the few errors sent without an SA.

use super::header::Header;
use super::payload::Payload;
use super::reader::WireError;

/// Writes a message; `header.next_payload` is set from the payloads.
pub fn encode(header: &Header, payloads: &[Payload]) -> Vec<u8> {
    let _ = (header, payloads);
    unimplemented!()
}

/// Reads the payloads of an unprotected message whose header [`Header::parse`] accepted.
pub fn decode(header: &Header, datagram: &[u8]) -> Result<Vec<Payload>, WireError> {
    let _ = (header, datagram);
    unimplemented!()
}
