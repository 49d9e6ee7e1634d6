//! One look at the daemon: its tunnels and counters through the control socket, its threads in `/proc`.

use control::client::{Client, ClientError};
use control::protocol::{Command, Overview, Reply, Tunnel};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The state of the daemon at one time.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// When, since some beginning.
    pub at: Duration,
    /// Version of the daemon.
    pub version: String,
    /// The time since the daemon's start.
    pub up: Duration,
    /// Phase 1 tunnels.
    pub tunnels: Vec<Tunnel>,
    /// Counts of discarded packets and messages, by reason.
    pub counters: BTreeMap<String, u64>,
    /// The daemon's threads.
    pub threads: Vec<Thread>,
}

/// A thread and the CPU time that it has used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its number in the system.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// The CPU time.
    pub busy: Duration,
}

/// The source of samples.
pub struct Source {
    socket: PathBuf,
    /// `None`: the daemon has gone.
    client: Option<(Client, Overview)>,
    began: Instant,
    connected: Instant,
}

impl Source {
    /// Asks through this connection, and connects again to the socket when it breaks.
    ///
    /// # Errors
    /// Where the daemon does not tell of itself.
    pub fn new(socket: &Path, mut client: Client) -> Result<Self, ClientError> {
        let overview = overview(&mut client)?;
        let now = Instant::now();
        let client = Some((client, overview));
        Ok(Self { socket: socket.to_owned(), client, began: now, connected: now })
    }

    /// Looks; the error is for people.
    pub fn look(&mut self, all: bool) -> Result<Sample, String> {
        if self.client.is_none() {
            let mut client = Client::connect(&self.socket).map_err(|error| error.to_string())?;
            let overview = overview(&mut client).map_err(|error| error.to_string())?;
            self.client = Some((client, overview));
            self.connected = Instant::now();
        }
        let Some((client, overview)) = &mut self.client else { return Err(String::new()) };
        let answers = ask(client, all);
        let (tunnels, counters) = match answers {
            Ok(answers) => answers,
            Err(error) => {
                self.client = None;
                return Err(error.to_string());
            }
        };
        Ok(Sample {
            at: self.began.elapsed(),
            version: overview.version.clone(),
            up: Duration::from_secs(overview.up_seconds) + self.connected.elapsed(),
            tunnels,
            counters,
            threads: threads(overview.pid),
        })
    }
}

fn overview(client: &mut Client) -> Result<Overview, ClientError> {
    match client.ask(Command::Overview)? {
        Reply::Overview(overview) => Ok(*overview),
        reply => Err(client.unexpected(&reply)),
    }
}

type Answers = (Vec<Tunnel>, BTreeMap<String, u64>);

fn ask(client: &mut Client, all: bool) -> Result<Answers, ClientError> {
    let tunnels = client.tunnels(all)?;
    match client.ask(Command::Counters)? {
        Reply::Counters(counters) => Ok((tunnels, counters)),
        reply => Err(client.unexpected(&reply)),
    }
}

/// The threads of a daemon in this PID namespace; none where its process is not to be seen.
fn threads(pid: u32) -> Vec<Thread> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    // In another PID namespace the number is somebody else's.
    if fs::read_to_string(process.join("comm")).is_ok_and(|name| name.trim_end() != "vpnd") {
        return Vec::new();
    }
    let tasks = fs::read_dir(process.join("task")).into_iter().flatten().flatten();
    let mut threads: Vec<Thread> = tasks.filter_map(|task| thread(&task.path())).collect();
    threads.sort_by_key(|thread| thread.id);
    threads
}

fn thread(task: &Path) -> Option<Thread> {
    // Time on the CPU in nanoseconds comes first (Documentation/scheduler/sched-stats.rst).
    let schedule = fs::read_to_string(task.join("schedstat")).ok()?;
    let busy = schedule.split_whitespace().next()?.parse().ok()?;
    let name = fs::read_to_string(task.join("comm")).ok()?;
    Some(Thread {
        id: task.file_name()?.to_str()?.parse().ok()?,
        name: name.trim_end().to_owned(),
        busy: Duration::from_nanos(busy),
    })
}
