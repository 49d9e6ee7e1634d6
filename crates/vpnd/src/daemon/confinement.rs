//! The confinement of the daemon's process, and of the process that runs `nft` for it: fewer privileges, fewer files
//! and fewer system calls than their user has.
//!
//! A thread passes all of it on to the threads and programs that it starts, and never gets rid of it. So it is put in
//! force while the process has one thread.

mod capabilities;
mod files;
mod paths;
mod system_calls;

use super::helper::Helping;
use control::protocol::ConfinementInfo;
use files::Pinned;
use host::nft;
pub use paths::Paths;
use rustix::thread::set_no_new_privs;
use system_calls::Allowed;

/// The part of the confinement by which the daemon need not run programs, and cannot.
const HELPER: &str = "a helper for nft";
/// The part by which it cannot run code that was not there at its start.
const FIXED_CODE: &str = "fixed code";

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

    /// Forbids all threads of this process to make memory executable. Libraries are loaded before.
    pub fn forbid_new_code(&mut self) {
        let programs = !self.info.in_force.iter().any(|part| part == HELPER);
        let outcome = match programs {
            true => Err("vpnd runs nft itself, which loads its own code".to_owned()),
            false => system_calls::forbid_new_code().map(|()| None),
        };
        note(&mut self.info, FIXED_CODE, outcome);
    }
}

/// Confines the calling thread, and all that it will start: to three capabilities, to the files of `paths` and those of
/// the system that a gateway needs, and to harmless system calls. It can execute no program; without a helper, it can
/// execute `nft`.
///
/// The parts do not depend on each other: if the kernel lacks one, the others are in force.
pub fn confine(paths: &Paths, helper: Result<Helping, String>) -> Confinement {
    let socket = paths.sockets.first();
    let remark = socket.map(|path| format!("Unix sockets are allowed, for {}", path.display()));
    let allowed = Allowed { unix_sockets: socket.is_some(), programs: helper.is_err() };
    if helper.is_err() {
        nft::keep_script();
    }
    let mut confinement = apply(files::of_daemon(paths), allowed, remark);
    let Confinement { info, .. } = &mut confinement;
    match helper {
        Ok(Helping { missing }) => {
            note(info, HELPER, Ok(None));
            info.missing.extend(missing.into_iter().map(|part| format!("{part} (beside nft)")));
        }
        Err(reason) => note(info, HELPER, Err(reason)),
    }
    confinement
}

/// Confines a process that does nothing but run `nft`: to the same, but to files that it can only read.
pub fn confine_helper() -> Confinement {
    let allowed = Allowed { unix_sockets: false, programs: true };
    apply(files::of_nft(), allowed, None)
}

fn apply(
    files: impl Iterator<Item = files::Rule>,
    allowed: Allowed,
    remark: Option<String>,
) -> Confinement {
    let mut info = ConfinementInfo::default();
    // The next parts need it.
    let privileges = set_no_new_privs(true).map(|()| None);
    note(&mut info, "no_new_privs", privileges.map_err(|error| error.to_string()));
    let (pinned, outcome) = files::restrict(files, allowed.programs);
    note(&mut info, "Landlock", outcome);
    let capabilities = capabilities::restrict().map(|()| None);
    note(&mut info, "capabilities", capabilities.map_err(|error| error.to_string()));
    // Last: the filter refuses none of the calls above today, and need not know them.
    note(&mut info, "seccomp", system_calls::restrict(allowed).map(|()| remark));
    Confinement { info, _pinned: pinned }
}

fn note(info: &mut ConfinementInfo, part: &str, outcome: Result<Option<String>, String>) {
    match outcome {
        Ok(None) => info.in_force.push(part.to_owned()),
        Ok(Some(remark)) => info.in_force.push(format!("{part} ({remark})")),
        Err(reason) => info.missing.push(format!("{part}: {reason}")),
    }
}
