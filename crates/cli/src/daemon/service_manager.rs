//! What the daemon tells the service manager that has started it, if there is one: sd_notify(3).

use super::gateway::Gateway;
use sd_notify::NotifyState;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};
use tracing::warn;

/// Tells the service manager.
pub(super) fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        warn!(%error, "cannot notify the service manager");
    }
}

/// Where the service manager watches the service (`WatchdogSec=`), tells it three times within its limit that the engine
/// answers. A daemon whose engine no longer answers is then ended and started anew.
pub(super) async fn be_watched<G: Gateway>(gateway: G) {
    let Some(limit) = sd_notify::watchdog_enabled() else { return };
    let mut beats = interval((limit / 3).max(Duration::from_millis(1)));
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beats.tick().await;
        if gateway.families().await.is_err() {
            return;
        }
        tell(&[NotifyState::Watchdog]);
    }
}
