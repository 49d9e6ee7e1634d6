//! `[crypto]`.

use ::crypto::{Algorithm, Choice, Provider};
use settings::Named;
use std::collections::BTreeMap;
use std::path::PathBuf;

settings::section! {
    /// `[crypto]`: the providers of the ciphers of ESP and AH, and the tunables.
    pub struct Crypto = "crypto" {
        /// The provider of the ciphers of ESP, AH and IKE: "aws-lc", "ring" (without AES-192, and without suites that
        /// need a MAC) or "portable" (software only). AWS-LC provides the algorithms that another provider lacks.
        /// docs/operate/crypto.md has more.
        pub provider: Named<Provider> = Named::default();
        /// Other providers for single algorithms, as in { aes-gcm-256 = "ring", chacha20-poly1305 = "portable" }.
        pub algorithms: BTreeMap<Named<Algorithm>, Named<Provider>> = BTreeMap::new();
        /// Whether vpnd uses the CPU's instructions for cryptography. "vpnctl crypto set" changes this setting and the next one while
        /// vpnd runs.
        pub in_core_enabled: bool = true;
        /// Whether packets and super-packets of min_sz octets and above go to an engine of threads, while the thread that reads them
        /// goes on (docs/operate/crypto.md). "vpnctl crypto set" changes both.
        pub nx_enabled: bool = false;
        pub min_sz: u64 = 1024;
        /// File of "vpnctl crypto set --persist". Its values override the three above.
        pub tunables: PathBuf = PathBuf::from("/var/lib/vpnd/crypto.toml");
    }
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
