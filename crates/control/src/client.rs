//! The asking side of the control protocol, blocking: `vpnctl` has nothing else to do meanwhile.

mod pages;

pub use pages::{Page, Pages};

use crate::protocol::{Command, Happening, Outcome, Refusal, Reply, Request, Response, VERSION};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest answer that is read: some 10 000 tunnels.
const MAX_RESPONSE: u64 = 64 * 1024 * 1024;

/// A command could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens.
    #[error(
        "no vpnd is listening on {}\n  start one with: {}vpnd start --policy FILE{}\n  or name its socket with --control SOCKET",
        .0.display(),
        service_for(.0),
        option_for(.0)
    )]
    NoDaemon(PathBuf),
    /// The socket belongs to someone else.
    #[error(
        "permission denied on {}: vpnd answers only root and the user it runs as\n  run this command as that user, for example with sudo",
        .0.display()
    )]
    Permission(PathBuf),
    /// The connection broke.
    #[error("vpnd on {} closed the connection: {source}", .path.display())]
    Broken {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The answer is none of this protocol.
    #[error("{} does not speak version {VERSION} of vpnd's control protocol: {why}", .path.display())]
    Protocol {
        /// The socket.
        path: PathBuf,
        /// The mistake in the answer.
        why: String,
    },
    /// A program that this one started to answer has ended.
    #[error(
        "{} ended without an answer: {source}\n  use the vpnd that came with this program",
        .program.display()
    )]
    Ended {
        /// The program.
        program: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The daemon refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// The service that listens on this socket, if systemd runs and vpnd is one of its services.
fn service_for(path: &Path) -> &'static str {
    let units = ["/etc/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system"];
    match path == Path::new(crate::protocol::DEFAULT_SOCKET)
        && Path::new("/run/systemd/system").is_dir()
        && units.iter().any(|units| Path::new(units).join("vpnd.service").exists())
    {
        true => "systemctl start vpnd, or without systemd: ",
        false => "",
    }
}

fn option_for(path: &Path) -> String {
    if path == Path::new(crate::protocol::DEFAULT_SOCKET) {
        String::new()
    } else {
        format!(" --control {}", path.display())
    }
}

/// A command that was sent, and is to be answered.
#[must_use = "the next answer on the connection is that of this command"]
pub struct Sent(io::Result<()>);

/// A connection to a daemon, which closes one that asks nothing for a minute: the next command then makes another.
pub struct Client {
    /// The socket, or the program that answers.
    path: PathBuf,
    stream: BufReader<UnixStream>,
    /// A socket of this path can be connected to again.
    has_socket: bool,
}

