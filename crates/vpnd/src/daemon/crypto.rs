//! The daemon's answers about the providers of cryptography.

use super::Daemon;
use super::refusal::refusal;
use crate::crypto::service;
use control::protocol::{CryptoState, CryptoStats, Refusal};
use esp::plane::CryptoAccounting;
use terminal::report;
use tracing::info;

impl Daemon {
    pub(super) fn crypto(&self) -> CryptoState {
        service::state(&self.crypto, 0)
    }

    pub(super) fn set_crypto(
        &self,
        tunable: &str,
        value: Option<u64>,
        persist: bool,
    ) -> Result<CryptoState, Refusal> {
        let state = service::set(&self.crypto, tunable, value, persist)?;
        for line in report::tunables(&state.tunables).lines() {
            info!("crypto: {line}");
        }
        Ok(state)
    }

    pub(super) async fn crypto_stats(&self) -> Result<CryptoStats, Refusal> {
        self.gateway
            .with_plane(|plane| plane.crypto_accounting().count_work())
            .await
            .map_err(refusal)?;
        Ok(service::stats(&self.crypto))
    }
}
