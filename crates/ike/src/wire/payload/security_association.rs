//! SA: proposals, their transforms, and the attributes of those (RFC 7296 §3.3).

use super::{Proposal, Transform};
use crate::wire::reader::{LengthField, Reader, WireError};
use crate::wire::registry::{ProtocolId, TransformType};
use policy::MAX_PROPOSALS;

const LAST: u8 = 0;
const MORE_PROPOSALS: u8 = 2;
const MORE_TRANSFORMS: u8 = 3;

/// RFC 7296 §3.3.5: the bit of an attribute type that says the value stands where the length would.
const TYPE_VALUE: u16 = 0x8000;
const KEY_LENGTH: u16 = 14;
/// Written for [`Transform::unknown_attribute`]: the first type of the private range, without a value.
const PRIVATE_ATTRIBUTE: u16 = 16384;

pub(super) fn read(body: &[u8]) -> Result<Vec<Proposal>, WireError> {
    let mut reader = Reader::new(body, "SA payload");
    let mut proposals: Vec<Proposal> = Vec::new();
    loop {
        if proposals.len() == MAX_PROPOSALS {
            return Err(WireError::TooMany("proposals"));
        }
        let (last, proposal) = read_proposal(&mut reader)?;
        // RFC 7296 §3.3: numbers count up. A gap does no harm, a number used twice would make an answer ambiguous.
        if proposal.number <= proposals.last().map_or(0, |p| p.number) {
            return Err(WireError::Malformed("proposal number"));
        }
        proposals.push(proposal);
        if last {
            break;
        }
    }
    reader.finish()?;
    Ok(proposals)
}

pub(super) fn write(proposals: &[Proposal], out: &mut Vec<u8>) {
    for (i, proposal) in proposals.iter().enumerate() {
        let at = out.len();
        let last = if i + 1 == proposals.len() { LAST } else { MORE_PROPOSALS };
        let spi_size = u8::try_from(proposal.spi.len()).expect("an SPI has 0, 4 or 8 octets");
        let transforms =
            u8::try_from(proposal.transforms.len()).expect("a proposal has at most 255 transforms");
        out.extend_from_slice(&[last, 0]);
        let len = LengthField::reserve(out, at);
        out.extend_from_slice(&[proposal.number, proposal.protocol.0, spi_size, transforms]);
        out.extend_from_slice(&proposal.spi);
        for (i, transform) in proposal.transforms.iter().enumerate() {
            let last = if i + 1 == proposal.transforms.len() { LAST } else { MORE_TRANSFORMS };
            write_transform(last, transform, out);
        }
        len.fill(out);
    }
}

fn read_proposal(reader: &mut Reader<'_>) -> Result<(bool, Proposal), WireError> {
    let last = read_last(reader, MORE_PROPOSALS, "proposal")?;
    let len = reader.u16()?;
    let mut body = Reader::new(reader.body(len, 4)?, "proposal");
    let number = body.u8()?;
    let protocol = ProtocolId(body.u8()?);
    let spi_size = body.u8()?;
    let count = body.u8()?;
    // RFC 7296 §3.3.1
    let fits = match protocol {
        ProtocolId::IKE => matches!(spi_size, 0 | 8),
        ProtocolId::AH | ProtocolId::ESP => spi_size == 4,
        _ => true,
    };
    if !fits {
        return Err(WireError::Malformed("proposal: the SPI does not fit the protocol"));
    }
    let spi = body.take(usize::from(spi_size))?.to_vec();
    if count == 0 {
        return Err(WireError::Malformed("proposal: it has no transform"));
    }
    let mut transforms = Vec::new();
    for i in 1..=count {
        let (last, transform) = read_transform(&mut body)?;
        if last != (i == count) {
            return Err(WireError::Malformed("proposal: number of transforms"));
        }
        transforms.push(transform);
    }
    body.finish()?;
    Ok((last, Proposal { number, protocol, spi, transforms }))
}

fn read_transform(reader: &mut Reader<'_>) -> Result<(bool, Transform), WireError> {
    let last = read_last(reader, MORE_TRANSFORMS, "transform")?;
    let len = reader.u16()?;
    let mut body = Reader::new(reader.body(len, 4)?, "transform");
    let kind = TransformType(body.u8()?);
    body.take(1)?;
    let id = body.u16()?;
    let mut transform = Transform { kind, id, key_length: None, unknown_attribute: false };
    while !body.is_empty() {
        let attribute = body.u16()?;
        // RFC 7296 §3.3.5: which form a type has is fixed, so Key Length in the long form is not Key Length.
        if attribute == TYPE_VALUE | KEY_LENGTH {
            if transform.key_length.replace(body.u16()?).is_some() {
                return Err(WireError::Malformed("transform: two key lengths"));
            }
            continue;
        }
        transform.unknown_attribute = true;
        let value_or_length = body.u16()?;
        if attribute & TYPE_VALUE == 0 {
            body.take(usize::from(value_or_length))?;
        }
    }
    Ok((last, transform))
}

fn write_transform(last: u8, transform: &Transform, out: &mut Vec<u8>) {
    let at = out.len();
    out.extend_from_slice(&[last, 0]);
    let len = LengthField::reserve(out, at);
    out.extend_from_slice(&[transform.kind.0, 0]);
    out.extend_from_slice(&transform.id.to_be_bytes());
    if let Some(bits) = transform.key_length {
        out.extend_from_slice(&(TYPE_VALUE | KEY_LENGTH).to_be_bytes());
        out.extend_from_slice(&bits.to_be_bytes());
    }
    if transform.unknown_attribute {
        out.extend_from_slice(&PRIVATE_ATTRIBUTE.to_be_bytes());
        out.extend_from_slice(&[0, 0]);
    }
    len.fill(out);
}

/// Reads "last or more" and the reserved octet after it.
fn read_last(reader: &mut Reader<'_>, more: u8, what: &'static str) -> Result<bool, WireError> {
    let [last, _reserved] = reader.array()?;
    match last {
        LAST => Ok(true),
        _ if last == more => Ok(false),
        _ => Err(WireError::Malformed(what)),
    }
}
