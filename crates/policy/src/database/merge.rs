//! A file's objects among those of a database, checked as one policy.

use super::names::Names;
use super::object::{Kind, Object};
use super::references::of_tunnel;
use crate::Bindings;
use crate::wording::{did_you_mean, quoted};
use crate::xml::diagnostic::Span;
use crate::xml::element::Element;
use crate::xml::lower::Limits;
use crate::xml::report::Report;
use crate::xml::source::Source;
use crate::xml::{
    Diagnostic, Diagnostics, Gathered, Node, Options, Text, gather, lower, mirror, parse, write,
};

/// Options for putting a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PutOptions<'a> {
    /// Replaces objects of the same names; otherwise they are errors.
    pub force: bool,
    /// Exchanges both sides of every tunnel first, as [`mirror`](super::mirror()) does: the file is the peer's.
    pub swap: bool,
    /// Leaves out elements and attributes whose names are not known, with a warning; otherwise they are errors.
    pub lenient: bool,
    /// As [`Options::bindings`].
    pub bindings: Option<&'a Bindings>,
}

/// The file name in diagnostics of stored objects, with lines as in the text that [`write()`] makes of them.
const STORED: &str = "policy store";

/// All objects after files have been put, with the warnings about the files.
pub(crate) struct Merged {
    pub objects: Vec<Object>,
    /// Those of the files, in their order.
    pub put: Vec<Object>,
    pub warnings: Vec<Diagnostic>,
}

/// Puts the objects of files among others. With the name of a phase 1 tunnel, only that tunnel and the objects that it
/// needs are put.
pub(crate) fn merge(
    texts: &[Text<'_>],
    stored: &[Object],
    options: &PutOptions<'_>,
    tunnel: Option<&str>,
) -> Result<Merged, Diagnostics> {
    let mut report = Report::default();
    let Gathered { mut sources, root } = gather(texts, options.lenient, &mut report);
    let Some(mut root) = root else { return Err(report.into_diagnostics(&sources)) };
    if let Some(tunnel) = tunnel {
        keep(&mut root, tunnel, &mut report);
    }
    if options.swap {
        mirror::mirror(&mut root, &mut report);
    }
    let put: Vec<Object> = objects(&root.children);

    let stored_text = write(stored.iter().map(Object::node));
    let mut behind = Source::new(STORED, &stored_text);
    let mut others = parse::parse(&mut behind, &mut report).map_or_else(Vec::new, |r| r.children);
    others.iter_mut().for_each(|other| other.shift(sources.extent()));
    sources.push(behind);
    root.children = among(others, stored, root.children, &put, |element, object| {
        if !options.force {
            exists(element, object, &mut report);
        }
    });
    let of_reading = Options { bindings: options.bindings, ..Options::default() };
    let (whole, limits) = (sources.is_whole(), Limits::of(texts.len()));
    let policy = lower::lower(&root, whole, limits, &of_reading, &mut report);
    if policy.is_none() || report.has_errors() {
        return Err(report.into_diagnostics(&sources));
    }
    let mut warnings = report.into_warnings(&sources);
    // Warnings about stored objects were given when these were put.
    warnings.retain(|warning| warning.file != STORED);
    Ok(Merged { objects: objects(&root.children), put, warnings })
}

fn objects(elements: &[Element<'_>]) -> Vec<Object> {
    elements.iter().map(|element| Object::new(Node::of(element))).collect()
}

/// Keeps a phase 1 tunnel and what belongs to it.
fn keep(root: &mut Element<'_>, tunnel: &str, report: &mut Report) {
    let objects = objects(&root.children);
    let Some(kept) = of_tunnel(&objects, tunnel) else {
        let kind = Some(Kind::IkeTunnel);
        let names: Vec<_> = objects.iter().filter(|o| o.kind() == kind).map(Object::name).collect();
        let message = format!("no IKETunnel is named {}", quoted(tunnel));
        let help = did_you_mean(tunnel, names.iter().copied(), || match names.len() {
            1..=8 => format!("there are {}", names.join(", ")),
            _ => String::new(),
        });
        return report.error(root.span(), message, help);
    };
    let mut at = 0..;
    root.children.retain(|_| at.next().is_some_and(|at| kept.contains(&at)));
}

/// The elements that were there, with those of the file in the place of others of the same name, or else behind them.
fn among<'t>(
    mut others: Vec<Element<'t>>,
    stored: &[Object],
    elements: Vec<Element<'t>>,
    put: &[Object],
    mut taken: impl FnMut(&Element<'t>, &Object),
) -> Vec<Element<'t>> {
    let mut free: Vec<bool> = vec![true; others.len()];
    let mut added = Vec::new();
    let names = Names::of(stored);
    for (element, object) in elements.into_iter().zip(put) {
        let at = names.place(object);
        if at.is_some() {
            taken(&element, object);
        }
        match at.and_then(|at| Some((free.get_mut(at)?, others.get_mut(at)?))) {
            Some((free, other)) if *free => {
                *free = false;
                *other = element;
            }
            _ => added.push(element),
        }
    }
    others.extend(added);
    others
}

fn exists(element: &Element<'_>, object: &Object, report: &mut Report) {
    let span = named(element).unwrap_or_else(|| element.span());
    let message = format!(
        "the policy store has an {} named {} already",
        object.element(),
        quoted(object.name())
    );
    report.error(
        span,
        message,
        "remove it here, rename it, or replace the stored one with --force",
    );
}

/// The span of an object's name.
fn named(element: &Element<'_>) -> Option<Span> {
    if element.name == "IKEPresharedKey" {
        let identity = element.children.first()?.children.first()?;
        return Some(identity.attribute("Value")?.span(identity));
    }
    let attribute = element.attributes.iter().find(|a| Object::is_name(element.name, a.name))?;
    Some(attribute.span(element))
}
