//! Requests to the policy store and its answers.

use super::reload::Reloaded;
use serde::{Deserialize, Serialize};
use std::fmt;
use zeroize::Zeroizing;

/// The text of a policy file, which may hold keys: wiped when dropped, not shown by `Debug`.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PolicyText(pub Zeroizing<String>);

impl fmt::Debug for PolicyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PolicyText({} octets)", self.0.len())
    }
}

/// A file whose objects are put into the store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutPolicy {
    /// The name under which messages refer to it.
    pub file: String,
    /// Its text.
    pub text: PolicyText,
    /// Replaces objects of the same names; otherwise they are errors.
    #[serde(default)]
    pub force: bool,
    /// Exchanges both sides of every tunnel first: the file is the peer's.
    #[serde(default)]
    pub swap: bool,
    /// Leaves out unknown elements and attributes, with a warning; otherwise they are errors.
    #[serde(default)]
    pub lenient: bool,
    /// Only reports the changes that it would make.
    #[serde(default)]
    pub dry_run: bool,
}

/// A selection of objects; without any field, all objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Objects {
    /// The element that defines them, as in `IKETunnel`.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Name; that of a preshared key is the remote identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Kind of a preshared key's remote identity, as in `User_FQDN`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id_type: Option<String>,
}

/// A request for objects, and the form of the answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetPolicy {
    /// The stage.
    #[serde(flatten)]
    pub objects: Objects,
    /// Also all they refer to, and what a phase 1 tunnel carries.
    #[serde(default)]
    pub recursive: bool,
    /// With their preshared keys; otherwise those are empty.
    #[serde(default)]
    pub keys: bool,
}

/// The effect of a command on the store and on the tunnels, or the effect that it would have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// The store's directory.
    pub directory: String,
    /// True if nothing was changed: the client only asked for the changes.
    pub dry_run: bool,
    /// The effect on each object of the file, or on each deleted object.
    pub objects: Vec<ObjectChange>,
    /// Number of objects that the command does not concern.
    pub others: usize,
    /// Warnings of the reader of the file.
    pub warnings: Vec<String>,
    /// The effect on tunnels; `null` where no daemon runs the store.
    pub reloaded: Option<Reloaded>,
}

/// The effect on one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectChange {
    /// The element that defines it.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its name.
    pub name: String,
    /// `added`, `replaced`, `unchanged` or `deleted`.
    pub effect: String,
    /// The differences, for people; never a key.
    pub differences: Vec<String>,
}
