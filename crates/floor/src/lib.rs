//! This crate has the parts that the data planes of a Linux host share, whichever of them protects a tunnel's packets.
//!
//! A plane knows rules, SAs and how its packets get in and out. What holds for all planes of a gateway is here, so that
//! no plane is needed for it: tunnels are guarded while none runs, too.
//!
//! ```text
//!  vpn (src/planes) ──► guard::Guard ──► host::nft: the guard, and the held table beside it
//!      └─► Floor ─┬─► filter::Enforcement ──► host::nft: the filter's table
//!                 │        └────────────────► host::netlink: rules that lead bypassed traffic past the device
//!                 ├─► port::Port ───────────► UDP 4500: IKE, and ESP of both planes
//!                 └─► host::journal ────────► what is undone at the end
//!  userspace ──► Floor, and datagrams: many of them in one system call
//!  xfrm ──► flow::Flow ◄── guard: traffic as prefixes and ports under masks
//! ```
//!
//! A gateway starts the guard, the filter, the port and then the device, and they end in the reverse order.
//!
//! # Example
//!
//! IPv4 that belongs to no tunnel is dropped. It needs CAP_NET_ADMIN, CAP_NET_RAW and the program `nft`:
//!
//! ```no_run
//! use esp::filter::{DefaultAction, Filter};
//! use floor::{Config, Floor, Settings};
//! use std::sync::Arc;
//!
//! let settings = Settings { device: "vpn1".to_owned(), table: 4501, ..Settings::default() };
//! let config = Config { settings, ..Config::default() };
//! let denied = Arc::new(Filter { ipv4: DefaultAction::Deny, ..Filter::default() });
//! let floor = Floor::start(config, &denied)?;
//! assert_eq!(floor.filter(), &denied);
//! # Ok::<(), esp::plane::PlaneError>(())
//! ```
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | What keeps traffic from leaving in the clear? | `guard.rs`, `guard/` |
//! | Which packets pass the guard in any case? | `guard/tables.rs` |
//! | What happens to traffic of no tunnel? | `filter.rs` |
//! | In which order do filter and port start and end? | `floor.rs` |
//! | What are the settings and their defaults? | `config.rs`, `kernel_offload.rs` |
//! | Which socket receives a datagram on the port of ESP in UDP? | `port.rs`, `port/steering.rs` |
//! | Where are ESP, IKE and keepalives told apart, and routers heard? | `port/arriving.rs`, `port/ike.rs`, `port/routers.rs` |
//! | Which options has a socket, and where is the DF bit set? | `port/open.rs` |
//! | Where do many datagrams go in one system call? | `datagrams.rs`, `datagrams/` |
//! | How does a rule's traffic become prefixes and ports? | `flow.rs` |
//! | In which order are changes of nftables made? | `turns.rs` |
//! | How is key management told that the system refuses something? | `refusal.rs` |
//!
//! How scripts for nftables are made is the matter of `crates/host/src/nft/`.

#![deny(unsafe_code)]

mod config;
pub mod datagrams;
pub mod filter;
mod floor;
pub mod flow;
pub mod guard;
mod kernel_offload;
pub mod port;
mod refusal;
mod sync;
mod turns;

pub use config::{Config, DEFAULT_DEVICE, DEFAULT_STATE_DIR, Settings};
pub use floor::{Floor, FrozenFloor};
pub use kernel_offload::KernelOffload;
pub use refusal::{plane_error, refused};
