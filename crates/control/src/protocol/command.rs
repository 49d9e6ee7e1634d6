//! Requests of a client.

use super::filter::DefaultAction;
use super::manual::KeyedText;
use super::stored::{GetPolicy, Objects, PutPolicy};
use super::workers::WorkersChange;
use serde::{Deserialize, Serialize};

/// Version of the protocol; a request with another one is refused.
pub const VERSION: u32 = 1;

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// [`VERSION`].
    pub version: u32,
    /// The command with its fields.
    #[serde(flatten)]
    pub command: Command,
}

/// A command of a client, named by the field `command`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// Starts tunnels and answers when each is up or has failed.
    Activate {
        /// Phase 1 or phase 2 tunnels; empty: all that this side may start.
        #[serde(default)]
        names: Vec<String>,
    },
    /// Deletes a tunnel and answers when it is gone.
    Deactivate {
        /// Phase 1 or phase 2 tunnel.
        name: String,
    },
    /// Starts tunnels as [`Command::Activate`] does, and answers at once.
    BeginActivation {
        /// Phase 1 or phase 2 tunnels; empty: all that this side may start.
        #[serde(default)]
        names: Vec<String>,
    },
    /// Deletes a tunnel as [`Command::Deactivate`] does, and answers at once.
    BeginDeactivation {
        /// Phase 1 or phase 2 tunnel.
        name: String,
    },
    /// Asks for tunnels.
    List {
        /// Also those that are defined but down.
        #[serde(default)]
        all: bool,
    },
    /// Asks for some of the tunnels, so that neither side has to hold all of them at once.
    ListPage {
        /// As with [`Command::List`].
        #[serde(default)]
        all: bool,
        /// The place where the page before has ended ([`TunnelPage::next`](super::TunnelPage::next)); `null`: the first
        /// page.
        #[serde(default)]
        after: Option<String>,
        /// The number of phase 2 tunnels in the answer, at most 1000. A phase 1 tunnel without any counts as one.
        count: u32,
    },
    /// Asks for one tunnel.
    Status {
        /// Phase 1 tunnel, or phase 2 tunnel: then the answer holds only this child.
        name: String,
    },
    /// Asks for an explanation of the state of a tunnel.
    Why {
        /// Phase 1 tunnel, or phase 2 tunnel: then only this child is explained.
        name: String,
    },
    /// Asks for all events from now on, until the connection is closed.
    Events {
        /// Phase 1 or phase 2 tunnels; empty: all.
        #[serde(default)]
        names: Vec<String>,
    },
    /// Replaces an SA without interruption and answers when the new one is in use.
    Rekey {
        /// Phase 1 or phase 2 tunnel.
        name: String,
    },
    /// Reads the policy file and the certificates again; a file with errors changes nothing.
    Reload {
        /// Only reports the changes that it would make.
        #[serde(default)]
        dry_run: bool,
        /// The filter of before comes back after so many seconds, unless the new one is confirmed.
        #[serde(default)]
        undo_after_seconds: Option<u64>,
    },
    /// Puts the objects of a file into the policy store, and the resulting policy in force.
    PolicyPut(PutPolicy),
    /// Asks for stored objects, or for the policy file if the daemon runs from one.
    PolicyGet(GetPolicy),
    /// Deletes objects from the policy store to which no others refer.
    PolicyDelete(Objects),
    /// Deletes everything in the policy store.
    PolicyPurge,
    /// Changes the log level until the daemon stops.
    Log {
        /// `error`, `warn`, `info`, `debug`, `trace`, `off`, or directives such as `info,ike=debug`.
        level: String,
    },
    /// Asks for discarded datagrams and packets by reason.
    Counters,
    /// Asks for discarded packets of each tunnel, by reason.
    TunnelCounters,
    /// Asks for a sentence about each reason of [`Command::Counters`] and [`Command::TunnelCounters`].
    CounterMeanings,
    /// Asks for the state of the threads that carry packets.
    Workers,
    /// Changes the settings of these threads, without losing a packet.
    WorkersSet(WorkersChange),
    /// Asks for certificates and revocation lists.
    Certs,
    /// Asks for the tunables of the crypto facility, and for the provider of each function.
    Crypto,
    /// Sets a tunable of the crypto facility; running SAs follow at once.
    CryptoSet {
        /// `nx_enabled`, `min_sz` or `in_core_enabled`.
        tunable: String,
        /// `null`: its default.
        value: Option<u64>,
        /// Also after the daemon has been restarted.
        #[serde(default)]
        persist: bool,
    },
    /// Asks for the work done by the CPU's instructions, in software, in the kernel and in network cards.
    CryptoStats,
    /// Asks for the address families that tunnels may use.
    Families,
    /// Switches IPsec of an address family off or on.
    SetFamily {
        /// `ipv4` or `ipv6`.
        family: String,
        /// `null`: as the configuration says.
        on: Option<bool>,
        /// Also after the daemon has been restarted.
        #[serde(default)]
        persist: bool,
    },
    /// Asks for an overview of the daemon.
    Overview,
    /// Asks for SAs that are keyed by hand.
    ManualSas,
    /// Asks for the same, and for the traffic that is blocked since such SAs were removed.
    SaList,
    /// Adds SAs that are keyed by hand, until the daemon stops.
    SaAdd {
        /// `[[sa]]` tables as in `vpnd.toml`, with the keys in the text itself.
        text: KeyedText,
    },
    /// Removes the SAs of a name that are keyed by hand.
    SaRemove {
        /// The name.
        name: String,
        /// Their traffic stays blocked.
        #[serde(default)]
        keep_blocked: bool,
    },
    /// Asks for the offload of SAs to network cards.
    Offload,
    /// Asks for the daemon's SAs and policies in the kernel, as commands of `ip xfrm`.
    Xfrm {
        /// With keys; refused unless the daemon was started to export them.
        #[serde(default)]
        keys: bool,
    },
    /// Restores SAs and policies that others have removed from the kernel, and moves SAs to the card that is wanted.
    Resync,
    /// Asks for the filter, which decides about traffic outside tunnels.
    Filter,
    /// Changes the fate of packets that no rule and no tunnel covers, until the daemon stops or reads its configuration
    /// again, or for good.
    SetFilter {
        /// `permit` or `deny`; `None`: as it is.
        #[serde(default)]
        ipv4: Option<DefaultAction>,
        /// The same for IPv6.
        #[serde(default)]
        ipv6: Option<DefaultAction>,
        /// The daemon undoes the change after this time, unless another such command comes before; `None`: it stays.
        /// A command without any field keeps what is in force.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        undo_after_seconds: Option<u64>,
        /// It outlives a restart and a reload, once it is confirmed if it is to be undone after a time.
        #[serde(default)]
        persist: bool,
    },
    /// Has the defaults of the configuration count again, in place of those that outlive a restart.
    ForgetFilter,
    /// Asks for the way that a packet would take.
    Trace {
        /// The packet, as in `tcp 10.1.0.5:40000 10.2.0.7:443`.
        packet: String,
    },
    /// Deletes all tunnels and ends the daemon. The answer comes before it has ended.
    Stop {
        /// The traffic of the tunnels stays blocked.
        #[serde(default)]
        keep_guard: bool,
    },
}
