//! How the plane appears in the kernel, as its owner wants it.

#![forbid(unsafe_code)]

use crate::placement::Placement;
use crypto::CryptoProviders;
use esp::trace::Binding;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How the plane appears in the kernel.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// What else besides their selectors decides which packets are the tunnels', by [`Rule::tunnel`](esp::plane::Rule::tunnel).
    pub bindings: BTreeMap<String, Binding>,
    /// What network cards are to do. Whoever keeps a clone can see what they do.
    pub placement: Placement,
    /// Takes note of what kernel and network cards have done.
    pub crypto: Arc<CryptoProviders>,
}
