//! A cursor that cannot overrun, and the errors of everything that parses.

use super::registry::PayloadType;

/// Octets that are not what they claim to be.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The octets end before what they announce.
    #[error("truncated {0}")]
    Truncated(&'static str),
    /// A field has a value it cannot have.
    #[error("malformed {0}")]
    Malformed(&'static str),
    /// More items than this implementation bounds (64 payloads, 64 proposals, 255 transforms, 255 selectors …).
    #[error("too many {0}")]
    TooMany(&'static str),
    /// A payload of unknown type with the critical bit (RFC 7296 §2.5).
    #[error("unsupported critical payload {0}")]
    UnsupportedCritical(PayloadType),
    /// IKE major version above 2 (or below).
    #[error("IKE version {0}.{1}")]
    Version(u8, u8),
}

policy::readable_debug!(WireError);

/// Octets not read yet; reading past their end is an error and reads nothing.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    /// Starts at the first octet; `what` names them in errors.
    pub(crate) fn new(octets: &'a [u8], what: &'static str) -> Self {
        Self { rest: octets, what }
    }

    /// Returns `true` if everything was read.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `len` octets.
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) =
            self.rest.split_at_checked(len).ok_or(WireError::Truncated(self.what))?;
        self.rest = rest;
        Ok(taken)
    }

    /// The next `N` octets.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (taken, rest) =
            self.rest.split_first_chunk::<N>().ok_or(WireError::Truncated(self.what))?;
        self.rest = rest;
        Ok(*taken)
    }

    /// One octet.
    pub(crate) fn u8(&mut self) -> Result<u8, WireError> {
        self.array().map(|[octet]| octet)
    }

    /// Two octets in network order.
    pub(crate) fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_be_bytes)
    }

    /// Four octets in network order.
    pub(crate) fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_be_bytes)
    }

    /// Eight octets in network order.
    pub(crate) fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_be_bytes)
    }

    /// The rest of a structure whose first `header` octets have been read and whose length field says `len`, header
    /// included.
    pub(crate) fn body(&mut self, len: u16, header: usize) -> Result<&'a [u8], WireError> {
        let len = usize::from(len).checked_sub(header).ok_or(WireError::Malformed(self.what))?;
        self.take(len)
    }

    /// Everything not read yet.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Checks that nothing is left over.
    pub(crate) fn finish(self) -> Result<(), WireError> {
        if self.is_empty() { Ok(()) } else { Err(WireError::Malformed(self.what)) }
    }
}

/// Where a length field of two octets will be known only once what it counts is written.
pub(crate) struct LengthField {
    start: usize,
    at: usize,
}

impl LengthField {
    /// Leaves room for the length, at the end of `out`, of the structure that begins at `start`.
    pub(crate) fn reserve(out: &mut Vec<u8>, start: usize) -> Self {
        let at = out.len();
        out.extend_from_slice(&[0, 0]);
        Self { start, at }
    }

    /// Fills it in: the structure ends where `out` ends.
    pub(crate) fn fill(self, out: &mut [u8]) {
        let len = u16::try_from(out.len() - self.start)
            .expect("what is sent is far smaller than 65,536 octets");
        out[self.at..self.at + 2].copy_from_slice(&len.to_be_bytes());
    }
}
