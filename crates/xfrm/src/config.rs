//! The settings of the plane in the kernel, and its calls to its owner.

#![forbid(unsafe_code)]

use crate::placement::Placement;
use crypto::CryptoProviders;
use esp::plane::{Notice, SaId};
use policy::Bindings;
use std::sync::Arc;

/// The settings of the plane in the kernel.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The marks and interfaces that packets of tunnels must have beside matching the selectors, by
    /// [`Rule::tunnel`](esp::plane::Rule::tunnel).
    pub bindings: Bindings,
    /// The settings of network cards. A clone of it shows the SAs in the cards.
    pub placement: Placement,
    /// Takes note of what kernel and network cards have done.
    pub crypto: Arc<CryptoProviders>,
}

/// The functions by which the plane tells its owner; it calls them on its thread, so neither may block.
#[derive(Clone)]
pub struct Hooks {
    /// Takes notices for key management.
    pub notice: Arc<dyn Fn(Notice) + Send + Sync>,
    /// Takes what was removed by others.
    pub disturbance: Arc<dyn Fn(Disturbance) + Send + Sync>,
}

/// Something of this plane was removed from the kernel, and not by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// An SA.
    State(SaId),
    /// All SAs (`ip xfrm state flush`).
    States,
    /// A policy, or all of them.
    Policies,
    /// There was more to report than was read: anything may have happened.
    Unknown,
}
