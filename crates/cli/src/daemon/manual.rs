//! The daemon's answers about SAs that are keyed by hand.

use super::refusal::refusal;
use super::{Daemon, Gateway};
use crate::view;
use control::protocol::{ManualSaInfo, Refusal};
use vpn::manual::{ManualSa, ManualSas};

impl<G: Gateway> Daemon<G> {
    pub(super) async fn manual_sas(&self) -> Result<Vec<ManualSaInfo>, Refusal> {
        let status = self.gateway().manual_sas().await.map_err(refusal)?;
        Ok(status.iter().map(view::manual_sa).collect())
    }
}

/// The warnings about them at the start.
pub(super) fn warnings(manual: &ManualSas) -> Vec<String> {
    let called = |sa: &ManualSa| format!("{:?} ({})", sa.name, sa.way.name());
    let mut warnings = Vec::new();
    if !manual.is_empty() {
        warnings.push(format!(
            "{} SAs are keyed by hand in vpnd.toml: their keys never change, and whoever learns one reads everything that was \
             ever sent with it; where both sides can, let IKE make the keys (RFC 8221 §3)",
            manual.len()
        ));
    }
    let shared: Vec<_> = manual.iter().filter(|sa| sa.shared_key).map(called).collect();
    if !shared.is_empty() {
        warnings.push(format!(
            "INSECURE: manual SAs {} may share a key, and with it nonces: what they encrypt can be read, and packets forged",
            shared.join(", ")
        ));
    }
    warnings
}
