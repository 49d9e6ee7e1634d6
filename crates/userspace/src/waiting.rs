//! The ways in which a worker waits for packets.

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// The time for which a worker under load polls before it sleeps.
const SPIN: Duration = Duration::from_micros(60);

/// So many CPUs have enough to do under load with one worker, and the programs that make and take its packets.
const FEW_CPUS: usize = 2;

/// Packets (or super-packets) of one round that count as load.
const LOAD: usize = 4;

/// The behaviour of a worker without packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// It sleeps, and every arrival wakes it.
    Event,
    /// It never sleeps: the shortest delay, for a whole core.
    Poll,
    /// It looks again for a moment after a round that moved much, and then sleeps. Where there are no more than two
    /// CPUs, it sleeps at once.
    #[default]
    Adaptive,
}

impl Wait {
    /// Every way.
    pub const ALL: [Self; 3] = [Self::Event, Self::Poll, Self::Adaptive];

    /// Its stable name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Poll => "poll",
            Self::Adaptive => "adaptive",
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Wait {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|wait| wait.name() == text);
        known.ok_or_else(|| format!("{text:?} is no way to wait; use event, poll or adaptive"))
    }
}

/// The decision of a worker to sleep or to poll.
pub(super) struct Patience {
    wait: Wait,
    /// Load keeps the worker awake for a moment.
    looks_again: bool,
    awake_until: Option<Instant>,
}

impl Patience {
    pub(super) fn new(wait: Wait) -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Self::among(cpus, wait)
    }

    /// With few CPUs, a worker that looks again takes the time of those who make what it looks for.
    fn among(cpus: usize, wait: Wait) -> Self {
        let looks_again = wait == Wait::Adaptive && cpus > FEW_CPUS;
        Self { wait, looks_again, awake_until: None }
    }

    /// Takes note of what a round has moved.
    pub(super) fn moved(&mut self, packets: usize) {
        if self.looks_again && packets >= LOAD {
            self.awake_until = Some(Instant::now() + SPIN);
        }
    }

    /// Takes note of a round that has moved much.
    pub(super) fn load(&mut self) {
        self.moved(LOAD);
    }

    /// Returns `true` if the worker polls for packets without sleeping.
    pub(super) fn is_awake(&self) -> bool {
        match self.wait {
            Wait::Event => false,
            Wait::Poll => true,
            Wait::Adaptive => self.awake_until.is_some(),
        }
    }

    /// Takes note that there was nothing. Lets others run before the next look.
    pub(super) fn in_vain(&mut self) {
        if self.awake_until.is_some_and(|until| Instant::now() >= until) {
            self.awake_until = None;
        } else {
            std::thread::yield_now();
        }
    }
}

/// Descriptors that a worker waits for.
///
/// Asking the kernel costs the same however many there are: a queue pair has sockets that hardly ever get a packet.
pub(super) struct Sources<'a> {
    epoll: OwnedFd,
    added: Vec<BorrowedFd<'a>>,
    events: Vec<Event>,
    /// The sources that had something at the last wait.
    ready: Vec<bool>,
}

/// One of the [`Sources`] that it was added to, in their order.
#[derive(Clone, Copy)]
pub(super) struct Source(usize);

impl<'a> Sources<'a> {
    pub(super) fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, added: Vec::new(), events: Vec::new(), ready: Vec::new() })
    }

    pub(super) fn add(&mut self, source: &'a impl AsFd) -> io::Result<Source> {
        let number = self.added.len();
        epoll::add(&self.epoll, source, EventData::new_u64(number as u64), EventFlags::IN)?;
        self.added.push(source.as_fd());
        self.ready.push(false);
        self.events.reserve(self.added.len());
        Ok(Source(number))
    }

    /// Returns `true` if the source had something when last waited for.
    pub(super) fn ready(&self, source: Source) -> bool {
        self.ready.get(source.0).is_some_and(|ready| *ready)
    }

    /// Waits until one has something.
    pub(super) fn wait(&mut self, patience: &mut Patience) -> io::Result<()> {
        self.ready.fill(false);
        until_ready(patience, |limit| {
            self.events.clear();
            epoll::wait(&self.epoll, spare_capacity(&mut self.events), limit)
        })?;
        for event in &self.events {
            let number = event.data.u64() as usize;
            self.ready[number] = true;
        }
        Ok(())
    }

    /// Waits until one of those up to `last` has something, whatever the later ones have.
    pub(super) fn wait_up_to(&mut self, last: Source, patience: &mut Patience) -> io::Result<()> {
        self.ready.fill(false);
        let first = self.added.iter().take(last.0 + 1);
        let mut first: Vec<_> = first.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        until_ready(patience, |limit| poll(&mut first, limit))?;
        for (ready, source) in self.ready.iter_mut().zip(first) {
            *ready = !source.revents().is_empty();
        }
        Ok(())
    }
}

/// Asks, sleeping or not, until something is ready.
fn until_ready(
    patience: &mut Patience,
    mut ask: impl FnMut(Option<&Timespec>) -> rustix::io::Result<usize>,
) -> io::Result<()> {
    loop {
        let limit = patience.is_awake().then(Timespec::default);
        match ask(limit.as_ref()) {
            Ok(0) => patience.in_vain(),
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for wait in Wait::ALL {
            assert_eq!(wait.to_string().parse(), Ok(wait));
        }
        assert!("sleep".parse::<Wait>().unwrap_err().contains("event, poll or adaptive"));
    }

    #[test]
    fn only_load_keeps_an_adaptive_worker_awake() {
        let mut patience = Patience::among(4, Wait::Adaptive);
        patience.moved(LOAD - 1);
        assert!(!patience.is_awake());
        patience.moved(LOAD);
        assert!(patience.is_awake());
        while patience.is_awake() {
            patience.in_vain();
        }
        for (cpus, wait) in [(4, Wait::Event), (2, Wait::Adaptive)] {
            let mut sleeper = Patience::among(cpus, wait);
            sleeper.moved(LOAD);
            assert!(!sleeper.is_awake());
        }
        assert!(Patience::among(1, Wait::Poll).is_awake());
    }
}
