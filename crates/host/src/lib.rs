//! The Linux host: links, routes and routing rules over netlink, nftables, network namespaces, and the journal of
//! changes.
//!
//! The data planes ask and change the host through this crate. It knows no SA and no packet: it takes orders such as
//! "put this route", and answers questions such as "by which address do packets to this peer leave". Every change that
//! must not outlive the daemon is written to the journal before it is made, so that it can be undone, also after a
//! crash.
//!
//! ```text
//!  userspace ──► journal::Journal::record ──► state file (locked by its owner)
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
//! let script = nft::verdicts(["vpn_guard_vpn0", "unprotected"], (&from, &to), "drop");
//! assert!(script.starts_with("add rule inet vpn_guard_vpn0 unprotected ip saddr 10.2.0.1-10.2.0.6 "));
//! ```
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | What is undone at shutdown and after a crash? | `journal.rs`: `Change` lists it, `undo` does it, `Journal::open` does it for a crashed owner |
//! | What stays after a crash until the next start decides? | `journal.rs`, `Change::Filter`: the filter. The next start with the same device undoes blackholes, routing rules and sysctls in `Journal::open`, a sysctl only if it still has the value that was set |
//! | How is a change of a new kind made undoable? | `journal.rs`: a variant of `Change`, its line in the file, its `undo` |
//! | Where are links, routes and rules read and written? | `netlink.rs` |
//! | Which rule leads bypassed traffic past the tunnels? | `netlink/exception.rs` |
//! | Where does a packet to an address leave, and with which MTU? | `netlink.rs`, `egress`, `source`, `way_mtu`; for other crates `routes.rs` |
//! | Who runs nft, if this process may start no program? | `nft.rs`, `Runner` |
//! | How does the kernel's log tell of a refused system call? | `seccomp.rs` |
//! | Who notices that another program changes nftables? | `nft/watch.rs` |
//! | Which table can nobody else remove, and how is it changed? | `nft/owner.rs` |
//! | Who notices that an address or a route of the host changes? | `addresses.rs` |
//! | How is traffic written in nftables' language, and what if nft is missing? | `nft.rs`; `available` looks in four fixed directories, not in PATH. The guard then only warns (`src/planes/guard.rs` of the package `vpn`), a filter is refused (`crates/userspace/src/filter.rs`) |
//! | How do IKE's sockets get past the kernel's policies, and ESP in UDP to the kernel? | `socket_policy.rs` |
//! | How does a thread act in the plane's network namespace? | `namespace.rs` |
//! | How does ICMP about a socket's datagrams reach this program? | `error_queue.rs`; about IKE on the port of ESP in UDP: `icmp_listener.rs` |
//! | Which process has a UDP port? | `holder.rs` |
//! | What advice does an error of the system carry, and what happens on a host without IPv6? | `system.rs`: `refused`; `lacks_family` tells that a family is missing, and its sockets and routes are left out |
//! | Where is the record of changes, and who owns it? | `journal.rs`: `/run/vpnd/DEVICE.NAMESPACE.plane`, locked by the process that uses the device; a second one is refused. `claim` keeps two from one routing table |
//! | How does a range of addresses become prefixes? | `prefix.rs`, `prefixes` |
//! | By which protocol number are this program's routes known? | `netlink.rs`, `PROTOCOL`: `ip route` shows `proto 86` |
//! | Which facts about the host explain that no traffic passes a tunnel? | `facts.rs`; what its packet filter does with a packet: `firewall.rs` |
//! | How does one process keep others from a file? | `lock.rs` |
//! | How is a Unix socket made for one process alone? | `socket_file.rs` |
//! | How is a file replaced so that a crash leaves the old text or the new one? | `replace.rs` |
//!
//! Which routes and rules a tunnel needs is decided by the crate `userspace` (`crates/userspace/src/tun_routes.rs` and
//! `crates/userspace/src/filter.rs`), not here.

#![deny(unsafe_code)]

mod addresses;
mod bind;
mod error_queue;
pub mod facts;
pub mod firewall;
mod holder;
mod icmp_listener;
pub mod journal;
pub mod lock;
pub mod namespace;
pub mod netlink;
pub mod nft;
mod prefix;
pub mod replace;
mod routes;
pub mod seccomp;
pub mod socket_file;
mod socket_policy;
mod system;

pub use addresses::{Announced, Host};
pub use bind::bind_patiently;
pub use error_queue::{IcmpError, keep_icmp_errors, take_icmp_error};
pub use holder::{Process, udp_holder};
pub use icmp_listener::IcmpListener;
pub use prefix::{Prefix, prefixes};
pub use routes::{Devices, Routes};
pub use socket_policy::{decapsulate, let_pass};
pub use system::{SystemError, lacks_family, refused};
