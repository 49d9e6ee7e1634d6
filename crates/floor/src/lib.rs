//! What the data planes have in common on a Linux host, whichever of them protects a tunnel's packets.
//!
//! A plane knows rules, SAs and how its packets get in and out. What holds for all planes of a gateway is here, so that
//! none of them is needed for it.
//!
//! ```text
//!  vpn (src/planes) ──► userspace ──► filter::Enforcement ──► host::nft: a table that drops
//!                                         │                └► host::netlink: rules that lead bypassed traffic past
//!                                         └────────────────► host::journal: what is undone at the end
//! ```
//!
//! # Example
//!
//! IPv4 that belongs to no tunnel is dropped. It needs CAP_NET_ADMIN and the program `nft`:
//!
//! ```no_run
//! use esp::filter::{DefaultAction, Filter};
//! use floor::filter::{Enforcement, Settings};
//! use floor::plane_error;
//! use host::journal::{DeviceLock, Journal};
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! let lock = DeviceLock::require(Path::new("/run/vpnd"), "vpn0").map_err(plane_error)?;
//! let mut journal = Journal::open(lock).map_err(plane_error)?;
//! let settings = Settings {
//!     device: "vpn0".to_owned(),
//!     mark: 0x0076_706e,
//!     natt_port: 4500,
//!     beside_kernel: false,
//!     priority: 4499,
//! };
//! let denied = Arc::new(Filter { ipv4: DefaultAction::Deny, ..Filter::default() });
//! let enforcement = Enforcement::start(settings, &denied, &mut journal)?;
//! assert_eq!(enforcement.filter(), &denied);
//! # Ok::<(), esp::plane::PlaneError>(())
//! ```
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | What happens to traffic of no tunnel? | `filter.rs` |
//! | In which order are changes of nftables made? | `turns.rs` |
//! | How is key management told that the system refuses something? | `refusal.rs` |
//!
//! How scripts for nftables are made is the matter of `crates/host/src/nft/`.

#![forbid(unsafe_code)]

pub mod filter;
mod refusal;
mod sync;
mod turns;

pub use refusal::{plane_error, refused};
