//! Tickets of session resumption (RFC 5723) by value: the responder's state of an IKE SA, sealed under a key that only
//! the responder has. The initiator keeps the octets, which mean nothing to it, and presents them once.
//!
//! ```text
//!  0      1              5                    21           29
//!  | form | key's number | start of the sealer | counter    | ciphertext of the content | ICV |
//!  '---------------- authenticated -----------'-- the IV --'----- AES-256-GCM ---------------'
//! ```
//!
//! The AES key is derived from a [`TicketKey`] and the sealer's start, which are 16 random octets. So two sealers, or
//! two runs of one, have different AES keys although they share a ticket key, and a counter makes each IV unique.

mod content;

pub use content::{Content, Fingerprint};
pub(crate) use content::{fingerprint, fingerprint_of_id};

use crate::crypto::prf::{self, prf, prf_plus};
use crate::crypto::rng::Rng;
use crate::wire::reader::Reader;
use ::crypto::{Aad, CryptoProviders, Suite};
use policy::{KeyBits, Prf, Secret};
use std::fmt;
use zeroize::Zeroizing;

/// Octets of the longest ticket that this side makes or reads.
pub const LONGEST: usize = 600;

/// Octets of a ticket key.
pub const KEY_LEN: usize = 32;

/// The first octet of a ticket. Another form of the content, or another cipher, has another one.
const FORM: u8 = 1;
const START_LEN: usize = 16;
/// Octets that are authenticated, and not encrypted: form, number, start.
const HEADER_LEN: usize = 1 + 4 + START_LEN;
const CIPHER: Suite = Suite::AesGcm16(KeyBits::B256);
/// Tickets of one sealer under one key: far fewer than AES-GCM bears.
const MOST: u64 = 1 << 32;

/// A key under which tickets are sealed and opened.
#[derive(Clone, PartialEq, Eq)]
pub struct TicketKey {
    number: u32,
    secret: Secret,
}

impl TicketKey {
    /// A key of [`KEY_LEN`] octets; `None`: they are fewer or more.
    pub fn new(secret: Secret) -> Option<Self> {
        let by = ::crypto::Provider::default();
        let hash = prf(by, Prf::HmacSha2_256, b"IKEv2 ticket key number", &[secret.expose()]);
        let number = u32::from_be_bytes(*hash.expose().first_chunk()?);
        (secret.len() == KEY_LEN).then_some(Self { number, secret })
    }

    /// The number that tickets name the key by. It follows from the key.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The AES key and the salt of a sealer: HKDF-SHA-256 (RFC 5869).
    fn derive(&self, crypto: &CryptoProviders, start: &[u8; START_LEN]) -> Secret {
        let by = prf::provider(crypto, Prf::HmacSha2_256);
        let extracted = prf(by, Prf::HmacSha2_256, start, &[self.secret.expose()]);
        let info = [b"IKEv2 ticket 1".as_slice(), &self.number.to_be_bytes()];
        // RFC 5869 §2.3: HKDF-Expand and prf+ are the same function.
        let len = CIPHER.key_material_len();
        prf_plus(by, Prf::HmacSha2_256, extracted.expose(), &info, len)
    }
}

impl fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TicketKey({:08x})", self.number)
    }
}

/// Names a ticket among all of this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TicketId(pub(crate) u128, pub(crate) u64);

#[cfg(test)]
impl TicketId {
    /// A ticket for tests.
    pub fn numbered(number: u32) -> Self {
        Self(0, u64::from(number))
    }
}

/// The reason for which a ticket cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unopened {
    /// It is none of this form.
    Malformed,
    /// It names a key that is not here.
    UnknownKey,
    /// It is not sealed under the key that it names: it is damaged or forged.
    NotAuthentic,
}

/// Seals tickets. Each engine has one.
pub struct Sealer {
    start: [u8; START_LEN],
    sealed: u64,
    /// The key for a side that is given none: it ends with the sealer.
    own: TicketKey,
}

