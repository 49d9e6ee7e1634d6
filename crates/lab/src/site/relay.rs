//! Three hosts in a row: the one in the middle is a gateway between two tunnels, which opens each packet, looks it up,
//! and seals it again.

use super::policy::{SECOND_WIRE, relayed};
use super::{Files, Net, WIRE, Work, activate};
use crate::load::{End, processor};
use control::protocol::Command as Ask;
use demo::network::{self, WIRE as DEVICE};
use demo::node::{Node, Setup};
use namespaces::isolation::Namespace;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

const NAMES: [&str; 3] = ["left", "middle", "right"];

/// The host in the middle.
const MIDDLE: usize = 1;

/// Three hosts, and the tunnels between them.
pub struct Relay {
    /// Dropped before their namespaces.
    nodes: [Node; 3],
    /// Dropped behind the daemons.
    _files: Files,
    spaces: [Namespace; 3],
}

impl Relay {
    /// Three hosts with all tunnels up.
    ///
    /// # Errors
    /// Where the system refuses, a daemon does not start, or a tunnel does not come up.
    pub fn new(program: &Path, net: Net) -> Result<Self, String> {
        let space = |name| Namespace::new(name).map_err(|error| error.to_string());
        let spaces = [space(NAMES[0])?, space(NAMES[1])?, space(NAMES[2])?];
        let [left, middle, right] = &spaces;
        network::join((left, DEVICE, WIRE[0]), (middle, DEVICE, WIRE[1]))?;
        network::join((middle, "wire2", SECOND_WIRE[0]), (right, DEVICE, SECOND_WIRE[1]))?;
        network::forward(middle)?;
        network::give(left, net.addresses(0))?;
        network::give(right, net.addresses(1))?;
        let files = Files::new();
        let policies = relayed(&net);
        let start = |host: usize| {
            let setup = Setup {
                program,
                policy: &policies[host],
                config: "\n[log]\nlevel = \"warn\"\n",
                environment: &[],
            };
            let name = NAMES[host];
            Node::start(name, &spaces[host], &files.0.join(name), setup, &|| false)
        };
        let mut nodes = [start(0)?, start(1)?, start(2)?];
        activate(&mut nodes[MIDDLE])?;
        Ok(Self { nodes, _files: files, spaces })
    }

    /// An end of traffic on the left (0) or right (1) host.
    pub fn end(&self, end: usize) -> End<'_> {
        // The route of each target prefers the address that its tunnel is for.
        End { space: &self.spaces[2 * end], address: Ipv4Addr::UNSPECIFIED }
    }

    /// Changes how all daemons work.
    ///
    /// # Errors
    /// Where one refuses.
    pub fn set_work(&mut self, work: Work<'_>) -> Result<(), String> {
        let mut nodes = self.nodes.iter_mut();
        nodes.try_for_each(|node| node.ask(Ask::WorkersSet(work.change())).map(drop))
    }

    /// Processor time of the gateway in the middle so far.
    ///
    /// # Errors
    /// Where it is gone.
    pub fn used(&self) -> Result<Duration, String> {
        processor::used(self.nodes[MIDDLE].process())
    }
}
