//! Collects findings while a file is read, and quotes its lines at the end.

use super::diagnostic::{Diagnostic, Diagnostics, Severity, Span};
use super::source::Sources;

/// Errors, and warnings, after which further ones are only counted.
const MAX_FINDINGS: usize = 50;

struct Finding {
    severity: Severity,
    span: Span,
    message: String,
    /// Another place that the message ends with.
    about: Option<About>,
    help: Option<String>,
}

/// Another place that a message is about.
enum About {
    /// The line is part of the message.
    Line(Span),
    /// An object of the same name, which is told if it is in another file.
    Namesake(Span),
}

impl About {
    fn span(&mut self) -> &mut Span {
        match self {
            Self::Line(span) | Self::Namesake(span) => span,
        }
    }
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
        self.add_about(Severity::Warning, span, message, Some(About::Line(about)), help);
    }

    /// Adds an error about an object that has the name of another one.
    pub fn error_of_namesake(
        &mut self,
        span: Span,
        message: String,
        first: Span,
        help: impl Into<String>,
    ) {
        self.add_about(Severity::Error, span, message, Some(About::Namesake(first)), help);
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
        about: Option<About>,
        help: impl Into<String>,
    ) {
        let help = Some(help.into()).filter(|help| !help.is_empty());
        self.keep(Finding { severity, span, message, about, help });
    }

    /// Adds the findings about a text that is read behind others, and that begins at the offset `begin`.
    pub fn append(&mut self, later: Self, begin: usize) {
        let kept = [Severity::Error, Severity::Warning]
            .map(|severity| later.findings.iter().filter(|f| f.severity == severity).count());
        for mut finding in later.findings {
            let about = finding.about.as_mut().map(About::span);
            for span in std::iter::once(&mut finding.span).chain(about) {
                span.range = span.range.start + begin..span.range.end + begin;
            }
            self.keep(finding);
        }
        // The others of the text were only counted.
        self.errors += later.errors - kept[0];
        self.warnings += later.warnings - kept[1];
    }

    fn keep(&mut self, finding: Finding) {
        let count = match finding.severity {
            Severity::Error => &mut self.errors,
            Severity::Warning => &mut self.warnings,
        };
        *count += 1;
        if *count <= MAX_FINDINGS {
            self.findings.push(finding);
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

    pub fn into_diagnostics(self, sources: &Sources<'_>) -> Diagnostics {
        let omitted = self.errors + self.warnings - self.findings.len();
        Diagnostics { findings: self.render(sources), omitted }
    }

    pub fn into_warnings(self, sources: &Sources<'_>) -> Vec<Diagnostic> {
        let omitted = self.warnings - self.findings.len();
        let mut warnings = self.render(sources);
        if omitted > 0
            && let Some(mut last) = warnings.last().cloned()
        {
            last.message = format!("{omitted} more warnings are not shown");
            last.help = None;
            warnings.push(last);
        }
        warnings
    }

    fn render(mut self, sources: &Sources<'_>) -> Vec<Diagnostic> {
        self.findings.sort_by_key(|finding| finding.span.range.start);
        self.findings
            .into_iter()
            .filter_map(|Finding { severity, span, mut message, about, help }| {
                let (source, range) = sources.part(&span.range)?;
                if let Some(mut about) = about
                    && let Some((within, line)) = sources.place(&about.span().range)
                {
                    let file = within.file_name();
                    message.push_str(&match (about, file == source.file_name()) {
                        (About::Line(_), true) => format!(", line {line}"),
                        (About::Line(_), false) => format!(", line {line} of {file}"),
                        (About::Namesake(_), true) => String::new(),
                        (About::Namesake(_), false) => {
                            format!("; the first is in line {line} of {file}")
                        }
                    });
                }
                let (line, column) = source.locate(range.start);
                let excerpt = source.excerpt(&range);
                Some(Diagnostic {
                    severity,
                    file: source.file_name().to_string(),
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
                })
            })
            .collect()
    }
}
