//! The helper: a process that runs `nft` for the daemon, so that the daemon itself need not be able to run any program.
//! It also tells the service manager what the daemon has to say, and sends its log to systemd's journal.
//!
//! ```text
//!  vpnd start ── socket: a connection for each call ──► vpnd start --helper
//!      │ confined: no programs, fixed code                  │ confined: no file to write, and only `nft` to run
//!      ├── connection: arguments and input ────────────────►├──► nft
//!      │    ◄── the number of the process, its output ──────┤
//!      ├── connection: scripts for a table ────────────────►├──► nft -i, which owns the table until the connection ends
//!      └── connection: lines of the log ───────────────────►├──► journal
//!                                                           └──► service manager
//! ```
//!
//! It ends with the daemon, after the calls that the daemon has made. Signals to the process group or to the control
//! group do not end it: the daemon needs it to undo its changes.
//!
//! If systemd has started the daemon, the helper becomes the main process of the service, so that nobody else in it can
//! speak to systemd. For that it must be a child of systemd, which takes over the children of a process that has ended: the
//! daemon starts a process that starts the helper and ends.

pub mod inside;

use super::service_manager;
use crate::channel::{receive, send};
use host::nft;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// The part of a process that is called by `vpnd start --helper`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// The helper, a child of the daemon.
    Child,
    /// The helper, the main process of a service: its end tells systemd how the daemon has ended.
    Main,
    /// The process that starts the main process of a service, and ends.
    Starter,
}

/// A helper runs.
#[derive(Debug)]
pub struct Helping {
    /// The parts of its confinement that are not in force, each with the reason.
    pub missing: Vec<String>,
}

/// A request to the helper.
#[derive(Debug, Serialize, Deserialize)]
enum Call {
    /// To run `nft`.
    Nft { arguments: Vec<String>, input: String },
    /// To tell the service manager.
    Tell(String),
    /// To start a process that owns a table, until the connection ends. Its scripts follow.
    Own(String),
    /// To send lines of the log to the journal, until the connection ends. They follow, and have no answers.
    Journal,
}

/// A script for a process that owns a table.
#[derive(Debug, Serialize, Deserialize)]
struct Script {
    text: String,
    whole: bool,
}

/// An answer of the helper about a call.
#[derive(Debug, Serialize, Deserialize)]
enum Told {
    /// `nft` runs in the process with this number.
    Started(u32),
    /// It has ended with this output.
    Done(String),
    /// It has failed.
    Failed(Kind, String),
}

/// The kinds of errors that callers tell apart.
#[derive(Debug, Serialize, Deserialize)]
enum Kind {
    NotFound,
    TimedOut,
    Other,
}

impl From<io::ErrorKind> for Kind {
    fn from(kind: io::ErrorKind) -> Self {
        match kind {
            io::ErrorKind::NotFound => Self::NotFound,
            io::ErrorKind::TimedOut => Self::TimedOut,
            _ => Self::Other,
        }
    }
}

impl From<Kind> for io::ErrorKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::NotFound => Self::NotFound,
            Kind::TimedOut => Self::TimedOut,
            Kind::Other => Self::Other,
        }
    }
}

/// The helper's report of its own confinement.
#[derive(Debug, Serialize, Deserialize)]
struct Ready {
    /// The parts of its confinement that are not in force, each with the reason.
    missing: Vec<String>,
    has_nft: bool,
    /// Its number.
    process: u32,
}

/// Starts a helper, and has it run `nft` from now on. `program` is `vpnd`.
///
/// # Errors
/// If it does not start. Then this process has to run `nft` itself.
pub fn start(program: &str) -> io::Result<Helping> {
    let (socket, theirs) = UnixStream::pair()?;
    let is_service = service_manager::has_started_this();
    let part = if is_service { "--helper=starter" } else { "--helper=child" };
    // It ends with the socket; nobody waits for it.
    let mut child = Command::new(program)
        .arg0("vpnd")
        .args(["start", part])
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .spawn()?;
    if is_service {
        child.wait()?;
    }
    let ready = receive::<Ready>(&socket).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => io::Error::other("the helper ended at once"),
        _ => error,
    });
    let (Ready { missing, has_nft, process }, _) = ready?;
    if is_service {
        service_manager::hand_over(process)?;
    }
    let helper = HELPER.get_or_init(|| Helper { socket: Mutex::new(socket), has_nft });
    nft::leave_to(helper);
    Ok(Helping { missing })
}

