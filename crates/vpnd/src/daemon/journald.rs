//! The log in systemd's journal, with fields: `journalctl TUNNEL=site` finds the lines of a tunnel.
//!
//! An entry is a datagram in the journal's native protocol (<https://systemd.io/JOURNAL_NATIVE_PROTOCOL/>). By a socket
//! for datagrams, a process can reach every other one that it may write to, so that the confined daemon has none: its
//! helper sends the entries, and makes their octets. An entry that cannot be sent goes to standard error, which is the
//! journal, too, but has no fields.

use super::helper;
use crate::channel;
use nix::sys::stat::{FileStat as Stat, fstat};
use serde::{Deserialize, Serialize};
use std::fmt::{self, Write as _};
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tracing::field::{Field as Recorded, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// The journal's socket.
const SOCKET: &str = "/run/systemd/journal/socket";

/// Returns `true` if standard error is the journal of systemd, which notes the time of each line itself.
pub fn is_standard_error() -> bool {
    let named = std::env::var("JOURNAL_STREAM").ok();
    named.zip(fstat(io::stderr()).ok()).is_some_and(|(named, stat)| is_stream(&named, &stat))
}

/// Returns `true` if the text, a device and an inode, names the file of this status (systemd.exec(5)).
fn is_stream(named: &str, stat: &Stat) -> bool {
    named == format!("{}:{}", stat.st_dev, stat.st_ino)
}

/// Connects to the journal if standard error is the journal, too.
///
/// # Errors
/// If there is no journal at its place.
pub fn connect() -> io::Result<Option<UnixDatagram>> {
    is_standard_error().then(|| connect_to(Path::new(SOCKET))).transpose()
}

fn connect_to(place: &Path) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(place)?;
    Ok(socket)
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// As in syslog(3).
    priority: u8,
    /// The process that logs. The journal itself notes the one that sends.
    process: u32,
    message: String,
    fields: Vec<(Field, String)>,
}

/// A field by which lines are found. The helper takes no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Field {
    Tunnel,
    Child,
    Peer,
    Spi,
    Event,
}

impl Field {
    const ALL: [Self; 5] = [Self::Tunnel, Self::Child, Self::Peer, Self::Spi, Self::Event];

    /// Its name in the journal.
    fn name(self) -> &'static str {
        match self {
            Self::Tunnel => "TUNNEL",
            Self::Child => "CHILD",
            Self::Peer => "PEER",
            Self::Spi => "SPI",
            Self::Event => "EVENT",
        }
    }

    /// The field that an event of the log has under this name. The SPIs of both directions are one field, which a line
    /// may have twice.
    fn of(name: &str) -> Option<Self> {
        let name = match name {
            "spi_in" | "spi_out" => "spi",
            name => name,
        };
        Self::ALL.into_iter().find(|field| field.name().eq_ignore_ascii_case(name))
    }
}

impl Entry {
    fn of(event: &Event<'_>) -> Self {
        let priority = match *event.metadata().level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            Level::DEBUG | Level::TRACE => 7,
        };
        let mut read = Read::default();
        event.record(&mut read);
        let Read { mut message, others, fields } = read;
        // The sentence of an engine's event says everything.
        let told = fields.iter().any(|(field, _)| *field == Field::Event);
        for (name, value) in others {
            if !told || Field::of(name).is_none() {
                // Writing to a String cannot fail.
                let _ = write!(message, " {name}={value}");
            }
        }
        Self { priority, process: std::process::id(), message: printable(&message), fields }
    }

    /// Its octets in the journal's native protocol.
    pub fn octets(&self) -> Vec<u8> {
        let mut octets = Vec::new();
        push(&mut octets, "MESSAGE", &self.message);
        push(&mut octets, "PRIORITY", &self.priority.to_string());
        push(&mut octets, "SYSLOG_IDENTIFIER", "vpnd");
        push(&mut octets, "SYSLOG_PID", &self.process.to_string());
        for (field, value) in &self.fields {
            push(&mut octets, field.name(), value);
        }
        octets
    }

    /// A line of standard error, whose number systemd takes for the priority (sd-daemon(3)).
    pub fn line(&self) -> String {
        format!("<{}>{}", self.priority, self.message.replace('\n', " "))
    }
}

