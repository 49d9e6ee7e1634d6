//! The kit of the benches that compare VPNs: two hosts on a wire, the programs that are compared, and what these have used.
//!
//! ```text
//!  Host "left" ═══ wire ═══ Host "right"      installed ─▶ the programs of other VPNs
//!     └─ a VPN: its processes ──────────────▶ usage: processor time
//! ```
//!
//! `vpnd`, strongSwan and any other program are started by the crate `testkit`.
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | How are two hosts made, and what passes between them? | `hosts.rs` |
//! | Where are the programs of other VPNs? | `installed.rs` |
//! | Which policies do gateways with very many tunnels have? | `policy.rs` |
//! | What is a key of WireGuard? | `wireguard.rs` |
//! | How much processor time has a process used? | `usage.rs` |
//! | How long does a daemon take to answer, also while something else happens? | `watching.rs` |
#![forbid(unsafe_code)]

mod hosts;
mod installed;
pub mod policy;
mod usage;
mod watching;
mod wireguard;

pub use hosts::{Host, Placement, Wire, ip, lay};
pub use installed::{missing, program};
pub use usage::{time, times, used};
pub use watching::{Reading, Watcher};
pub use wireguard::Keys;
