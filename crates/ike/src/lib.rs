//! IKEv2 (RFC 7296): a sans-IO engine, and a tokio shell around it.
#![forbid(unsafe_code)]

pub mod crypto;
#[cfg(feature = "tokio")]
pub mod driver;
pub mod engine;
pub mod event;
pub mod failure;
pub mod status;
pub mod wire;

pub use engine::{Config, Datagram, Deadline, Encap, Engine, Transmit};
pub use event::{Event, EventKind};
pub use failure::{Failure, FailureKind};