/// Has the helper tell the service manager. `None`: there is no helper.
pub(super) fn tell(text: &str) -> Option<io::Result<()>> {
    let helper = HELPER.get()?;
    let told = helper.call(&Call::Tell(text.to_owned()), Some(AT_ONCE), &mut |_| {});
    Some(told.map(drop))
}

/// A connection for lines of the log, which the helper sends to the journal.
pub(super) fn journal() -> io::Result<UnixStream> {
    let helper = HELPER.get().ok_or(io::ErrorKind::NotConnected)?;
    let connection = helper.begin(&Call::Journal, Some(AT_ONCE))?;
    answer(&connection, &mut |_| {})?;
    Ok(connection)
}

static HELPER: OnceLock<Helper> = OnceLock::new();

/// The time after which a helper that runs nothing has failed.
const AT_ONCE: Duration = Duration::from_secs(5);

/// The daemon's end.
struct Helper {
    socket: Mutex<UnixStream>,
    has_nft: bool,
}

impl nft::Runner for Helper {
    fn has_program(&self) -> bool {
        self.has_nft
    }

    fn run(
        &self,
        arguments: &[&str],
        input: &str,
        started: &mut dyn FnMut(u32),
    ) -> io::Result<String> {
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        self.call(&Call::Nft { arguments, input: input.to_owned() }, None, started)
    }

    fn own(&self, table: &str) -> io::Result<Box<dyn nft::Owner>> {
        let connection = self.begin(&Call::Own(table.to_owned()), None)?;
        answer(&connection, &mut |_| {})?;
        Ok(Box::new(Owner(connection)))
    }
}

/// The connection to a helper whose process owns a table.
struct Owner(UnixStream);

impl nft::Owner for Owner {
    fn run(&mut self, script: &str, whole: bool) -> io::Result<()> {
        send(&self.0, &Script { text: script.to_owned(), whole }, None).map_err(lost)?;
        answer(&self.0, &mut |_| {}).map(drop)
    }

    fn end(&self) -> io::Result<nft::End> {
        nft::End::of_connection(&self.0)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // The helper ends the connection once the table is gone.
        if self.0.shutdown(Shutdown::Write).is_ok() {
            let _ = answer(&self.0, &mut |_| {});
        }
    }
}

impl Helper {
    fn call(
        &self,
        call: &Call,
        limit: Option<Duration>,
        started: &mut dyn FnMut(u32),
    ) -> io::Result<String> {
        answer(&self.begin(call, limit)?, started)
    }

    fn begin(&self, call: &Call, limit: Option<Duration>) -> io::Result<UnixStream> {
        let (connection, theirs) = UnixStream::pair()?;
        connection.set_read_timeout(limit)?;
        {
            let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
            send(&*socket, &(), Some(theirs.as_fd())).map_err(lost)?;
        }
        drop(theirs);
        send(&connection, call, None).map_err(lost)?;
        Ok(connection)
    }
}

/// Waits for the answer to a call.
fn answer(connection: &UnixStream, started: &mut dyn FnMut(u32)) -> io::Result<String> {
    loop {
        match receive::<Told>(connection).map_err(lost)?.0 {
            Told::Started(process) => started(process),
            Told::Done(output) => return Ok(output),
            Told::Failed(kind, why) => return Err(io::Error::new(kind.into(), why)),
        }
    }
}

fn lost(error: io::Error) -> io::Error {
    let why = "the helper of vpnd does not answer; restart vpnd";
    io::Error::new(error.kind(), format!("{why} ({error})"))
}
