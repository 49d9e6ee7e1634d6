//! The objects of a database, as text and as a policy.

use super::object::Object;
use crate::xml::{self, Diagnostics, Loaded, Options};
use zeroize::Zeroizing;

/// Every object of a policy, in the order in which they were defined. Together they are a policy without errors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Database {
    pub(super) objects: Vec<Object>,
}

impl Database {
    /// Its objects, in the order in which they were defined.
    pub fn objects(&self) -> &[Object] {
        &self.objects
    }

    /// Returns `true` if there are none.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// The text of a policy file that reads back to the same: canonical, with all keys, wiped when dropped.
    pub fn to_xml(&self) -> Zeroizing<String> {
        xml::write(self.objects.iter().map(Object::node))
    }

    /// The policy, with warnings and lines as in the text that [`Database::to_xml`] writes, under this name.
    ///
    /// # Errors
    /// Returns an error if the text is longer than what is read, or the objects make no policy.
    pub fn load(&self, file_name: &str) -> Result<Loaded, Diagnostics> {
        self.load_with(file_name, &Options::default())
    }

    /// As [`Database::load`], with options for reading.
    ///
    /// # Errors
    /// As [`Database::load`].
    pub fn load_with(&self, file_name: &str, options: &Options<'_>) -> Result<Loaded, Diagnostics> {
        xml::read_with(file_name, &self.to_xml(), options)
    }
}
