//! How a file is read.

use crate::{IkeEncryption, Protection};

/// How a file is read; the default is strict, as AIX is.
#[derive(Clone, Copy, Default)]
pub struct Options<'a> {
    /// Elements and attributes whose names are not known are left out with a warning, where else they are errors: a
    /// policy that is half understood may protect less than its author thinks.
    pub lenient: bool,
    /// Asked about each cipher or protection that the file names; what it answers becomes a warning at that place. It
    /// knows of the machine what this crate does not.
    pub advise: Option<&'a dyn Fn(Algorithm) -> Option<Advice>>,
}

/// What a file names to protect traffic with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Of the IKE SA.
    Ike(IkeEncryption),
    /// Of a Child SA.
    Child(Protection),
}

/// What should be said of an algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// What is the matter with it.
    pub message: String,
    /// What to do.
    pub help: String,
}
