//! The operator's wishes as values: tunnels, proposals, selectors, identities, credentials and lifetimes.
//!
//! This crate knows no protocol, and its only input is text that it is handed. Every other crate of the gateway takes its
//! instructions from a [`Policy`].
//!
//! ```text
//!  AIX_VPN file ──► xml::read ─────────┐
//!  policy store ──► Database ──────────┤
//!  swanctl.conf ──► vpn-convert ───────┼──► Policy::validate ──► ike::Engine
//!  Rust code    ──► IkeTunnel::new … ──┘      │
//!                                             └──► InvalidPolicy: tunnel, field, problem, fix
//! ```
//!
//! `xml::read` has three steps: `parse` turns text into elements with their spans; `lower` turns elements into values;
//! what either finds wrong becomes a [`xml::Diagnostic`] with file, line, element and a fix. The last step of `lower` is
//! [`Policy::validate`], which every policy passes, wherever its values come from. [`Policy::changes`] compares the
//! policy in force with the next one.
//!
//! # Examples
//!
//! A policy built in code:
//!
//! ```
//! use policy::{AddressRange, ChildTunnel, Credential, Endpoint, IkeTunnel, Policy, Secret};
//! use std::net::IpAddr;
//!
//! let gateway = |last| Endpoint::from(IpAddr::from([192, 0, 2, last]));
//! let network = |n| AddressRange::new([10, n, 0, 0].into(), [10, n, 0, 255].into()).expect("in order");
//! let key = Credential::PresharedKey(Secret::new(b"correct horse battery staple".to_vec()));
//!
//! let lan = ChildTunnel::new("site_lan", network(1), network(2)).with_on_demand();
//! let site = IkeTunnel::new("site", gateway(1), gateway(2), key).with_child(lan);
//! let mut policy = Policy { tunnels: vec![site.into()] };
//! assert_eq!(policy.validate(), Ok(()));
//!
//! // A mistake is named with its place and its fix.
//! let twice = policy.tunnels[0].clone();
//! policy.tunnels.push(twice);
//! let refused = policy.validate().unwrap_err();
//! assert!(refused.to_string().contains(
//!     "tunnel \"site\", name: another tunnel is named \"site\" as well; rename one of the two"
//! ));
//! ```
//!
//! A policy read from XML:
//!
//! ```
//! let text = include_str!("../../../config/left.xml");
//! let loaded = policy::xml::read("left.xml", text)?;
//! let (carrier, lan) = loaded.policy.child("site_lan").expect("the file names it");
//! assert_eq!(carrier.name, "site");
//! assert_eq!(lan.remote[0].to_string(), "10.2.0.0/24");
//! # Ok::<(), policy::xml::Diagnostics>(())
//! ```
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | A new element or attribute of AIX_VPN | `xml/schema.rs` (which exist, and where), then the file of the element in `xml/lower/` |
//! | A new algorithm | `proposal.rs` (the value), `xml/lower/algorithm.rs` (its words in XML) |
//! | A new rule for values | `validate/rules.rs` (the rule), `validate/problem.rs` (its words), `validate.rs` (which field it is for) |
//! | A message about XML: its line and caret | `xml/report.rs`, `xml/source.rs`; its words stand in `xml/lower/`, where the element is read; unknown elements and attributes: `xml/conformance.rs` |
//! | "Did you mean …?", quoted values | `wording.rs` |
//! | A new field of a tunnel | `tunnel.rs`, then `change.rs`, which says what a change of it does to SAs that are up |
//! | Defaults of policies built in code | `tunnel.rs`, `proposal.rs` and `lifetime.rs`: `new` and `Default` |
//! | The policy store: objects by name, references between them | `database/put.rs`, `database/selection.rs`, `database/references.rs` |
//! | The other side's policy (`vpnctl policy mirror`) | `xml/mirror.rs` |
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

#[cfg(feature = "serde")]
mod serialize;
mod wording;

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
