//! The session of one command: where it prints, and the daemon it asks.

use crate::manual::Program;
use crate::report::Colour;
use control::client::{Client, ClientError};
use control::protocol::{Command as Ask, Reply};
use serde::Serialize;
use std::error::Error;
use std::io::{self, Stdout, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// A command that can be carried out.
pub trait Run {
    /// Carries it out and prints its result.
    ///
    /// # Errors
    /// As [`Failure`].
    fn run(&self, session: &mut Session) -> Result<ExitCode, Failure>;
}

/// The reason why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// The daemon has refused, or there is none.
    Client(ClientError),
    /// Standard output takes no more.
    Output(io::Error),
    /// Something else, in words for people.
    Other(Box<dyn Error>),
}

impl Failure {
    /// The failure of this error, in its words.
    pub fn other(error: impl Error + 'static) -> Self {
        Self::Other(error.into())
    }

    /// Prints the reason on standard error, after the name of the program. Returns the status to exit with.
    pub fn report(&self, program: &str) -> ExitCode {
        match self {
            // The reader of our output has seen enough.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                return ExitCode::SUCCESS;
            }
            Self::Output(error) => eprintln!("{program}: cannot write: {error}"),
            Self::Client(error) => eprintln!("{program}: {error}"),
            Self::Other(error) => eprintln!("{program}: {error}"),
        }
        match self {
            Self::Client(ClientError::Refused(_) | ClientError::Ended { .. })
            | Self::Output(_)
            | Self::Other(_) => ExitCode::FAILURE,
            Self::Client(_) => ExitCode::from(3),
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// Makes a [`Failure`] of each of these errors. The variants that hold an error of the connection or of the output keep
/// their kind, everything else becomes text.
#[macro_export]
macro_rules! failures {
    ($($error:path $({ client: $client:ident, output: $output:ident })?,)*) => {$(
        impl From<$error> for $crate::session::Failure {
            fn from(error: $error) -> Self {
                #[allow(unused_imports)]
                use $error as E;
                match error {
                    $(
                        E::$client(error) => Self::Client(error),
                        E::$output(error) => Self::Output(error),
                    )?
                    error => Self::Other(error.into()),
                }
            }
        }
    )*};
}

/// The surroundings of one command.
pub struct Session {
    /// The daemon's socket.
    pub control: PathBuf,
    /// Colours of the text.
    pub colour: Colour,
    /// Standard output.
    pub out: Stdout,
    /// The program, of which pages and completions are made.
    pub program: Program,
    client: Option<Client>,
}

impl Session {
    /// A session with the daemon on this socket, which is connected to once it is asked.
    pub fn new(control: PathBuf, program: Program) -> Self {
        crate::report::fit_stdout();
        Self { control, colour: Colour::of_stdout(), out: io::stdout(), program, client: None }
    }

    /// The connection to the daemon.
    ///
    /// # Errors
    /// Where no daemon can be reached.
    pub fn client(&mut self) -> Result<&mut Client, ClientError> {
        match &mut self.client {
            Some(client) => Ok(client),
            empty => Ok(empty.insert(Client::connect(&self.control)?)),
        }
    }

    /// Asks the daemon.
    ///
    /// # Errors
    /// As [`ClientError`].
    pub fn ask(&mut self, ask: Ask) -> Result<Reply, Failure> {
        Ok(self.client()?.ask(ask)?)
    }

    /// Asks the daemon for something that it only confirms.
    ///
    /// # Errors
    /// As [`ClientError`].
    pub fn done(&mut self, ask: Ask) -> Result<(), Failure> {
        match self.ask(ask)? {
            Reply::Done => Ok(()),
            reply => Err(self.unexpected(&reply)),
        }
    }

    /// The failure of a reply that does not fit the command.
    pub fn unexpected(&mut self, reply: &Reply) -> Failure {
        match self.client() {
            Ok(client) => Failure::Client(client.unexpected(reply)),
            Err(error) => Failure::Client(error),
        }
    }

    /// Prints a value as JSON, or as the text that `report` makes of it.
    ///
    /// # Errors
    /// Where standard output takes no more.
    pub fn show<T: Serialize>(
        &mut self,
        json: bool,
        value: &T,
        report: impl FnOnce(&T, Colour) -> String,
    ) -> io::Result<()> {
        if json { self.json(value) } else { self.text(&report(value, self.colour)) }
    }

    /// Prints a value as JSON, indented.
    ///
    /// # Errors
    /// Where standard output takes no more.
    pub fn json(&mut self, value: &impl Serialize) -> io::Result<()> {
        let mut text = serde_json::to_string_pretty(value)?;
        text.push('\n');
        self.text(&text)
    }

    /// Prints one line.
    ///
    /// # Errors
    /// Where standard output takes no more.
    pub fn line(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{text}")
    }

    /// Prints text that ends its lines itself.
    ///
    /// # Errors
    /// Where standard output takes no more.
    pub fn text(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(text.as_bytes())
    }
}
