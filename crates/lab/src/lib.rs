//! The laboratory: the experiments, which repeat published measurements on two daemons of this machine.
//!
//! `vpn-lab` and the benchmarks build two hosts in network namespaces, start a `vpnd` in each and send traffic between
//! them. No crate of the product depends on this one.
//!
//! ```text
//! vpn-lab ─► experiment/NAME.rs ─► site (two nodes of crate `demo`) ─► load: rates, latencies, processor time
//!                 │
//!                 └─► report, table, plot ─► README.md, data.json, pictures
//! ```
//!
//! # Example
//!
//! ```
//! use lab::statistics::percentile;
//!
//! assert_eq!(percentile(&[1.0, 2.0, 3.0], 0.5), Some(2.0));
//! ```
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | Where is an experiment added? | the table in `experiment.rs`; `experiment/` |
//! | How does an experiment start, down to the first `vpnd`? | `main.rs`, `experiment.rs`, its file in `experiment/`, `site.rs`, `crates/demo/src/node.rs` |
//! | What does an experiment need of the machine? | `experiment/readiness.rs`, `experiment/lab.rs` |
//! | Which traffic measures rates and processor time? | `load.rs`, `load/` |
//! | How are two daemons set up? | `site.rs`, `site/`; one of them: `crates/demo/src/node.rs` |
//! | How is a chart or a report drawn? | `plot.rs`, `plot/`, `table.rs`, `report.rs` |
//! | Where are the machine and the repetitions described? | `machine.rs`, `statistics.rs` |
//! | Which processor time of other programs counts as foreign load? | `foreign.rs` |
//! | Where are namespaces, traffic, and the watch on the wire? | `crates/namespaces` |
#![forbid(unsafe_code)]

pub mod experiment;
pub mod foreign;
pub mod load;
pub mod machine;
mod misses;
pub mod plot;
pub mod report;
pub mod site;
pub mod statistics;
pub mod table;
