//! Settings that a conversion could not take over: their location, the reason, and advice.

use super::source::Location;
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
    /// A tunnel is there, but no longer does something that it did by itself.
    FunctionLost,
    /// It is there, but not quite the same.
    Changed,
    /// No packet takes the tunnel, because another one covers all its traffic.
    NeverUsed,
}

impl Loss {
    /// Returns `true` if the policy does not do what the file did.
    pub fn is_failure(self) -> bool {
        matches!(self, Self::LeftOut | Self::FunctionLost)
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LeftOut => "left out",
            Self::Dropped => "not carried over",
            Self::FunctionLost => "function lost",
            Self::Changed => "changed",
            Self::NeverUsed => "never used",
        })
    }
}

/// One finding. Its `Display` is `FILE:LINE: LOSS: MESSAGE`, and a second line with the help. Holds no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{loss}: {message}{}", at(.location), if .help.is_empty() { String::new() } else { format!("\n  help: {help}") })]
pub struct Finding {
    /// The kind of loss.
    pub loss: Loss,
    /// The file and the line.
    pub location: Location,
    /// The lost setting and the reason.
    pub message: String,
    /// Advice; may be empty.
    pub help: String,
}

fn at(location: &Location) -> String {
    match location.line {
        0 => format!("{}: ", location.file),
        line => format!("{}:{line}: ", location.file),
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
        location: &Location,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        let finding = Finding {
            loss,
            location: location.clone(),
            message: message.into(),
            help: help.into(),
        };
        if self.findings.contains(&finding) {
            return;
        }
        // A loss that decides the exit status of the command must not be lost among the rest.
        if self.findings.len() >= MAX_FINDINGS && !loss.is_failure() {
            self.omitted += 1;
            return;
        }
        if self.findings.len() < 2 * MAX_FINDINGS {
            self.findings.push(finding);
        } else {
            self.omitted += 1;
        }
    }

    pub fn left_out(
        &mut self,
        location: &Location,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.add(Loss::LeftOut, location, message, help);
    }

    pub fn dropped(
        &mut self,
        location: &Location,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.add(Loss::Dropped, location, message, help);
    }

    pub fn changed(
        &mut self,
        location: &Location,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.add(Loss::Changed, location, message, help);
    }

    pub fn into_findings(mut self) -> Vec<Finding> {
        self.findings.sort_by(|a, b| a.location.cmp(&b.location));
        if let (true, Some(last)) = (self.omitted > 0, self.findings.last()) {
            let location = Location { line: 0, ..last.location.clone() };
            let message = format!("{} more, which are not shown", self.omitted);
            self.findings.push(Finding {
                loss: Loss::Dropped,
                location,
                message,
                help: String::new(),
            });
        }
        self.findings
    }
}

/// The failure that ends a conversion.
pub(super) fn unreadable(
    location: &Location,
    message: impl Into<String>,
    help: impl Into<String>,
) -> Finding {
    Finding {
        loss: Loss::LeftOut,
        location: location.clone(),
        message: message.into(),
        help: help.into(),
    }
}
