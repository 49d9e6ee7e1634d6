//! Settings that a conversion could not take over: their place, the reason, and advice.

use super::source::Place;
use std::fmt;

/// Findings after which further ones are only counted.
const MAX_FINDINGS: usize = 200;

/// The kind of loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// A tunnel is missing in the policy, or the policy is refused.
    LeftOut,
    /// A setting has no counterpart.
    Dropped,
    /// It is there, but not quite the same.
    Changed,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LeftOut => "left out",
            Self::Dropped => "not carried over",
            Self::Changed => "changed",
        })
    }
}

/// One finding. Its `Display` is `FILE:LINE: LOSS: MESSAGE`, and a second line with the help. Holds no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{loss}: {message}{}", at(.place), if .help.is_empty() { String::new() } else { format!("\n  help: {help}") })]
pub struct Finding {
    /// The kind of loss.
    pub loss: Loss,
    /// Where it stands.
    pub place: Place,
    /// The lost setting and the reason.
    pub message: String,
    /// Advice; may be empty.
    pub help: String,
}

fn at(place: &Place) -> String {
    match place.line {
        0 => format!("{}: ", place.file),
        line => format!("{}:{line}: ", place.file),
    }
}

/// Collects findings.
#[derive(Default)]
pub(super) struct Report {
    findings: Vec<Finding>,
    omitted: usize,
}

impl Report {
    pub fn add(
        &mut self,
        loss: Loss,
        place: &Place,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        let finding =
            Finding { loss, place: place.clone(), message: message.into(), help: help.into() };
        if self.findings.contains(&finding) {
            return;
        }
        // What is left out decides how the command ends, and must not be lost among the rest.
        if self.findings.len() >= MAX_FINDINGS && loss != Loss::LeftOut {
            self.omitted += 1;
            return;
        }
        if self.findings.len() < 2 * MAX_FINDINGS {
            self.findings.push(finding);
        } else {
            self.omitted += 1;
        }
    }

    pub fn left_out(&mut self, place: &Place, message: impl Into<String>, help: impl Into<String>) {
        self.add(Loss::LeftOut, place, message, help);
    }

    pub fn dropped(&mut self, place: &Place, message: impl Into<String>, help: impl Into<String>) {
        self.add(Loss::Dropped, place, message, help);
    }

    pub fn changed(&mut self, place: &Place, message: impl Into<String>, help: impl Into<String>) {
        self.add(Loss::Changed, place, message, help);
    }

    pub fn into_findings(mut self) -> Vec<Finding> {
        self.findings.sort_by(|a, b| a.place.cmp(&b.place));
        if let (true, Some(last)) = (self.omitted > 0, self.findings.last()) {
            let place = Place { line: 0, ..last.place.clone() };
            let message = format!("{} more, which are not shown", self.omitted);
            self.findings.push(Finding {
                loss: Loss::Dropped,
                place,
                message,
                help: String::new(),
            });
        }
        self.findings
    }
}

/// The failure that ends a conversion.
pub(super) fn unreadable(
    place: &Place,
    message: impl Into<String>,
    help: impl Into<String>,
) -> Finding {
    Finding {
        loss: Loss::LeftOut,
        place: place.clone(),
        message: message.into(),
        help: help.into(),
    }
}
