//! Negotiations and rekeys of a gateway as spans, and their way to an OpenTelemetry collector.
//!
//! A gateway's events tell when a negotiation or a rekey begins and ends, and each step of its exchanges. Nothing here
//! asks the engine, and the engine waits for nothing here: it drops what a slow listener does not take.
//!
//! ```text
//! engine ── events, steps of exchanges ──▶ Operations ── finished spans ──▶ Exporter ── POST /v1/traces ──▶ collector
//!                                          begin, end                       bounded queue
//! ```
//!
//! # Example
//!
//! ```
//! use ike::event::{ExchangeStep, Step};
//! use ike::{Event, EventKind, Failure, FailureKind};
//! use std::time::SystemTime;
//! use traces::Operations;
//!
//! let (mut next, now) = (0, SystemTime::now());
//! let mut operations = Operations::new(move || {
//!     next += 1;
//!     next
//! });
//! let failure = Failure::new(FailureKind::NoAnswer, "6 sent".to_owned());
//! for kind in [
//!     EventKind::Negotiating { initiator: true },
//!     EventKind::Exchange(ExchangeStep::first(Step::Sent)),
//! ] {
//!     assert!(operations.see(&Event::new("site", kind), now).is_empty());
//! }
//! let finished = operations.see(&Event::new("site", EventKind::Failed(failure)), now);
//! let names: Vec<&str> = finished.iter().map(|span| &*span.name).collect();
//! assert_eq!(names, ["IKE_SA_INIT", "negotiate IKE SA"]);
//! ```
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | What is a span, and which attributes does it have? | `span.rs` |
//! | Which events begin and end a span? | `operations.rs` |
//! | How does a subscriber of `tracing` see them? | `live.rs` |
//! | Where can the collector be? | `endpoint.rs` |
//! | When are spans sent, again or no more? | `export.rs` |
//! | Which octets are sent, and how? | `export/message.rs`, `export/post.rs` |
//! | Who starts all this? | `crates/vpnd/src/daemon/traces.rs` |
#![forbid(unsafe_code)]

mod endpoint;
#[cfg(feature = "otlp")]
mod export;
mod live;
mod operations;
mod span;

pub use endpoint::{BadEndpoint, Endpoint};
#[cfg(feature = "otlp")]
pub use export::{Exporter, Limits, random_id};
pub use operations::Operations;
pub use span::{Attribute, Outcome, Span, SpanId, TraceId, Value};
