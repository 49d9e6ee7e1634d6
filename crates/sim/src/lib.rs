//! Deterministic simulation of gateways.
//!
//! Real [`ike::Engine`]s meet on a virtual wire that loses, repeats, delays, translates and holds back their datagrams,
//! under a virtual clock. Everything that is left to chance comes from one number, so that a failure can be repeated;
//! a failing scenario prints that number and the [`ladder`] of messages.
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | Where are messages lost, repeated, delayed and reordered? | `link.rs` |
//! | Where is a misuse of the data plane noticed, and what must hold at the end? | `recorder.rs`, `invariant.rs` |
//! | Where is a world made, run, and its time advanced? | `world.rs`, `world/` |
//! | Which traffic passes through the gateways? | `traffic.rs` |
//! | Where are gateways and their policies made? | `host.rs` (two of them), `fleet.rs` (one with very many peers) |
//! | Which behaviours of NATs are there? | `nat.rs` |
//! | Where does randomness come from? | `chance.rs` |
//! | Which certificates do gateways have? | `certificates.rs`, with the feature of this name |
#![forbid(unsafe_code)]

#[cfg(feature = "certificates")]
pub mod certificates;
pub mod chance;
pub mod fleet;
pub mod host;
pub mod invariant;
pub mod ladder;
pub mod link;
pub mod nat;
pub mod recorder;
pub mod traffic;
pub mod world;

pub use host::{Host, HostId, Side, Site};
pub use ladder::{Exchange, Label};
pub use link::{Conditions, Gate};
pub use nat::{Behaviour, Nat};
pub use recorder::Recorder;
pub use world::World;
