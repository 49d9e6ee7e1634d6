//! Other IKE daemons that this machine's own Debian does not have: each in a root directory with the packages of
//! another release, which `tests/peers` makes (`target/peers`).

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where `tests/peers` puts them.
const ROOTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peers");

/// The root directory of one daemon. The guest has it to itself: changes in it are gone with the guest.
pub struct Root(PathBuf);

impl Root {
    /// Makes `/proc` and `/dev` appear in it.
    pub fn enter(name: &str) -> Self {
        let root = Path::new(ROOTS).join(name);
        let none = None::<&str>;
        if !root.join("proc/self").exists() {
            mount(Some("proc"), &root.join("proc"), Some("proc"), MsFlags::empty(), none)
                .expect("root may mount");
        }
        if !root.join("dev/null").exists() || !root.join("dev/urandom").exists() {
            let bound = mount(Some("/dev"), &root.join("dev"), none, MsFlags::MS_BIND, none);
            assert!(matches!(bound, Ok(()) | Err(Errno::EBUSY)), "root may mount: {bound:?}");
        }
        Self(root)
    }

    /// Its path outside of it.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A new directory in it.
    pub fn directory(&self) -> tempfile::TempDir {
        tempfile::tempdir_in(self.0.join("tmp")).expect("its directory for temporary files")
    }

    /// A program of it, run within it.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("chroot");
        command.arg(&self.0).arg(program);
        command
    }
}
