//! The daemon's answers about SAs that are keyed by hand.

use super::Daemon;
use super::refusal::refusal;
use crate::preflight;
use crate::sa_file::tables;
use crate::view;
use control::protocol::{KeyedText, ManualSaInfo, Refusal, RefusalCode, SaList, SaName, SaRemoved};
use std::path::Path;
use vpn::manual::{ManualSa, Removed};

impl Daemon {
    pub(super) async fn manual_sas(&self) -> Result<Vec<ManualSaInfo>, Refusal> {
        let status = self.gateway().manual().status().await.map_err(refusal)?;
        Ok(status.iter().map(view::manual_sa).collect())
    }

    pub(super) async fn sa_list(&self) -> Result<SaList, Refusal> {
        Ok(SaList { sas: self.manual_sas().await?, blocked: self.gateway().manual().blocked() })
    }

    /// Adds the SAs of `[[sa]]` tables, with the defaults of the configuration.
    pub(super) async fn add_sas(&self, text: &KeyedText) -> Result<Vec<SaName>, Refusal> {
        let config = &self.started_with.config;
        let tables = tables(Path::new("the SAs to add"), &text.0)
            .map_err(|error| Refusal::new(RefusalCode::BadConfiguration, error.to_string()))?;
        let planes = config.planes();
        let offload = tables
            .iter()
            .filter_map(|sa| sa.offload(planes.offload.choice_of(sa.name())))
            .collect();
        let sas: Vec<ManualSa> =
            tables.iter().map(|sa| sa.manual(config.esp.replay_window)).collect();
        let warnings = preflight::manual::judge(sas.iter(), "were added by hand");
        let names: Vec<SaName> = sas.iter().map(name_of).collect();
        self.gateway().manual().add(sas, offload).await.map_err(refusal)?;
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        for sa in &names {
            let SaName { name, direction, spi } = sa;
            tracing::info!(sa = name, direction, spi, "an SA keyed by hand was added");
        }
        Ok(names)
    }

    pub(super) async fn remove_sas(
        &self,
        name: &str,
        keep_blocked: bool,
    ) -> Result<SaRemoved, Refusal> {
        let removed = self.gateway().manual().remove(name, keep_blocked).await.map_err(refusal)?;
        let Removed { sas, blocked, configured, .. } = removed;
        tracing::info!(sa = name, sas = sas.len(), blocked, "SAs keyed by hand were removed");
        Ok(SaRemoved { name: name.to_owned(), sas: sas.len(), blocked, configured })
    }
}

fn name_of(sa: &ManualSa) -> SaName {
    let (name, direction) = (sa.name.clone(), sa.direction.name().to_owned());
    SaName { name, direction, spi: sa.spi.to_string() }
}
