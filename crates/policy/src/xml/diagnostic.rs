//! Errors and warnings about a file: the place, the reason and the fix.

use std::fmt;
use std::ops::Range;

/// The severity of a finding: an error refuses the file, a warning does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// The file is refused.
    Error,
    /// The file is used as the message says.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

/// One finding. Its `Display` is several lines without a final newline: place and message, the line of the file with
/// a caret, and the help. Holds no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// The name under which the file was read.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// Name of the element concerned.
    pub element: Option<String>,
    /// Name of the attribute concerned.
    pub attribute: Option<String>,
    /// The attribute's value; never that of a key.
    pub value: Option<String>,
    /// The problem and its reason.
    pub message: String,
    /// The fix.
    pub help: Option<String>,
    /// The line of the file, cut to a readable length; keys, and what could be one, are `…`.
    pub source: String,
    /// Characters of `source` before the place.
    pub caret: usize,
    /// Characters of `source` that are the place, at least one.
    pub width: usize,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { severity, file, line, column, message, .. } = self;
        write!(f, "{file}:{line}:{column}: {severity}: {message}")?;
        let number = line.to_string();
        let margin = " ".repeat(number.len());
        if !self.source.trim().is_empty() {
            let carets = "^".repeat(self.width);
            write!(f, "\n{margin} |\n{number} | {}", self.source)?;
            write!(f, "\n{margin} | {:caret$}{carets}", "", caret = self.caret)?;
        }
        match &self.help {
            Some(help) => write!(f, "\n{margin} = help: {help}"),
            None => Ok(()),
        }
    }
}

/// Everything found in a file that is refused, in its order; at least one error.
#[derive(Clone, PartialEq, Eq)]
pub struct Diagnostics {
    pub(super) findings: Vec<Diagnostic>,
    pub(super) omitted: usize,
}

impl Diagnostics {
    /// All findings, errors and warnings, in the order of the file.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.findings.iter()
    }

    /// The errors among them.
    pub fn errors(&self) -> impl Iterator<Item = &Diagnostic> {
        self.findings.iter().filter(|d| d.severity == Severity::Error)
    }

    /// Number of further findings that are not kept.
    pub fn omitted(&self) -> usize {
        self.omitted
    }
}

impl<'a> IntoIterator for &'a Diagnostics {
    type Item = &'a Diagnostic;
    type IntoIter = std::slice::Iter<'a, Diagnostic>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            write!(f, "{finding}\n\n")?;
        }
        if self.omitted > 0 {
            write!(f, "{} more not shown\n\n", self.omitted)?;
        }
        let errors = self.errors().count();
        write!(f, "policy refused: {errors} error{}", if errors == 1 { "" } else { "s" })
    }
}

impl std::error::Error for Diagnostics {}

crate::readable_debug!(Diagnostics);

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
