//! Unprotected messages: IKE_SA_INIT and the few errors sent without an SA. And the chain of payloads that they share
//! with protected ones.

use super::header::Header;
use super::payload::Payload;
use super::reader::{LengthField, Reader, WireError};
use super::registry::PayloadType;
use std::fmt;

/// Payloads of the longest chain that is read: more than any exchange has use for.
const MAX_PAYLOADS: usize = 64;

const CRITICAL: u8 = 0x80;

/// Writes a message; `header.next_payload` is set from the payloads.
///
/// # Panics
/// If a payload does not fit its 16-bit length field: a bug of the caller.
pub fn encode(header: &Header, payloads: &[Payload]) -> Vec<u8> {
    let mut body = Vec::new();
    write_payloads(payloads, &mut body);
    let len = Header::LEN + body.len();
    let mut out = Vec::with_capacity(len);
    note("sending", header, payloads);
    header.write(first_kind(payloads), len, &mut out);
    out.extend_from_slice(&body);
    out
}

/// Reads the payloads of an unprotected message whose header [`Header::parse`] accepted.
pub fn decode(header: &Header, datagram: &[u8]) -> Result<Vec<Payload>, WireError> {
    let body = datagram.get(Header::LEN..).ok_or(WireError::Truncated("IKE header"))?;
    let payloads = read_payloads(header.next_payload, body)?;
    note("received", header, &payloads);
    Ok(payloads)
}

/// Tells the log of a message: which payloads it has, never what is in them.
pub(super) fn note(way: &str, header: &Header, payloads: &[Payload]) {
    struct Names<'a>(&'a [Payload]);

    impl fmt::Display for Names<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            for (i, payload) in self.0.iter().enumerate() {
                f.write_str(if i == 0 { " with " } else { ", " })?;
                match payload {
                    Payload::Notify(notify) => write!(f, "N({})", notify.kind)?,
                    other => write!(f, "{}", other.kind())?,
                }
            }
            Ok(())
        }
    }

    tracing::debug!(
        initiator_spi = %header.initiator_spi,
        responder_spi = %header.responder_spi,
        "{way} {} {} {}{}",
        header.exchange,
        if header.response { "response" } else { "request" },
        header.message_id,
        Names(payloads)
    );
}

/// The type of the first payload, from the next-payload field before the chain.
pub(super) fn first_kind(payloads: &[Payload]) -> PayloadType {
    payloads.first().map_or(PayloadType::NONE, Payload::kind)
}

/// Writes a chain of payloads.
pub(super) fn write_payloads(payloads: &[Payload], out: &mut Vec<u8>) {
    for (i, payload) in payloads.iter().enumerate() {
        let at = out.len();
        // RFC 7296 §3.2: the critical bit is zero in every payload that RFC defines.
        out.extend_from_slice(&[first_kind(&payloads[i + 1..]).0, 0]);
        let len = LengthField::reserve(out, at);
        payload.write(out);
        len.fill(out);
    }
}

/// Reads a chain of payloads that must end with the octets.
pub(super) fn read_payloads(first: PayloadType, body: &[u8]) -> Result<Vec<Payload>, WireError> {
    let mut payloads = Vec::new();
    let mut chain = Chain::new(first, body);
    while let Some(raw) = chain.next()? {
        payloads.push(Payload::read(raw.kind, raw.critical, raw.body)?);
    }
    chain.finish()?;
    Ok(payloads)
}

/// A payload of which only the generic header was read (RFC 7296 §3.2).
pub(super) struct RawPayload<'a> {
    pub(super) kind: PayloadType,
    /// The payload after it, but for SK and SKF, which have the type of its first inner payload here.
    pub(super) next: PayloadType,
    pub(super) critical: bool,
    pub(super) body: &'a [u8],
}

/// Walks over payloads by their generic headers.
pub(super) struct Chain<'a> {
    next: PayloadType,
    reader: Reader<'a>,
    count: usize,
}

impl<'a> Chain<'a> {
    pub(super) fn new(first: PayloadType, octets: &'a [u8]) -> Self {
        Self { next: first, reader: Reader::new(octets, "payload"), count: 0 }
    }

    /// The next payload; `None` after the last.
    pub(super) fn next(&mut self) -> Result<Option<RawPayload<'a>>, WireError> {
        if self.next == PayloadType::NONE {
            return Ok(None);
        }
        if self.count == MAX_PAYLOADS {
            return Err(WireError::TooMany("payloads"));
        }
        self.count += 1;
        let kind = self.next;
        self.next = PayloadType(self.reader.u8()?);
        let critical = self.reader.u8()? & CRITICAL != 0;
        let len = self.reader.u16()?;
        let body = self.reader.body(len, 4)?;
        Ok(Some(RawPayload { kind, next: self.next, critical, body }))
    }

    /// Checks that nothing follows the last payload.
    pub(super) fn finish(self) -> Result<(), WireError> {
        if self.reader.is_empty() {
            return Ok(());
        }
        Err(WireError::Malformed("message: octets after the last payload"))
    }

    /// Returns `true` if nothing follows the payloads that have been read.
    pub(super) fn is_at_end(&self) -> bool {
        self.reader.is_empty()
    }
}
