//! The laboratory: two daemons in network namespaces, the demo and the experiments.
//!
//! Tests, benchmarks, `vpnd demo` and `vpnctl experiment` build two hosts in network namespaces of this machine, start
//! a `vpnd` in each and send traffic between them. Nothing of the machine's own network is touched, and all of it is
//! gone when the process ends.
//!
//! ```text
//!  namespace "left"                             namespace "right"
//!  ┌──────────────────────┐                     ┌──────────────────────┐
//!  │ traffic, load ─▶ vpnd│◀── veth (network) ─▶│vpnd ─▶ traffic, load │
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
//! use lab::capture::Capture;
//! use lab::isolation::{self, Namespace};
//! use lab::network;
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
//! | Where are namespaces, traffic, and the watch on the wire? | `crates/namespaces` |
//! | How are two namespaces connected? | `network.rs` |
//! | Which traffic measures rates and processor time? | `load.rs`, `load/` |
//! | How is a daemon started and stopped? | `node.rs`; two of them: `site.rs`, `site/` |
//! | What does the demo do, and when does it fail? | `demo.rs`, `demo/` |
//! | Where is an experiment added? | `experiment.rs`, `experiment/` |
//! | What do the demo and the experiments need of the machine? | `requirements.rs`; an experiment: `experiment/readiness.rs`, `experiment/lab.rs` |
//! | How is a chart or a report drawn? | `plot.rs`, `plot/`, `table.rs`, `report.rs` |
//! | What does Ctrl-C do to a demo or an experiment? | `interrupt.rs` |
//! | Where are the machine and the repetitions described? | `machine.rs`, `statistics.rs` |
//! | Which processor time of other programs counts as foreign load? | `foreign.rs` |
#![forbid(unsafe_code)]

pub use namespaces::{capture, isolation, traffic};

pub mod demo;
pub mod experiment;
pub mod foreign;
mod interrupt;
pub mod load;
pub mod machine;
mod misses;
pub mod network;
pub mod node;
pub mod plot;
pub mod report;
mod requirements;
pub mod site;
pub mod statistics;
pub mod table;
