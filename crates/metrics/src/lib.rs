//! The numbers of a gateway: one table of metrics, and with the feature `endpoint` its text as OpenMetrics, a page, and
//! the endpoint at which monitoring systems and browsers read both.
//!
//! A reading asks the gateway for its tunnels, page by page, and for its other counters. Nothing is counted for metrics
//! on the way of a packet.
//!
//! ```text
//!  IkeStatus, page by page ──▶ Round ──▶ Fleet ┐         ┌─▶ Snapshot: text ──▶ endpoint ◀── GET /metrics ── Prometheus
//!      Ledger: counts that outlive an SA ──┘   ├ Numbers ┤                         ▲ ◀────── GET / ───────── a browser
//!  events ──▶ Happenings ──▶ Tallies ──────────┤         │    Source (crate vpnd) ─┘
//!  counters of the engine and the planes ──────┘         └─▶ Gateway::record_metrics (crate vpn): a program's recorder
//! ```
//!
//! # Example
//!
//! ```
//! use ike::status::IkeStatus;
//! use metrics::{Ledger, METRICS, Numbers};
//! use std::time::Instant;
//!
//! let mut ledger = Ledger::default();
//! // At most 1000 tunnels have series of their own.
//! let mut round = ledger.round(1000, Instant::now());
//! round.add(&[IkeStatus::new("site")], Instant::now());
//! let numbers = Numbers { fleet: round.finish().into(), ..Numbers::default() };
//! let up = METRICS.iter().find(|metric| metric.name == "vpnd_tunnel_up").expect("it is in the table");
//! (up.read)(&numbers, &mut |labels, _value| assert_eq!(labels, ["site"]));
//! ```
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | Which metrics of the gateway and its tunnels are there, and where does each number come from? | `numbers.rs`, a row for each; counts of a tunnel: `Counts` in `fleet.rs` |
//! | Which metrics does the daemon have beside them? | `text/`, one table per subject |
//! | Which tunnels have series of their own, and how do counts outlive an SA? | `fleet.rs` |
//! | What is counted of events, and which durations are measured? | `happenings.rs` |
//! | Who is answered, with which headers, and how many at a time? | `endpoint.rs`, `endpoint/visitor.rs` |
//! | Where can the endpoint listen? | `address.rs` |
//! | What does the page look like? | `page/page.html`, `page/page.css`, `page/page.js` |
//! | What is the page told? | `page.rs`, `page/list.rs`, `page/tables.rs` |
//! | How are events told to a browser? | `news.rs`, `endpoint/stream.rs` |
//! | Where do the numbers come from? | `source.rs`, `crates/vpnd/src/daemon/metrics.rs`; in other programs `src/gateway/recording.rs` |
#![forbid(unsafe_code)]

#[cfg(feature = "endpoint")]
mod address;
#[cfg(feature = "endpoint")]
mod endpoint;
mod fleet;
mod happenings;
mod metric;
#[cfg(feature = "endpoint")]
mod news;
mod numbers;
#[cfg(feature = "endpoint")]
mod page;
#[cfg(feature = "endpoint")]
mod source;
#[cfg(feature = "endpoint")]
mod text;

pub use fleet::{Fleet, Ledger, Round};
pub use happenings::{Happenings, Tallies};
pub use metric::{Kind, Metric, Tell, Unit, Value};
pub use numbers::{METRICS, NEGOTIATION_DURATION, Numbers};

#[cfg(feature = "endpoint")]
pub use address::{Address, BindError, Bound};
#[cfg(feature = "endpoint")]
pub use endpoint::{Access, Limits, serve};
#[cfg(feature = "endpoint")]
pub use hyper::body::Bytes;
#[cfg(feature = "endpoint")]
pub use news::News;
#[cfg(feature = "endpoint")]
pub use source::{About, Drops, Reading, Reason, Source, Why};
#[cfg(feature = "endpoint")]
pub use text::Snapshot;
