//! IKEv2 (RFC 7296): an engine without I/O.
#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests take the present as their start")
)]

mod admission;
mod collision;
mod config;
mod context;
pub mod crypto;
mod datagram;
mod deadlines;
pub mod discard;
mod dispatch;
mod engine;
pub mod event;
mod exchange;
pub mod failure;
pub mod key_log;
pub mod negotiation;
mod outputs;
mod past_failures;
mod policy_index;
pub mod priority_queue;
pub mod proof;
mod rejection;
mod rules;
mod sa;
mod session;
mod session_id;
pub mod status;
mod task;
pub mod wire;

pub use config::{Config, Encap, RestartAction};
pub use datagram::{Datagram, Transmit};
pub use deadlines::Deadline;
pub use engine::{CommandError, Engine, Inventory};
pub use event::{Event, EventKind};
pub use failure::{Failure, FailureKind};
pub use sa::path::{IKE_PORT, NAT_T_PORT, SMALLEST_FRAGMENT};
