//! The file as written: elements and attributes with their spans, nothing interpreted.

use super::diagnostic::Span;
use super::lexical::is_blank;
use super::source::offset_in;
use std::ops::Range;
use zeroize::Zeroizing;

/// One element with all it holds.
#[derive(Clone)]
pub(crate) struct Element<'t> {
    pub name: &'t str,
    pub attributes: Vec<Attribute<'t>>,
    pub children: Vec<Element<'t>>,
    /// True if some of its attributes could not be read, which is reported.
    pub damaged: bool,
    pub name_range: Range<usize>,
}

impl<'t> Element<'t> {
    pub fn attribute(&self, name: &str) -> Option<&Attribute<'t>> {
        self.attributes.iter().find(|attribute| attribute.name == name)
    }

    /// The elements of one name inside this one.
    pub fn children_named(&self, name: &'static str) -> impl Iterator<Item = &Element<'t>> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// Changes the value of an attribute, if there is one of that name.
    pub fn set(&mut self, name: &str, value: &str) {
        let found = self.attributes.iter_mut().find(|attribute| attribute.name == name);
        found.into_iter().for_each(|a| a.value = Zeroizing::new(value.to_owned()));
    }

    /// Moves all spans, for a text that is read as the continuation of another.
    pub fn shift(&mut self, by: usize) {
        let of_attributes =
            self.attributes.iter_mut().flat_map(|a| [&mut a.name_range, &mut a.value_range]);
        for range in std::iter::once(&mut self.name_range).chain(of_attributes) {
            *range = range.start + by..range.end + by;
        }
        self.children.iter_mut().for_each(|child| child.shift(by));
    }

    /// The span of the element's name.
    pub fn span(&self) -> Span {
        Span { element: Some(self.name.to_owned()), ..self.name_range.clone().into() }
    }
}

/// Characters of a value that a diagnostic carries.
const MAX_SHOWN: usize = 256;

/// One attribute. Values are wiped when dropped, since some are keys.
#[derive(Clone)]
pub(crate) struct Attribute<'t> {
    pub name: &'t str,
    /// References resolved, line breaks and tabs made blanks (XML 1.0 §3.3.3), not trimmed.
    pub value: Zeroizing<String>,
    /// True if the value may be a key.
    pub secret: bool,
    pub name_range: Range<usize>,
    pub value_range: Range<usize>,
}

impl Attribute<'_> {
    /// The value without blanks around it.
    pub fn trimmed(&self) -> &str {
        self.value.trim_matches(is_blank)
    }

    /// The span of the attribute's value.
    pub fn span(&self, element: &Element<'_>) -> Span {
        Span { range: self.value_range.clone(), ..self.name_span(element) }
    }

    /// The span of a part of the attribute's value, or of all of it where references make the two differ in length.
    pub fn part(&self, element: &Element<'_>, part: &str) -> Span {
        let mut span = self.span(element);
        if self.value.len() == self.value_range.len() {
            let at = self.value_range.start + offset_in(&self.value, part);
            span.range = at..(at + part.len()).min(self.value_range.end);
        }
        span
    }

    /// The span of the attribute's name.
    pub fn name_span(&self, element: &Element<'_>) -> Span {
        Span {
            range: self.name_range.clone(),
            element: Some(element.name.to_owned()),
            attribute: Some(self.name.to_owned()),
            value: (!self.secret).then(|| self.value.chars().take(MAX_SHOWN).collect()),
        }
    }
}
