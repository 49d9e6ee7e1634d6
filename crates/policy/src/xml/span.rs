//! The part of a file that a finding is about.

use std::ops::Range;

/// A range of the text, with the element and the attribute that it belongs to.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub range: Range<usize>,
    pub element: Option<String>,
    pub attribute: Option<String>,
    pub value: Option<String>,
}

impl From<Range<usize>> for Span {
    fn from(range: Range<usize>) -> Self {
        Self { range, element: None, attribute: None, value: None }
    }
}
