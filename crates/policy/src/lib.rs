//! The operator's wishes as values: tunnels, proposals, selectors, identities, credentials and lifetimes.
//!
//! This crate knows no protocol, and its only input is text that it is handed. Every other crate of the gateway takes
//! its instructions from a [`Policy`].
//!
//! ```text
//!  AIX_VPN file ──► xml::read ─────────┐
//!  policy store ──► Database ──────────┤
//!  swanctl.conf ──► vpn-convert ───────┼──► Policy::validate ──► ike::Engine
//!  Rust code    ──► site_to_site … ─────┘      │
//!                                             └──► InvalidPolicy: tunnel, field, problem, fix
//! ```
//!
//! `xml::read` has three steps: `parse` turns text into elements with their spans; `lower` turns elements into values;
//! what either finds wrong becomes a [`xml::Diagnostic`] with file, line, element and a fix. The last step of `lower`
//! is [`Policy::validate`], which every policy passes, wherever its values come from. [`Policy::changes`] compares the
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
//! let text = include_str!("../../../tests/policies/site/left.xml");
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
//! | What is a tunnel, and its defaults in code? | `tunnel.rs`, `proposal.rs`, `lifetime.rs`, `site.rs`; algorithms: `crates/algorithms` |
//! | What does a change of the policy do to SAs that are up? | `change.rs` |
//! | Which rules does every value obey, and what is said of one that does not? | `validate/`, `wording.rs` |
//! | How are identities, names and secrets held? | `identity.rs`, `name.rs`, `credential.rs`, `ppk.rs` |
//! | Which traffic has a tunnel, and which has none? | `selector.rs`, `shadow.rs`, `binding.rs`, `traffic_index.rs` |
//! | Which elements and attributes has AIX_VPN? | `xml/schema.rs`, `xml/conformance.rs` |
//! | How does an element become a value, and what if an attribute is left out? | `xml/lower/`, one file per element |
//! | How is text read, and a mistake shown? | `xml/parse.rs`, `xml/texts.rs`, `xml/source.rs`, `xml/report.rs` |
//! | On which line is a tunnel defined? | `xml/definitions.rs` |
//! | How is a policy written, or mirrored? | `xml/of_policy.rs` with the elements of `xml/elements.rs`, `xml/write.rs`, `xml/dtd.rs`, `xml/mirror.rs` |
//! | How does the policy store keep objects and their references? | `database.rs`, `database/` |
//! | How is a value serialized, and an error printed? | `serialize.rs`, `readable.rs` |
//!
//! Sample policies are in `fixtures/`, good and bad files in `tests/policies/` of the repository.
#![forbid(unsafe_code)]

pub mod binding;
pub mod change;
pub mod credential;
pub mod database;
pub mod identity;
pub mod lifetime;
pub mod name;
pub mod ppk;
pub mod proposal;
pub mod selector;
pub mod shadow;
pub mod site;
pub mod tunnel;
pub mod validate;
pub mod xml;

mod readable;
#[cfg(feature = "serde")]
mod serialize;
mod traffic_index;
mod wording;

pub use algorithms::{
    AhIntegrity, DesKeys, EspEncryption, Group, IkeEncryption, Integrity, KeyBits, Prf,
};
pub use binding::{Binding, Bindings};
pub use change::{Change, Effect};
pub use credential::{Credential, KeyKind, Secret, Signature};
pub use database::Database;
pub use identity::{Doubt, Identity};
pub use lifetime::{Lifetime, LifetimeBounds};
pub use name::DistinguishedName;
pub use ppk::Ppk;
pub use proposal::{
    AdditionalKe, ChildProposal, IkeProposal, MAX_ADDITIONAL, Protection, is_built,
};
pub use selector::{AddressRange, PortRange, Prefix, RangeKind, Selector};
pub use site::Site;
pub use traffic_index::TrafficIndex;
pub use tunnel::{
    AllowedTraffic, ChildTunnel, Endpoint, GenericChild, IkeTunnel, Mode, Pfs, Policy, Role,
};
pub use validate::{Invalid, InvalidPolicy, MAX_PROPOSALS, Problem};
