//! The paths of an installation.

use super::error::InstallError;
use std::path::{Component, Path, PathBuf};

/// Where the files of a prefix are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    prefix: PathBuf,
}

impl Layout {
    /// The paths below a prefix.
    ///
    /// # Errors
    /// Where the prefix could not stand in a unit.
    pub fn new(prefix: &Path) -> Result<Self, InstallError> {
        let text = prefix
            .to_str()
            .filter(|text| text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+".contains(c)));
        let is_direct = prefix.components().all(|part| part != Component::ParentDir);
        match text {
            Some(_) if prefix.is_absolute() && is_direct => {
                Ok(Self { prefix: prefix.components().collect() })
            }
            _ => Err(InstallError::Prefix(prefix.to_owned())),
        }
    }

    /// The directory of the programs.
    pub fn programs(&self) -> PathBuf {
        self.prefix.join("bin")
    }

    /// A directory in which systemd looks for units. It does not look below every prefix.
    pub fn units(&self) -> PathBuf {
        match self.prefix.to_str() {
            Some("/usr" | "/usr/local") => self.prefix.join("lib/systemd/system"),
            Some("/") => PathBuf::from("/usr/lib/systemd/system"),
            _ => PathBuf::from("/etc/systemd/system"),
        }
    }

    /// The directory of the manual pages of a section.
    pub fn pages(&self, section: &str) -> PathBuf {
        self.prefix.join(format!("share/man/man{section}"))
    }

    /// The file of a program's completion for a shell, which the shell loads by itself.
    pub fn completion(&self, shell: &str, program: &str) -> PathBuf {
        match shell {
            "bash" => self.prefix.join("share/bash-completion/completions").join(program),
            "zsh" => self.prefix.join("share/zsh/site-functions").join(format!("_{program}")),
            _ => {
                self.prefix.join("share/fish/vendor_completions.d").join(format!("{program}.fish"))
            }
        }
    }

    /// The list of the files that were installed.
    pub fn manifest(&self) -> PathBuf {
        self.prefix.join("share/vpnd/installed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_where_systemd_looks() {
        let units = |prefix: &str| Layout::new(Path::new(prefix)).expect("a prefix").units();
        assert_eq!(units("/usr"), Path::new("/usr/lib/systemd/system"));
        assert_eq!(units("/usr/local/"), Path::new("/usr/local/lib/systemd/system"));
        assert_eq!(units("/opt/vpnd"), Path::new("/etc/systemd/system"));
        for bad in ["usr/local", "/opt/a b", "/opt/%i", "/opt/../etc", ""] {
            let error = Layout::new(Path::new(bad)).expect_err("not a prefix").to_string();
            assert!(error.contains("cannot be the prefix"), "{error}");
        }
    }
}
