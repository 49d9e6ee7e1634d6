//! `[esp]`

use super::workers;
use super::{Named, Span};
use ::esp::path_mtu::{DontFragment, Outer};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use userspace::workers::{Affinity, Count, Schedule};
use userspace::{KernelOffload, Wait};
use vpn::planes::Choice;
use xfrm::placement::Wanted;

/// `[esp]`: the data plane.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Esp {
    /// The data plane that protects packets.
    pub dataplane: Named<Choice>,
    /// Anti-replay window in packets.
    pub replay_window: u32,
    /// UDP encapsulation of ESP.
    pub encap: Encap,
    /// MTU of the networks between the peers.
    pub outer_mtu: u16,
    /// The bit Don't Fragment of outer IPv4 headers.
    pub df: Df,
    /// Lifetime of a path MTU learned from ICMP; `off`: such messages are ignored.
    pub path_mtu_lifetime: Span,
    /// Offload of the kernel's SAs to network cards.
    #[serde(deserialize_with = "workers::by_name")]
    pub offload: Wanted,
    /// The network card; empty: the card of the route to the peer.
    pub offload_device: String,
    /// Name of the TUN device.
    pub device: String,
    /// The directory of the journal of changes to the system.
    pub state_dir: PathBuf,
    /// The file with the guard that was in force last; empty: [`Esp::guard_file`] has a name for it.
    guard_file: PathBuf,
    /// The file with the sequence numbers that manual SAs have used.
    pub sequences: PathBuf,
    /// The number of worker threads.
    #[serde(deserialize_with = "workers::count")]
    pub workers: Count,
    /// The schedule of the workers.
    #[serde(deserialize_with = "workers::by_name")]
    pub schedule: Schedule,
    /// The behaviour of a worker that has no packet.
    #[serde(deserialize_with = "workers::by_name")]
    pub wait: Wait,
    /// The CPUs of the workers.
    #[serde(deserialize_with = "workers::affinity")]
    pub affinity: Affinity,
    /// Features of the kernel that are not used.
    #[serde(deserialize_with = "workers::without")]
    pub without: BTreeSet<KernelOffload>,
}

/// The bit Don't Fragment of outer IPv4 headers in tunnel mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Df {
    /// Set.
    #[default]
    Set,
    /// Not set.
    Clear,
    /// As in the inner header.
    Copy,
}

impl From<Df> for DontFragment {
    fn from(df: Df) -> Self {
        match df {
            Df::Set => Self::Set,
            Df::Clear => Self::Clear,
            Df::Copy => Self::Copy,
        }
    }
}

/// UDP encapsulation of ESP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encap {
    /// If there is a NAT, or UDP is faster.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Only if there is a NAT.
    Never,
}

/// The default directory of the journal of changes to the system. It is empty after a reboot.
const STATE_DIR: &str = "/run/vpnd";
/// The directory whose files outlive a reboot.
const LASTING: &str = "/var/lib/vpnd";

impl Esp {
    /// The file with the guard that was in force last, by which the tunnels are guarded if the policy cannot be read. A
    /// gateway with a state directory of its own has it there.
    pub fn guard_file(&self) -> PathBuf {
        if !self.guard_file.as_os_str().is_empty() {
            return self.guard_file.clone();
        }
        let of_host = self.state_dir == Path::new(STATE_DIR);
        let directory = if of_host { Path::new(LASTING) } else { &self.state_dir };
        directory.join(format!("guard.{}", self.device))
    }
}

impl Default for Esp {
    fn default() -> Self {
        Self {
            dataplane: Named::default(),
            replay_window: ::ike::Config::default().replay_window,
            encap: Encap::Auto,
            outer_mtu: Outer::default().mtu(),
            df: Df::Set,
            path_mtu_lifetime: Span(Outer::default().learned_for),
            offload: Wanted::default(),
            offload_device: String::new(),
            device: "vpn0".to_owned(),
            state_dir: PathBuf::from(STATE_DIR),
            guard_file: PathBuf::new(),
            sequences: PathBuf::from(vpn::manual::DEFAULT_LEDGER),
            workers: Count::default(),
            schedule: Schedule::default(),
            wait: Wait::default(),
            affinity: Affinity::default(),
            without: BTreeSet::new(),
        }
    }
}
