//! The list of what was installed.

use super::error::InstallError;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Files and directories, each by its path without the directory that stands for `/`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Manifest {
    pub files: Vec<PathBuf>,
    /// Those that were made for the files, each after the one that it is in.
    pub directories: Vec<PathBuf>,
}

const HEAD: &str = "# vpnd install has written these files. vpnd uninstall removes them.\n";

impl Manifest {
    pub fn new(
        files: impl Iterator<Item = PathBuf>,
        directories: impl Iterator<Item = PathBuf>,
    ) -> Self {
        let mut directories: Vec<PathBuf> = directories.collect();
        directories.sort();
        directories.dedup();
        Self { files: files.collect(), directories }
    }

    /// Reads the file; `None` if there is none.
    pub fn read(path: &Path) -> Result<Option<Self>, InstallError> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => {
                let path = path.to_owned();
                return Err(InstallError::System { what: "read", path, source });
            }
        };
        let manifest = Self::parse(&text);
        let path = path.to_owned();
        manifest.map(Some).map_err(|why| InstallError::Manifest { path, why })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut manifest = Self::default();
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.starts_with('#')) {
            let (kind, path) = line.split_once(' ').ok_or_else(|| wrong(number))?;
            let path = PathBuf::from(path);
            // It is removed below another root, too.
            if !path.is_absolute() || path.components().any(|part| part == Component::ParentDir) {
                return Err(wrong(number));
            }
            match kind {
                "file" => manifest.files.push(path),
                "directory" => manifest.directories.push(path),
                _ => return Err(wrong(number)),
            }
        }
        Ok(manifest)
    }

    /// The text of the file.
    pub fn text(&self) -> String {
        let files = self.files.iter().map(|path| format!("file {}\n", path.display()));
        let directories = self.directories.iter().map(|p| format!("directory {}\n", p.display()));
        [HEAD.to_owned()].into_iter().chain(files).chain(directories).collect()
    }
}

fn wrong(number: usize) -> String {
    format!("line {number} is neither \"file PATH\" nor \"directory PATH\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_read_as_it_was_written() {
        let paths = |all: &[&str]| all.iter().map(PathBuf::from).collect::<Vec<_>>();
        let manifest = Manifest::new(
            paths(&["/usr/local/bin/vpnd", "/usr/local/share/man/man1/vpnd.1"]).into_iter(),
            paths(&["/usr/local/share/vpnd", "/usr/local/share", "/usr/local/share"]).into_iter(),
        );
        assert_eq!(manifest.directories, paths(&["/usr/local/share", "/usr/local/share/vpnd"]));
        assert_eq!(Manifest::parse(&manifest.text()), Ok(manifest));
        for bad in ["file", "file etc/passwd", "file /usr/../etc/passwd", "link /etc/passwd"] {
            assert!(Manifest::parse(bad).is_err(), "{bad}");
        }
    }
}
