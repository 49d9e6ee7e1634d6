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
//! | A new element or attribute of AIX_VPN | `xml/schema.rs` (which exist, and where), then the file of the element in `xml/lower/` |
//! | A new algorithm | `proposal.rs` (the value), `xml/lower/algorithm.rs` (its words in XML) |
//! | A new rule for values | `validate/rules.rs` (the rule), `validate/problem.rs` (its words), `validate.rs` (which field it is for) |
//! | A message about XML: its line and caret | `xml/report.rs`, `xml/source.rs`; its words stand in `xml/lower/`, where the element is read; unknown elements and attributes: `xml/conformance.rs` |
//! | "Did you mean …?", quoted values | `wording.rs` |
//! | A new field of a tunnel | `tunnel.rs`, then `change.rs`, which says what a change of it does to SAs that are up |
//! | Defaults of attributes that a file leaves out | `xml/lower/`, in the file of the element; of phase 2 proposals `xml/lower/offer.rs`, `offer` (tunnel mode, 480 minutes, no limit of volume, no ESN); of phase 1 `xml/lower/ike.rs` (480 minutes); the overlap `xml/lower/value.rs` (10 percent) |
//! | The policy store: objects by name, references between them | `database/put.rs` and `database/merge.rs` (adding a file: a name that is taken refuses the whole file; with `--force` the new object replaces the stored one), `database/selection.rs` (choosing objects to export or delete), `database/references.rs`, `database/contents.rs` (objects as text and as a policy). The directory on disk is `src/store.rs` of the package `vpn` |
//! | The other side's policy (`vpnctl policy mirror`) | `xml/mirror.rs` |
//! | Defaults of policies built in code | `tunnel.rs`, `proposal.rs` and `lifetime.rs` (8 h, overlap 10 percent): `new` and `Default` |
//! | How large may a policy be? | `xml/parse.rs` (8 MiB, 120,000 elements, 16 deep), `xml/lower.rs` (40,000 tunnels), `xml/lower/group.rs` (1024 peers of a group), `validate/limits.rs` (64 proposals, 700 algorithms of phase 1) |
//! | Which lifetimes may a policy name, and when does a rekey start? | `lifetime.rs`: from 1 s and 1024 octets on; `soft` and `soft_bytes` say when a rekey starts. In a file: `xml/lower/value.rs`, at most 525,600 minutes |
//! | Which kinds of identities are there, and when are two the same? | `identity.rs`, `matches`; distinguished names `name.rs`; read from a file by `xml/lower/identity.rs` |
//! | Are DNS names looked up? | No. An FQDN is an identity, which is compared as text; the address of a side can be given inside its element: `xml/lower/identity.rs`, `party`. Only hosts of revocation lists are looked up: `src/revocation/fetch.rs` of the package `vpn` |
//! | How are keys and secrets held? | `credential.rs`, `Secret`: wiped when dropped, redacted when printed. Keys in a file: `xml/lower/key.rs`, found by the identity of the peer |
//! | Address ranges, prefixes, ports and protocols of traffic | `selector.rs`; in a file `xml/lower/traffic.rs` and `xml/lower/address.rs` |
//! | What does a change of the policy do to SAs that are up? | `change.rs`, `Effect`: untouched, kept, rekeyed or reestablished; it is done by `crates/ike/src/engine/replacement.rs` |
//! | Which errors does an XML file have, and how many are shown? | `xml/parse.rs` (not well-formed), `xml/conformance.rs` (names), `xml/lower/` (values); `xml/report.rs` keeps the first 50 |
//! | What becomes of a policy of IKEv1? | `xml/lower/ikev1.rs`: each object is refused once |
//! | On which line is a tunnel defined? | `xml/definitions.rs`, for `vpnctl why` |
//! | Which child tunnel is never used, because an earlier one covers its traffic? | `shadow.rs`; `xml/lower/shadowed.rs` warns of it. Rules by their addresses, however many: `traffic_index.rs` |
//! | How is a policy written as XML, or as a DTD? | `xml/of_policy.rs` (the objects of a policy), `xml/lower/words.rs` (the words of values), `xml/node.rs` (objects), `xml/write.rs` (text), `xml/dtd.rs` |
//! | How is a tunnel described in code, or in a program's own configuration? | `site.rs`, `Policy::site_to_site` |
//! | How is a value serialized (feature `serde`)? | `serialize.rs`: as it is displayed |
//! | Where are sample policies and their tests? | `fixtures/` with `tests/fixtures.rs`; good and bad files in `tests/policies/` of the repository, with `crates/cli/tests/texts/policies.rs` |
#![forbid(unsafe_code)]

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

#[cfg(feature = "serde")]
mod serialize;
mod traffic_index;
mod wording;

pub use change::{Change, Effect};
pub use credential::{Credential, KeyKind, Secret, Signature};
pub use database::Database;
pub use identity::Identity;
pub use lifetime::{Lifetime, LifetimeBounds};
pub use name::DistinguishedName;
pub use ppk::Ppk;
pub use proposal::{
    AdditionalKe, AhIntegrity, ChildProposal, DesKeys, EspEncryption, Group, IkeEncryption,
    IkeProposal, Integrity, KeyBits, MAX_ADDITIONAL, Prf, Protection,
};
pub use selector::{AddressRange, PortRange, Prefix, RangeKind, Selector};
pub use site::Site;
pub use traffic_index::TrafficIndex;
pub use tunnel::{
    AllowedTraffic, ChildTunnel, Endpoint, GenericChild, IkeTunnel, Mode, Pfs, Policy, Role,
};
pub use validate::{Invalid, InvalidPolicy, MAX_PROPOSALS, Problem};
