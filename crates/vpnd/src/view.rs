//! The conversion of values of the engine and the planes into those of the control protocol.
//!
//! `control` knows only its own types, so that a client links nothing of the gateway. Each function here makes one of
//! them.

mod definition;
mod event;
mod filter;
mod finding;
mod manual;
mod offload;
mod remark;
mod tunnel;
mod workers;

pub(crate) use definition::describe;
pub use event::{event_name, happening, missed};
pub use filter::{default_action, filter};
pub use finding::findings;
pub use manual::manual_sa;
pub use offload::{offload, placed};
pub(crate) use remark::remark;
pub use tunnel::{activation, change, failure, tunnel};
pub use workers::{workers, workers_change};

/// Stable name of a mode.
pub fn mode_name(mode: policy::Mode) -> &'static str {
    match mode {
        policy::Mode::Transport => "transport",
        policy::Mode::Tunnel => "tunnel",
    }
}

/// Stable name of how packets travel.
pub fn encapsulation_name(encapsulation: esp::plane::Encapsulation) -> &'static str {
    match encapsulation {
        esp::plane::Encapsulation::Native => "native",
        esp::plane::Encapsulation::Udp => "udp",
        esp::plane::Encapsulation::Ah => "ah",
    }
}
