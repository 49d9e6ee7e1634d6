//! Reads and writes AIX_VPN policy files.
//!
//! Three steps: `parse` turns the text into elements with their spans, `lower` turns those into a
//! [`Policy`] with every reference resolved, and what either finds wrong becomes a [`Diagnostic`]. A file is read
//! whole or not at all: every error in it is collected, and one is enough to refuse it.

pub(crate) mod conformance;
mod definitions;
pub(crate) mod diagnostic;
mod dtd;
pub(crate) mod element;
pub mod elements;
mod lexical;
pub(crate) mod lower;
pub(crate) mod mirror;
mod node;
mod of_policy;
mod options;
pub(crate) mod parse;
pub(crate) mod report;
pub(crate) mod schema;
pub(crate) mod source;
pub(crate) mod write;

pub use definitions::{Definition, Definitions};
pub use diagnostic::{Diagnostic, Diagnostics, Severity};
pub use dtd::dtd;
pub use lower::words::word_for;
pub use node::Node;
pub use of_policy::Unwritable;
pub use options::{Advice, Algorithm, FindKey, Options};
pub use parse::MAX_FILE_LEN;
pub use write::write;

use crate::Policy;
use report::Report;
use source::Source;

/// A policy read from a file, with warnings for its author.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The policy.
    pub policy: Policy,
    /// In the order of the file.
    pub warnings: Vec<Diagnostic>,
    /// The elements that define its tunnels.
    pub definitions: Definitions,
}

/// Reads the text of an AIX_VPN file; `file_name` only labels the diagnostics.
///
/// Preshared keys are copied once, into memory that is wiped. Neither they nor the text around them where it might
/// hold one occur in a diagnostic. The caller owns `text` and should wipe it.
///
/// ```
/// let errors = policy::xml::read("vpn.xml", "<AIX_VPN Version=\"2.1\"><IKETunel/></AIX_VPN>").unwrap_err();
/// let error = errors.errors().next().unwrap();
/// assert_eq!((error.line, error.column), (1, 25));
/// assert_eq!(error.message, "unknown element IKETunel");
/// assert_eq!(error.help.as_deref(), Some("did you mean \"IKETunnel\"?"));
/// ```
///
/// # Errors
/// All errors of the file, up to a limit, with its warnings, in the order of the file.
pub fn read(file_name: &str, text: &str) -> Result<Loaded, Diagnostics> {
    read_with(file_name, text, &Options::default())
}

/// Reads a file as [`read`] does, with options: less strictly, or with more advice.
///
/// # Errors
/// The errors of [`read`].
pub fn read_with(
    file_name: &str,
    text: &str,
    options: &Options<'_>,
) -> Result<Loaded, Diagnostics> {
    let mut source = Source::new(file_name, text);
    let mut report = Report::default();
    let mut root = parse::parse(&mut source, &mut report);
    if let Some(root) = root.as_mut().filter(|_| options.lenient) {
        conformance::leave_out_unknown(root, &mut report);
    }
    let policy =
        root.as_ref().and_then(|root| lower::lower(root, source.is_whole(), options, &mut report));
    match policy.zip(root) {
        Some((policy, root)) if !report.has_errors() => {
            let definitions = Definitions::of_document(&root, &source);
            Ok(Loaded { policy, warnings: report.into_warnings(&source), definitions })
        }
        _ => Err(report.into_diagnostics(&source)),
    }
}
