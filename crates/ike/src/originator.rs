//! The side that began an IKE SA, a session or an exchange.

/// The side that began something: an IKE SA (the original initiator of RFC 7296 §2.2), a session, an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Originator {
    ThisSide,
    Peer,
}

impl Originator {
    pub fn is_here(self) -> bool {
        self == Self::ThisSide
    }

    /// Puts the value of the initiator before that of the responder.
    pub fn in_order<T>(self, ours: T, theirs: T) -> (T, T) {
        match self {
            Self::ThisSide => (ours, theirs),
            Self::Peer => (theirs, ours),
        }
    }
}
