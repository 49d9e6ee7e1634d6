//! Selecting objects by kind and name, to export or to delete them.

use super::contents::Database;
use super::object::{Kind, Object};
use super::references::References;
use crate::wording::nearest;
use crate::xml::{self, Diagnostics, Node};
use std::collections::BTreeSet;
use zeroize::Zeroizing;

/// A choice of objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Objects of this kind; `None`: of every kind.
    pub kind: Option<Kind>,
    /// The one of this name; `None`: all. A preshared key's name is its remote identity.
    pub name: Option<String>,
    /// Kind of a preshared key's remote identity, as in `User_FQDN`; `None`: any.
    pub id_type: Option<String>,
}

impl Selection {
    fn has(&self, object: &Object) -> bool {
        self.kind.is_none_or(|kind| object.kind() == Some(kind))
            && self.name.as_ref().is_none_or(|name| object.is_named(name))
            && self.id_type.as_ref().is_none_or(|kind| object.id_type() == Some(kind))
    }
}

/// The reason why objects cannot be found or deleted.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DatabaseError {
    /// No object is as asked for.
    #[error("the policy store has no {wanted}{hint}")]
    Missing {
        /// Kind and name.
        wanted: String,
        /// The names there are, or the nearest.
        hint: String,
    },
    /// Several preshared keys have remote identities that are written alike.
    #[error(
        "{0} is the remote identity of several preshared keys; name its kind as well, like User_FQDN"
    )]
    Ambiguous(String),
    /// Others refer to what is to go.
    #[error("{object} is in use by {}; delete or change that first", .by.join(", "))]
    InUse {
        /// The object to remove.
        object: String,
        /// The objects that refer to it.
        by: Vec<String>,
    },
    /// The rest would be no policy.
    #[error("without {object} the rest has errors:\n{errors}")]
    Broken {
        /// The object to remove.
        object: String,
        /// The errors of the policy without it.
        errors: Diagnostics,
    },
}

crate::readable_debug!(DatabaseError);

impl Database {
    /// The objects that are meant, in the order in which they were defined. With `recursive` also all they refer to,
    /// and what a phase 1 tunnel carries: the selection is a policy of its own.
    ///
    /// # Errors
    /// Returns an error if a name was given that no object has, or several preshared keys.
    pub fn select(
        &self,
        selection: &Selection,
        recursive: bool,
    ) -> Result<Vec<&Object>, DatabaseError> {
        let mut meant = self.meant(selection)?;
        if recursive {
            meant = References::between(&self.objects).closure(&meant);
        }
        Ok(meant.into_iter().map(|at| &self.objects[at]).collect())
    }

    /// The text of a policy file with the objects that are meant; `keys` false leaves the keys in it empty.
    ///
    /// # Errors
    /// The errors of [`Database::select`].
    pub fn export(
        &self,
        selection: &Selection,
        recursive: bool,
        keys: bool,
    ) -> Result<Zeroizing<String>, DatabaseError> {
        let objects = self.select(selection, recursive)?;
        if keys {
            return Ok(xml::write(objects.into_iter().map(Object::node)));
        }
        let hidden: Vec<Node> = objects.into_iter().map(|o| o.node().without_keys()).collect();
        Ok(xml::write(&hidden))
    }

    /// The database without the selected objects.
    ///
    /// # Errors
    /// Returns an error if there are none, if others refer to them, or if the rest would be no policy.
    pub fn delete(&self, selection: &Selection) -> Result<Self, DatabaseError> {
        let going: BTreeSet<usize> = self.meant(selection)?.into_iter().collect();
        if going.is_empty() {
            return Err(self.missing(selection));
        }
        if let Some((at, by)) = References::between(&self.objects).to(&going).pop_first() {
            let by = by.into_iter().map(|by| self.objects[by].to_string()).collect();
            return Err(DatabaseError::InUse { object: self.objects[at].to_string(), by });
        }
        let mut at = 0..;
        let mut rest = self.clone();
        rest.objects.retain(|_| at.next().is_some_and(|at| !going.contains(&at)));
        match rest.load("policy store") {
            Ok(_) => Ok(rest),
            Err(errors) => {
                let going: Vec<String> =
                    going.iter().map(|at| self.objects[*at].to_string()).collect();
                Err(DatabaseError::Broken { object: going.join(", "), errors })
            }
        }
    }

    fn meant(&self, selection: &Selection) -> Result<Vec<usize>, DatabaseError> {
        let objects = self.objects.iter().enumerate();
        let meant: Vec<usize> =
            objects.filter(|(_, object)| selection.has(object)).map(|(at, _)| at).collect();
        let keys =
            meant.iter().filter(|at| self.objects[**at].kind() == Some(Kind::IkePresharedKey));
        match &selection.name {
            Some(_) if meant.is_empty() => Err(self.missing(selection)),
            Some(name) if keys.count() > 1 => Err(DatabaseError::Ambiguous(name.clone())),
            _ => Ok(meant),
        }
    }

    fn missing(&self, selection: &Selection) -> DatabaseError {
        let kind = selection.kind.map_or("object", Kind::element);
        let names: Vec<&str> = self
            .objects
            .iter()
            .filter(|o| selection.kind.is_none_or(|kind| o.kind() == Some(kind)))
            .map(Object::name)
            .collect();
        let Some(name) = &selection.name else {
            return DatabaseError::Missing { wanted: kind.to_owned(), hint: String::new() };
        };
        let wanted = match &selection.id_type {
            Some(id_type) => format!("{kind} for {id_type} {name:?}"),
            None => format!("{kind} named {name:?}"),
        };
        let hint = match nearest(name, names.iter().copied()) {
            Some(near) if near != name => format!("; did you mean {near:?}?"),
            _ if names.is_empty() => format!("; it has no {kind} at all"),
            _ if names.len() <= 8 => format!("; it has {}", names.join(", ")),
            _ => String::new(),
        };
        DatabaseError::Missing { wanted, hint }
    }
}
