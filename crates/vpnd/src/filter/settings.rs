//! The defaults of the filter that outlive a restart.

use crate::config::FilterSection;
use crate::kept;
use crate::remark::{DaemonState, Told};
use crate::view;
use control::protocol::DefaultAction;
use esp::filter::{self, Filter};
use serde::Deserialize;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

const HEADER: &str = "\
# Written for \"mkfilt\" or \"vpnctl filter … --persist\". What stands here goes before the section [filter] of vpnd.toml.
";

/// The defaults that outlive a restart, and the file that has them.
#[derive(Debug)]
pub struct FilterSettings {
    file: PathBuf,
    kept: Mutex<KeptDefaults>,
    /// A remark about the file, which cannot be used.
    ignored: Mutex<Option<String>>,
}

/// The file: the action for packets that no rule and no tunnel covers. `None`: that of `vpnd.toml`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptDefaults {
    /// The action for IPv4.
    pub ipv4: Option<DefaultAction>,
    /// The action for IPv6.
    pub ipv6: Option<DefaultAction>,
}

impl KeptDefaults {
    /// These, and where they have none, those of `earlier`.
    #[must_use]
    pub fn or(self, earlier: Self) -> Self {
        Self { ipv4: self.ipv4.or(earlier.ipv4), ipv6: self.ipv6.or(earlier.ipv6) }
    }
}

impl FilterSettings {
    /// Reads the file. An error in it comes back as text: a file that cannot be read keeps no daemon from starting.
    pub fn read(section: &FilterSection) -> (Self, Option<String>) {
        let file = section.file.clone();
        let (kept, remark) = match kept::read(&file) {
            Ok(kept) => (kept, None),
            Err(why) => {
                let remark =
                    format!("the defaults of the filter in {} are ignored: {why}", file.display());
                (KeptDefaults::default(), Some(remark))
            }
        };
        let ignored = Mutex::new(remark.clone());
        (Self { file, kept: Mutex::new(kept), ignored }, remark)
    }

    /// The filter of a configuration, with the defaults that outlive a restart.
    pub fn filter(&self, section: &FilterSection) -> Filter {
        let KeptDefaults { ipv4, ipv6 } = self.kept();
        let filter = section.filter();
        Filter {
            ipv4: ipv4.map_or(filter.ipv4, view::default_action),
            ipv6: ipv6.map_or(filter.ipv6, view::default_action),
            ..filter
        }
    }

    /// Returns `true` if everything that `wanted` denies is denied already.
    pub fn denies(&self, section: &FilterSection, wanted: KeptDefaults) -> bool {
        let now = self.filter(section);
        let families = [(wanted.ipv4, now.ipv4), (wanted.ipv6, now.ipv6)];
        families.into_iter().all(|(wanted, now)| {
            wanted != Some(DefaultAction::Deny) || now == filter::DefaultAction::Deny
        })
    }

    /// A remark for each default that differs from the configuration's.
    pub(crate) fn remarks(&self, section: &FilterSection, daemon: DaemonState) -> Vec<Told> {
        let KeptDefaults { ipv4, ipv6 } = self.kept();
        let families = [("IPv4", ipv4, section.ipv4), ("IPv6", ipv6, section.ipv6)];
        let differing = families.into_iter().filter_map(|(family, kept, written)| {
            let kept = kept.filter(|kept| *kept != written)?;
            let [kept, written] = [kept, written].map(|action| view::default_action(action).name());
            let text = format!(
                "[filter]: the default of {family} is {kept}, as {} keeps it, and not {written}",
                self.file.display()
            );
            let command = match daemon {
                DaemonState::Running => "vpnctl filter --forget".to_owned(),
                DaemonState::Absent => {
                    let name = family.to_lowercase();
                    format!(
                        "remove {name} from that file, or, while vpnd runs, vpnctl filter --forget"
                    )
                }
            };
            let cure = format!("to have that of vpnd.toml count again: {command}");
            Some(Told::of_daemon(text).with_cure(cure))
        });
        differing.collect()
    }

