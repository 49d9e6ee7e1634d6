//! Remarks: a state of the policy, the configuration or this host that the operator should know.

use std::fmt;

/// A remark for the operator. Its `Display` is the whole text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remark {
    /// The name of its row in the table of `preflight.rs`.
    pub kind: &'static str,
    pub severity: Severity,
    pub subject: Subject,
    /// The state and its effect; it names the subject.
    pub text: String,
    /// What to do about it; `None`: the text says it.
    pub cure: Option<String>,
}

impl Remark {
    /// The finding of a judge as a remark of a kind.
    pub(crate) fn of(kind: &'static str, severity: Severity, told: Told) -> Self {
        let Told { subject, text, cure } = told;
        Self { kind, severity, subject, text, cure }
    }
}

/// The effect of the state that a remark is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// The daemon does not run the policy.
    Refusal,
    /// Tunnels cannot come up, or soon will not.
    Warning,
    /// Tunnels come up. Something is less safe or slower than it could be, or has no effect.
    Note,
}

impl Severity {
    /// The stable name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Refusal => "refusal",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// The object of a remark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// These tunnels.
    Tunnels(Vec<String>),
    /// The daemon, with its files and settings.
    Daemon,
}

/// Whether a remark may tell a command that only a daemon carries out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DaemonState {
    /// It runs, or is about to.
    Running,
    /// It does not need to run.
    Absent,
}

/// The finding of a judge, which the table of `preflight.rs` makes a [`Remark`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub subject: Subject,
    pub text: String,
    pub cure: Option<String>,
}

impl Told {
    /// About tunnels; the text has the cure.
    pub(crate) fn of_tunnels<S: ToString>(tunnels: &[S], text: String) -> Self {
        let tunnels = tunnels.iter().map(ToString::to_string).collect();
        Self { subject: Subject::Tunnels(tunnels), text, cure: None }
    }

    /// About the daemon; the text has the cure.
    pub(crate) fn of_daemon(text: String) -> Self {
        Self { subject: Subject::Daemon, text, cure: None }
    }

    pub(crate) fn with_cure(self, cure: impl Into<String>) -> Self {
        Self { cure: Some(cure.into()), ..self }
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        match &self.cure {
            Some(cure) => write!(f, "; {cure}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        match &self.cure {
            // In the form of an error of the policy file.
            Some(cure) if self.severity == Severity::Refusal => write!(f, "\n  = help: {cure}"),
            Some(cure) => write!(f, "; {cure}"),
            None => Ok(()),
        }
    }
}
