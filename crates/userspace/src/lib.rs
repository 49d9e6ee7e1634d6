//! The userspace plane: a TUN device, sockets, and the threads that carry packets between them through a
//! [`Datapath`](esp::datapath::Datapath).
//!
//! What an operator sees of it on the host, all of it undone at shutdown; beside the kernel's plane ([`Config::beside_kernel`])
//! all but the last only while there is a rule:
//!
//! - a TUN device ([`Config::device`]) without addresses;
//! - a routing table ([`Config::table`]) with a route to the device for the remote side of every rule, and a blackhole
//!   behind each;
//! - one rule per family that sends everything without the mark ([`Config::mark`]) through that table. What the plane
//!   itself sends carries the mark, and so must IKE's sockets;
//! - an nftables table that drops cleartext from the remote side, where nftables is present;
//! - loose reverse path filtering on an interface where strict would drop a peer's packets;
//! - with a filter ([`Config::filter`]) an nftables table, and routing rules before that of the tunnels for what
//!   bypasses them.
//!
//! When the process is killed, the kernel removes device and routes; blackholes and rule remain, so that traffic stops
//! rather than leaks, until the next start cleans up. So does the filter's table.

#![deny(unsafe_code)]

mod ah;
mod arriving;
mod config;
mod datagrams;
mod device;
mod dont_fragment;
mod event_fd;
mod filter;
mod guard;
mod hooks;
mod ike;
mod offering;
mod order;
mod outer;
mod pipeline;
mod plane;
mod pool;
mod queue_pair;
mod refusal;
mod sched_policy;
mod socket;
mod stage;
mod steering;
mod sync;
mod tun;
mod tun_routes;
mod waiting;
mod worker;
pub mod workers;

pub use config::Config;
pub use hooks::{Hooks, IkeDatagram};
pub use ike::{IkeReceiver, IkeSender};
pub use offering::Offering;
pub use plane::{Userspace, explanation};
pub use stage::{Flow, Stage};
pub use waiting::Wait;
