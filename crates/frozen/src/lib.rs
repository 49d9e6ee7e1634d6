//! The format in which a gateway hands its state to its successor, which may be another version of it.
//!
//! It knows nothing of VPNs: the key management, the data planes and the gateway each write a record of their own.
//!
//! ```text
//! Frozen    "VPNFROZE" │ version, 2 octets │ length of the record, 8 octets │ record
//! record    fields with ascending numbers
//! field     number, 2 octets (first bit: may be ignored) │ length, 4 octets │ value
//! value     a number of 0 to 8 octets │ octets │ a record │ a list: (length, 4 octets │ record) …
//! ```
//!
//! All numbers are in network order.
//!
//! # Example
//!
//! ```
//! use frozen::{Field, Frozen};
//!
//! const PORT: Field = Field::new(1);
//! const COUNT: Field = Field::ignorable(2);
//!
//! let frozen = Frozen::write(|to| {
//!     to.number(PORT, 4500_u16);
//!     to.number(COUNT, 7_u64);
//! });
//! let received = Frozen::of_octets(frozen.octets().to_vec())?;
//! let mut from = received.read("a gateway")?;
//! assert_eq!(from.number::<u16>(PORT)?, 4500);
//! // A version that does not know the second field ignores it.
//! from.end()?;
//! # Ok::<(), frozen::Unthawable>(())
//! ```
//!
//! # Compatibility between versions
//!
//! - A value that is its field's default (zero, `false`, no octets) is not written. A reader that does not find a field
//!   takes the default. A new field's default therefore has to mean "as before".
//! - A reader refuses the whole if it meets a field that it does not know, unless the field may be ignored
//!   ([`Field::ignorable`]), as counters and remarks may be. So an older version can take over as long as nothing is in
//!   use that it does not know.
//! - A field's number is never used again for anything else. [`VERSION`] rises only if a known number changes its
//!   meaning. A reader refuses a higher version; [`Reader::version`] tells it of a lower one.
//! - Each value has one form, so that frozen states can be compared.
//!
//! # Secrets
//!
//! A frozen state has the keys of all SAs. [`Frozen`] wipes its memory, also the memory that it leaves when it grows,
//! and its `Debug` shows a length only. It is made to be handed over in a sealed memfd, never in a file.
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | How is a field written, how read? | `writer.rs`, `reader.rs` |
//! | How is a moment written, which has no meaning in another process? | `clock.rs` |
//! | How is memory wiped? | `octets.rs` |
#![forbid(unsafe_code)]

mod clock;
mod octets;
mod reader;
mod writer;

pub use clock::Clock;
pub use reader::{List, Reader};
pub use writer::Writer;

use octets::Octets;
use std::fmt;
use zeroize::Zeroizing;

/// The version of the format that is written, and the highest that is read.
pub const VERSION: u16 = 1;

/// The first octets of a frozen state.
const MAGIC: &[u8; 8] = b"VPNFROZE";

/// Octets before the record.
const HEAD: usize = MAGIC.len() + 2 + 8;

/// Records within records. A deeper one is refused, so that no input makes a reader recurse further.
const DEEPEST: u8 = 12;

/// The number of a field, and whether a reader that does not know it may ignore it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field(u16);

impl Field {
    /// The bit that says that a reader may ignore the field.
    const IGNORABLE: u16 = 1 << 15;

    /// A field without which the record means something else.
    ///
    /// # Panics
    /// If the number has more than 15 bits. As a constant, it then does not compile.
    pub const fn new(number: u16) -> Self {
        assert!(number < Self::IGNORABLE, "a field's number has 15 bits");
        Self(number)
    }

    /// A field that a reader may ignore, such as a counter.
    ///
    /// # Panics
    /// As [`Field::new`].
    pub const fn ignorable(number: u16) -> Self {
        Self(Self::new(number).0 | Self::IGNORABLE)
    }

    /// Its number.
    pub const fn number(self) -> u16 {
        self.0 & !Self::IGNORABLE
    }

    const fn may_be_ignored(self) -> bool {
        self.0 & Self::IGNORABLE != 0
    }
}

