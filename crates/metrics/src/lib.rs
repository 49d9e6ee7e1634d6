//! The numbers of a gateway as OpenMetrics and as a page, and the endpoint at which monitoring systems and browsers read
//! them.
//!
//! A scrape asks the gateway for its tunnels, page by page, and for its other counters. Nothing is counted for metrics
//! on the way of a packet.
//!
//! ```text
//! Prometheus ── GET /metrics ──▶ endpoint ──▶ Source (crate cli) ──▶ gateway
//! a browser ─── GET / ─────────────▲             │
//!              IkeStatus, page by page ──▶ Round ┤ ◀── Ledger: counts that outlive an SA
//!              events ──▶ Happenings, News ──────┤
//!              workers, crypto, certificates … ──┴──▶ Snapshot ──▶ text
//! ```
//!
//! # Example
//!
//! ```
//! use ike::status::IkeStatus;
//! use metrics::Ledger;
//!
//! let mut ledger = Ledger::default();
//! // At most 1000 tunnels have series of their own.
//! let mut round = ledger.round(1000);
//! round.add(&[IkeStatus::new("site")]);
//! assert_eq!(round.finish().omitted(), 0);
//! ```
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | Which metrics are there, with which labels? | `text.rs`, `text/`, one file per subject |
//! | Which tunnels have series of their own, and how do counts outlive an SA? | `fleet.rs` |
//! | What is counted of events, and which durations are measured? | `happenings.rs` |
//! | Who is answered, with which headers, and how many at a time? | `endpoint.rs`, `endpoint/visitor.rs` |
//! | Where can the endpoint listen? | `address.rs` |
//! | What does the page look like? | `page/page.html`, `page/page.css`, `page/page.js` |
//! | What is the page told? | `page.rs`, `page/list.rs`, `page/tables.rs` |
//! | How are events told to a browser? | `news.rs`, `endpoint/stream.rs` |
//! | Where do the numbers come from? | `source.rs`, `crates/vpnd/src/daemon/metrics.rs` |
#![forbid(unsafe_code)]

mod address;
mod endpoint;
mod fleet;
mod happenings;
mod news;
mod page;
mod source;
mod text;

pub use address::{Address, BindError, Bound};
pub use endpoint::{Access, Limits, serve};
pub use fleet::{Fleet, Ledger, Round};
pub use happenings::{Happenings, Tallies};
pub use hyper::body::Bytes;
pub use news::News;
pub use source::{About, Drops, Reading, Reason, Source, Why};
pub use text::Snapshot;
