//! A process hands everything that it has over to its successor: descriptors, and a state in memory that nobody can change.
//!
//! ```text
//!  successor                                predecessor
//!  BlankState::new
//!  Successor::ask ───── memory ───────────► Predecessor::await_successor
//!                                             freezes itself, BlankState::fill
//!  Inheritance ◄──── state, descriptors ─── Predecessor::hand_over
//!   makes itself ready, frozen                │ waits
//!  Right::take: Ours                          │
//!   thaws                                     │
//!  Confirmation::confirm ─────────────────► Ending::Succeeded: ends, and undoes nothing
//!          refused, killed, too slow ──────► Ending::GoOn: thaws
//! ```
//!
//! Whichever of both goes on has taken one [`Baton`], which the kernel gives once. So they need not agree about it by
//! messages, of which the last could be lost: at whatever moment either of them is killed or stopped, the other one asks
//! the kernel. While nobody has the baton, both are frozen. If the successor is killed after it took the baton,
//! nobody goes on: its predecessor cannot know what the successor has sent.
//!
//! The connection is one that the predecessor has accepted. Who is at its other end is the caller's to check; both trust
//! each other with their keys. The successor can make all calls but [`BlankState::new`] when it is confined.

mod baton;
mod link;
mod state;

pub use baton::{Baton, Taken};
pub use state::{BlankState, SealedState};

use link::{Frame, Link, TOGETHER};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Most descriptors that are handed over.
const MOST: usize = 4096;
/// Octets of the longest name.
const LONGEST_NAME: usize = 64;
/// Octets of the longest reason or description.
const LONGEST_TEXT: usize = 4096;
/// The time for a frame that the other process need not prepare.
const AT_ONCE: Duration = Duration::from_secs(5);

/// The kinds of frames.
mod kind {
    /// Of the successor: freeze. With the memory for the state.
    pub const FREEZE: u8 = 1;
    /// Of the predecessor: descriptors, whose names are the lines of the text.
    pub const NAMED: u8 = 2;
    /// Of the predecessor, and the last: the state, and the baton.
    pub const FROZEN: u8 = 3;
    /// Of either: nothing comes of it, for this reason.
    pub const REFUSED: u8 = 4;
    /// Of the successor: it goes on, and this is said of it.
    pub const CONFIRMED: u8 = 5;
}

/// Descriptors by name. The names are those of a protocol: lower case letters, digits, dots and dashes.
#[derive(Debug, Default)]
pub struct Descriptors(BTreeMap<String, OwnedFd>);

impl Descriptors {
    /// Adds a descriptor.
    ///
    /// # Errors
    /// If the name is taken or is none, or there are too many.
    pub fn add(&mut self, name: &str, descriptor: OwnedFd) -> io::Result<()> {
        let is_name = !name.is_empty()
            && name.len() <= LONGEST_NAME
            && name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-'));
        if !is_name || self.0.len() == MOST || self.0.contains_key(name) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("a descriptor cannot be called {name:?}"),
            ));
        }
        self.0.insert(name.to_owned(), descriptor);
        Ok(())
    }

    /// Takes the descriptor of that name.
    pub fn take(&mut self, name: &str) -> Option<OwnedFd> {
        self.0.remove(name)
    }

    /// The names of those that are left, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// The end of the process that hands over.
#[derive(Debug)]
pub struct Predecessor(Link);

/// The end of a hand-over, for the predecessor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// This process has the baton: it goes on.
    GoOn {
        /// The reason why the successor does not.
        why: String,
    },
    /// The successor has the baton, or had: this process must end, and must undo nothing.
    Succeeded {
        /// The successor's words about itself; `None` if it has ended, or says nothing.
        by: Option<String>,
    },
}

impl Predecessor {
    /// Begins on an accepted connection.
    ///
    /// # Errors
    /// If the system refuses it.
    pub fn new(connection: UnixStream) -> io::Result<Self> {
        Link::new(connection).map(Self)
    }

    /// Waits until the successor is ready, and wants everything. Returns the memory for the state.
    ///
    /// # Errors
    /// If the successor ends, says something else, or takes longer than `limit`.
    pub fn await_successor(&self, limit: Duration) -> io::Result<BlankState> {
        let Frame { kind, descriptors, .. } = self.0.receive(limit)?;
        let [memory] = <[OwnedFd; 1]>::try_from(descriptors).map_err(|_| unexpected())?;
        match kind {
            kind::FREEZE => BlankState::of(memory),
            _ => Err(unexpected()),
        }
    }

    /// Tells the successor why nothing comes of it. The caller goes on.
    pub fn refuse(self, why: &str) {
        // A successor that has ended does not want to know.
        let _ = self.0.send(AT_ONCE, kind::REFUSED, shortened(why), &[]);
    }

    /// Hands everything over, and waits until it is known who goes on. The successor has so long, from when it could have
    /// everything. The caller is frozen, and the state is what it was then.
    pub fn hand_over(
        self,
        state: &SealedState,
        descriptors: &Descriptors,
        limit: Duration,
    ) -> Ending {
        let Self(link) = self;
        let baton = match Baton::new() {
            Ok(baton) => baton,
            Err(error) => {
                let why = format!("cannot make a pipe: {error}");
                Self(link).refuse(&why);
                return Ending::GoOn { why };
            }
        };
        let told = give(&link, state, descriptors, &baton).and_then(|()| link.receive(limit));
        let (by, why) = match told {
            Ok(Frame { kind: kind::CONFIRMED, text, .. }) => {
                (Some(text), "the successor has confirmed what it has not".to_owned())
            }
            Ok(Frame { kind: kind::REFUSED, text, .. }) => (None, text),
            Ok(_) => (None, unexpected().to_string()),
            Err(error) => (None, explained(&error)),
        };
        match baton.take() {
            Ok(Taken::Ours) => Ending::GoOn { why },
            Ok(Taken::Theirs) => Ending::Succeeded { by },
            Err(error) => {
                tracing::error!(%error, "it is unknown whether the successor goes on; this process ends");
                Ending::Succeeded { by: None }
            }
        }
    }
}

