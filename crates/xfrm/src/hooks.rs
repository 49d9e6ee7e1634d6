//! The plane's calls to its owner.

#![forbid(unsafe_code)]

use esp::plane::{Notice, SaId};
use std::sync::Arc;

/// Whom the plane tells what; called on its thread, so neither may block.
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
