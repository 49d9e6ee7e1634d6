//! Objects by name: duplicates, references, and objects that nothing refers to.

use super::context::Context;
use crate::wording::{did_you_mean, listed, quoted};
use crate::xml::diagnostic::Span;
use crate::xml::element::{Attribute, Element};
use std::cell::Cell;
use std::collections::BTreeMap;

/// All objects of one kind.
pub(super) struct Table<T> {
    kind: &'static str,
    entries: Vec<Entry<T>>,
    by_name: BTreeMap<String, usize>,
    /// True if an object has no usable name, so that a reference may mean that one.
    nameless: bool,
}

struct Entry<T> {
    name: String,
    span: Span,
    used: Cell<bool>,
    /// `None` where the object is wrong, which is reported.
    value: Option<T>,
}

impl<T> Table<T> {
    pub fn new(kind: &'static str) -> Self {
        Self { kind, entries: Vec::new(), by_name: BTreeMap::new(), nameless: false }
    }

    /// Notes that an object has no name, so that a reference may mean that one.
    pub fn has_nameless(&mut self) {
        self.nameless = true;
    }

    /// Adds an object under the name in an attribute.
    pub fn insert(
        &mut self,
        cx: &mut Context<'_>,
        element: &Element<'_>,
        name: &str,
        value: Option<T>,
    ) {
        let Some(attribute) = element.attribute(name) else {
            self.nameless = true;
            return;
        };
        let Some(name) = cx.name(element, attribute) else {
            self.nameless = true;
            return;
        };
        let span = attribute.span(element);
        if let Some(first) = self.by_name.get(&name) {
            let message = format!("a second {} named {}", self.kind, quoted(&name));
            let first = self.entries[*first].span.clone();
            let help = "rename or remove one of the two";
            return cx.report.error_of_namesake(span, message, first, help);
        }
        self.by_name.insert(name.clone(), self.entries.len());
        self.entries.push(Entry { name, span, used: Cell::new(false), value });
    }

    fn position(
        &self,
        cx: &mut Context<'_>,
        span: Span,
        attribute: &str,
        name: &str,
    ) -> Option<usize> {
        if let Some(at) = self.by_name.get(name) {
            self.entries[*at].used.set(true);
            return Some(*at);
        }
        if !self.nameless && !cx.misspelt.contains(self.kind) {
            if cx.report.is_full() {
                // Only counted: the search for what was meant would be for nothing.
                cx.report.error(span, "", "");
                return None;
            }
            let message = format!(
                "{attribute} refers to {}, but no {} has that name",
                quoted(name),
                self.kind
            );
            let help = did_you_mean(name, self.by_name.keys().map(String::as_str), || {
                match self.entries.len() {
                    0 => format!("the file defines no {}", self.kind),
                    1..=8 => {
                        format!("defined: {}", listed(self.by_name.keys().map(String::as_str)))
                    }
                    _ => format!("add an {} of that name", self.kind),
                }
            });
            cx.report.error(span, message, help);
        }
        None
    }

    /// The object that a name in an attribute refers to. The outer `None` (no such object) is reported here; the inner
    /// one (the object is wrong) has been reported.
    pub fn resolve_name(
        &self,
        cx: &mut Context<'_>,
        element: &Element<'_>,
        attribute: &Attribute<'_>,
        name: &str,
    ) -> Option<Option<&T>> {
        let label = if attribute.name == "Value" { element.name } else { attribute.name };
        let at = self.position(cx, attribute.part(element, name), label, name)?;
        Some(self.entries[at].value.as_ref())
    }

    /// The object that the attribute of that name refers to.
    pub fn resolve(&self, cx: &mut Context<'_>, element: &Element<'_>, name: &str) -> Option<&T> {
        let attribute = element.attribute(name)?;
        cx.name(element, attribute)?;
        self.resolve_name(cx, element, attribute, attribute.trimmed())?
    }

    /// The object that the attribute of that name refers to, mutable.
    pub fn resolve_mut(
        &mut self,
        cx: &mut Context<'_>,
        element: &Element<'_>,
        name: &str,
    ) -> Option<&mut T> {
        let attribute = element.attribute(name)?;
        cx.name(element, attribute)?;
        let name = attribute.trimmed();
        let at = self.position(cx, attribute.part(element, name), attribute.name, name)?;
        self.entries[at].value.as_mut()
    }

    /// The objects that are right, in the order of the file.
    pub fn in_order(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().filter_map(|entry| entry.value.as_ref())
    }

    /// The objects that are right, in the order of the file, for good.
    pub fn into_order(self) -> impl Iterator<Item = T> {
        self.entries.into_iter().filter_map(|entry| entry.value)
    }

    /// Warns of objects that nothing refers to.
    pub fn warn_unused(&self, cx: &mut Context<'_>) {
        for entry in self.entries.iter().filter(|entry| !entry.used.get()) {
            let message = format!("nothing refers to the {} {}", self.kind, quoted(&entry.name));
            cx.report.warning(entry.span.clone(), message, "");
        }
    }
}
