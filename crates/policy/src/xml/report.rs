//! Collects findings while a file is read, and quotes its lines at the end.

use super::diagnostic::{Diagnostic, Diagnostics, Severity, Span};
use super::source::Source;

/// Errors, and warnings, after which further ones are only counted.
const MAX_FINDINGS: usize = 50;

struct Finding {
    severity: Severity,
    span: Span,
    message: String,
    /// Another place that the message ends with.
    about: Option<Span>,
    help: Option<String>,
}

/// Collects findings; lines of the file are quoted only at the end, when it is known what of them may be shown.
#[derive(Default)]
pub(crate) struct Report {
    findings: Vec<Finding>,
    errors: usize,
    warnings: usize,
}

impl Report {
    pub fn error(&mut self, span: Span, message: impl Into<String>, help: impl Into<String>) {
        self.add(Severity::Error, span, message, help);
    }

    pub fn warning(&mut self, span: Span, message: impl Into<String>, help: impl Into<String>) {
        self.add(Severity::Warning, span, message, help);
    }

    /// Adds a warning whose message ends with the line of another place.
    pub fn warning_about(
        &mut self,
        span: Span,
        message: String,
        about: Span,
        help: impl Into<String>,
    ) {
        self.add_about(Severity::Warning, span, message, Some(about), help);
    }

    pub fn add(
        &mut self,
        severity: Severity,
        span: Span,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.add_about(severity, span, message.into(), None, help);
    }

    fn add_about(
        &mut self,
        severity: Severity,
        span: Span,
        message: String,
        about: Option<Span>,
        help: impl Into<String>,
    ) {
        let count = match severity {
            Severity::Error => &mut self.errors,
            Severity::Warning => &mut self.warnings,
        };
        *count += 1;
        if *count <= MAX_FINDINGS {
            let help = Some(help.into()).filter(|help| !help.is_empty());
            self.findings.push(Finding { severity, span, message, about, help });
        }
    }

    /// The number of errors, kept or only counted.
    pub fn errors(&self) -> usize {
        self.errors
    }

    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// Returns `true` if further errors would only be counted.
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
        self.findings.sort_by_key(|finding| finding.span.range.start);
        self.findings
            .into_iter()
            .map(|Finding { severity, span, mut message, about, help }| {
                if let Some(place) = about {
                    let (within, range) = source.part(&place.range);
                    let (line, _) = within.locate(range.start);
                    message.push_str(&format!(", line {line}"));
                }
                let (source, range) = source.part(&span.range);
                let (line, column) = source.locate(range.start);
                let excerpt = source.excerpt(&range);
                Diagnostic {
                    severity,
                    file: source.file_name().to_owned(),
                    line,
                    column,
                    element: span.element,
                    attribute: span.attribute,
                    value: span.value,
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
