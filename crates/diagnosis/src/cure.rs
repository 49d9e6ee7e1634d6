//! Cures as values: a sentence for people, and the step in it for programs.

use std::fmt;

/// Something that helps against a cause.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Cure {
    /// The sentence for people. It names places in files, and alternatives.
    pub text: String,
    /// The step for programs.
    pub step: Step,
}

/// The step of a [`Cure`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Step {
    /// An element of this side's policy gets another value.
    Set {
        /// The kind of element, such as `IKEProtection`.
        element: String,
        /// Its name, where it is known.
        name: Option<String>,
        /// The attributes or elements in it that get the value; more than one if they belong together.
        attributes: Vec<String>,
        /// The value as a policy writes it; `None`: the operator has to choose.
        value: Option<String>,
    },
    /// A command on this host, word by word. Words in capitals stand for what only the operator knows.
    Run(Vec<String>),
    /// Somebody looks, compares, decides, or asks the operator of the peer: the sentence tells what.
    Ask,
}

impl Cure {
    /// A command behind its purpose: `to switch it on: vpnctl family ipv6 on`.
    pub(crate) fn run(purpose: impl fmt::Display, command: impl AsRef<str>) -> Self {
        let command = command.as_ref();
        Self {
            text: format!("{purpose}: {command}"),
            step: Step::Run(command.split(' ').map(str::to_owned).collect()),
        }
    }
}

/// A sentence that needs a person.
impl From<String> for Cure {
    fn from(text: String) -> Self {
        Self { text, step: Step::Ask }
    }
}

impl From<&str> for Cure {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl fmt::Display for Cure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
