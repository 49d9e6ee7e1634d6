//! A postquantum preshared key that one side lacks.

use std::fmt;

/// A postquantum preshared key (RFC 8784) that one side lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Ppk {
    /// The deficiency.
    pub lack: PpkLack,
    /// The names in this side's policy.
    pub known: Vec<String>,
    /// The name in the initiator's message.
    pub asked: Option<String>,
    /// This side's policy requires a PPK.
    pub required: bool,
    /// The peer's identity.
    pub remote: String,
}

/// The deficiency of one side with regard to postquantum preshared keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum PpkLack {
    /// This side has no key by the names in its policy.
    Key,
    /// The peer asks for a key by a name that this side's policy does not have for it.
    Unknown,
    /// The peer does not say that it uses PPKs.
    Unannounced,
    /// The peer names none, although it has said that it uses PPKs.
    Unnamed,
    /// Both sides have a key by the peer's name, with other octets.
    Differs,
    /// The sides have no key in common.
    Unshared,
    /// The peer has gone on without the one that this side has named.
    Unused,
}

impl fmt::Display for Ppk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lack, known, asked, remote, .. } = self;
        let asked = asked.as_deref().unwrap_or_default();
        let known = match known.as_slice() {
            [] => "none".to_owned(),
            known => known.join(", "),
        };
        match lack {
            PpkLack::Key => write!(f, "this side has no PPK by the names in its policy: {known}"),
            PpkLack::Unknown => {
                write!(f, "{remote} asks for the PPK {asked}, for which the policy has {known}")
            }
            PpkLack::Unannounced => {
                write!(f, "{remote} uses no PPK, but the policy requires one: {known}")
            }
            PpkLack::Unnamed => write!(f, "{remote} names no PPK, although it has announced one"),
            PpkLack::Differs => {
                write!(f, "the octets of the PPK {asked} are not those that {remote} has")
            }
            PpkLack::Unshared => {
                write!(
                    f,
                    "{remote} has none of the PPKs, of which the policy requires one: {known}"
                )
            }
            PpkLack::Unused => {
                write!(f, "{remote} does not have the PPK {asked}, which the policy requires")
            }
        }
    }
}
