//! The settings of the plane in the kernel.

#![forbid(unsafe_code)]

use crate::placement::Placement;
use crypto::CryptoProviders;
use esp::trace::Binding;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The settings of the plane in the kernel.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The marks and interfaces that packets of tunnels must have beside matching the selectors, by
    /// [`Rule::tunnel`](esp::plane::Rule::tunnel).
    pub bindings: BTreeMap<String, Binding>,
    /// The settings of network cards. A clone of it shows the SAs in the cards.
    pub placement: Placement,
    /// Takes note of what kernel and network cards have done.
    pub crypto: Arc<CryptoProviders>,
}
