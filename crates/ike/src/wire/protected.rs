//! The Encrypted payload (RFC 7296 §3.14, RFC 5282).

use super::fragment::Place;
use super::header::Header;
use super::message::{Chain, RawPayload, first_kind, note, read_payloads, write_payloads};
use super::payload::Payload;
use super::reader::WireError;
use super::registry::PayloadType;
use ::crypto::{Aad, Cipher, Suite};
use std::fmt;
use zeroize::Zeroizing;

/// Octets of the generic header of SK.
const GENERIC_HEADER: usize = 4;

/// Why a protected message was not opened.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// No SK payload, or its lengths are impossible, or the integrity check failed: nothing in it may be believed.
    #[error("not authentic: {0}")]
    NotAuthentic(&'static str),
    /// Authentic, but malformed inside.
    #[error(transparent)]
    Inside(#[from] WireError),
}

policy::readable_debug!(OpenError);

/// The payloads of a message, written and not protected, or a part of them.
pub struct Content {
    /// Type of the first payload.
    pub first: PayloadType,
    /// The payloads.
    pub octets: Zeroizing<Vec<u8>>,
}

impl Content {
    /// Writes the payloads that a message is to have.
    pub fn of(header: &Header, payloads: &[Payload]) -> Self {
        note("sending", header, payloads);
        Self::written(payloads)
    }

    /// Payloads as they are written, in no message.
    pub(crate) fn written(payloads: &[Payload]) -> Self {
        let mut octets = Zeroizing::new(Vec::new());
        write_payloads(payloads, &mut octets);
        Self { first: first_kind(payloads), octets }
    }

    /// Reads payloads that are in no message.
    ///
    /// # Errors
    /// If they are malformed.
    pub(crate) fn payloads(&self) -> Result<Vec<Payload>, WireError> {
        read_payloads(self.first, &self.octets)
    }

    /// Reads the payloads of a message that is complete.
    ///
    /// # Errors
    /// If they are malformed.
    pub fn read(&self, header: &Header) -> Result<Vec<Payload>, WireError> {
        let payloads = read_payloads(self.first, &self.octets)?;
        note("received", header, &payloads);
        Ok(payloads)
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Content({} octets)", self.octets.len())
    }
}

/// The header fields around protected octets.
pub(super) struct Envelope {
    /// SK or SKF.
    pub(super) kind: PayloadType,
    /// Type of the first payload inside.
    pub(super) first: PayloadType,
    /// Only in SKF.
    pub(super) place: Option<Place>,
}

impl Envelope {
    /// Octets of everything before the IV.
    fn prefix_len(&self) -> usize {
        Header::LEN + GENERIC_HEADER + self.place.map_or(0, |_| Place::LEN)
    }

    /// Octets of a message with so many octets of payloads.
    pub(super) fn message_len(&self, content: usize, suite: Suite) -> usize {
        self.prefix_len() + overhead(suite) + (content + 1).next_multiple_of(suite.block_len())
    }
}

/// Octets of IV and ICV.
pub(super) fn overhead(suite: Suite) -> usize {
    suite.iv_len() + suite.icv_len()
}

/// Writes a message whose payloads are all inside SK. `iv` has `suite.iv_len()` octets.
///
/// # Panics
/// If the message does not fit SK's 16-bit length field, or `iv` has another length: a bug of the caller.
pub fn seal(
    header: &Header,
    payloads: &[Payload],
    suite: Suite,
    cipher: &dyn Cipher,
    iv: &[u8],
) -> Vec<u8> {
    let content = Content::of(header, payloads);
    let envelope = Envelope { kind: PayloadType::SK, first: content.first, place: None };
    seal_envelope(header, &envelope, &content.octets, suite, cipher, iv)
}

/// Writes a message of one protected payload.
pub(super) fn seal_envelope(
    header: &Header,
    envelope: &Envelope,
    plaintext: &[u8],
    suite: Suite,
    cipher: &dyn Cipher,
    iv: &[u8],
) -> Vec<u8> {
    let padding = padding(plaintext.len(), suite.block_len());
    let len = envelope.message_len(plaintext.len(), suite);
    let payload_len =
        u16::try_from(len - Header::LEN).expect("what is sent is far smaller than 65,536 octets");
    let mut out = Vec::with_capacity(len);
    header.write(envelope.kind, len, &mut out);
    out.extend_from_slice(&[envelope.first.0, 0]);
    out.extend_from_slice(&payload_len.to_be_bytes());
    out.extend(envelope.place.iter().flat_map(|p| p.octets()));
    out.resize(len, 0);
    // RFC 5282 §5.1, RFC 7296 §3.14, RFC 7383 §2.5: either way everything before the IV is authenticated.
    let (aad, sealed) = out.split_at_mut(envelope.prefix_len());
    cipher.seal(iv, Aad::Octets(aad), plaintext, &padding, sealed);
    out
}

/// Checks and reads a message whose header [`Header::parse`] accepted. SK must be the last payload; payloads before
/// it are skipped (RFC 7296 §3.14 has none there).
pub fn open(
    header: &Header,
    datagram: &[u8],
    suite: Suite,
    cipher: &dyn Cipher,
) -> Result<Vec<Payload>, OpenError> {
    Ok(open_content(header, datagram, suite, cipher)?.read(header)?)
}

/// Checks and decrypts such a message, and does not read what is in it.
pub fn open_content(
    header: &Header,
    datagram: &[u8],
    suite: Suite,
    cipher: &dyn Cipher,
) -> Result<Content, OpenError> {
    let payload = encrypted_payload(header, datagram)?;
    if payload.kind != PayloadType::SK {
        return Err(OpenError::NotAuthentic("there is no SK payload"));
    }
    let octets = open_envelope(datagram, payload.body, suite, cipher)?;
    Ok(Content { first: payload.next, octets })
}

/// The octets of an IKE_INTERMEDIATE message that the proofs cover: the message as it was before its protection, and in
/// one piece (RFC 9242 §3.3.2). `datagram` is the message or its fragment 1; `None` if SK or SKF is not its first
/// payload.
pub fn authenticated_octets(datagram: &[u8], content: &Content) -> Option<Zeroizing<Vec<u8>>> {
    const NEXT_PAYLOAD: usize = 16;
    const LENGTH: usize = 24;
    let prefix = datagram.get(..Header::LEN + GENERIC_HEADER)?;
    let first = PayloadType(prefix[NEXT_PAYLOAD]);
    if !matches!(first, PayloadType::SK | PayloadType::SKF) {
        return None;
    }
    let payload = GENERIC_HEADER + content.octets.len();
    let len = u32::try_from(Header::LEN + payload).ok()?;
    // A message that came in fragments may be longer than the field can say; its sender has done the same.
    let [.., high, low] = payload.to_be_bytes();
    let mut out = Zeroizing::new(Vec::with_capacity(Header::LEN + payload));
    out.extend_from_slice(prefix);
    out[NEXT_PAYLOAD] = PayloadType::SK.0;
    out[LENGTH..Header::LEN].copy_from_slice(&len.to_be_bytes());
    out[Header::LEN] = content.first.0;
    out[Header::LEN + 2..].copy_from_slice(&[high, low]);
    out.extend_from_slice(&content.octets);
    Some(out)
}

/// Checks and decrypts the IV ‖ ciphertext ‖ ICV at the end of a message; the result has no padding.
pub(super) fn open_envelope(
    datagram: &[u8],
    sealed: &[u8],
    suite: Suite,
    cipher: &dyn Cipher,
) -> Result<Zeroizing<Vec<u8>>, OpenError> {
    let (aad, _) = datagram.split_at(datagram.len() - sealed.len());
    let room = sealed.len().saturating_sub(overhead(suite));
    let mut plaintext = Zeroizing::new(vec![0; room]);
    let len = cipher
        .open(Aad::Octets(aad), sealed, &mut plaintext)
        .map_err(|_| OpenError::NotAuthentic("the integrity check failed"))?;
    let len = without_padding(&plaintext[..len])?.len();
    plaintext.truncate(len);
    Ok(plaintext)
}

/// SK or SKF, which must be the last payload.
pub(super) fn encrypted_payload<'a>(
    header: &Header,
    datagram: &'a [u8],
) -> Result<RawPayload<'a>, OpenError> {
    const MALFORMED: OpenError = OpenError::NotAuthentic("a payload exceeds the message");
    let mut chain = Chain::new(header.next_payload, datagram.get(Header::LEN..).ok_or(MALFORMED)?);
    while let Some(payload) = chain.next().map_err(|_| MALFORMED)? {
        if matches!(payload.kind, PayloadType::SK | PayloadType::SKF) {
            if !chain.is_at_end() {
                return Err(OpenError::NotAuthentic("SK is not the last payload"));
            }
            return Ok(payload);
        }
    }
    Err(OpenError::NotAuthentic("there is no SK payload"))
}

/// The fewest octets of padding and pad length that fill a block (RFC 7296 §3.14).
fn padding(len: usize, block: usize) -> Vec<u8> {
    let pad = (len + 1).next_multiple_of(block) - (len + 1);
    let mut padding = vec![0; pad];
    padding.push(u8::try_from(pad).expect("a block has 16 octets"));
    padding
}

/// RFC 7296 §3.14: any padding is good, of any length that is there.
fn without_padding(plaintext: &[u8]) -> Result<&[u8], WireError> {
    let (pad, rest) = plaintext.split_last().ok_or(WireError::Truncated("Encrypted payload"))?;
    let len = rest
        .len()
        .checked_sub(usize::from(*pad))
        .ok_or(WireError::Malformed("Encrypted payload: pad length"))?;
    Ok(&rest[..len])
}