impl Sealer {
    /// A sealer with a start and a key of its own.
    pub fn new(rng: &mut Rng) -> Self {
        let mut start = [0; START_LEN];
        rng.fill(&mut start);
        let mut own = vec![0; KEY_LEN];
        rng.fill(&mut own);
        let own = TicketKey::new(Secret::new(own)).expect("the octets have the length of a key");
        Self { start, sealed: 0, own }
    }

    /// A sealer with a start of its own, and the key of another one.
    pub(crate) fn with_key(rng: &mut Rng, own: TicketKey) -> Self {
        Self { own, ..Self::new(rng) }
    }

    /// The octets of its own key.
    pub(crate) fn own(&self) -> &Secret {
        &self.own.secret
    }

    /// Seals a ticket under the first of the given keys, or under the sealer's own if there is none. `None`: this sealer
    /// has made as many tickets as it may.
    pub fn seal(
        &mut self,
        crypto: &CryptoProviders,
        keys: &[TicketKey],
        content: &Content,
    ) -> Option<(TicketId, Vec<u8>)> {
        let counter = (self.sealed < MOST).then_some(self.sealed)?;
        self.sealed += 1;
        let key = keys.first().unwrap_or(&self.own);
        let plain = content.write();
        let mut ticket = vec![0; HEADER_LEN + CIPHER.iv_len() + plain.len() + CIPHER.icv_len()];
        let (header, sealed) = ticket.split_at_mut(HEADER_LEN);
        header[0] = FORM;
        header[1..5].copy_from_slice(&key.number.to_be_bytes());
        header[5..].copy_from_slice(&self.start);
        let cipher = crypto.provider(CIPHER).cipher(CIPHER, &key.derive(crypto, &self.start));
        let cipher = cipher.expect("a provider serves only suites that it has");
        cipher.seal(&counter.to_be_bytes(), Aad::Octets(header), plain.expose(), &[], sealed);
        Some((TicketId(u128::from_be_bytes(self.start), counter), ticket))
    }

    /// Opens a ticket that was sealed under one of the given keys, or under the sealer's own.
    ///
    /// # Errors
    /// If it was not.
    pub fn open(
        &self,
        crypto: &CryptoProviders,
        keys: &[TicketKey],
        ticket: &[u8],
    ) -> Result<(TicketId, Content), Unopened> {
        if ticket.len() > LONGEST {
            return Err(Unopened::Malformed);
        }
        let (header, sealed) =
            ticket.split_first_chunk::<HEADER_LEN>().ok_or(Unopened::Malformed)?;
        let mut reader = Reader::new(header, "ticket");
        let form = reader.u8().map_err(|_| Unopened::Malformed)?;
        let number = reader.u32().map_err(|_| Unopened::Malformed)?;
        let start = reader.array().map_err(|_| Unopened::Malformed)?;
        let counter = sealed.first_chunk().copied().map(u64::from_be_bytes);
        let counter = counter.filter(|_| form == FORM).ok_or(Unopened::Malformed)?;
        let room = sealed.len().checked_sub(CIPHER.iv_len() + CIPHER.icv_len());
        let mut plain = Zeroizing::new(vec![0; room.ok_or(Unopened::Malformed)?]);
        let key = keys.iter().chain([&self.own]).find(|key| key.number == number);
        let key = key.ok_or(Unopened::UnknownKey)?;
        let cipher = crypto.provider(CIPHER).cipher(CIPHER, &key.derive(crypto, &start));
        let cipher = cipher.expect("a provider serves only suites that it has");
        let opened = cipher.open(Aad::Octets(header), sealed, &mut plain);
        let len = opened.map_err(|_| Unopened::NotAuthentic)?;
        let content = plain.get(..len).and_then(|plain| Content::read(plain).ok());
        let content = content.ok_or(Unopened::Malformed)?;
        Ok((TicketId(u128::from_be_bytes(start), counter), content))
    }
}

/// The number of tickets so far: a sealer holds a key.
impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").field("sealed", &self.sealed).finish_non_exhaustive()
    }
}
