//! The host as Linux shows it: links, routes and rules over netlink, nftables, network namespaces, and the journal of
//! what was changed, so that it can be undone.

#![deny(unsafe_code)]

mod addresses;
pub mod journal;
pub mod namespace;
pub mod netlink;
pub mod nft;
mod prefix;
mod routes;
mod socket_policy;
mod system;

pub use addresses::Host;
pub use prefix::{Prefix, prefixes};
pub use routes::{Devices, Routes};
pub use socket_policy::{decapsulate, let_pass};
pub use system::{SystemError, lacks_family, refused};
