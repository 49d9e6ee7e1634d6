//! The confinement of the daemon's process: fewer privileges, fewer files and fewer system calls than its user has.
//!
//! A thread passes all of it on to the threads and programs that it starts, and never gets rid of it. So it is put in
//! force while the process has one thread.

mod capabilities;
mod files;
mod paths;
mod system_calls;

use control::protocol::ConfinementInfo;
use files::Pinned;
pub use paths::Paths;
use rustix::thread::set_no_new_privs;

/// The confinement in force, as far as the kernel has it.
#[derive(Debug)]
#[must_use = "the daemon loses files of /proc when this is dropped"]
pub struct Confinement {
    info: ConfinementInfo,
    _pinned: Pinned,
}

impl Confinement {
    /// The parts in force, and those that are not, with the reasons.
    pub fn info(&self) -> &ConfinementInfo {
        &self.info
    }
}

/// Confines the calling thread, and all that it will start: to three capabilities, to the files of `paths` and those of
/// the system that a gateway needs, and to harmless system calls. Of the system's programs, it can execute `nft`.
///
/// The parts do not depend on each other: if the kernel lacks one, the others are in force.
pub fn confine(paths: &Paths) -> Confinement {
    let mut info = ConfinementInfo::default();
    let mut note = |part: &str, outcome: Result<Option<String>, String>| match outcome {
        Ok(None) => info.in_force.push(part.to_owned()),
        Ok(Some(remark)) => info.in_force.push(format!("{part} ({remark})")),
        Err(reason) => info.missing.push(format!("{part}: {reason}")),
    };
    // The next parts need it.
    let privileges = set_no_new_privs(true).map(|()| None);
    note("no_new_privs", privileges.map_err(|error| error.to_string()));
    let (pinned, outcome) = files::restrict(paths);
    note("Landlock", outcome);
    note("capabilities", capabilities::restrict().map(|()| None).map_err(|e| e.to_string()));
    // Last: the filter refuses none of the calls above today, and need not know them.
    note("seccomp", system_calls::restrict().map(|()| None));
    Confinement { info, _pinned: pinned }
}
