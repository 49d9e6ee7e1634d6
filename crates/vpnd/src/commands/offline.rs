//! `vpnd offline`: answers `vpnctl` where no daemon runs.

mod kept;

use self::kept::Kept;
use crate::commands::{Failure, Run, Session};
use crate::config::Config;
use crate::filter::KeptDefaults;
use crate::store;
use clap::Args;
use control::protocol::{Command, MAX_REQUEST, Refusal, RefusalCode, Reply, Response, parse};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use zeroize::Zeroizing;

/// Octets of a request up to which it counts as small.
const SMALL_REQUEST: usize = 64 * 1024;

/// Answers commands of the control protocol that need no daemon
///
/// The client is at the other end of standard input, which is a stream socket.
#[derive(Debug, Args)]
#[command(hide = true)]
pub struct Offline {
    /// Configuration file; none: the built-in defaults [default: /etc/vpnd/vpnd.toml if it can be used]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Directory of the policy store [default: that of the configuration]
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Socket on which no daemon listens; refusals then say that and name the directory
    #[arg(long, value_name = "SOCKET")]
    silent: Option<PathBuf>,
    /// Command that the operator typed; remarks on standard error begin with it
    #[arg(long = "as", value_name = "NAME", default_value = "vpnd")]
    command: String,
}

impl Run for Offline {
    fn run(&self, _: &mut Session) -> Result<ExitCode, Failure> {
        let config = self.configuration();
        let kept = config.as_ref().map(|config| Kept::new(config, &self.command));
        let outcome = client().and_then(|client| {
            converse(&client, |command| {
                self.answer(command, kept.as_ref().map_err(|refusal| (*refusal).clone())?)
            })
        });
        match outcome {
            // A client that has gone needs no answer.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
            outcome => outcome.map(|()| ExitCode::SUCCESS).map_err(Failure::other),
        }
    }
}

impl Offline {
    /// The configuration that is named. Without a name, one that cannot be used counts as absent: it decides little
    /// about a store whose directory is named, and an ordinary user may not be able to read it.
    fn configuration(&self) -> Result<Config, Refusal> {
        match &self.config {
            Some(named) => match Config::find(Some(named)) {
                Ok(found) => Ok(found.config),
                Err(error) => Err(Refusal::new(RefusalCode::BadConfiguration, error.to_string())),
            },
            None => Ok(Config::find(None).unwrap_or_default().config),
        }
    }

    fn answer(&self, command: Command, kept: &Kept<'_>) -> Result<Reply, Refusal> {
        match command {
            Command::Crypto => Ok(Reply::Crypto(kept.crypto())),
            Command::CryptoSet { tunable, value, persist: true } => {
                kept.set_crypto(&tunable, value).map(Reply::Crypto)
            }
            Command::Families => Ok(Reply::Families(kept.families())),
            Command::SetFamily { family, on, persist: true } => {
                kept.set_family(&family, on).map(Reply::Families)
            }
            Command::Filter => Ok(Reply::Filter(kept.filter())),
            Command::SetFilter { ipv4, ipv6, undo_after_seconds: None, persist: true } => {
                kept.set_filter(KeptDefaults { ipv4, ipv6 }).map(Reply::Filter)
            }
            command => self.answer_of_store(&command, kept.config()),
        }
    }

    fn answer_of_store(&self, command: &Command, config: &Config) -> Result<Reply, Refusal> {
        let directory = self.directory.as_ref().unwrap_or(&config.policy.directory);
        let outcome = match command {
            Command::PolicyGet(_)
            | Command::PolicyPut(_)
            | Command::PolicyDelete(_)
            | Command::PolicyPurge => store::without_daemon(directory, config, command),
            _ => Err(Refusal::new(RefusalCode::NotPossible, "only a running vpnd can do that")),
        };
        outcome.map_err(|refusal| self.explain(refusal, directory))
    }

    /// Adds why the directory was tried at all.
    fn explain(&self, mut refusal: Refusal, directory: &Path) -> Refusal {
        if let Some(socket) = &self.silent {
            let why = format!(
                "\n  (no vpnd is listening on {}, so this was tried in {})",
                socket.display(),
                directory.display()
            );
            refusal.message.push_str(&why);
        }
        refusal
    }
}

/// The client, at the other end of standard input.
fn client() -> io::Result<UnixStream> {
    let stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    stream.peer_addr().map_err(|error| {
        let message = format!("standard input is no socket ({error}): vpnctl runs this command");
        io::Error::new(error.kind(), message)
    })?;
    Ok(stream)
}

/// Answers one request after the other until the client is gone.
fn converse(
    mut client: &UnixStream,
    answer: impl Fn(Command) -> Result<Reply, Refusal>,
) -> io::Result<()> {
    let mut reader = BufReader::new(client);
    loop {
        let request = read_request(&mut reader)?;
        if request.is_empty() {
            return Ok(());
        }
        let is_whole = request.ends_with(b"\n");
        let outcome = parse(&request).and_then(&answer);
        client.write_all(&Response::new(outcome).line())?;
        if !is_whole {
            // Where the next request would begin is unknown.
            return Ok(());
        }
    }
}

/// Reads up to the end of a line, or up to [`MAX_REQUEST`] octets.
fn read_request(reader: &mut impl BufRead) -> io::Result<Zeroizing<Vec<u8>>> {
    // Both buffers are as long as they can get: one that grows leaves copies of a policy's keys behind.
    let mut small = Zeroizing::new(Vec::with_capacity(SMALL_REQUEST));
    reader.by_ref().take(SMALL_REQUEST as u64).read_until(b'\n', &mut small)?;
    if small.len() < SMALL_REQUEST || small.ends_with(b"\n") {
        return Ok(small);
    }
    let mut request = Zeroizing::new(Vec::with_capacity(MAX_REQUEST));
    request.extend_from_slice(&small);
    reader.take((MAX_REQUEST - SMALL_REQUEST) as u64).read_until(b'\n', &mut request)?;
    Ok(request)
}
