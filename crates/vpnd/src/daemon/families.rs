//! The daemon's answers about IPsec of each address family.

use super::Daemon;
use super::refusal::refusal;
use crate::families::named;
use control::protocol::{FamiliesInfo, FamilyInfo, Refusal, RefusalCode};
use esp::families::Family;
use ike::failure::FailureKind;
use ike::failure::facts::Facts;
use ike::status::IkeStatus;
use tracing::info;

/// Packets that were dropped because a family is off.
const DROPPED: [&str; 2] = ["esp.outbound_family_off", "esp.inbound_family_off"];

impl Daemon {
    pub(super) async fn families(&self) -> Result<FamiliesInfo, Refusal> {
        let now = self.gateway.tunnels().families().await.map_err(refusal)?;
        let status = self.gateway.tunnels().status().await.map_err(refusal)?;
        let counters = self.gateway.counters().await.map_err(refusal)?;
        let dropped: u64 = DROPPED.iter().filter_map(|name| counters.get(*name)).sum();
        let families = Family::ALL.map(|family| FamilyInfo {
            family: family.name().to_owned(),
            on: now.has(family),
            default: self.families.default_of(family),
            persistent: self.families.persistent_of(family),
            tunnels_off: status.iter().flat_map(|tunnel| tunnels_off(tunnel, family)).collect(),
            // The datapath does not count by family.
            dropped: if now.has(family) { 0 } else { dropped },
        });
        let file = self.families.file().display().to_string();
        Ok(FamiliesInfo { families: families.into(), file })
    }

    /// Switches IPsec of a family on or off; `None`: as the configuration says. `persist`: also after a restart.
    pub(super) async fn set_family(
        &self,
        name: &str,
        on: Option<bool>,
        persist: bool,
    ) -> Result<FamiliesInfo, Refusal> {
        let family = named(name)?;
        // One at a time, so that no change of the other family is lost.
        let _guard = self.reloading.lock().await;
        let before = self.gateway.tunnels().families().await.map_err(refusal)?;
        let after = before.with(family, on.unwrap_or(self.families.default_of(family)));
        self.gateway.tunnels().set_families(after).await.map_err(refusal)?;
        if before != after {
            info!(ipv4 = after.ipv4, ipv6 = after.ipv6, "IPsec of the address families");
        }
        if persist {
            self.families.persist(family, on).map_err(|error| {
                let file = self.families.file().display();
                let message = format!(
                    "{file} cannot be written, so that this is forgotten when vpnd ends: {error}; mend that, or name \
                     another file in vpnd.toml: [families] file"
                );
                Refusal::new(RefusalCode::NotPossible, message)
            })?;
        }
        self.families().await
    }
}

/// The phase 2 tunnels that are down because the family is off.
fn tunnels_off(tunnel: &IkeStatus, family: Family) -> Vec<String> {
    let off = tunnel.children.iter().filter(|child| {
        child.last_failure.as_ref().is_some_and(|(failure, _)| {
            failure.kind == FailureKind::FamilyOff
                && matches!(&*failure.facts, Facts::FamilyOff(off) if off.family == family)
        })
    });
    off.map(|child| child.name.clone()).collect()
}
