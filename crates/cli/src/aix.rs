//! The commands of AIX: this program behaves as `ike`, `ikedb` and so on when it is called by these names.
//!
//! Options, shape of the output and exit status are AIX's, so that scripts keep working. A message begins with the
//! command's name and says what to do. The daemon is found by the environment variable `VPND_CONTROL`, since these
//! commands have no option for its socket.

mod acfo;
mod filters;
mod ike;
mod ikedb;
pub mod links;
mod listing;
mod subsystems;

use control::client::{Client, ClientError};
use control::protocol::{Command, DEFAULT_SOCKET, Reply, Tunnel};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A command of AIX: its arguments, and where its output goes.
type Run = fn(&[String], &mut dyn Write) -> Result<(), Trouble>;

/// Names and what they do.
const COMMANDS: [(&str, Run); 8] = [
    ("acfo", acfo::run),
    ("ike", ike::run),
    ("ikedb", ikedb::run),
    ("lsfilt", filters::list),
    ("lssrc", subsystems::list),
    ("mkfilt", filters::make),
    ("startsrc", subsystems::start),
    ("stopsrc", subsystems::stop),
];

/// Every name.
pub fn names() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().map(|(name, _)| *name)
}

/// Carries out the command of AIX by whose name the program was called; `None` if it was called by another.
pub fn run(mut arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let program = PathBuf::from(arguments.next()?);
    let name = program.file_name()?.to_str()?;
    let (name, run) = COMMANDS.iter().find(|(known, _)| *known == name)?;
    let words: Result<Vec<String>, OsString> = arguments.map(OsString::into_string).collect();
    let mut out = io::stdout().lock();
    let outcome = match words {
        Ok(words) => run(&words, &mut out),
        Err(word) => Err(Trouble::usage(format!("{} is not UTF-8", word.to_string_lossy()), "")),
    };
    Some(match outcome.and_then(|()| out.flush().map_err(Trouble::from)) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our output has seen enough.
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

/// Why a command failed, and how it is used if that was the reason.
#[derive(Debug)]
struct Trouble {
    message: String,
    usage: Option<&'static str>,
    is_broken_pipe: bool,
}

impl Trouble {
    fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), usage: None, is_broken_pipe: false }
    }

    fn usage(message: impl Into<String>, usage: &'static str) -> Self {
        Self { usage: (!usage.is_empty()).then_some(usage), ..Self::new(message) }
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        let is_broken_pipe = error.kind() == io::ErrorKind::BrokenPipe;
        Self { is_broken_pipe, ..Self::new(format!("cannot write: {error}")) }
    }
}

impl From<ClientError> for Trouble {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::NoDaemon(path) => Self::new(format!(
                "vpnd is not running (nobody listens on {}); start it with: systemctl start vpnd\n  \
                 or name its socket in the environment variable VPND_CONTROL",
                path.display()
            )),
            other => Self::new(other.to_string()),
        }
    }
}

/// Where the daemon listens.
fn socket() -> PathBuf {
    let named = std::env::var_os("VPND_CONTROL").filter(|value| !value.is_empty());
    named.map_or_else(|| Path::new(DEFAULT_SOCKET).to_owned(), PathBuf::from)
}

fn connect() -> Result<Client, Trouble> {
    Ok(Client::connect(&socket())?)
}

fn tunnels(client: &mut Client, all: bool) -> Result<Vec<Tunnel>, Trouble> {
    match client.ask(Command::List { all })? {
        Reply::Tunnels(tunnels) => Ok(tunnels),
        reply => Err(client.unexpected(&reply).into()),
    }
}

fn done(client: &mut Client, command: Command) -> Result<(), Trouble> {
    match client.ask(command)? {
        Reply::Done => Ok(()),
        reply => Err(client.unexpected(&reply).into()),
    }
}

/// Flags and values as AIX's commands take them: letters may share a minus, a value follows its letter or is the next
/// word.
struct Flags {
    given: Vec<(char, Option<String>)>,
    operands: Vec<String>,
}

impl Flags {
    /// Reads words; a letter that a colon follows in `known` takes a value.
    fn read(words: &[String], known: &str, usage: &'static str) -> Result<Self, Trouble> {
        let mut flags = Self { given: Vec::new(), operands: Vec::new() };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
                flags.operands.push(word.clone());
                continue;
            };
            let mut rest = letters.chars();
            while let Some(letter) = rest.next() {
                let Some(at) = known.find(letter).filter(|_| letter != ':') else {
                    return Err(Trouble::usage(format!("there is no flag -{letter}"), usage));
                };
                if !known[at + letter.len_utf8()..].starts_with(':') {
                    flags.given.push((letter, None));
                    continue;
                }
                let value = match rest.as_str() {
                    "" => words.next().cloned(),
                    joined => Some(joined.to_owned()),
                };
                let Some(value) = value else {
                    return Err(Trouble::usage(format!("-{letter} needs a value"), usage));
                };
                flags.given.push((letter, Some(value)));
                break;
            }
        }
        Ok(flags)
    }

    fn has(&self, letter: char) -> bool {
        self.given.iter().any(|(given, _)| *given == letter)
    }

    fn value(&self, letter: char) -> Option<&str> {
        self.given.iter().find(|(given, _)| *given == letter)?.1.as_deref()
    }

    /// The letters of a set that are given.
    fn of(&self, letters: &str) -> Vec<char> {
        letters.chars().filter(|letter| self.has(*letter)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_as_aix_reads_them() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let read = |line: &str| Flags::read(&words(line), "pFst:n:", "");
        let flags = read("-pF -t IKETunnel -nsite file").expect("known flags");
        assert!(flags.has('p') && flags.has('F') && !flags.has('s'));
        assert_eq!((flags.value('t'), flags.value('n')), (Some("IKETunnel"), Some("site")));
        assert_eq!(flags.operands, ["file"]);
        assert_eq!(read("-pt IKETunnel -").expect("known flags").operands, ["-"]);
        assert_eq!(read("-x").err().expect("unknown").message, "there is no flag -x");
        assert_eq!(read("-p -t").err().expect("unfinished").message, "-t needs a value");
        assert!(read("-:").is_err());
    }
}
