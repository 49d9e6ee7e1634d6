//! Two hosts and the wire between them.

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::{Pid, gettid};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::Write;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use testkit::Namespace;

/// The packets that cross the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wire {
    /// Super-packets, as they do between virtual machines of one host and through cards with segmentation offload.
    SuperPackets,
    /// Every packet alone.
    Packets,
}

/// Where an end and the programs that use it run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// Wherever the scheduler puts them.
    Scheduler,
    /// Each end with its programs on a core of its own, as two hosts of one core.
    CoreEach,
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SuperPackets => "super-packets",
            Self::Packets => "single packets",
        })
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scheduler => "left to the scheduler",
            Self::CoreEach => "a core for each end",
        })
    }
}

/// Name of the wire's end in either namespace.
const DEVICE: &str = "wire";

/// One end: a namespace with an address on the wire and one behind the tunnel.
pub struct Host {
    /// Its name in messages and of its files.
    pub name: &'static str,
    /// Its namespace.
    pub space: Namespace,
    /// The address on the wire.
    pub outer: Ipv4Addr,
    /// The address behind the tunnel.
    pub inner: Ipv4Addr,
}

/// Lays the wire. The addresses behind the tunnel are not there yet: WireGuard has them on its own device.
///
/// # Errors
/// Where the system refuses a step.
pub fn lay(wire: Wire, placement: Placement) -> Result<[Host; 2], String> {
    let host = |number: u8, name: &'static str| {
        let space = Namespace::new(name).map_err(|error| error.to_string())?;
        if placement == Placement::CoreEach {
            // Every process started from the namespace's thread inherits this.
            space.run(move || pin(usize::from(number) - 1))?;
        }
        let outer = Ipv4Addr::new(10, 99, 0, number);
        Ok::<_, String>(Host { name, space, outer, inner: Ipv4Addr::new(10, 200, number, 1) })
    };
    let hosts = [host(1, "left")?, host(2, "right")?];
    let thread = hosts[1].space.run(gettid);
    let mut steps = format!("link add {DEVICE} type veth peer name {DEVICE} netns {thread}\n");
    for host in &hosts {
        let address = host.outer;
        steps +=
            &format!("addr add {address}/24 dev {DEVICE}\nlink set lo up\nlink set {DEVICE} up\n");
        host.ip(std::mem::take(&mut steps))?;
        if wire == Wire::Packets {
            let off = "tso off gso off gro off tx-udp-segmentation off";
            host.run(&format!("ethtool -K {DEVICE} {off}"))?;
        }
    }
    Ok(hosts)
}

fn pin(core: usize) -> Result<(), String> {
    let mut cores = CpuSet::new();
    cores
        .set(core)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &cores))
        .map_err(|error| format!("cannot confine a thread to core {core}: {error}"))
}

impl Host {
    /// Has `ip` carry out these lines.
    ///
    /// # Errors
    /// Where a line fails.
    pub fn ip(&self, lines: String) -> Result<(), String> {
        ip(&self.space, lines)
    }

    /// Runs a program whose arguments have no spaces. Returns its standard output.
    ///
    /// # Errors
    /// Where it fails: all that it printed.
    pub fn run(&self, line: &str) -> Result<String, String> {
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words);
        let output = self.space.run(move || command.output());
        let output = output.map_err(|error| format!("{line}: {error}"))?;
        let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(format!("{line}: {}{}", text(&output.stdout), text(&output.stderr))),
        }
    }
}

/// Has `ip` carry out these lines inside a namespace.
///
/// # Errors
/// Where a line fails.
pub fn ip(space: &Namespace, lines: String) -> Result<(), String> {
    let output = space.run(move || {
        let mut ip = Command::new("ip");
        ip.args(["-batch", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut process = ip.spawn()?;
        if let Some(input) = &mut process.stdin {
            input.write_all(lines.as_bytes())?;
        }
        process.wait_with_output()
    });
    let output = output.map_err(|error| format!("ip: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("ip: {}", String::from_utf8_lossy(&output.stderr)))
}
