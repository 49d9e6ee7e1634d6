//! Postquantum preshared keys (RFC 8784), by their names.

/// The postquantum preshared keys (PPKs) of a tunnel. The keys themselves stand elsewhere; both sides have them by the
/// same names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ppk {
    /// Names (`PPK_ID`). As initiator, this side uses the first whose key it has; as responder, it takes each.
    pub ids: Vec<String>,
    /// A peer without one of them is refused.
    pub required: bool,
}

impl Ppk {
    /// The most names of one tunnel.
    pub const MOST: usize = 16;

    /// The longest name in octets.
    pub const LONGEST: usize = 64;

    /// PPKs of which one is required.
    pub fn required(ids: Vec<String>) -> Self {
        Self { ids, required: true }
    }

    /// PPKs of which one is used if the peer has it, too.
    pub fn optional(ids: Vec<String>) -> Self {
        Self { ids, required: false }
    }

    /// Returns `true` if a text can be the name of a PPK: 1 to 64 letters, digits and `.` `_` `@` `+` `=` `-`, the
    /// first of them a letter or a digit. So it can be the name of a file, too.
    pub fn is_id(text: &str) -> bool {
        (1..=Self::LONGEST).contains(&text.len())
            && text.bytes().all(|octet| octet.is_ascii_alphanumeric() || b"._@+=-".contains(&octet))
            && text.as_bytes()[0].is_ascii_alphanumeric()
            && !text.eq_ignore_ascii_case("NONE")
    }
}
