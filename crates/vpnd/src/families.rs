//! IPsec of each address family: the settings that outlive a restart.

use crate::config::FamiliesSection;
use crate::kept;
use control::protocol::{Refusal, RefusalCode};
use esp::families::{Families, Family};
use serde::Deserialize;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

const HEADER: &str = "\
# Written by vpnd for \"vpnctl family … --persist\". What stands here goes before the section [families] of vpnd.toml.
";

/// The settings that outlive a restart, and those of the configuration.
#[derive(Debug)]
pub struct FamilySettings {
    defaults: Families,
    file: PathBuf,
    persistent: Mutex<Persistent>,
    /// A remark about the file, which cannot be used.
    ignored: Mutex<Option<String>>,
}

/// The family of a name.
///
/// # Errors
/// If no family has it.
pub fn named(name: &str) -> Result<Family, Refusal> {
    Family::ALL.into_iter().find(|family| family.name() == name).ok_or_else(|| {
        let message = format!("no address family {name:?}; there are ipv4 and ipv6");
        Refusal::new(RefusalCode::BadRequest, message)
    })
}

/// The file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Persistent {
    ipv4: Option<bool>,
    ipv6: Option<bool>,
}

impl FamilySettings {
    /// Reads what outlives a restart. An error in it comes back as text: a file that cannot be read keeps no daemon
    /// from starting.
    pub fn read(section: &FamiliesSection) -> (Self, Option<String>) {
        let (persistent, remark) = match kept::read(&section.file) {
            Ok(persistent) => (persistent, None),
            Err(why) => {
                let path = section.file.display();
                let remark = format!("the address families in {path} are ignored: {why}");
                (Persistent::default(), Some(remark))
            }
        };
        let (defaults, file) = (section.families(), section.file.clone());
        let ignored = Mutex::new(remark.clone());
        (Self { defaults, file, persistent: Mutex::new(persistent), ignored }, remark)
    }

    /// The families that are on at the start.
    pub fn at_start(&self) -> Families {
        let persistent = *self.persistent();
        let [ipv4, ipv6] = [Family::Ipv4, Family::Ipv6]
            .map(|family| persistent.of(family).unwrap_or(self.defaults.has(family)));
        Families { ipv4, ipv6 }
    }

    /// Whether a family is on in the configuration.
    pub fn default_of(&self, family: Family) -> bool {
        self.defaults.has(family)
    }

    /// The setting of a family that outlives a restart.
    pub fn persistent_of(&self, family: Family) -> Option<bool> {
        self.persistent().of(family)
    }

    /// A remark, if the file cannot be used, and nothing was written to it since.
    pub(crate) fn ignored(&self) -> Option<String> {
        self.ignored.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The file of the settings that outlive a restart.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Has a setting outlive a restart, or with `None` the configuration count again.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn persist(&self, family: Family, on: Option<bool>) -> io::Result<()> {
        let mut persistent = self.persistent();
        let mut wanted = *persistent;
        match family {
            Family::Ipv4 => wanted.ipv4 = on,
            Family::Ipv6 => wanted.ipv6 = on,
        }
        replace(&self.file, wanted)?;
        *persistent = wanted;
        *self.ignored.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(())
    }

    /// A thread that panicked left a whole value behind.
    fn persistent(&self) -> MutexGuard<'_, Persistent> {
        self.persistent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for FamilySettings {
    /// Those of the default configuration, without a file.
    fn default() -> Self {
        Self::read(&FamiliesSection { file: PathBuf::new(), ..FamiliesSection::default() }).0
    }
}

impl Persistent {
    fn of(self, family: Family) -> Option<bool> {
        match family {
            Family::Ipv4 => self.ipv4,
            Family::Ipv6 => self.ipv6,
        }
    }
}

fn replace(path: &Path, persistent: Persistent) -> io::Result<()> {
    let lines = Family::ALL.map(|family| match persistent.of(family) {
        Some(on) => format!("{} = {on}\n", family.name()),
        None => String::new(),
    });
    kept::replace(path, &(HEADER.to_owned() + &lines.concat()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn section(directory: &Path) -> FamiliesSection {
        FamiliesSection { file: directory.join("state/families.toml"), ..Default::default() }
    }

    #[test]
    fn a_family_that_is_switched_off_for_good_is_off_after_a_restart() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let section = section(directory.path());
        let (settings, remark) = FamilySettings::read(&section);
        assert_eq!((settings.at_start(), remark), (Families::default(), None));
        settings.persist(Family::Ipv6, Some(false)).expect("writable");
        assert_eq!(settings.persistent_of(Family::Ipv6), Some(false));

        let (again, remark) = FamilySettings::read(&section);
        assert_eq!(again.at_start(), Families { ipv4: true, ipv6: false });
        assert_eq!(remark, None);
        again.persist(Family::Ipv6, None).expect("writable");
        assert_eq!(FamilySettings::read(&section).0.at_start(), Families::default());
    }

    #[test]
    fn the_file_goes_before_the_configuration() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let section = FamiliesSection { ipv4: false, ..section(directory.path()) };
        let (settings, _) = FamilySettings::read(&section);
        assert!(!settings.at_start().ipv4 && !settings.default_of(Family::Ipv4));
        settings.persist(Family::Ipv4, Some(true)).expect("writable");
        assert!(FamilySettings::read(&section).0.at_start().ipv4);
    }

    #[test]
    fn a_broken_file_is_told_and_ignored() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let section = section(directory.path());
        fs::create_dir(directory.path().join("state")).expect("writable");
        for text in ["ipv6 = \"off\"", "ipv5 = true"] {
            fs::write(&section.file, text).expect("writable");
            let (settings, remark) = FamilySettings::read(&section);
            assert_eq!(settings.at_start(), Families::default());
            assert!(remark.expect("a remark").contains("are ignored: "));
        }
    }
}
