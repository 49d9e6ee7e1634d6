//! Findings as JSON; the shape is in `docs/reference/policy-diagnostics.md`.

use crate::daemon::SourceError;
use host::policy_file::{PolicyFile, PolicyFileError};
use policy::xml::{Diagnostic, Severity};
use serde::Serialize;
use std::path::Path;

#[derive(Serialize)]
struct Report<'a> {
    file: &'a str,
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
    /// The file of a policy that is a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
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
    let name = file.display().to_string();
    let finding = |diagnostic| finding(diagnostic, file);
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
    let report = Report { file: &name, valid: read.is_ok(), tunnels, omitted, findings };
    let text = serde_json::to_string_pretty(&report).expect("only strings and numbers");
    text + "\n"
}

fn warning(message: &str) -> Finding<'_> {
    Finding { severity: "warning", message, help: None, place: None }
}

/// A finding about a place; `policy`: the policy that was to be checked.
fn finding<'a>(diagnostic: &'a Diagnostic, policy: &Path) -> Finding<'a> {
    let path = Path::new(&diagnostic.file);
    let is_of_directory = path != policy && path.starts_with(policy);
    Finding {
        severity: match diagnostic.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        },
        message: &diagnostic.message,
        help: diagnostic.help.as_deref(),
        place: Some(Place {
            file: Some(&*diagnostic.file).filter(|_| is_of_directory),
            line: diagnostic.line,
            column: diagnostic.column,
            length: diagnostic.width,
            element: diagnostic.element.as_deref(),
            attribute: diagnostic.attribute.as_deref(),
            source: &diagnostic.source,
        }),
    }
}
