//! The Encrypted Fragment payload (RFC 7383 §2.5).

use super::header::Header;
use super::protected::{
    Content, Envelope, OpenError, encrypted_payload, open_envelope, overhead, seal_envelope,
};
use super::reader::Reader;
use super::registry::PayloadType;
use ::crypto::{Cipher, Suite};

/// Octets of the generic header of SKF with Fragment Number and Total Fragments.
const FRAGMENT_HEADER: usize = 8;

/// The number of a fragment, and of all fragments of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Fragment Number, from 1 to `total`.
    pub number: u16,
    /// Total Fragments.
    pub total: u16,
}

impl Place {
    /// Octets of the two fields.
    pub(super) const LEN: usize = 4;

    pub(super) fn octets(self) -> [u8; Self::LEN] {
        let ([a, b], [c, d]) = (self.number.to_be_bytes(), self.total.to_be_bytes());
        [a, b, c, d]
    }
}

/// One fragment, opened. Its content begins with a whole payload only in the first.
#[derive(Debug)]
pub struct Fragment {
    /// Its number.
    pub place: Place,
    /// Its share of the message; its payload type means something in fragment 1 only.
    pub content: Content,
}

/// The place that a message claims for itself before anything of it is authenticated; `None` if it is no fragment.
///
/// # Errors
/// If its payloads are malformed or it cannot be the fragment that it says it is (RFC 7383 §2.6).
pub fn place(header: &Header, datagram: &[u8]) -> Result<Option<Place>, OpenError> {
    let payload = encrypted_payload(header, datagram)?;
    match payload.kind {
        PayloadType::SKF => split(payload.body).map(|(place, _)| Some(place)),
        _ => Ok(None),
    }
}

fn split(body: &[u8]) -> Result<(Place, &[u8]), OpenError> {
    let mut reader = Reader::new(body, "Encrypted Fragment payload");
    let (Ok(number), Ok(total)) = (reader.u16(), reader.u16()) else {
        return Err(OpenError::NotAuthentic("the fragment has no number"));
    };
    if number == 0 || number > total {
        return Err(OpenError::NotAuthentic("the fragment's number is out of range"));
    }
    Ok((Place { number, total }, reader.rest()))
}

/// The datagrams that a message is cut into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The most octets of each.
    pub room: usize,
    /// Their least number.
    pub least: usize,
}

impl Cut {
    /// A single datagram, whatever its length.
    pub const WHOLE: Self = Self { room: usize::MAX, least: 1 };

    /// As few datagrams of at most `room` octets as possible.
    pub fn to(room: usize) -> Self {
        Self { room, least: 1 }
    }
}

/// Writes a message in as many datagrams as `cut` asks for: one with SK where that is enough, else fragments of about
/// the same size. `next_iv` gives a fresh IV for each.
///
/// # Panics
/// If an IV has not `suite.iv_len()` octets: a bug of the caller.
pub fn seal(
    header: &Header,
    content: &Content,
    cut: Cut,
    suite: Suite,
    cipher: &dyn Cipher,
    mut next_iv: impl FnMut() -> Vec<u8>,
) -> Vec<Vec<u8>> {
    let Cut { room, least } = cut;
    let whole = Envelope { kind: PayloadType::SK, first: content.first, place: None };
    if least <= 1 && whole.message_len(content.octets.len(), suite) <= room {
        return vec![seal_envelope(header, &whole, &content.octets, suite, cipher, &next_iv())];
    }
    let len = content.octets.len();
    let total = len.div_ceil(capacity(room, suite)).max(least).clamp(1, usize::from(u16::MAX));
    (0..total)
        .map(|i| {
            let part = &content.octets[i * len / total..(i + 1) * len / total];
            let [number, total] = [i + 1, total]
                .map(|n| u16::try_from(n).expect("there are at most 65,535 fragments"));
            let envelope = Envelope {
                kind: PayloadType::SKF,
                // RFC 7383 §2.5: zero in all but the first.
                first: if i == 0 { content.first } else { PayloadType::NONE },
                place: Some(Place { number, total }),
            };
            seal_envelope(header, &envelope, part, suite, cipher, &next_iv())
        })
        .collect()
}

/// Octets of content that a fragment of at most `room` octets holds; one at least, however little room there is.
fn capacity(room: usize, suite: Suite) -> usize {
    let outside = Header::LEN + FRAGMENT_HEADER + overhead(suite);
    let inside = room.saturating_sub(outside) / suite.block_len() * suite.block_len();
    inside.saturating_sub(1).max(1)
}

/// Checks and opens a fragment for which [`place`] found a place.
///
/// # Errors
/// As [`super::protected::open`], but for what only the whole message tells.
pub fn open(
    header: &Header,
    datagram: &[u8],
    suite: Suite,
    cipher: &dyn Cipher,
) -> Result<Fragment, OpenError> {
    let payload = encrypted_payload(header, datagram)?;
    if payload.kind != PayloadType::SKF {
        return Err(OpenError::NotAuthentic("it is no fragment"));
    }
    let (place, sealed) = split(payload.body)?;
    let octets = open_envelope(datagram, sealed, suite, cipher)?;
    Ok(Fragment { place, content: Content { first: payload.next, octets } })
}
