//! Putting a file's objects among others, and the changes that this makes.

use super::contents::Database;
use super::merge::{Merged, PutOptions, merge};
use super::names::Names;
use super::object::Object;
use crate::xml::{Diagnostic, Diagnostics, Text};
use std::fmt;

/// A database after a file has been put.
#[derive(Clone, Debug)]
pub struct Put {
    /// Every object.
    pub database: Database,
    /// The effect of the file on each of its objects, in the order of the file.
    pub changes: Vec<Change>,
    /// Warnings about the file.
    pub warnings: Vec<Diagnostic>,
}

/// The effect of a put on an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Kind of the object.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// The effect.
    pub effect: Effect,
    /// The difference from the stored object, for people; never a key.
    pub differences: Vec<String>,
}

/// The kinds of effect on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It is new.
    Added,
    /// It takes the place of another.
    Replaced,
    /// It is there already, the same.
    Unchanged,
}

impl Effect {
    /// Stable name for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Replaced => "replaced",
            Self::Unchanged => "unchanged",
        }
    }
}

impl fmt::Display for Change {
    /// The effect, the kind and the name of the object.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let effect = match self.effect {
            Effect::Added => "new",
            Effect::Replaced => "replaced",
            Effect::Unchanged => "unchanged",
        };
        write!(f, "{effect:<9} {} {}", self.kind, self.name.escape_debug())
    }
}

impl Database {
    /// Reads the text of a policy file; `file_name` only labels the diagnostics.
    ///
    /// # Errors
    /// The errors of [`xml::read`](crate::xml::read).
    pub fn read(file_name: &str, text: &str) -> Result<Self, Diagnostics> {
        Ok(Self::default().put(file_name, text, &PutOptions::default())?.database)
    }

    /// Puts the objects of a file into this database: those of new names behind the others, those of
    /// known names in the place of the old ones. References may go either way.
    ///
    /// # Errors
    /// All errors of the file, and of other objects that it would break; without `force` also each object whose name is
    /// taken.
    pub fn put(
        &self,
        file_name: &str,
        text: &str,
        options: &PutOptions<'_>,
    ) -> Result<Put, Diagnostics> {
        self.put_all(&[Text { name: file_name, text }], options)
    }

    /// Puts the objects of several files, as [`Database::put`] does with those of one: all of them, or none.
    ///
    /// # Errors
    /// As [`Database::put`], of all files.
    pub fn put_all(
        &self,
        texts: &[Text<'_>],
        options: &PutOptions<'_>,
    ) -> Result<Put, Diagnostics> {
        let Merged { objects, put, warnings } = merge(texts, &self.objects, options, None)?;
        let names = Names::of(&self.objects);
        let changes = put.iter().map(|object| self.change(object, &names)).collect();
        Ok(Put { database: Self { objects }, changes, warnings })
    }

    fn change(&self, object: &Object, names: &Names<'_>) -> Change {
        let before = names.place(object).map(|place| &self.objects[place]);
        let differences = before.map_or_else(Vec::new, |b| b.node().differences(object.node()));
        let effect = match before {
            None => Effect::Added,
            Some(before) if before == object => Effect::Unchanged,
            Some(_) => Effect::Replaced,
        };
        Change {
            kind: object.element().to_owned(),
            name: object.name().to_owned(),
            effect,
            differences,
        }
    }
}

/// The policy of the other side of a file's tunnels.
#[derive(Clone, Debug)]
pub struct Mirrored {
    /// Its objects.
    pub database: Database,
    /// Warnings about them, with their places in the file.
    pub warnings: Vec<Diagnostic>,
}

/// Makes the policy of the other side: identities, keys and roles exchanged, everything else the same. With the name of
/// a phase 1 tunnel only that one, with all that belongs to it.
///
/// # Errors
/// All errors of the file, and what has no other side: a group as the remote identity, or several peers with different
/// keys, whose policies differ.
pub fn mirror(file_name: &str, text: &str, tunnel: Option<&str>) -> Result<Mirrored, Diagnostics> {
    let options = PutOptions { swap: true, ..PutOptions::default() };
    let texts = [Text { name: file_name, text }];
    let Merged { objects, warnings, .. } = merge(&texts, &[], &options, tunnel)?;
    Ok(Mirrored { database: Database { objects }, warnings })
}