impl Client {
    /// Connects to the daemon that listens on `path`.
    ///
    /// # Errors
    /// [`ClientError::NoDaemon`] and [`ClientError::Permission`], in words for the operator.
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        let stream = UnixStream::connect(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                ClientError::NoDaemon(path.to_owned())
            }
            io::ErrorKind::PermissionDenied => ClientError::Permission(path.to_owned()),
            _ => ClientError::Broken { path: path.to_owned(), source: error },
        })?;
        Ok(Self { path: path.to_owned(), stream: BufReader::new(stream), has_socket: true })
    }

    /// Asks a program at the other end of a stream, for example a child process that has it as standard input. The
    /// stream is never connected again.
    pub fn over(stream: UnixStream, program: PathBuf) -> Self {
        Self { path: program, stream: BufReader::new(stream), has_socket: false }
    }

    /// Connects again, with the same time limit.
    fn reconnect(&mut self) -> Result<(), ClientError> {
        let other = Self::connect(&self.path)?;
        let limit = self.stream.get_ref().read_timeout().map_err(|source| self.broken(source))?;
        other.stream.get_ref().set_read_timeout(limit).map_err(|source| self.broken(source))?;
        *self = other;
        Ok(())
    }

    fn broken(&self, source: io::Error) -> ClientError {
        ClientError::Broken { path: self.path.clone(), source }
    }

    /// Sends a command and waits for its answer, however long the negotiation behind it takes.
    ///
    /// # Errors
    /// Every kind of [`ClientError`]; [`ClientError::Refused`] leaves the connection usable.
    pub fn ask(&mut self, command: Command) -> Result<Reply, ClientError> {
        let sent = self.send(command)?;
        self.receive(sent)
    }

    /// Sends a command. The connection can be read once the daemon has answered ([`AsFd`]).
    ///
    /// # Errors
    /// If the daemon has closed the connection, and another one cannot be made.
    pub fn send(&mut self, command: Command) -> Result<Sent, ClientError> {
        let mut line = serde_json::to_vec(&Request { version: VERSION, command })
            .expect("a request has only string keys");
        line.push(b'\n');
        let mut sent = self.stream.get_mut().write_all(&line);
        let is_closed = sent.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::BrokenPipe);
        if is_closed && self.has_socket {
            // Nothing of the command has arrived. A client that the daemon refuses is refused again.
            self.reconnect()?;
            sent = self.stream.get_mut().write_all(&line);
        }
        Ok(Sent(sent))
    }

    /// Waits for the answer to a command that was sent.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn receive(&mut self, Sent(sent): Sent) -> Result<Reply, ClientError> {
        // A refused client may already have been told why and closed upon.
        let mut answer = Vec::new();
        let read = (&mut self.stream).take(MAX_RESPONSE).read_until(b'\n', &mut answer);
        if answer.is_empty() {
            let source = sent
                .and(read)
                .err()
                .unwrap_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof));
            return Err(match source.kind() {
                io::ErrorKind::PermissionDenied => ClientError::Permission(self.path.clone()),
                _ if self.has_socket => ClientError::Broken { path: self.path.clone(), source },
                _ => ClientError::Ended { program: self.path.clone(), source },
            });
        }
        let response: Response = serde_json::from_slice(&answer).map_err(|error| {
            ClientError::Protocol { path: self.path.clone(), why: error.to_string() }
        })?;
        match response.outcome {
            Outcome::Result(reply) => Ok(reply),
            Outcome::Error(refusal) => Err(ClientError::Refused(refusal)),
            Outcome::Event(_) => Err(ClientError::Protocol {
                path: self.path.clone(),
                why: "an event came in place of an answer".to_owned(),
            }),
        }
    }

    /// Waits for the next event after [`Command::Events`]; `None` once the daemon has stopped.
    ///
    /// # Errors
    /// Returns an error if the connection breaks, or what comes is no event.
    pub fn next_event(&mut self) -> Result<Option<Happening>, ClientError> {
        let mut line = Vec::new();
        let read = (&mut self.stream).take(MAX_RESPONSE).read_until(b'\n', &mut line);
        read.map_err(|source| ClientError::Broken { path: self.path.clone(), source })?;
        if line.is_empty() {
            return Ok(None);
        }
        let why = match serde_json::from_slice(&line).map(|r: Response| r.outcome) {
            Ok(Outcome::Event(happening)) => return Ok(Some(happening)),
            Ok(Outcome::Error(refusal)) => return Err(ClientError::Refused(refusal)),
            Ok(Outcome::Result(_)) => "an answer came in place of an event".to_owned(),
            Err(error) => error.to_string(),
        };
        Err(ClientError::Protocol { path: self.path.clone(), why })
    }

    /// Waits no longer than this for an answer.
    ///
    /// # Errors
    /// Returns an error if the system refuses.
    pub fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.stream.get_ref().set_read_timeout(Some(timeout))
    }

    /// The connection itself, for another thread to break off. It is another one after the daemon has closed it.
    ///
    /// # Errors
    /// Returns an error if no descriptor is left.
    pub fn connection(&self) -> io::Result<UnixStream> {
        self.stream.get_ref().try_clone()
    }

    /// Waits until the daemon has closed the connection, which it does when its tunnels are gone.
    pub fn wait_until_gone(&mut self) {
        // However the wait ends, the daemon no longer speaks on this connection.
        let _ = io::copy(&mut self.stream, &mut io::sink());
    }

    /// The error for a reply that does not fit the command.
    pub fn unexpected(&self, reply: &Reply) -> ClientError {
        ClientError::Protocol {
            path: self.path.clone(),
            why: format!("the reply does not fit the command: {reply:?}"),
        }
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.get_ref().as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_stream_is_asked_until_its_other_end_is_closed() {
        let (ours, theirs) = UnixStream::pair().expect("the system has sockets");
        let mut client = Client::over(ours, "/usr/bin/vpnd".into());
        let answer = Response::new(Ok(Reply::Done)).line();
        (&theirs).write_all(&answer).expect("the client is there");
        assert!(matches!(client.ask(Command::Overview), Ok(Reply::Done)));
        let mut request = String::new();
        BufReader::new(&theirs).read_line(&mut request).expect("it has asked");
        assert!(request.contains("overview"), "{request}");
        drop(theirs);
        for _ in 0..2 {
            let error = client.ask(Command::Overview).expect_err("nobody is there");
            assert!(matches!(error, ClientError::Ended { .. }), "{error}");
            assert!(error.to_string().starts_with("/usr/bin/vpnd ended without an answer"));
        }
    }

    #[test]
    fn a_client_that_was_idle_connects_again_and_a_refused_one_gives_up() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("control.sock");
        let listener = UnixListener::bind(&path).expect("nobody has it");
        let mut client = Client::connect(&path).expect("somebody listens");
        client.set_timeout(Duration::from_secs(60)).expect("a socket takes it");
        let hangs_up = || drop(listener.accept().expect("a client"));
        let answers_once = || {
            let (stream, _) = listener.accept().expect("a client");
            let mut reader = BufReader::new(&stream);
            reader.read_until(b'\n', &mut Vec::new()).expect("a request");
            let answer = serde_json::to_vec(&Response::new(Ok(Reply::Done))).expect("text");
            (&stream).write_all(&[&answer[..], b"\n"].concat()).expect("the client reads");
        };
        let asks = |client: &mut Client, serve: &(dyn Fn() + Sync)| {
            std::thread::scope(|scope| {
                let server = scope.spawn(serve);
                let reply = client.ask(Command::Overview);
                server.join().expect("no panic");
                reply
            })
        };
        // It asked nothing at first.
        hangs_up();
        for _ in 0..3 {
            // The connection is closed when this returns.
            assert!(matches!(asks(&mut client, &answers_once), Ok(Reply::Done)));
        }
        let limit = client.stream.get_ref().read_timeout().expect("a socket has it");
        assert_eq!(limit, Some(Duration::from_secs(60)));

        let mut refused = Client::connect(&path).expect("somebody listens");
        hangs_up();
        assert!(matches!(asks(&mut refused, &hangs_up), Err(ClientError::Broken { .. })));
        drop(listener);
        assert!(matches!(client.ask(Command::Overview), Err(ClientError::NoDaemon(_))));
    }
}
