//! Sections, and the settings that they inherit from others.

use crate::finding::{Finding, Report, unreadable};
use crate::source::{Location, Value};
use std::collections::BTreeSet;

/// Sections that are merged in all, above which a file is one that nobody wrote.
const MAX_STEPS: usize = 100_000;

/// References that lead on to others.
const MAX_DEPTH: usize = 24;

/// A section as written. One that is opened again goes on.
pub(super) struct Written {
    name: String,
    location: Location,
    pub bases: Vec<Value>,
    sections: Vec<Self>,
    settings: Vec<(String, Value)>,
}

/// A section with all it inherits.
pub(super) struct Section {
    pub name: String,
    pub location: Location,
    pub sections: Vec<Self>,
    /// Each name once, none with an empty value.
    pub settings: Vec<(String, Value)>,
    /// True if others inherit from it.
    pub is_template: bool,
}

impl Written {
    pub fn new(name: &str, location: Location) -> Self {
        let (bases, sections, settings) = (Vec::new(), Vec::new(), Vec::new());
        Self { name: name.to_owned(), location, bases, sections, settings }
    }

    /// The section of that name inside, made where there is none.
    pub fn child(&mut self, name: &str, location: &Location) -> &mut Self {
        let at = self.sections.iter().position(|section| section.name == name);
        let at = at.unwrap_or_else(|| {
            self.sections.push(Self::new(name, location.clone()));
            self.sections.len() - 1
        });
        &mut self.sections[at]
    }

    /// The last value of a setting counts.
    pub fn set(&mut self, name: String, value: Value) {
        match self.settings.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => self.settings.push((name, value)),
        }
    }

    fn at(&self, path: &str) -> Option<&Self> {
        path.split('.').try_fold(self, |section, name| {
            section.sections.iter().find(|inner| inner.name == name)
        })
    }

    /// Resolves every reference.
    ///
    /// # Errors
    /// Returns an error if there is no such section, or sections inherit of each other.
    pub fn inherit(&self) -> Result<Section, Finding> {
        let mut templates = BTreeSet::new();
        self.collect_templates(&mut templates);
        let mut steps = 0;
        self.merged(&[self], self, &templates, 0, &mut steps)
    }

    fn collect_templates(&self, templates: &mut BTreeSet<String>) {
        for base in &self.bases {
            // The outermost section is the one that must not be taken for a strange one.
            templates.insert(base.text.split('.').next().unwrap_or_default().to_owned());
        }
        self.sections.iter().for_each(|section| section.collect_templates(templates));
    }

    /// A section made of several, of which the first has precedence.
    fn merged(
        &self,
        parts: &[&Self],
        root: &Self,
        templates: &BTreeSet<String>,
        depth: usize,
        steps: &mut usize,
    ) -> Result<Section, Finding> {
        *steps += parts.len();
        if depth > MAX_DEPTH || *steps > MAX_STEPS {
            return Err(self.endless());
        }
        let mut whole: Vec<&Self> = Vec::new();
        for part in parts {
            part.with_bases(root, 0, &mut whole, steps)?;
        }
        let mut section = Section {
            name: self.name.clone(),
            location: self.location.clone(),
            sections: Vec::new(),
            settings: Vec::new(),
            is_template: depth == 1 && templates.contains(&self.name),
        };
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        for (name, value) in whole.iter().flat_map(|part| &part.settings) {
            if seen.insert(name) && !value.text.is_empty() {
                section.settings.push((name.clone(), value.clone()));
            }
        }
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        for inner in whole.iter().flat_map(|part| &part.sections) {
            if !seen.insert(&inner.name) {
                continue;
            }
            let same =
                whole.iter().flat_map(|part| &part.sections).filter(|s| s.name == inner.name);
            let same: Vec<&Self> = same.collect();
            section.sections.push(inner.merged(&same, root, templates, depth + 1, steps)?);
        }
        Ok(section)
    }

    fn endless(&self) -> Finding {
        let message = format!("{:?} inherits too much, or itself", self.name);
        unreadable(&self.location, message, "remove a reference")
    }

    /// This section and those it inherits, each once.
    fn with_bases<'w>(
        &'w self,
        root: &'w Self,
        depth: usize,
        whole: &mut Vec<&'w Self>,
        steps: &mut usize,
    ) -> Result<(), Finding> {
        *steps += 1;
        if depth > MAX_DEPTH || *steps > MAX_STEPS {
            return Err(self.endless());
        }
        if whole.iter().any(|part| std::ptr::eq(*part, self)) {
            return Ok(());
        }
        whole.push(self);
        for base in &self.bases {
            let found = root.at(&base.text).ok_or_else(|| {
                let message = format!("no section {:?} to inherit from", base.text.as_str());
                unreadable(
                    &base.location,
                    message,
                    "references are whole paths, as in connections.other",
                )
            })?;
            found.with_bases(root, depth + 1, whole, steps)?;
        }
        Ok(())
    }
}

impl Section {
    /// Takes a setting out.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        let at = self.settings.iter().position(|(known, _)| known == name)?;
        Some(self.settings.remove(at).1)
    }

    /// Takes out `name` and every `name-…` and `name…`.
    pub fn take_like(&mut self, name: &str) -> Vec<Value> {
        let (taken, rest) = std::mem::take(&mut self.settings)
            .into_iter()
            .partition(|(known, _)| known.starts_with(name));
        self.settings = rest;
        taken.into_iter().map(|(_, value): (String, Value)| value).collect()
    }

    /// Reports settings and sections that nobody took.
    pub fn leave(&mut self, of: &str, report: &mut Report) {
        for (name, value) in self.settings.drain(..) {
            let message = format!("{name} of {of} {:?}: not known", self.name);
            report.dropped(&value.location, message, "");
        }
        for section in self.sections.drain(..) {
            let message = format!("section {:?} of {of} {:?}: not known", section.name, self.name);
            report.dropped(&section.location, message, "");
        }
    }
}
