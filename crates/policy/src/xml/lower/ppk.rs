//! Postquantum preshared keys (RFC 8784), in this project's own vocabulary: AIX has no words for them.

use super::context::Context;
use crate::Ppk;
use crate::validate::rules;
use crate::wording::quoted;
use crate::xml::element::Element;
use crate::xml::schema::PPK;

/// The PPKs that an element names, separated by blanks; `NONE` at the end makes them optional. `None` after an error.
pub(super) fn ppk(cx: &mut Context<'_>, element: &Element<'_>) -> Option<Option<Ppk>> {
    let Some(attribute) = element.attribute(PPK) else { return Some(None) };
    let mut ids: Vec<String> = Vec::new();
    ids.extend(attribute.value.split_ascii_whitespace().map(str::to_owned));
    let none = ids.pop_if(|last| last.eq_ignore_ascii_case("NONE"));
    let ppk = Ppk { ids, required: none.is_none() };
    if let Err(problem) = rules::ppk(&ppk) {
        let message = format!("{PPK} {}: {problem}", quoted(&attribute.value));
        cx.report.error(attribute.span(element), message, problem.help());
        return None;
    }
    Some(Some(ppk))
}
