//! Compares elements with the vocabulary, to find unknown, misplaced and missing names.

use super::element::{Attribute, Element};
use super::report::Report;
use super::schema::{self, Kind};
use crate::wording::{did_you_mean, listed, nearest};

/// Reports unknown, misplaced and missing names in all elements below an element.
pub(crate) fn check_children(element: &Element<'_>, report: &mut Report) {
    let Some(kind) = schema::kind(element.name) else { return };
    for child in &element.children {
        if kind.children.contains(&child.name) {
            check_tag(child, report);
            check_children(child, report);
            continue;
        }
        let (message, help) = unknown_child(kind, child.name);
        report.error(child.span(), message, help);
    }
}

/// Reports unknown and missing attributes of an element.
pub(crate) fn check_tag(element: &Element<'_>, report: &mut Report) {
    let Some(kind) = schema::kind(element.name) else { return };
    let mut misspelt = false;
    for attribute in unknown_attributes(kind, element) {
        misspelt = true;
        let (message, help) = unknown_attribute(kind, attribute.name);
        report.error(attribute.name_span(element), message, help);
    }
    for name in kind.required {
        // With a damaged tag the attribute may stand in the part that was not understood, and a misspelt one has
        // been reported.
        if element.attribute(name).is_none() && !element.damaged && !misspelt {
            let message = format!("{} lacks the attribute {name}", kind.name);
            report.error(element.span(), message, format!("add {name}=\"…\""));
        }
    }
}

/// Leaves out elements with unknown names, and attributes that their element does not have, in an element and all below
/// it, with a warning for each.
pub(crate) fn leave_out_unknown(element: &mut Element<'_>, report: &mut Report) {
    let Some(kind) = schema::kind(element.name) else { return };
    for attribute in unknown_attributes(kind, element) {
        let (message, help) = unknown_attribute(kind, attribute.name);
        report.warning(attribute.name_span(element), message + ": it is ignored", help);
    }
    for child in element.children.iter().filter(|child| schema::kind(child.name).is_none()) {
        let (message, help) = unknown_child(kind, child.name);
        report.warning(child.span(), message + ": it is ignored, with all in it", help);
    }
    element.attributes.retain(|a| kind.attributes().any(|known| known == a.name));
    element.children.retain(|child| schema::kind(child.name).is_some());
    for child in &mut element.children {
        leave_out_unknown(child, report);
    }
}

/// The kind of object that the author of an unknown element inside AIX_VPN probably meant.
pub(crate) fn meant(name: &str) -> Option<&'static str> {
    if schema::kind(name).is_some() {
        return None;
    }
    nearest(name, schema::kind("AIX_VPN")?.children.iter().copied())
}

fn unknown_attributes<'e, 't>(
    kind: &Kind,
    element: &'e Element<'t>,
) -> impl Iterator<Item = &'e Attribute<'t>> {
    element.attributes.iter().filter(|a| !kind.attributes().any(|name| name == a.name))
}

/// The message and the fix for an attribute that an element does not have.
fn unknown_attribute(kind: &Kind, name: &str) -> (String, String) {
    let mut owners = schema::kinds()
        .filter(|kind| kind.attributes().any(|attribute| attribute == name))
        .map(|kind| kind.name)
        .peekable();
    let help = did_you_mean(name, kind.attributes(), || {
        match (kind.attributes().next(), owners.peek().is_some()) {
            (_, true) => format!("it belongs to {}", listed(owners)),
            (None, false) => "it takes none".to_owned(),
            (Some(_), false) => format!("it takes {}", listed(kind.attributes())),
        }
    });
    (format!("{} has no attribute {name}", kind.name), help)
}

/// The message and the fix for an element that does not belong inside.
fn unknown_child(kind: &Kind, name: &str) -> (String, String) {
    let known = schema::kind(name).is_some();
    let message = if known {
        format!("{name} does not belong inside {}", kind.name)
    } else {
        format!("unknown element {name}")
    };
    let everywhere = schema::kinds().map(|kind| kind.name).filter(|_| !known);
    let candidates = kind.children.iter().copied().chain(everywhere);
    let mut owners = schema::kinds()
        .filter(|kind| kind.children.contains(&name))
        .map(|kind| kind.name)
        .peekable();
    let mut canonical =
        kind.children.iter().copied().filter(|name| !schema::ALIASES.contains(name)).peekable();
    let help = did_you_mean(name, candidates, || {
        match (owners.peek().is_some(), canonical.peek().is_some()) {
            (true, _) => format!("it belongs inside {}", listed(owners)),
            (false, true) => format!("{} may hold {}", kind.name, listed(canonical)),
            (false, false) => format!("{} holds no elements", kind.name),
        }
    });
    (message, help)
}
