//! The demo: two daemons in network namespaces of this machine, with a wire between them.
//!
//! Nothing of the machine's own network is touched, and all of it is gone when the process ends.
//!
//! ```text
//!  namespace "left"                             namespace "right"
//!  ┌──────────────────────┐                     ┌──────────────────────┐
//!  │      traffic ─▶ vpnd │◀── veth (network) ─▶│ vpnd ─▶ traffic      │
//!  └─────────────▲────────┘   ▲         ▲       └────────▲─────────────┘
//!            node│            └ capture ┘                │node
//!                └────────── control protocol ───────────┘
//! ```
//!
//! # Example
//!
//! Two namespaces with a wire between them, and a watch that counts the packets in the clear:
//!
//! ```no_run
//! use demo::network;
//! use namespaces::capture::Capture;
//! use namespaces::isolation::{self, Namespace};
//!
//! isolation::enter()?; // before the process has a second thread
//! let (left, right) = (Namespace::new("left")?, Namespace::new("right")?);
//! network::connect((&left, [192, 0, 2, 1].into()), (&right, [192, 0, 2, 2].into()))?;
//! let capture = left.run(|| Capture::start(nix::net::if_::if_nametoindex(network::WIRE)?))?;
//! // … traffic …
//! assert_eq!(capture.finish()?.cleartext, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | How does `vpnd demo` start, down to the first daemon? | `crates/vpnd/src/commands/demo.rs`, `crates/vpnd/src/demo.rs`, `work.rs`, `node.rs` |
//! | What does the demo do, and when does it fail? | `work.rs`, `work/` |
//! | How are two namespaces connected? | `network.rs` |
//! | How is a daemon started and stopped? | `node.rs` |
//! | What does the demo need of the machine? | `requirements.rs` |
//! | What does Ctrl-C do? | `interrupt.rs` |
//! | Where are namespaces, traffic, and the watch on the wire? | `crates/namespaces` |
#![forbid(unsafe_code)]

pub mod interrupt;
pub mod network;
pub mod node;
pub mod requirements;
mod work;

pub use work::{DemoError, Findings, run};
