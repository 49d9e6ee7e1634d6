//! Two hosts, a wire between them, and a `vpnd` on each: what experiments measure.
//!
//! Suites that are compared run side by side: a site has any number of nets, each with a suite of its own, whose
//! tunnels are all up at once. An experiment goes from one to the other by the addresses its traffic has, and changes
//! how both daemons work while they run.

mod policy;
mod relay;

pub use policy::{Authentication, Cipher, Mode, Net, Tunnels, policies};
pub use relay::Relay;

use crate::load::{End, processor};
use control::protocol::workers::Workers;
use control::protocol::{Command as Ask, Reply, WorkersChange};
use demo::network;
use demo::node::{Node, Setup};
use namespaces::isolation::Namespace;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Addresses on the wire.
pub const WIRE: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 10), Ipv4Addr::new(192, 0, 2, 20)];

/// Name of the wire at either end.
pub use demo::network::WIRE as DEVICE;

/// Two hosts that are connected.
pub struct Site {
    /// Dropped before their namespaces.
    nodes: Option<[Node; 2]>,
    /// Dropped behind the daemons.
    files: Option<Files>,
    spaces: [Namespace; 2],
    environment: Vec<(&'static str, &'static str)>,
}

/// The settings of both daemons' workers.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    /// `event`, `poll` or `adaptive`.
    pub wait: &'a str,
    /// `run-to-completion` or `pipeline`.
    pub schedule: &'a str,
    /// `auto`, or how many.
    pub workers: &'a str,
}

impl Default for Work<'_> {
    /// The defaults of `vpnd`.
    fn default() -> Self {
        Self { wait: "adaptive", schedule: "run-to-completion", workers: "auto" }
    }
}

impl Work<'_> {
    fn change(self) -> WorkersChange {
        WorkersChange {
            workers: Some(self.workers.to_owned()),
            schedule: Some(self.schedule.to_owned()),
            wait: Some(self.wait.to_owned()),
            affinity: None,
        }
    }
}

/// Brings all tunnels of a daemon up.
fn activate(node: &mut Node) -> Result<(), String> {
    match node.ask(Ask::Activate { names: vec![] })? {
        Reply::Activations(activations) => {
            let failed = activations.iter().find_map(|a| Some((&a.name, a.failure.as_ref()?)));
            failed.map_or(Ok(()), |(name, failure)| {
                Err(format!("the tunnel {name} did not come up: {}", failure.message))
            })
        }
        reply => Err(format!("an unexpected reply: {reply:?}")),
    }
}

impl Site {
    /// Two hosts without daemons.
    ///
    /// # Errors
    /// Where the system refuses.
    pub fn bare() -> Result<Self, String> {
        let space = |name| Namespace::new(name).map_err(|error| error.to_string());
        let spaces = [space("left")?, space("right")?];
        network::connect((&spaces[0], WIRE[0]), (&spaces[1], WIRE[1]))?;
        Ok(Self { nodes: None, files: None, spaces, environment: Vec::new() })
    }

    /// Gives the daemons that are started later these variables of the environment, too.
    #[must_use]
    pub fn with_environment(
        mut self,
        environment: &'static [(&'static str, &'static str)],
    ) -> Self {
        self.environment.extend(environment);
        self
    }

    /// Starts a daemon on either host, with these policies and these lines in section `[esp]` of the configuration.
    ///
    /// # Errors
    /// Where one does not start.
    pub fn start(
        &mut self,
        program: &Path,
        policies: &[String; 2],
        config: &str,
    ) -> Result<(), String> {
        let files = Files::new();
        // There is little room, and what goes well fills it.
        let config = &format!("{config}\n[log]\nlevel = \"warn\"\n");
        let start = |end: usize, name| {
            let environment = &self.environment;
            let setup = Setup { program, policy: &policies[end], config, environment };
            Node::start(name, &self.spaces[end], &files.0.join(name), setup, &|| false)
        };
        self.nodes = Some([start(0, "left")?, start(1, "right")?]);
        self.files = Some(files);
        Ok(())
    }

    /// A host with a tunnel for every net, all of them up.
    ///
    /// # Errors
    /// Where a daemon does not start or a tunnel does not come up.
    pub fn with_nets(program: &Path, nets: &[Net], config: &str) -> Result<Self, String> {
        Self::bare()?.of_nets(program, nets, config)
    }

    /// The same on these hosts, which have no daemons yet.
    ///
    /// # Errors
    /// Where a daemon does not start or a tunnel does not come up.
    pub fn of_nets(mut self, program: &Path, nets: &[Net], config: &str) -> Result<Self, String> {
        let site = &mut self;
        for end in [0, 1] {
            let addresses = nets.iter().flat_map(|net| net.addresses(end)).collect();
            network::give(&site.spaces[end], addresses)?;
        }
        site.start(program, &policies(nets), config)?;
        site.activate()?;
        Ok(self)
    }

