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
mod texts;
pub(crate) mod write;

pub use definitions::{Definition, Definitions};
pub use diagnostic::{Diagnostic, Diagnostics, Severity};
pub use dtd::dtd;
pub use lower::words::word_for;
pub use node::Node;
pub use of_policy::Unwritable;
pub use options::{Advice, Algorithm, FindKey, Options};
pub use parse::MAX_FILE_LEN;
pub use texts::{MAX_TEXTS_LEN, Text};
pub use write::write;

use crate::Policy;
use lower::Limits;
use report::Report;
pub(crate) use texts::{Gathered, gather};

/// A policy read from a file, with warnings for its author.
#[derive(Clone, Debug, Default)]
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
    read_all(&[Text { name: file_name, text }], options)
}

/// Reads several texts as one policy, as the files of a directory: an object of one text may refer to objects of the
/// others. The order of the texts is part of the order of the tunnels, which decides between tunnels with common
/// traffic.
///
/// ```
/// use policy::xml::{Options, Text, read_all};
///
/// let common = "<AIX_VPN Version='2.1'>
///   <IPSecProposal IPSec_ProposalName='gcm'>
///     <IPSecESPProtocol ESP_Encryption='ESP_AES256_GCM_16'/>
///   </IPSecProposal>
/// </AIX_VPN>";
/// let other = common.replace("'gcm'", "'other'").replace("AES256", "AES265");
/// let texts = [Text { name: "00-common.xml", text: common }, Text { name: "site.xml", text: &other }];
/// let errors = read_all(&texts, &Options::default()).unwrap_err();
/// let error = errors.errors().next().unwrap();
/// assert_eq!((&*error.file, error.line), ("site.xml", 3));
/// ```
///
/// # Errors
/// All errors of all texts, up to a limit, in the order of the texts. No text is an empty policy.
pub fn read_all(texts: &[Text<'_>], options: &Options<'_>) -> Result<Loaded, Diagnostics> {
    if texts.is_empty() {
        return Ok(Loaded::default());
    }
    let mut report = Report::default();
    let Gathered { sources, root } = gather(texts, options.lenient, &mut report);
    let limits = Limits::of(texts.len());
    let policy = root
        .as_ref()
        .and_then(|root| lower::lower(root, sources.is_whole(), limits, options, &mut report));
    match policy.zip(root) {
        Some((policy, root)) if !report.has_errors() => {
            let definitions = Definitions::of_document(&root, &sources);
            Ok(Loaded { policy, warnings: report.into_warnings(&sources), definitions })
        }
        _ => Err(report.into_diagnostics(&sources)),
    }
}
