//! `[crypto]`.

use ::crypto::{Algorithm, Choice, Provider};
use serde::Deserialize;
use settings::Named;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// `[crypto]`: the providers of the ciphers of ESP and AH, and the tunables.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Crypto {
    /// The provider of every function that is not named below.
    pub provider: Named<Provider>,
    /// Algorithms that come from another provider.
    pub algorithms: BTreeMap<Named<Algorithm>, Named<Provider>>,
    /// The CPU's instructions for cryptography are used.
    pub in_core_enabled: bool,
    /// Requests of `min_sz` octets and above go to an engine of threads.
    pub nx_enabled: bool,
    /// Octets of the smallest request that goes to the engine.
    pub min_sz: u64,
    /// The file of tunables set with `--persist`, which take precedence over those above.
    pub tunables: PathBuf,
}

impl Crypto {
    /// The chosen provider for each function.
    pub fn choice(&self) -> Choice {
        let others = self.algorithms.iter();
        others.fold(Choice::of(self.provider.0), |choice, (algorithm, provider)| {
            choice.with(algorithm.0, provider.0)
        })
    }
}

impl Default for Crypto {
    fn default() -> Self {
        Self {
            provider: Named::default(),
            algorithms: BTreeMap::new(),
            in_core_enabled: true,
            nx_enabled: false,
            min_sz: 1024,
            tunables: PathBuf::from("/var/lib/vpnd/crypto.toml"),
        }
    }
}
