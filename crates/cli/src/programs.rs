//! The programs beside this one: `vpnd`, which does what needs the daemon's code where no daemon runs, and `vpn-lab`.

use control::client::Client;
use host::writers::{Changeable, check_code, check_mode};
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use terminal::delegated;

const VPND: &str = "vpnd";
const VPN_LAB: &str = "vpn-lab";

/// The program cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It is not installed.
    #[error(
        "this needs the program vpnd, which is neither in {} nor in the search path\n  \
         copy the vpnd that came with this program there, or install its package",
        .0.display()
    )]
    Missing(PathBuf),
    /// It is not built: it is in no package.
    #[error(
        "this needs the program vpn-lab, which is neither in {} nor in the search path\n  \
         in a checkout of the sources: cargo build --release && target/release/vpn-lab --help",
        .0.display()
    )]
    NoLaboratory(PathBuf),
    /// Others could have put it there.
    #[error("vpnctl does not run the {name} beside it: {problem}")]
    Changeable {
        /// The name of the program.
        name: &'static str,
        /// The users who can change it, and the cure.
        problem: Changeable,
    },
    /// The system refuses to start it.
    #[error("cannot start {}: {source}", .program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl ProgramError {
    fn new(program: PathBuf, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::NotFound if program.ends_with(VPN_LAB) => {
                Self::NoLaboratory(directory().unwrap_or_default())
            }
            io::ErrorKind::NotFound => Self::Missing(directory().unwrap_or_default()),
            _ => Self::Start { program, source },
        }
    }
}

/// The `vpnd` beside this program; otherwise the one that the shell would find.
///
/// # Errors
/// If another user could have put it there.
pub fn vpnd() -> Result<PathBuf, ProgramError> {
    program(VPND)
}

/// The program of this name beside this one; otherwise the one that the shell would find.
fn program(name: &'static str) -> Result<PathBuf, ProgramError> {
    let beside = directory().map(|directory| directory.join(name));
    let Some(program) = beside.filter(|path| path.exists()) else { return Ok(name.into()) };
    match check(&program) {
        Ok(()) => Ok(program),
        Err(problem) => Err(ProgramError::Changeable { name, problem }),
    }
}

/// The directory of this program's file, also if a link led to it.
fn directory() -> Option<PathBuf> {
    env::current_exe().ok()?.parent().map(Path::to_owned)
}

/// Checks that no other user has made or can change a program beside this one. Whoever owns this program may: they could
/// change this one, too.
fn check(program: &Path) -> Result<(), Changeable> {
    let Ok(metadata) = fs::metadata(program) else { return Ok(()) };
    let own = env::current_exe().and_then(fs::metadata).map(|own| own.uid());
    if own.is_ok_and(|own| own == metadata.uid()) {
        return check_mode(program, &metadata);
    }
    check_code(program)
}

/// Becomes `vpnd vpnctl`, which carries out what this program was asked for. Returns only if that fails.
pub fn become_vpnd() -> ProgramError {
    let arguments = [OsString::from(delegated::COMMAND)].into_iter().chain(env::args_os().skip(1));
    become_program(VPND, arguments)
}

/// Becomes `vpn-lab`, for an experiment. Returns only if that fails.
pub fn become_vpn_lab(experiment: &delegated::ExperimentRun) -> ProgramError {
    become_program(VPN_LAB, experiment.arguments())
}

fn become_program(
    name: &'static str,
    arguments: impl IntoIterator<Item = OsString>,
) -> ProgramError {
    match program(name) {
        Ok(program) => {
            let error = Command::new(&program).args(arguments).exec();
            ProgramError::new(program, error)
        }
        Err(error) => error,
    }
}

/// The settings of `vpnd offline`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Offline<'a> {
    /// The configuration; `None`: that of a daemon that is started here.
    pub config: Option<&'a Path>,
    /// The directory of the policy store; `None`: that of the configuration.
    pub directory: Option<&'a Path>,
    /// The socket on which no daemon answered.
    pub silent: Option<&'a Path>,
    /// The command that the operator typed, with which remarks begin.
    pub command: Option<&'a Path>,
}

impl Offline<'_> {
    /// Starts `vpnd offline`, which answers as a daemon would, as far as that needs no daemon. It ends with the client.
    ///
    /// # Errors
    /// As [`ProgramError`].
    pub fn start(self) -> Result<Client, ProgramError> {
        let program = vpnd()?;
        let options = [
            ("--config", self.config),
            ("--directory", self.directory),
            ("--silent", self.silent),
            ("--as", self.command),
        ];
        let mut command = Command::new(&program);
        command.arg("offline").stdout(Stdio::null());
        for (option, value) in options {
            if let Some(value) = value {
                // One word: a value may begin with a dash.
                let mut argument = OsString::from(option);
                argument.push("=");
                argument.push(value);
                command.arg(argument);
            }
        }
        let started = UnixStream::pair().and_then(|(ours, theirs)| {
            let child = command.stdin(OwnedFd::from(theirs)).spawn()?;
            Ok((ours, child))
        });
        // Closes this process's copy of the child's end: otherwise nothing would tell that the child has ended.
        drop(command);
        match started {
            Ok((stream, mut child)) => {
                thread::spawn(move || child.wait());
                Ok(Client::over(stream, program))
            }
            Err(error) => Err(ProgramError::new(program, error)),
        }
    }
}
