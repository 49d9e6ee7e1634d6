//! IKEv2 (RFC 7296): an engine without I/O.
#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests take the present as their start")
)]

mod admission;
mod collision;
pub mod config;
pub mod crypto;
mod deadlines;
pub mod discard;
pub mod engine;
pub mod event;
mod exchange;
pub mod failure;
pub mod key_log;
pub mod negotiation;
pub mod priority_queue;
pub mod proof;
mod rejection;
mod sa;
mod session;
pub mod status;
mod task;
pub mod wire;

pub use config::{InvalidConfig, InvalidSettings};
pub use engine::{Config, Datagram, Deadline, Encap, Engine, RestartAction, Transmit};
pub use event::{Event, EventKind};
pub use failure::{Failure, FailureKind};
