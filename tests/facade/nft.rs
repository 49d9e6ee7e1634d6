//! `nft` is replaced by a program that waits, fails, or runs it.

use crate::side::Side;
use host::nft;
use nix::fcntl::{Flock, FlockArg};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use testkit::until;

/// The replaced `nft` of one side: the directory of its files.
pub struct Nft(TempDir);

impl Nft {
    /// Replaces the `nft` of a side, whose runtime begins again.
    pub fn of(side: &mut Side) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| directory.path().join(name);
        let place = nft::program().expect("nft is there");
        fs::copy(&place, path("nft")).expect("a copy");
        File::create(path("gate")).expect("writable");
        let [asked, gate, refuse, real, wrapper] =
            ["asked", "gate", "refuse", "nft", "wrapper"].map(path);
        let [asked, gate, refuse, scripts, real] =
            [asked, gate, refuse, path("scripts"), real].map(|path| path.display().to_string());
        let script = format!(
            "#!/bin/sh
touch {asked}
flock --shared {gate} true
case \"$*\" in *list*) exec {real} \"$@\";; esac
if rm {refuse} 2>/dev/null; then echo refused >&2; exit 1; fi
[ -d {scripts} ] || exec {real} \"$@\"
script=$(mktemp {scripts}/XXXXXX)
cat >$script
exec {real} \"$@\" <$script
"
        );
        fs::write(&wrapper, script).expect("writable");
        fs::set_permissions(&wrapper, Permissions::from_mode(0o755)).expect("ours");
        side.end_runtime();
        side.space.run(move || {
            let none = None::<&str>;
            unshare(CloneFlags::CLONE_NEWNS).expect("as root");
            mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).expect("ours");
            mount(Some(&wrapper), &place, none, MsFlags::MS_BIND, none).expect("ours");
        });
        side.new_runtime();
        Self(directory)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Has every call wait until this is dropped.
    pub fn hold(&self) -> Flock<File> {
        let gate = File::open(self.path("gate")).expect("it is there");
        let held = Flock::lock(gate, FlockArg::LockExclusive).expect("nobody has it for long");
        // It is there at every start.
        fs::remove_file(self.path("asked")).expect("ours");
        held
    }

    /// Waits for a call while calls are held.
    pub fn await_call(&self) {
        until("a call of nft", || self.path("asked").exists().then_some(()), String::new);
    }

    /// The output of the real program, whether calls are held or not.
    pub fn real(&self, side: &Side, arguments: &str) -> String {
        side.space.sh(&format!("{} {arguments}", self.path("nft").display()))
    }

    /// Has the next change fail.
    pub fn refuse(&self) {
        File::create(self.path("refuse")).expect("writable");
    }

    pub fn has_refused(&self) -> bool {
        !Path::exists(&self.path("refuse"))
    }

    /// Records the changes from now on.
    pub fn record(&self) {
        fs::create_dir(self.path("scripts")).expect("writable");
    }

    /// The recorded changes, in no order.
    pub fn recorded(&self) -> Vec<String> {
        let scripts = fs::read_dir(self.path("scripts")).expect("they are recorded");
        let read = |file: io::Result<fs::DirEntry>| fs::read_to_string(file.expect("ours").path());
        scripts.map(|file| read(file).expect("text")).collect()
    }
}
