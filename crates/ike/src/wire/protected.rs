//! The Encrypted payload (RFC 7296 §3.14, RFC 5282).

use super::header::Header;
use super::message::{Chain, first_kind, note, read_payloads, write_payloads};
use super::payload::Payload;
use super::reader::WireError;
use super::registry::PayloadType;
use esp::cipher::{Aad, Cipher, Suite};
use zeroize::Zeroizing;

/// Octets of the generic header of SK.
const GENERIC_HEADER: usize = 4;

/// Why a protected message was not opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// No SK payload, or its lengths are impossible, or the integrity check failed: nothing in it may be believed.
    #[error("not authentic: {0}")]
    NotAuthentic(&'static str),
    /// Authentic, but malformed inside.
    #[error(transparent)]
    Inside(#[from] WireError),
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
    note("sending", header, payloads);
    let mut plaintext = Zeroizing::new(Vec::new());
    write_payloads(payloads, &mut plaintext);
    let padding = padding(plaintext.len(), suite.block_len());
    let sealed_len = suite.iv_len() + plaintext.len() + padding.len() + suite.icv_len();
    let sk_len = u16::try_from(GENERIC_HEADER + sealed_len)
        .expect("what is sent is far smaller than 65,536 octets");
    let len = Header::LEN + usize::from(sk_len);

    let mut out = Vec::with_capacity(len);
    header.write(PayloadType::SK, len, &mut out);
    out.extend_from_slice(&[first_kind(payloads).0, 0]);
    out.extend_from_slice(&sk_len.to_be_bytes());
    out.resize(len, 0);
    // RFC 5282 §5.1, and RFC 7296 §3.14: either way everything before the IV is authenticated.
    let (aad, sealed) = out.split_at_mut(Header::LEN + GENERIC_HEADER);
    cipher.seal(iv, Aad::Octets(aad), &plaintext, &padding, sealed);
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
    let (first_inner, sealed) = encrypted_payload(header, datagram)?;
    let (aad, _) = datagram.split_at(datagram.len() - sealed.len());
    let room = sealed.len().saturating_sub(suite.iv_len() + suite.icv_len());
    let mut plaintext = Zeroizing::new(vec![0; room]);
    let len = cipher
        .open(Aad::Octets(aad), sealed, &mut plaintext)
        .map_err(|_| OpenError::NotAuthentic("the integrity check failed"))?;
    let payloads = without_padding(&plaintext[..len])?;
    let payloads = read_payloads(first_inner, payloads)?;
    note("received", header, &payloads);
    Ok(payloads)
}

/// The type of SK's first inner payload, and its IV ‖ ciphertext ‖ ICV.
fn encrypted_payload<'a>(
    header: &Header,
    datagram: &'a [u8],
) -> Result<(PayloadType, &'a [u8]), OpenError> {
    const MALFORMED: OpenError = OpenError::NotAuthentic("a payload exceeds the message");
    let mut chain = Chain::new(header.next_payload, datagram.get(Header::LEN..).ok_or(MALFORMED)?);
    while let Some(payload) = chain.next().map_err(|_| MALFORMED)? {
        if payload.kind == PayloadType::SK {
            if !chain.is_at_end() {
                return Err(OpenError::NotAuthentic("SK is not the last payload"));
            }
            return Ok((payload.next, payload.body));
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
