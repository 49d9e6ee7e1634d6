//! The helper's own process.

use super::{Call, Part, Ready, Script, Told};
use crate::channel::{receive, send};
use crate::daemon::confinement::confine_helper;
use crate::daemon::journald::{self, Entry};
use crate::daemon::{memory, service_manager};
use host::nft::{self, Owner, Process};
use nix::sys::signal::{SigSet, Signal};
use rustix::net::{Shutdown, shutdown};
use rustix::thread::set_name;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// Does this part of the helper's work. Standard input is the daemon's socket.
pub fn run(part: Part) -> ExitCode {
    match part {
        Part::Child => serve(),
        Part::Main => {
            let code = serve();
            // A daemon that has not said that it stops has crashed, or could not start.
            if service_manager::is_stopping() { code } else { ExitCode::FAILURE }
        }
        Part::Starter => start_main(),
    }
}

/// Starts the helper as the main process of a service.
fn start_main() -> ExitCode {
    let mut main = Command::new("/proc/self/exe");
    match main.arg0("vpnd").args(["start", "--helper=main"]).spawn() {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vpnd: cannot start the helper: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Serves the daemon until it ends.
fn serve() -> ExitCode {
    // It is executed by a path that says nothing.
    let _ = set_name(c"vpnd-helper");
    // A new thread blocks them, too, and so does `nft`.
    let signals = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];
    // It fails for no set of signals.
    let _ = signals.into_iter().collect::<SigSet>().thread_block();
    if let Err(error) = memory::protect(false).and_then(|()| memory::dump_none()) {
        eprintln!("vpnd: {error}");
        return ExitCode::FAILURE;
    }
    if let Err(error) = service_manager::connect() {
        eprintln!("vpnd: cannot connect to the service manager: {error}");
    }
    // The daemon is told the error when it asks for it.
    let journal = journald::connect().and_then(|journal| {
        journal.ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotConnected, "standard error is no journal")
        })
    });
    let journal = &journal;
    nft::keep_script();
    let confinement = confine_helper();
    let missing = confinement.info().missing.clone();
    let ready = Ready { missing, has_nft: nft::available(), process: std::process::id() };
    if send(io::stdin(), &ready, None).is_err() {
        eprintln!("vpnd: --helper is how vpnd start calls itself; leave it out");
        return ExitCode::FAILURE;
    }
    // The scope ends after the last call: a daemon that is killed has all of its changes made, or none.
    std::thread::scope(|scope| {
        while let Ok(((), Some(connection))) = receive(io::stdin()) {
            let thread = std::thread::Builder::new().name("nft".to_owned());
            // Without a thread, the connection closes.
            let _ = thread.spawn_scoped(scope, move || {
                // The daemon has ended if it does not want to know.
                let _ = answer(&connection, journal);
            });
        }
    });
    ExitCode::SUCCESS
}

/// Carries out one call.
fn answer(connection: &OwnedFd, journal: &io::Result<UnixDatagram>) -> io::Result<()> {
    let outcome = match receive(connection)?.0 {
        Call::Nft { arguments, input } => {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            nft::run_here(&arguments, &input, &mut |process| {
                let _ = send(connection, &Told::Started(process), None);
            })
        }
        Call::Tell(text) => service_manager::send(&text).map(|()| String::new()),
        Call::Own(table) => match Process::start(&table) {
            Ok(owner) => return own(connection, owner),
            Err(error) => Err(error),
        },
        Call::Journal => match journal {
            Ok(journal) => return log(connection, journal),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        },
    };
    tell(connection, outcome)
}

/// Sends lines of the log to the journal until the daemon ends, or the connection.
fn log(connection: &OwnedFd, journal: &UnixDatagram) -> io::Result<()> {
    tell(connection, Ok(String::new()))?;
    while let Ok((entry, _)) = receive::<Entry>(connection) {
        if journal.send(&entry.octets()).is_err() {
            eprintln!("{}", entry.line());
        }
    }
    Ok(())
}

fn tell(connection: &OwnedFd, outcome: io::Result<String>) -> io::Result<()> {
    let told = match outcome {
        Ok(output) => Told::Done(output),
        Err(error) => Told::Failed(error.kind().into(), error.to_string()),
    };
    send(connection, &told, None)
}

/// Has a process that owns a table carry out scripts, until the daemon ends the connection, or itself, or that process
/// ends.
fn own(connection: &OwnedFd, mut owner: Process) -> io::Result<()> {
    let end = owner.end()?;
    tell(connection, Ok(String::new()))?;
    std::thread::scope(|scope| {
        std::thread::Builder::new().name("nft-end".to_owned()).spawn_scoped(scope, || {
            // The daemon notices it, and starts another one.
            let _ = end.wait().map(|()| shutdown(connection, Shutdown::Both));
        })?;
        while let Ok((Script { text, whole }, _)) = receive(connection) {
            tell(connection, owner.run(&text, whole).map(|()| String::new()))?;
        }
        // The connection ends after the table.
        drop(owner);
        Ok(())
    })
}