/// The reason for which a frozen state cannot be thawed. It names no value: a value may be a key.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unthawable {
    /// The octets are no frozen state.
    #[error("this is no frozen gateway")]
    Foreign,
    /// The format is newer than this program.
    #[error(
        "frozen by a newer version, in format {found}; this version reads formats up to {known}. Restart without a hand-over"
    )]
    Newer {
        /// The version of the format that was found.
        found: u16,
        /// The highest version of the format that can be read.
        known: u16,
    },
    /// A field that this program does not know, and that must not be ignored.
    #[error(
        "frozen by a newer version: {record} has field {field}, which this version does not know. Restart without a hand-over"
    )]
    UnknownField {
        /// The thing that the record describes.
        record: &'static str,
        /// The field's number.
        field: u16,
    },
    /// A field that must be there.
    #[error("{record} lacks field {field}")]
    Missing {
        /// The thing that the record describes.
        record: &'static str,
        /// The field's number.
        field: u16,
    },
    /// A field whose value cannot be.
    #[error("field {field} of {record} has a value that cannot be")]
    Invalid {
        /// The thing that the record describes.
        record: &'static str,
        /// The field's number.
        field: u16,
    },
    /// The octets break the format.
    #[error("{record} is malformed: {why}")]
    Malformed {
        /// The thing that the record describes.
        record: &'static str,
        /// The rule that is broken.
        why: &'static str,
    },
}

/// As it is displayed: it has no more.
impl fmt::Debug for Unthawable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The frozen state of a gateway, with its keys.
pub struct Frozen(Zeroizing<Vec<u8>>);

impl Frozen {
    /// Writes a state.
    pub fn write(record: impl FnOnce(&mut Writer<'_>)) -> Self {
        Self::write_into(0, record)
    }

    /// The same, with room for so many octets from the beginning: a state that is expected to be large is then not
    /// copied while it is written.
    pub fn write_into(room: usize, record: impl FnOnce(&mut Writer<'_>)) -> Self {
        let mut octets = Octets::with_room(HEAD.saturating_add(room));
        octets.push(MAGIC);
        octets.push(&VERSION.to_be_bytes());
        octets.push(&[0; 8]);
        record(&mut Writer::new(&mut octets));
        let length = octets.len() - HEAD;
        let length = u64::try_from(length).expect("memory has fewer octets");
        octets.put(HEAD - 8, &length.to_be_bytes());
        Self(octets.take())
    }

    /// Takes octets that were frozen. What they say is read by [`Frozen::read`]. They are wiped if they are refused.
    ///
    /// # Errors
    /// If they are no frozen state, or one of a newer format, or incomplete.
    pub fn of_octets(octets: Vec<u8>) -> Result<Self, Unthawable> {
        let frozen = Self(Zeroizing::new(octets));
        frozen.head()?;
        Ok(frozen)
    }

    /// The octets, to be handed over.
    pub fn octets(&self) -> &[u8] {
        &self.0
    }

    /// Reads the state. `record` says what it describes, for reasons of refusals.
    ///
    /// # Errors
    /// As [`Frozen::of_octets`].
    pub fn read(&self, record: &'static str) -> Result<Reader<'_>, Unthawable> {
        let (version, octets) = self.head()?;
        Ok(Reader::new(record, version, octets))
    }

    fn head(&self) -> Result<(u16, &[u8]), Unthawable> {
        let rest = self.0.strip_prefix(MAGIC).ok_or(Unthawable::Foreign)?;
        let (version, rest) = rest.split_first_chunk().ok_or(Unthawable::Foreign)?;
        // Before anything that a newer format may have changed.
        let found = u16::from_be_bytes(*version);
        if found > VERSION {
            return Err(Unthawable::Newer { found, known: VERSION });
        }
        let (length, record) = rest.split_first_chunk().ok_or(Unthawable::Foreign)?;
        if found == 0 || Ok(u64::from_be_bytes(*length)) != u64::try_from(record.len()) {
            return Err(Unthawable::Malformed { record: "the whole", why: "it is incomplete" });
        }
        Ok((found, record))
    }
}

impl fmt::Debug for Frozen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frozen({} octets)", self.0.len())
    }
}