    /// A remark, if the file cannot be used, and nothing was written to it since.
    pub(crate) fn ignored(&self) -> Option<String> {
        self.ignored.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Has defaults outlive a restart. Those that are `None` stay as they are.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn persist(&self, wanted: KeptDefaults) -> io::Result<()> {
        let mut kept = self.lock();
        let wanted = wanted.or(*kept);
        self.replace(wanted)?;
        *kept = wanted;
        Ok(())
    }

    /// Has the defaults of the configuration count again.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn forget(&self) -> io::Result<()> {
        let mut kept = self.lock();
        if *kept != KeptDefaults::default() {
            self.replace(KeptDefaults::default())?;
            *kept = KeptDefaults::default();
        }
        Ok(())
    }

    fn replace(&self, kept: KeptDefaults) -> io::Result<()> {
        let lines =
            [("ipv4", kept.ipv4), ("ipv6", kept.ipv6)].map(|(family, action)| match action {
                Some(action) => format!("{family} = \"{}\"\n", view::default_action(action).name()),
                None => String::new(),
            });
        kept::replace(&self.file, &(HEADER.to_owned() + &lines.concat()))?;
        *self.ignored.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(())
    }

    fn kept(&self) -> KeptDefaults {
        *self.lock()
    }

    /// A thread that panicked left a whole value behind.
    fn lock(&self) -> MutexGuard<'_, KeptDefaults> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for FilterSettings {
    /// None, and no file.
    fn default() -> Self {
        Self { file: PathBuf::new(), kept: Mutex::default(), ignored: Mutex::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esp::filter::DefaultAction as Action;
    use std::fs;

    fn section(directory: &Path) -> FilterSection {
        FilterSection { file: directory.join("state/filter.toml"), ..FilterSection::default() }
    }

    fn defaults(settings: &FilterSettings, section: &FilterSection) -> [Action; 2] {
        let filter = settings.filter(section);
        [filter.ipv4, filter.ipv6]
    }

    #[test]
    fn a_default_that_is_kept_counts_after_a_restart_until_it_is_forgotten() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let section = section(directory.path());
        let (settings, remark) = FilterSettings::read(&section);
        assert_eq!((settings.kept(), remark), (KeptDefaults::default(), None));
        let deny = Some(DefaultAction::Deny);
        settings.persist(KeptDefaults { ipv4: None, ipv6: deny }).expect("writable");
        settings
            .persist(KeptDefaults { ipv4: Some(DefaultAction::Permit), ipv6: None })
            .expect("writable");

        let (again, remark) = FilterSettings::read(&section);
        assert_eq!(remark, None);
        assert_eq!(defaults(&again, &section), [Action::Permit, Action::Deny]);
        let remarks = again.remarks(&section, DaemonState::Running);
        assert_eq!(remarks.len(), 1, "{remarks:?}");
        let told = remarks[0].to_string();
        assert!(told.starts_with("[filter]: the default of IPv6 is deny"), "{told}");
        assert!(told.ends_with("count again: vpnctl filter --forget"), "{told}");
        let told = again.remarks(&section, DaemonState::Absent)[0].to_string();
        assert!(told.contains("count again: remove ipv6 from that file"), "{told}");

        let denied = FilterSection { ipv4: DefaultAction::Deny, ..section.clone() };
        assert_eq!(defaults(&again, &denied), [Action::Permit, Action::Deny]);
        again.forget().expect("writable");
        let (without, _) = FilterSettings::read(&section);
        assert_eq!(defaults(&without, &denied), [Action::Deny, Action::Permit]);
        assert_eq!(without.remarks(&denied, DaemonState::Running), []);
    }

    #[test]
    fn a_broken_file_is_told_and_ignored() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let section = section(directory.path());
        fs::create_dir(directory.path().join("state")).expect("writable");
        for text in ["ipv4 = \"block\"", "ipv5 = \"deny\""] {
            fs::write(&section.file, text).expect("writable");
            let (settings, remark) = FilterSettings::read(&section);
            assert_eq!(defaults(&settings, &section), [Action::Permit, Action::Permit]);
            assert!(remark.expect("a remark").contains("are ignored: "));
            assert!(settings.ignored().is_some());
            settings.forget().expect("writable");
            assert!(settings.ignored().is_some(), "nothing was written");
            let deny = KeptDefaults { ipv4: Some(DefaultAction::Deny), ipv6: None };
            settings.persist(deny).expect("writable");
            assert_eq!(settings.ignored(), None);
        }
    }
}
