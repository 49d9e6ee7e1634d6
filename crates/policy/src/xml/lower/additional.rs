//! Additional key exchanges (RFC 9370), in this project's own vocabulary: AIX has no words for them.

use super::context::Context;
use crate::validate::rules;
use crate::wording::quoted;
use crate::xml::element::{Attribute, Element};
use crate::xml::report::Report;
use crate::xml::schema::{ADDITIONAL_KE, NAMESPACE};
use crate::{AdditionalKe, Group};

/// Checks that the document declares the prefix of this project's vocabulary if it uses it.
pub(super) fn check_namespace(root: &Element<'_>, report: &mut Report) {
    let (name, uri) = NAMESPACE;
    if let Some(attribute) = root.attribute(name) {
        if attribute.value.as_str() != uri {
            let message = format!("{name} is {}", quoted(&attribute.value));
            report.error(attribute.span(root), message, format!("write {name}=\"{uri}\""));
        }
        return;
    }
    if let Some((element, attribute)) = prefixed(root) {
        let message = format!("the prefix of {} is not declared", attribute.name);
        let help = format!("write <AIX_VPN Version=\"2.1\" {name}=\"{uri}\">");
        report.error(attribute.span(element), message, help);
    }
}

/// The first attribute of this project's vocabulary, with its element.
fn prefixed<'e, 't>(element: &'e Element<'t>) -> Option<(&'e Element<'t>, &'e Attribute<'t>)> {
    let attribute = element.attributes.iter().find(|a| a.name.starts_with("vpn:"));
    attribute.map(|a| (element, a)).or_else(|| element.children.iter().find_map(prefixed))
}

/// The additional key exchanges that an element names, in their order: exchanges are separated by blanks, the methods
/// of which one is used by `|`; `NONE` lets the peer leave the exchange out. `None` after an error.
pub(super) fn additional(cx: &mut Context<'_>, element: &Element<'_>) -> Option<Vec<AdditionalKe>> {
    let Some(attribute) = element.attribute(ADDITIONAL_KE) else { return Some(Vec::new()) };
    let mut exchanges = Vec::new();
    let mut good = true;
    for exchange in attribute.value.split_ascii_whitespace() {
        let mut methods = Vec::new();
        let mut optional = false;
        for word in exchange.split('|') {
            match kem(word) {
                Some(method) => methods.push(method),
                None => match cx.group(element, attribute, word) {
                    Some(Some(method)) => methods.push(method),
                    Some(None) => optional = true,
                    None => good = false,
                },
            }
        }
        exchanges.push(AdditionalKe { methods, optional });
    }
    let wrong = rules::additional(&exchanges).err().filter(|_| good);
    if let Some(problem) = wrong {
        let message = format!("{ADDITIONAL_KE} {}: {problem}", quoted(&attribute.value));
        cx.report.error(attribute.span(element), message, problem.help());
        return None;
    }
    if good && exchanges.is_empty() {
        let message = format!("{ADDITIONAL_KE} names no key exchange");
        cx.report.error(attribute.span(element), message, "write ML-KEM-768, or remove it");
        return None;
    }
    good.then_some(exchanges)
}

fn kem(word: &str) -> Option<Group> {
    [Group::MlKem512, Group::MlKem768, Group::MlKem1024]
        .into_iter()
        .find(|group| group.to_string().eq_ignore_ascii_case(word))
}
