//! The memory of a process that has keys: no other process reads it, and no file gets it.

use nix::sys::prctl::{set_dumpable, set_pdeathsig};
use nix::sys::signal::Signal;
use nix::sys::stat::{Mode, umask};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::io;

/// The memory is not protected.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what}: {source}")]
pub struct MemoryError {
    what: &'static str,
    source: io::Error,
}

fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> MemoryError {
    move |error| MemoryError { what, source: error.into() }
}

/// Makes files private to this user, and memory with its keys unreadable to debuggers and core dumps.
///
/// `/proc/self` stays readable to the process itself, which is all that network namespaces need.
pub fn protect(exit_with_parent: bool) -> Result<(), MemoryError> {
    umask(Mode::from_bits_truncate(0o077));
    set_dumpable(false).map_err(system("turn core dumps off"))?;
    if exit_with_parent {
        set_pdeathsig(Signal::SIGTERM).map_err(system("tie this process to its parent"))?;
    }
    Ok(())
}

/// Forbids core dumps of this process and of those that it starts, for good.
pub fn dump_none() -> Result<(), MemoryError> {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Core, none).map_err(system("turn core dumps off"))
}
