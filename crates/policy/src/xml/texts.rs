//! The texts of a policy, such as the files of a directory, which are read as one.

use super::element::Element;
use super::parse::parse;
use super::report::Report;
use super::source::{Source, Sources};
use super::{conformance, lower};

/// Octets of all texts of a policy above which it is refused: 250,000 phase 2 tunnels, each with traffic of its own,
/// take less.
pub const MAX_TEXTS_LEN: usize = 128 << 20;

/// A text of a policy. It may hold keys.
#[derive(Clone, Copy)]
pub struct Text<'t> {
    /// The name of the file, which only labels the diagnostics.
    pub name: &'t str,
    /// The content of the file.
    pub text: &'t str,
}

/// The elements of all texts.
pub(crate) struct Gathered<'t> {
    /// The texts.
    pub sources: Sources<'t>,
    /// The root element of the first text, with the objects of all of them; `None` after an error that leaves a text
    /// without meaning.
    pub root: Option<Element<'t>>,
}

/// Reads the elements of all texts. The spans of a text lie behind those of the texts before it.
pub(crate) fn gather<'t>(texts: &[Text<'t>], lenient: bool, report: &mut Report) -> Gathered<'t> {
    let mut sources = Sources::default();
    let mut roots = Vec::new();
    for text in texts {
        let mut source = Source::new(text.name, text.text);
        let begin = sources.extent();
        if begin + text.text.len() > MAX_TEXTS_LEN {
            let message = format!("the files up to this one have more than {MAX_TEXTS_LEN} octets");
            report.error((begin..begin).into(), message, "split the policy");
            sources.push(source);
            return Gathered { sources, root: None };
        }
        let mut of_text = Report::default();
        let mut root = parse(&mut source, &mut of_text);
        if let Some(root) = root.as_mut().filter(|_| lenient) {
            conformance::leave_out_unknown(root, &mut of_text);
        }
        let root = root.filter(|root| lower::check_root(root, &mut of_text));
        roots.push(root.map(|mut root| {
            if begin > 0 {
                root.shift(begin);
            }
            root
        }));
        report.append(of_text, begin);
        sources.push(source);
        if report.is_full() {
            return Gathered { sources, root: None };
        }
    }
    let roots: Option<Vec<Element<'t>>> = roots.into_iter().collect();
    let root = roots.and_then(|roots| {
        roots.into_iter().reduce(|mut first, next| {
            first.children.extend(next.children);
            first
        })
    });
    Gathered { sources, root }
}
