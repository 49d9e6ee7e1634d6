//! The daemon's answers about the threads that carry packets.

use super::Daemon;
use crate::view;
use control::protocol::workers::Workers;
use control::protocol::{Refusal, RefusalCode, WorkersChange};
use tracing::info;

impl Daemon {
    pub(super) fn workers(&self) -> Workers {
        view::workers(&self.gateway.workers().report())
    }

    pub(super) async fn set_workers(&self, change: &WorkersChange) -> Result<Workers, Refusal> {
        let change = view::workers_change(change)
            .map_err(|message| Refusal::new(RefusalCode::BadSetting, message))?;
        let workers = self.gateway.workers().clone();
        // It waits for threads to end.
        let changed = tokio::task::spawn_blocking(move || {
            let settings = workers.change(&change).map_err(|error| error.to_string())?;
            info!(
                schedule = %settings.schedule,
                workers = %settings.workers,
                wait = %settings.wait,
                affinity = %settings.affinity,
                "workers changed"
            );
            Ok(view::workers(&workers.report()))
        });
        let changed = changed.await.unwrap_or_else(|error| Err(error.to_string()));
        changed.map_err(|message| Refusal::new(RefusalCode::BadSetting, message))
    }
}
