//! Errors and warnings about a file: the place, the reason and the fix.

use super::source::Source;
use std::fmt;
use std::ops::Range;

/// Errors, and warnings, after which further ones are only counted.
const MAX_FINDINGS: usize = 50;

/// Names that are compared in search of the one that was meant.
const MAX_CANDIDATES: usize = 500;

/// Characters of a value that a message quotes.
const MAX_QUOTED: usize = 60;

/// Whether a file can be used in spite of a finding.
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostics {
    findings: Vec<Diagnostic>,
    omitted: usize,
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

/// Where in a file a finding belongs.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub span: Range<usize>,
    pub element: Option<String>,
    pub attribute: Option<String>,
    pub value: Option<String>,
}

impl From<Range<usize>> for Place {
    fn from(span: Range<usize>) -> Self {
        Self { span, element: None, attribute: None, value: None }
    }
}

struct Finding {
    severity: Severity,
    place: Place,
    message: String,
    help: Option<String>,
}

/// Collects findings; lines of the file are quoted only at the end, when it is known what of them may be shown.
#[derive(Default)]
pub(super) struct Report {
    findings: Vec<Finding>,
    errors: usize,
    warnings: usize,
}

impl Report {
    pub fn error(&mut self, place: Place, message: impl Into<String>, help: impl Into<String>) {
        self.add(Severity::Error, place, message, help);
    }

    pub fn warning(&mut self, place: Place, message: impl Into<String>, help: impl Into<String>) {
        self.add(Severity::Warning, place, message, help);
    }

    pub fn add(
        &mut self,
        severity: Severity,
        place: Place,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        let count = match severity {
            Severity::Error => &mut self.errors,
            Severity::Warning => &mut self.warnings,
        };
        *count += 1;
        if *count <= MAX_FINDINGS {
            let (message, help) = (message.into(), help.into());
            let help = (!help.is_empty()).then_some(help);
            self.findings.push(Finding { severity, place, message, help });
        }
    }

    /// How many there are, whether they are kept or only counted.
    pub fn errors(&self) -> usize {
        self.errors
    }

    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// Whether further errors would only be counted.
    pub fn is_full(&self) -> bool {
        self.errors > MAX_FINDINGS
    }

    pub fn into_diagnostics(self, source: &Source<'_>) -> Diagnostics {
        let omitted = self.errors + self.warnings - self.findings.len();
        Diagnostics { findings: self.render(source), omitted }
    }

    pub fn into_warnings(self, source: &Source<'_>) -> Vec<Diagnostic> {
        let omitted = self.warnings - self.findings.len();
        let mut warnings = self.render(source);
        if omitted > 0
            && let Some(mut last) = warnings.last().cloned()
        {
            last.message = format!("{omitted} more warnings are not shown");
            last.help = None;
            warnings.push(last);
        }
        warnings
    }

    fn render(mut self, source: &Source<'_>) -> Vec<Diagnostic> {
        self.findings.sort_by_key(|finding| finding.place.span.start);
        self.findings
            .into_iter()
            .map(|Finding { severity, place, message, help }| {
                let (source, span) = source.part(&place.span);
                let (line, column) = source.locate(span.start);
                let excerpt = source.excerpt(&span);
                Diagnostic {
                    severity,
                    file: source.file_name().to_owned(),
                    line,
                    column,
                    element: place.element,
                    attribute: place.attribute,
                    value: place.value,
                    message,
                    help,
                    source: excerpt.text,
                    caret: excerpt.caret,
                    width: excerpt.width,
                }
            })
            .collect()
    }
}

/// A value as a message shows it: quoted, escaped, cut.
pub(super) fn quoted(value: &str) -> String {
    match value.char_indices().nth(MAX_QUOTED) {
        Some((cut, _)) => format!("{:?}…", &value[..cut]),
        None => format!("{value:?}"),
    }
}

/// The candidate nearest to what was written, if it is near at all; case does not count.
pub(crate) fn nearest<'c>(
    written: &str,
    candidates: impl IntoIterator<Item = &'c str>,
) -> Option<&'c str> {
    if written.len() > 2 * MAX_QUOTED {
        return None;
    }
    let lower = written.to_ascii_lowercase();
    let allowed = (written.chars().count() / 3).min(4);
    candidates
        .into_iter()
        .take(MAX_CANDIDATES)
        .filter(|candidate| candidate.len() <= 2 * MAX_QUOTED)
        .map(|candidate| (strsim::osa_distance(&lower, &candidate.to_ascii_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// `did you mean …?`, or else the fallback.
pub(super) fn did_you_mean<'c>(
    written: &str,
    candidates: impl IntoIterator<Item = &'c str>,
    otherwise: impl FnOnce() -> String,
) -> String {
    match nearest(written, candidates) {
        Some(candidate) => format!("did you mean {candidate:?}?"),
        None => otherwise(),
    }
}
