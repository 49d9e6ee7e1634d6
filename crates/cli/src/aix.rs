//! The commands of AIX: this program behaves as `ike`, `ikedb` and so on when it is called by these names.
//!
//! Options, shape of the output and exit status are AIX's, so that scripts keep working. A message begins with the
//! command's name and says what to do. The daemon is found by the environment variable `VPND_CONTROL`, since these
//! commands have no option for its socket. Those that on AIX come before the daemons work without one: they change the
//! files that it reads at its start, in the places that its configuration names (`VPND_CONFIG`, as for `startsrc`).

mod acfo;
mod advice;
mod daemon;
mod devices;
mod filters;
mod flags;
mod genfilt;
mod ike;
mod ikedb;
pub mod links;
mod listing;
mod log_level;
mod starting;
mod subsystems;
mod trouble;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use daemon::{Settings, connect, done, find, named_configuration, socket, started_with, tunnels};
use flags::Flags;
use trouble::Trouble;

/// A command of AIX: its arguments, and where its output goes.
type Run = fn(&[String], &mut dyn Write) -> Result<(), Trouble>;

/// Names and what they do.
const COMMANDS: [(&str, Run); 14] = [
    ("acfo", acfo::run),
    ("genfilt", genfilt::refuse),
    ("ike", ike::run),
    ("ikedb", ikedb::run),
    ("lsdev", devices::list),
    ("lsfilt", filters::list),
    ("lssrc", subsystems::list),
    ("mkdev", devices::make),
    ("mkfilt", filters::make),
    ("rmdev", devices::remove),
    ("smit", devices::menu),
    ("smitty", devices::menu),
    ("startsrc", subsystems::start),
    ("stopsrc", subsystems::stop),
];

/// Every name.
pub fn names() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().map(|(name, _)| *name).chain(advice::names())
}

/// Carries out the command of AIX by whose name the program was called; `None` if it was called by another.
pub fn run(mut arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let program = PathBuf::from(arguments.next()?);
    let name = program.file_name()?.to_str()?;
    if let Some((name, trouble)) = advice::refusal(name) {
        eprintln!("{name}: {}", trouble.message);
        return Some(ExitCode::FAILURE);
    }
    let (name, run) = COMMANDS.iter().find(|(known, _)| *known == name)?;
    let words: Result<Vec<String>, OsString> = arguments.map(OsString::into_string).collect();
    let mut out = io::stdout().lock();
    let outcome = match words {
        Ok(words) => run(&words, &mut out),
        Err(word) => Err(Trouble::usage(format!("{} is not UTF-8", word.to_string_lossy()), "")),
    };
    Some(match outcome.and_then(|()| out.flush().map_err(Trouble::from)) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of our output has seen enough.
        Err(trouble) if trouble.is_broken_pipe => ExitCode::SUCCESS,
        Err(trouble) => {
            eprintln!("{name}: {}", trouble.message);
            if let Some(usage) = trouble.usage {
                eprintln!("{usage}");
            }
            ExitCode::FAILURE
        }
    })
}
