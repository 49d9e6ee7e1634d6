//! Remarks about SAs that are keyed by hand.

use crate::config::Config;
use crate::remark::Told;
use vpn::manual::ManualSa;

/// The remarks about the SAs of a configuration.
pub(super) fn configured(config: &Config) -> Vec<Told> {
    let manual = config.manual();
    manual.map(|sas| judge(sas.iter(), "are keyed by hand in vpnd.toml")).unwrap_or_default()
}

/// The remarks about SAs that are there for the reason `why`.
pub(crate) fn judge<'a>(
    manual: impl ExactSizeIterator<Item = &'a ManualSa> + Clone,
    why: &str,
) -> Vec<Told> {
    let mut remarks = Vec::new();
    let count = manual.len();
    if count > 0 {
        let text = format!(
            "{count} SAs {why}: their keys never change, and whoever learns one reads everything that was ever sent with it"
        );
        let cure = "where both sides can, let IKE make the keys (RFC 8221 §3)";
        remarks.push(Told::of_daemon(text).with_cure(cure));
    }
    let shared: Vec<String> = manual
        .filter(|sa| sa.shared_key)
        .map(|sa| format!("{:?} ({})", sa.name, sa.direction.name()))
        .collect();
    if !shared.is_empty() {
        remarks.push(Told::of_daemon(format!(
            "INSECURE: manual SAs {} may share a key, and with it nonces: what they encrypt can be read, and packets forged",
            shared.join(", ")
        )));
    }
    remarks
}
