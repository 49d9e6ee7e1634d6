//! `vpnctl aix-links`: links by whose names this program is AIX's commands.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// A link cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The system refused.
    #[error("cannot make the link {}: {source}", .path.display())]
    System {
        /// The link.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Something else has the name.
    #[error("{} exists and is no link to {}; choose another directory, or remove it", .path.display(), .program.display())]
    Taken {
        /// The path of the new link.
        path: PathBuf,
        /// The target of the new link.
        program: PathBuf,
    },
}

/// Makes the links in a directory, and the directory where there is none; returns their paths. Links that are there
/// already stay; nothing is overwritten.
///
/// # Errors
/// As [`LinkError`]; then no link has been made.
pub fn make(directory: &Path, program: &Path) -> Result<Vec<PathBuf>, LinkError> {
    fs::create_dir_all(directory).map_err(|error| system_error(directory, error))?;
    let paths: Vec<PathBuf> = super::names().map(|name| directory.join(name)).collect();
    let mut missing = Vec::new();
    for path in &paths {
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push(path),
            Err(error) => return Err(system_error(path, error)),
            Ok(_) if fs::read_link(path).is_ok_and(|target| target == program) => {}
            Ok(_) => {
                return Err(LinkError::Taken { path: path.clone(), program: program.to_owned() });
            }
        }
    }
    for path in missing {
        symlink(program, path).map_err(|error| system_error(path, error))?;
    }
    Ok(paths)
}

fn system_error(path: &Path, source: io::Error) -> LinkError {
    LinkError::System { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_made_once_and_over_nothing_else() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let bin = directory.path().join("bin");
        let program = Path::new("/usr/bin/vpnctl");
        let made = make(&bin, program).expect("writable");
        assert_eq!(made, make(&bin, program).expect("they are there"));
        assert_eq!(made.len(), super::super::names().count());
        assert_eq!(fs::read_link(bin.join("ike")).expect("a link"), program);
        fs::remove_file(bin.join("ike")).expect("it is there");
        fs::remove_file(bin.join("ikedb")).expect("it is there");
        fs::write(bin.join("ikedb"), "another program").expect("writable");
        assert!(matches!(make(&bin, program), Err(LinkError::Taken { .. })));
        assert!(!bin.join("ike").exists(), "all or nothing");
    }
}
