//! PLACEHOLDER
#![forbid(unsafe_code)]

pub mod certificates;
pub mod manual;
pub mod revocation;
pub mod store;

mod builder;
mod closed;
mod driver;
mod events;
mod gateway;

pub use builder::{
    Builder, CustomPlane, HostPlane, OffloadSettings, OnDrop, PlaneInlet, PlaneSettings, StartError,
};
pub use closed::Closed;
pub use driver::{Activation, GatewayError, SocketError};
pub use events::Events;
pub use gateway::{CryptoView, FilterView, Gateway, ManualView, OffloadView, Tunnel, Tunnels};

pub use esp;
pub use ike;
pub use policy;