fn give(
    link: &Link,
    state: &SealedState,
    descriptors: &Descriptors,
    baton: &Baton,
) -> io::Result<()> {
    let named: Vec<(&str, BorrowedFd<'_>)> = descriptors
        .0
        .iter()
        .map(|(name, descriptor)| (name.as_str(), descriptor.as_fd()))
        .collect();
    for together in named.chunks(TOGETHER) {
        let (names, descriptors): (Vec<&str>, Vec<BorrowedFd<'_>>) =
            together.iter().copied().unzip();
        link.send(AT_ONCE, kind::NAMED, &names.join("\n"), &descriptors)?;
    }
    link.send(AT_ONCE, kind::FROZEN, "", &[state.as_fd(), baton.as_fd()])
}

/// The end of the process that goes on.
#[derive(Debug)]
pub struct Successor(Link);

/// Everything that a predecessor has handed over. The successor is not to use it before it has the [`Right`].
#[derive(Debug)]
pub struct Inheritance {
    /// The state.
    pub state: SealedState,
    /// The descriptors.
    pub descriptors: Descriptors,
    /// The right to go on, if the predecessor does not.
    pub right: Right,
}

/// The right to go on, which both have, until one of them takes it.
#[derive(Debug)]
pub struct Right {
    baton: Baton,
    link: Link,
}

/// The successor has the baton; it is to tell its predecessor.
#[derive(Debug)]
#[must_use = "the predecessor waits for it, and takes its end for a crash"]
pub struct Confirmation(Link);

/// A successor gets nothing.
#[derive(thiserror::Error)]
pub enum HandoverError {
    /// The predecessor has a reason.
    #[error("the running process hands nothing over: {0}")]
    Refused(String),
    /// The predecessor has ended, does not answer, or the system refuses something.
    #[error("the running process hands nothing over: {}", explained(.0))]
    System(#[from] io::Error),
}

policy::readable_debug!(HandoverError);

impl Successor {
    /// Begins on a connection to the predecessor.
    ///
    /// # Errors
    /// If the system refuses it.
    pub fn new(connection: UnixStream) -> io::Result<Self> {
        Link::new(connection).map(Self)
    }

    /// Has the predecessor freeze itself and hand everything over; this is to happen no longer than `limit`.
    ///
    /// # Errors
    /// If it does not. The predecessor then goes on.
    pub fn ask(self, memory: BlankState, limit: Duration) -> Result<Inheritance, HandoverError> {
        let Self(link) = self;
        let deadline = Instant::now() + limit;
        link.send(limit, kind::FREEZE, "", &[memory.as_fd()])?;
        drop(memory);
        let mut named = Descriptors::default();
        loop {
            let frame = link.receive(deadline.saturating_duration_since(Instant::now()))?;
            let Frame { kind, text, descriptors } = frame;
            match kind {
                kind::NAMED => {
                    let names: Vec<&str> = text.split('\n').collect();
                    if names.len() != descriptors.len() {
                        return Err(unexpected().into());
                    }
                    for (name, descriptor) in names.into_iter().zip(descriptors) {
                        named.add(name, descriptor)?;
                    }
                }
                kind::FROZEN => {
                    let [state, baton] =
                        <[OwnedFd; 2]>::try_from(descriptors).map_err(|_| unexpected())?;
                    let (state, baton) = (SealedState::of(state)?, Baton::of(baton)?);
                    let right = Right { baton, link };
                    return Ok(Inheritance { state, descriptors: named, right });
                }
                kind::REFUSED => return Err(HandoverError::Refused(text)),
                _ => return Err(unexpected().into()),
            }
        }
    }
}

impl Right {
    /// Tells the predecessor, which goes on, why this process does not.
    pub fn refuse(self, why: &str) {
        // Its own copy of the baton decides, whether it hears this or not.
        let _ = self.link.send(AT_ONCE, kind::REFUSED, shortened(why), &[]);
    }

    /// Takes the baton. `None`: the predecessor has it, and goes on; this process must end. It need not wait for a
    /// predecessor that is dead, or does not answer.
    ///
    /// # Errors
    /// If the system does not say who has it: then this process must end, too.
    pub fn take(self) -> io::Result<Option<Confirmation>> {
        Ok(match self.baton.take()? {
            Taken::Ours => Some(Confirmation(self.link)),
            Taken::Theirs => None,
        })
    }
}

impl Confirmation {
    /// Tells the predecessor that this process goes on, and `about` itself.
    ///
    /// # Errors
    /// If the predecessor has ended already, which changes nothing.
    pub fn confirm(self, about: &str) -> io::Result<()> {
        self.0.send(AT_ONCE, kind::CONFIRMED, shortened(about), &[])
    }
}

fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST_TEXT)]
}

fn explained(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionReset => "the other process has ended".to_owned(),
        io::ErrorKind::TimedOut => "the other process takes too long".to_owned(),
        _ => error.to_string(),
    }
}

fn unexpected() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the other process does not keep to the protocol")
}

#[cfg(test)]
mod tests;