    /// Gives the left (0) or right (1) host further addresses.
    ///
    /// # Errors
    /// Where the system refuses one.
    pub fn give(&self, end: usize, addresses: Vec<Ipv4Addr>) -> Result<(), String> {
        network::give(&self.spaces[end], addresses)
    }

    /// Brings all tunnels up.
    ///
    /// # Errors
    /// Where one does not come up.
    pub fn activate(&mut self) -> Result<(), String> {
        activate(self.node(0)?)
    }

    /// An end of traffic on the left (0) or right (1) host.
    pub fn end(&self, end: usize, address: Ipv4Addr) -> End<'_> {
        End { space: &self.spaces[end], address }
    }

    /// The left (0) or right (1) daemon.
    ///
    /// # Errors
    /// Where none has been started.
    pub fn node(&mut self, end: usize) -> Result<&mut Node, String> {
        self.nodes.as_mut().map(|nodes| &mut nodes[end]).ok_or_else(|| "no vpnd runs".to_owned())
    }

    /// Commands a daemon.
    ///
    /// # Errors
    /// Where it refuses or does not answer.
    pub fn ask(&mut self, end: usize, command: Ask) -> Result<Reply, String> {
        self.node(end)?.ask(command)
    }

    /// Has both daemons use the CPU's instructions for cryptography, or do without.
    ///
    /// # Errors
    /// Where a daemon does not answer.
    pub fn set_in_core(&mut self, on: bool) -> Result<(), String> {
        for end in [0, 1] {
            let tunable = "in_core_enabled".to_owned();
            self.ask(end, Ask::CryptoSet { tunable, value: Some(on.into()), persist: false })?;
        }
        Ok(())
    }

    /// Changes how both daemons work.
    ///
    /// # Errors
    /// Where one refuses.
    pub fn set_work(&mut self, work: Work<'_>) -> Result<(), String> {
        [0, 1]
            .into_iter()
            .try_for_each(|end| self.ask(end, Ask::WorkersSet(work.change())).map(drop))
    }

    /// The state of a daemon's workers.
    ///
    /// # Errors
    /// Where it does not answer.
    pub fn workers(&mut self, end: usize) -> Result<Workers, String> {
        match self.ask(end, Ask::Workers)? {
            Reply::Workers(workers) => Ok(workers),
            reply => Err(format!("an unexpected reply: {reply:?}")),
        }
    }

    /// Runs a program on the left (0) or right (1) host; what it prints.
    ///
    /// # Errors
    /// Where it fails; the text is what it says of that.
    pub fn command(&self, end: usize, program: &str, words: &[&str]) -> Result<String, String> {
        let mut command = Command::new(program);
        command.args(words);
        let output = self.spaces[end].run(move || command.output());
        let output = output.map_err(|error| format!("{program}: {error}"))?;
        let text = |octets: &[u8]| {
            let text = String::from_utf8_lossy(octets);
            text.trim().trim_end_matches('.').replace('\n', "; ")
        };
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => {
                // Its last words may be keys.
                let words = words[..words.len().min(3)].join(" ");
                Err(format!("{program} {words}: {}", text(&output.stderr)))
            }
        }
    }

    /// Processor time so far: of the left daemon, of the right one, and of this process, whose threads are the traffic.
    ///
    /// # Errors
    /// Where a daemon is gone.
    pub fn used(&self) -> Result<Used, String> {
        let of = |end: usize| {
            self.nodes.as_ref().map_or(Ok(Duration::ZERO), |n| processor::used(n[end].process()))
        };
        Ok(Used { daemons: [of(0)?, of(1)?], traffic: processor::used(std::process::id())? })
    }
}

/// The directory of a site's daemons, in the `/run` that this process has to itself. It goes with them.
struct Files(PathBuf);

impl Files {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(Path::new("/run/vpnctl-experiment").join(number.to_string()))
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Processor time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    /// Of the left and the right daemon.
    pub daemons: [Duration; 2],
    /// Of generator and sink.
    pub traffic: Duration,
}

impl Used {
    /// Of all three.
    pub fn all(self) -> Duration {
        self.daemons[0] + self.daemons[1] + self.traffic
    }

    /// The difference to an earlier reading.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        let daemon = |end: usize| self.daemons[end].saturating_sub(before.daemons[end]);
        let traffic = self.traffic.saturating_sub(before.traffic);
        Self { daemons: [daemon(0), daemon(1)], traffic }
    }
}
