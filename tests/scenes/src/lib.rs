//! Scenes that several test programs play: `tests/netns` between namespaces of this machine, `tests/kernel` in a guest whose
//! kernel has ESP; and the documents that they are compared with.
//!
//! ```text
//!  tests/netns ──┐            ┌─▶ leaks: nothing leaves in the clear
//!  tests/kernel ─┼─▶ scenes ──┼─▶ networks, narrow: gateways with networks behind them, a router between them
//!  tests/interop ┘            └─▶ guide, documented: tables of docs/
//! ```
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | When could a tunnel's traffic leave in the clear? | `leaks.rs`; who sends and who watches: `leaks/scene.rs` |
//! | What are two networks behind gateways? | `networks.rs` |
//! | What is a network on the way that carries less? | `narrow.rs` |
//! | What does the guide to failures show? | `guide.rs` |
//! | Which scenarios does the document about interoperability name? | `documented.rs` |
#![forbid(unsafe_code)]

pub mod documented;
pub mod guide;
pub mod leaks;
pub mod narrow;
pub mod networks;
