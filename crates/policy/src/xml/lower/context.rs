//! The state that all readers of elements share.

use super::ikev1::Ikev1;
use crate::xml::diagnostic::Span;
use crate::xml::options::Options;
use crate::xml::report::Report;
use std::collections::{BTreeMap, BTreeSet};

/// The state that all functions of `lower` share.
pub(crate) struct Context<'r> {
    pub report: &'r mut Report,
    pub options: &'r Options<'r>,
    pub ikev1: Ikev1,
    /// Kinds of objects of which some may be missing because their element is misspelt.
    pub misspelt: BTreeSet<&'static str>,
    /// The number of peers that the groups named so far stand for.
    pub peers_of_groups: usize,
    /// Values with blanks around them, by offset.
    pub padded: BTreeMap<usize, Span>,
}
