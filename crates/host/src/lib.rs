//! The Linux host: links, routes and routing rules over netlink, nftables, network namespaces, and the journal of
//! changes.
//!
//! The data planes ask and change the host through this crate. It knows no SA and no packet: it takes orders such as
//! "put this route", and answers questions such as "by which address do packets to this peer leave". Every change that
//! must not outlive the daemon is written to the journal before it is made, so that it can be undone, also after a
//! crash.
//!
//! ```text
//!  planes ─────► journal::Journal::record ──► state file (locked by its owner)
//!      │                                         ▲ undone when dropped, or by the next start
//!      ├───────► netlink::Netlink ───────────────┼──► links, routes, routing rules
//!      ├───────► nft::run ───────────────────────┼──► nftables: guard and filter
//!      └───────► Journal::set_sysctl ────────────┘──► /proc/sys/net
//!
//!  vpn, xfrm ──► Routes, Devices, Host ──► netlink: addresses, routes, their changes
//!  sockets   ──► let_pass, decapsulate ──► socket options for kernels with XFRM policies
//! ```
//!
//! # Example
//!
//! Routes name prefixes, but a policy may name any range of addresses. nftables takes both ends of a range:
//!
//! ```
//! use host::{nft, prefixes};
//! use policy::{AddressRange, Selector};
//!
//! let range = |first, last| AddressRange::new([10, 2, 0, first].into(), [10, 2, 0, last].into()).expect("in order");
//! let found: Vec<String> = prefixes(&range(1, 6)).iter().map(ToString::to_string).collect();
//! assert_eq!(found, ["10.2.0.1/32", "10.2.0.2/31", "10.2.0.4/31", "10.2.0.6/32"]);
//!
//! let (from, to) = (vec![Selector::all_of(range(1, 6))], vec![Selector::all_of(range(9, 9))]);
//! let mut script = nft::Commands::default();
//! for flow in nft::flows(&from, &to) {
//!     script.add_rule(["vpn_guard_vpn0", "unprotected"], &flow.then(nft::Statement::Drop));
//! }
//! let rule = "ip saddr 10.2.0.1-10.2.0.6 ip daddr 10.2.0.9 drop";
//! assert_eq!(&*script, format!("add rule inet vpn_guard_vpn0 unprotected {rule}\n"));
//! ```
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | What is undone at shutdown and after a crash, and what goes to a successor? | `journal.rs`, `journal/`; `handover.rs`, `handover/` |
//! | Where are links, routes and rules read and written? | `netlink.rs`, `netlink/`; for other crates `routes.rs` |
//! | How are scripts for nftables made, carried out, owned and watched? | `nft.rs`, `nft/`; their tables: `crates/floor/src/filter.rs`, `crates/floor/src/guard/` |
//! | Who notices that an address or a route of the host changes? | `addresses.rs` |
//! | How does ICMP about a socket's datagrams reach this program? | `error_queue.rs`, `icmp_listener.rs` |
//! | How do sockets get their ports, and past the kernel's policies? | `bind.rs`, `holder.rs`, `socket_policy.rs` |
//! | How does a thread act in the plane's network namespace? | `namespace.rs` |
//! | What advice does an error of the system carry? | `system.rs`; of the file of TUN devices: `tun_file.rs` |
//! | Which facts about the host explain that no traffic passes a tunnel? | `facts.rs`, `firewall.rs`; their values: `crates/host-facts/` |
//! | How are files locked and replaced, sockets owned? Who may change a file? | `lock.rs`, `replace.rs`, `socket_file.rs`, `writers.rs`; of a policy file also `policy_file.rs` |
//! | How does the kernel's log tell of a refused system call? | `seccomp.rs` |
//! | How does a range of addresses become prefixes? | `crates/host-facts/src/prefix.rs` |
//!
//! Others decide which routes and rules a tunnel and the filter need (`crates/userspace/src/tun_routes.rs` and
//! `crates/floor/src/filter.rs`).

#![deny(unsafe_code)]

mod addresses;
mod bind;
mod error_queue;
pub mod facts;
pub mod firewall;
pub mod handover;
mod holder;
mod icmp_listener;
pub mod journal;
pub mod lock;
pub mod namespace;
pub mod netlink;
pub mod nft;
pub mod policy_file;
pub mod replace;
mod routes;
pub mod seccomp;
pub mod socket_file;
mod socket_policy;
mod system;
pub mod tun_file;
pub mod writers;

pub use addresses::{Announced, Host};
pub use bind::bind_patiently;
pub use error_queue::{IcmpError, keep_icmp_errors, take_icmp_error};
pub use holder::{Process, udp_holder, udp_holder_at};
pub use host_facts::{Prefix, prefixes};
pub use icmp_listener::IcmpListener;
pub use routes::{Devices, Routes};
pub use socket_policy::{decapsulate, let_pass};
pub use system::{SystemError, lacks_family, refused};
