//! Explanations: a cause with its evidence, a comparison of both sides and cures.

use crate::cure::Cure;
use policy::xml::Definitions;
use std::fmt::Display;

/// A cause, and what helps against it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Explanation {
    /// The cause in a sentence. It leaves out the values that the comparison has.
    pub cause: String,
    /// The facts from which it follows, in one line each.
    pub evidence: Vec<String>,
    /// The values of both sides, side by side.
    pub comparison: Vec<Row>,
    /// The cures, the likeliest first.
    pub cures: Vec<Cure>,
}

impl Explanation {
    /// A cause of which nothing else is to be told.
    pub(crate) fn of(cause: String) -> Self {
        Self { cause, evidence: Vec::new(), comparison: Vec::new(), cures: Vec::new() }
    }
}

/// Something of a tunnel's status, and its explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Explained<T> {
    /// The value, for programs.
    pub value: T,
    /// Its explanation.
    pub explanation: Explanation,
}

impl<T> Explained<T> {
    pub(crate) fn new(value: T, explanation: Explanation) -> Self {
        Self { value, explanation }
    }
}

/// One line of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Row {
    /// The compared item.
    pub item: String,
    /// This side's value.
    pub here: String,
    /// The peer's; `None`: it did not say.
    pub there: Option<String>,
    /// The two do not go together.
    pub differs: bool,
}

impl Row {
    /// Values that go together only if they are equal.
    pub(crate) fn of_equals(
        item: impl Into<String>,
        here: impl Display,
        there: Option<String>,
    ) -> Self {
        let here = here.to_string();
        let differs = there.as_ref().is_some_and(|t| *t != here);
        Self { item: item.into(), here, there, differs }
    }
}

/// An element of the policy file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Element {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// The file.
    pub file: String,
    /// Its line, from 1.
    pub line: usize,
}

impl Element {
    /// The elements that define a phase 1 tunnel or a phase 2 tunnel.
    pub fn of(tunnel: &str, definitions: &Definitions) -> Vec<Self> {
        let definitions_of_tunnel = definitions.of(tunnel);
        definitions_of_tunnel
            .map(|definition| Self {
                kind: definition.element.clone(),
                name: definition.name.clone(),
                file: definition.file.to_string(),
                line: definition.line,
            })
            .collect()
    }
}
