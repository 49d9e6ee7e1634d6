//! Reloads: reading the policy, the certificates and the configuration again, and putting them in force.

use super::Daemon;
use super::refusal::{refusal, usable};
use super::remarks::lacking;
use super::service_manager::tell;
use crate::certificates::Certificates;
use crate::config::{Config, FilterSection};
use crate::{preflight, view};
use control::protocol::{Refusal, RefusalCode, Reloaded};
use esp::filter::Filter;
use host::policy_file::PolicyFile;
use sd_notify::NotifyState;
use std::sync::Arc;
use std::time::Duration;
use tracing::{error, info, warn};

impl Daemon {
    /// Reads the policy file and the certificates again and, unless `dry_run`, puts all of them in force, or keeps
    /// the old ones and says why in the log and to the caller. After `undo_after`, the filter of before comes back
    /// unless it is confirmed.
    ///
    /// # Errors
    /// Where the file cannot be read or has errors.
    pub async fn reload(
        &self,
        dry_run: bool,
        undo_after: Option<Duration>,
    ) -> Result<Reloaded, Refusal> {
        // One at a time, so that the file read last is the one in force.
        let _guard = self.reloading.lock().await;
        if dry_run {
            return self.replace_policy(true, None).await;
        }
        tell_reloading();
        let outcome = self.replace_policy(false, undo_after).await;
        match &outcome {
            Ok(reloaded) => {
                for warning in &reloaded.warnings {
                    warn!("{warning}");
                }
                info!(tunnels = reloaded.tunnels, policy = %self.source, "policy reloaded");
            }
            Err(refusal) => error!("the old policy stays in force: {refusal}"),
        }
        tell(&[NotifyState::Ready]);
        outcome.map_err(|mut refusal| {
            refusal.message.push_str("\nthe old policy stays in force");
            refusal
        })
    }

    async fn replace_policy(
        &self,
        dry_run: bool,
        undo_after: Option<Duration>,
    ) -> Result<Reloaded, Refusal> {
        let (source, keeper) = (self.source.clone(), Arc::clone(&self.certificates));
        let config = self.started_with.file.clone();
        let read = tokio::task::spawn_blocking(move || {
            (source.read(), keeper.read(), config.as_deref().map(Config::read).transpose())
        });
        let (file, certificates, config) =
            read.await.map_err(|error| Refusal::new(RefusalCode::BadPolicy, error.to_string()))?;
        let file = file.map_err(|error| Refusal::new(RefusalCode::BadPolicy, error.to_string()))?;
        let config = config
            .map_err(|error| Refusal::new(RefusalCode::BadConfiguration, error.to_string()))?;
        preflight::refuse(&file, &self.started_with.config)
            .map_err(|error| Refusal::new(RefusalCode::BadPolicy, error.to_string()))?;
        usable(&certificates)?;
        let wanted = config.as_ref().map(|config| {
            (Arc::new(self.filter_settings.filter(&config.filter)), config.filter.clone())
        });
        // First, since it alone may be refused.
        let (filter, remark) = self.reconfigure(config, dry_run, undo_after).await?;
        let mut reloaded = self.put_in_force(file, certificates, wanted, dry_run).await?;
        reloaded.filter = filter;
        reloaded.warnings.extend(remark);
        Ok(reloaded)
    }

    /// Gives the gateway another policy with what it is to trust, unless `dry_run`. `filter`: the one that will be in
    /// force with it, and its section of the configuration, if they change.
    pub(super) async fn put_in_force(
        &self,
        file: PolicyFile,
        certificates: Certificates,
        filter: Option<(Arc<Filter>, FilterSection)>,
        dry_run: bool,
    ) -> Result<Reloaded, Refusal> {
        let (filter, section) = match filter {
            Some(wanted) => wanted,
            None => {
                let status = self.gateway.filter().status().await.map_err(refusal)?;
                let filter = status.map(|status| status.filter).unwrap_or_default();
                (filter, self.filter_section())
            }
        };
        let families = self.gateway.tunnels().families().await.map_err(refusal)?;
        let with = self.surroundings((&*filter, &section), families, &certificates);
        let mut warnings = file.warnings;
        warnings.extend(preflight::texts(preflight::preflight(&file.policy, &with)));
        let policy = Arc::new(file.policy);
        let changes = self.current().changes(&policy).into_iter().map(view::change).collect();
        let (tunnels, filter) = (policy.tunnels.len(), Vec::new());
        let mut reloaded = Reloaded { tunnels, warnings, dry_run, changes, filter };
        if dry_run {
            return Ok(reloaded);
        }
        // Before the policy, whose new tunnels may want them at once.
        self.gateway.replace_trust(Arc::clone(&certificates.trust)).await.map_err(refusal)?;
        self.gateway.replace_policy(Arc::clone(&policy)).await.map_err(refusal)?;
        self.keep_in_force(Arc::clone(&policy), file.definitions);
        let lacking = lacking(&self.gateway, &policy).await;
        reloaded.warnings.extend(preflight::texts(preflight::of_gateway(&lacking)));
        if policy.tunnels.is_empty() {
            self.numbers.restart();
        }
        self.certificates.keep(policy, certificates.trust);
        // The operator may have mended the cause of a revocation list's failed download.
        self.certificates.lists().retry();
        Ok(reloaded)
    }
}

/// Tells the service manager that a reload began; `Type=notify-reload` wants the time with it.
fn tell_reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => warn!(%error, "cannot read the clock"),
    }
}
