//! Changing the policy store while tunnels are up.

use super::refusal::usable;
use super::source::lock;
use super::{Daemon, Source};
use crate::preflight;
use crate::store::{get, prepare, unusable};
use control::protocol::{Command, GetPolicy, PolicyText, PutPolicy, Refusal, RefusalCode, Stored};
use host::policy_file::{self, PolicyFile};
use policy::Database;
use policy::database::PutOptions;
use policy::xml::Text;
use std::sync::Arc;
use tracing::{info, warn};

impl Daemon {
    /// The stored objects, or those of the policy files if the daemon runs from such.
    pub(super) async fn get_policy(&self, wanted: GetPolicy) -> Result<PolicyText, Refusal> {
        let source = self.source.clone();
        blocking(move || match source {
            Source::Store(store) => get(lock(&store).database(), &wanted),
            Source::File { path, lenient, .. } => {
                let texts = policy_file::texts(&path)
                    .map_err(|error| Refusal::new(RefusalCode::BadPolicy, error.to_string()))?;
                let options = PutOptions { lenient, ..PutOptions::default() };
                let texts: Vec<Text<'_>> =
                    texts.files.iter().map(policy_file::PolicyText::text).collect();
                let put = Database::default().put_all(&texts, &options);
                let put =
                    put.map_err(|errors| Refusal::new(RefusalCode::BadPolicy, errors.to_string()))?;
                get(&put.database, &wanted)
            }
        })
        .await
    }

    /// Changes the store and puts what comes of it in force, or does neither.
    pub(super) async fn change_store(&self, command: Command) -> Result<Stored, Refusal> {
        let Source::Store(store) = &self.source else {
            let message = format!(
                "this vpnd runs the policy file {}, not the policy store: change the file and run \"vpnctl reload\"\n  \
                 or have vpnd run the store: start it without --policy (docs/operate/policy.md shows it for systemd)",
                self.source
            );
            return Err(Refusal::new(RefusalCode::NotPossible, message));
        };
        // One at a time with reloads, so that the policy stored last is in force.
        let _guard = self.reloading.lock().await;
        let dry_run = matches!(command, Command::PolicyPut(PutPolicy { dry_run: true, .. }));
        let (store, keeper) = (Arc::clone(store), Arc::clone(&self.certificates));
        let config = self.started_with.config.clone();
        let bindings = config.planes().bindings();
        let (prepared, directory, file, certificates) = blocking(move || {
            let mut store = lock(&store);
            let prepared = prepare(store.database(), &command, &bindings).ok_or_else(|| {
                Refusal::new(RefusalCode::NotPossible, "that changes no policy store")
            })??;
            let certificates = keeper.read();
            usable(&certificates)?;
            let (checked, loaded) = store.check(prepared.database.clone()).map_err(unusable)?;
            let file = PolicyFile::from(loaded);
            preflight::refuse(&file, &config)
                .map_err(|error| Refusal::new(RefusalCode::BadPolicy, error.to_string()))?;
            if !dry_run {
                store.commit(checked).map_err(unusable)?;
            }
            Ok((prepared, store.directory().to_owned(), file, certificates))
        })
        .await?;
        // The remarks about the file are in `prepared`.
        let file = PolicyFile { warnings: Vec::new(), ..file };
        let reloaded = self.put_in_force(file, certificates, None, dry_run).await?;
        if !dry_run {
            for warning in prepared.warnings.iter().chain(&reloaded.warnings) {
                warn!("{warning}");
            }
            let changed = prepared.objects.iter().filter(|o| o.effect != "unchanged").count();
            info!(objects = changed, tunnels = reloaded.tunnels, store = %directory.display(), "policy store changed");
        }
        let mut stored = prepared.describe(&directory, dry_run);
        stored.reloaded = Some(reloaded);
        Ok(stored)
    }
}

/// Does what waits for a disk.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let joined = tokio::task::spawn_blocking(work).await;
    joined.unwrap_or_else(|error| Err(Refusal::new(RefusalCode::StoreFailed, error.to_string())))
}
