//! Options for reading a file.

use crate::{Bindings, Identity, IkeEncryption, Protection, Secret};

/// Finds the preshared key of a peer.
pub type FindKey<'a> = &'a dyn Fn(&Identity) -> Option<Secret>;

/// Options for reading a file; the default is strict, as AIX is.
#[derive(Clone, Copy, Default)]
pub struct Options<'a> {
    /// Elements and attributes whose names are not known are left out with a warning, where else they are errors: a
    /// policy that is half understood may protect less than its author thinks.
    pub lenient: bool,
    /// Asked about each cipher or protection that the file names; its answer becomes a warning at that place. It
    /// knows of the machine what this crate does not.
    pub advise: Option<&'a dyn Fn(Algorithm) -> Option<Advice>>,
    /// Asked for the preshared key of a peer for which the file has none, by the identity of the peer: a program's own
    /// store of secrets.
    pub keys: Option<FindKey<'a>>,
    /// The marks and interfaces that the tunnels have on the host, by which the kernel tells tunnels with equal traffic
    /// apart; `None`: no tunnel has any.
    pub bindings: Option<&'a Bindings>,
}

/// An algorithm that a file names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Encryption of the IKE SA.
    Ike(IkeEncryption),
    /// The algorithms of a Child SA.
    Child(Protection),
}

/// A remark on an algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// The problem.
    pub message: String,
    /// The fix.
    pub help: String,
}
