//! Findings as JSON; the shape is in `docs/reference/policy-diagnostics.md`.

use crate::daemon::SourceError;
use host::policy_file::{PolicyFile, PolicyFileError};
use policy::xml::{Diagnostic, Severity};
use serde::Serialize;
use std::path::Path;

#[derive(Serialize)]
struct Report<'a> {
    file: String,
    valid: bool,
    tunnels: usize,
    omitted: usize,
    findings: Vec<Finding<'a>>,
}

#[derive(Serialize)]
struct Finding<'a> {
    severity: &'static str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<&'a str>,
    #[serde(flatten)]
    place: Option<Place<'a>>,
}

#[derive(Serialize)]
struct Place<'a> {
    line: usize,
    column: usize,
    length: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    element: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attribute: Option<&'a str>,
    source: &'a str,
}

/// One object with all findings, and a final newline.
pub(super) fn json(
    file: &Path,
    read: &Result<PolicyFile, SourceError>,
    remarks: &[String],
) -> String {
    let refusal = read.as_ref().err().map(ToString::to_string).unwrap_or_default();
    let (tunnels, omitted, mut findings): (_, _, Vec<Finding<'_>>) = match read {
        Ok(read) => {
            // The others are about the file itself.
            let others = read.warnings.iter().skip(read.diagnostics.len());
            let findings = read.diagnostics.iter().map(finding);
            let findings = findings.chain(others.map(|text| warning(text))).collect();
            (read.policy.tunnels.len(), 0, findings)
        }
        Err(SourceError::File(PolicyFileError::Invalid(errors))) => {
            (0, errors.omitted(), errors.iter().map(finding).collect())
        }
        Err(_) => (0, 0, vec![Finding { severity: "error", ..warning(&refusal) }]),
    };
    findings.extend(remarks.iter().map(|text| warning(text)));
    let file = file.display().to_string();
    let report = Report { file, valid: read.is_ok(), tunnels, omitted, findings };
    let text = serde_json::to_string_pretty(&report).expect("only strings and numbers");
    text + "\n"
}

fn warning(message: &str) -> Finding<'_> {
    Finding { severity: "warning", message, help: None, place: None }
}

fn finding(diagnostic: &Diagnostic) -> Finding<'_> {
    Finding {
        severity: match diagnostic.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        },
        message: &diagnostic.message,
        help: diagnostic.help.as_deref(),
        place: Some(Place {
            line: diagnostic.line,
            column: diagnostic.column,
            length: diagnostic.width,
            element: diagnostic.element.as_deref(),
            attribute: diagnostic.attribute.as_deref(),
            source: &diagnostic.source,
        }),
    }
}