/// Adds a field. A value of several lines has its length before it.
fn push(octets: &mut Vec<u8>, name: &str, value: &str) {
    octets.extend(name.as_bytes());
    if value.contains('\n') {
        octets.push(b'\n');
        octets.extend((value.len() as u64).to_le_bytes());
    } else {
        octets.push(b'=');
    }
    octets.extend(value.as_bytes());
    octets.push(b'\n');
}

/// The text without characters that a terminal obeys: `journalctl` shows no text that has some.
fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' | '\t' => shown.push(character),
            character if character.is_control() => shown.extend(character.escape_default()),
            character => shown.push(character),
        }
    }
    shown
}

/// Reads the fields of an event of the log.
#[derive(Default)]
struct Read {
    message: String,
    /// Those that stand behind the message.
    others: Vec<(&'static str, String)>,
    fields: Vec<(Field, String)>,
}

impl Read {
    fn take(&mut self, name: &'static str, value: String) {
        if name == "message" {
            self.message = value;
            return;
        }
        if let Some(field) = Field::of(name) {
            let value = match field {
                Field::Peer => without_port(&value),
                _ => value.clone(),
            };
            self.fields.push((field, value));
        }
        self.others.push((name, value));
    }
}

/// A peer is found by its address, whichever port it has.
fn without_port(peer: &str) -> String {
    peer.parse().map_or_else(|_| peer.to_owned(), |peer: SocketAddr| peer.ip().to_string())
}

impl Visit for Read {
    fn record_debug(&mut self, field: &Recorded, value: &dyn fmt::Debug) {
        self.take(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Recorded, value: &str) {
        self.take(field.name(), value.to_owned());
    }

    fn record_error(&mut self, field: &Recorded, value: &(dyn std::error::Error + 'static)) {
        self.take(field.name(), value.to_string());
    }
}

/// Sends each event of the log to the journal. Clones send the same way.
#[derive(Clone, Debug)]
pub struct Journal(Arc<Mutex<Route>>);

/// The way of an entry to the journal.
#[derive(Debug)]
enum Route {
    /// From this process.
    Own(UnixDatagram),
    /// From the helper, at the other end of this connection.
    Helper(UnixStream),
    /// Without fields.
    StandardError,
}

impl Route {
    fn send(&self, entry: &Entry) -> io::Result<()> {
        match self {
            Self::Own(socket) => socket.send(&entry.octets()).map(drop),
            Self::Helper(connection) => channel::send(connection, entry, None),
            Self::StandardError => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

impl Journal {
    /// Sends with this socket.
    pub fn new(socket: UnixDatagram) -> Self {
        Self(Arc::new(Mutex::new(Route::Own(socket))))
    }

    /// Has the helper send from now on, and closes the own socket.
    ///
    /// # Errors
    /// If the helper does not want to. Then the log goes to standard error.
    pub fn leave_to_helper(&self) -> io::Result<()> {
        let connection = helper::journal();
        let (route, outcome) = match connection {
            Ok(connection) => (Route::Helper(connection), Ok(())),
            Err(error) => (Route::StandardError, Err(error)),
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = route;
        outcome
    }
}

impl<S: Subscriber> Layer<S> for Journal {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let entry = Entry::of(event);
        let route = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if route.send(&entry).is_err() {
            eprintln!("{}", entry.line());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use tracing_subscriber::layer::SubscriberExt;
    use tracing_subscriber::registry::Registry;

    /// The datagrams that a journal gets of what is logged meanwhile.
    fn logged(log: impl FnOnce()) -> Vec<Vec<u8>> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let place = directory.path().join("socket");
        let listener = UnixDatagram::bind(&place).expect("a free path");
        let journal = Journal::new(connect_to(&place).expect("it listens"));
        tracing::subscriber::with_default(Registry::default().with(journal), log);
        listener.set_nonblocking(true).expect("possible");
        let mut datagram = vec![0; 1 << 16];
        let mut all = Vec::new();
        while let Ok(len) = listener.recv(&mut datagram) {
            all.push(datagram[..len].to_vec());
        }
        all
    }

    /// The octets of an entry whose last fields are these.
    fn entry(fields: &str, message: &str, priority: u8) -> Vec<u8> {
        let process = std::process::id();
        format!(
            "MESSAGE={message}\nPRIORITY={priority}\nSYSLOG_IDENTIFIER=vpnd\nSYSLOG_PID={process}\n{fields}"
        )
        .into_bytes()
    }

    #[test]
    fn an_event_has_its_fields_and_its_sentence() {
        let sent = logged(|| {
            let (tunnel, child) = ("site", Some("site_lan"));
            let (event, peer) = ("rekeyed", Some("192.0.2.2:4500"));
            tracing::info!(
                tunnel,
                child,
                peer,
                event,
                spi_in = "c0ffee01",
                spi_out = "c0ffee02",
                "site/site_lan: rekeyed"
            );
            tracing::error!(tunnel, child = None::<&str>, event = "failed", "site: failed");
        });
        let all = "TUNNEL=site\nCHILD=site_lan\nPEER=192.0.2.2\nEVENT=rekeyed\nSPI=c0ffee01\nSPI=c0ffee02\n";
        let first = entry(all, "site/site_lan: rekeyed", 6);
        let second = entry("TUNNEL=site\nEVENT=failed\n", "site: failed", 3);
        assert_eq!(sent, [first, second]);
    }

    #[test]
    fn other_lines_name_their_fields_in_the_text_too() {
        let sent = logged(|| {
            let error = io::Error::other("no such device");
            tracing::warn!(%error, tunnel = "site", count = 3, "not in the kernel");
            tracing::debug!("nothing");
        });
        let text = "not in the kernel error=no such device tunnel=site count=3";
        assert_eq!(sent, [entry("TUNNEL=site\n", text, 4), entry("", "nothing", 7)]);
    }

    #[test]
    fn a_value_of_several_lines_has_its_length() {
        let sent = logged(|| tracing::warn!(tunnel = "a\nMESSAGE=b", "one\ntwo \u{1b}[31m"));
        let text = "one\ntwo \\u{1b}[31m tunnel=a\nMESSAGE=b";
        let mut octets = b"MESSAGE\n".to_vec();
        octets.extend((text.len() as u64).to_le_bytes());
        octets.extend(text.as_bytes());
        let rest = String::from_utf8(entry("TUNNEL\n", "", 4)).expect("text");
        octets.extend(rest.trim_start_matches("MESSAGE=").as_bytes());
        octets.extend(11u64.to_le_bytes());
        octets.extend(b"a\nMESSAGE=b\n");
        assert_eq!(sent, [octets]);
    }

    #[test]
    fn an_entry_that_cannot_be_sent_is_a_line_with_its_priority() {
        let entry = Entry {
            priority: 4,
            process: 1,
            message: "one\ntwo".to_owned(),
            fields: vec![(Field::Tunnel, "site".to_owned())],
        };
        assert_eq!(entry.line(), "<4>one two");
        assert!(Route::StandardError.send(&entry).is_err());
        let (here, there) = UnixStream::pair().expect("sockets");
        Route::Helper(here).send(&entry).expect("somebody reads");
        assert_eq!(channel::receive::<Entry>(&there).expect("an entry").0, entry);
    }

    #[test]
    fn the_journal_is_known_by_its_file() {
        let file = File::open("/dev/null").expect("there");
        let stat = fstat(&file).expect("open");
        assert!(is_stream(&format!("{}:{}", stat.st_dev, stat.st_ino), &stat));
        assert!(!is_stream(&format!("{}:{}", stat.st_dev, stat.st_ino + 1), &stat));
        assert!(!is_stream("", &stat));
    }
}
