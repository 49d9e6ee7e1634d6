//! What the operator wants: tunnels, proposals, selectors, identities, credentials and lifetimes as plain values.
//!
//! This crate knows no protocol and does no I/O beyond parsing text that it is handed.
#![forbid(unsafe_code)]

pub mod change;
pub mod credential;
pub mod database;
pub mod identity;
pub mod lifetime;
pub mod name;
pub mod proposal;
pub mod selector;
pub mod tunnel;
pub mod validate;
pub mod xml;

pub use change::{Change, Effect};
pub use credential::{Credential, KeyKind, Secret, Signature};
pub use database::Database;
pub use identity::Identity;
pub use lifetime::Lifetime;
pub use name::DistinguishedName;
pub use proposal::{
    AhIntegrity, ChildProposal, DesKeys, EspEncryption, Group, IkeEncryption, IkeProposal,
    Integrity, KeyBits, Prf, Protection,
};
pub use selector::{AddressRange, PortRange, Prefix, RangeKind, Selector};
pub use tunnel::{
    AllowedTraffic, ChildTunnel, Endpoint, GenericChild, IkeTunnel, Mode, Pfs, Policy, Role,
};
pub use validate::{Invalid, InvalidPolicy, MAX_PROPOSALS, Problem};
