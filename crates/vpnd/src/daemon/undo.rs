//! A change of the filter that is undone after a while unless it is confirmed: an operator who has shut himself out
//! waits for it.

use super::Daemon;
use crate::filter::KeptDefaults;
use control::protocol::{Refusal, RefusalCode};
use esp::filter::Filter;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tracing::{error, info, warn};

/// The change that is to be undone, if there is one.
#[derive(Default)]
pub(super) struct Pending {
    change: Mutex<Option<Change>>,
    changed: Notify,
}

struct Change {
    at: Instant,
    /// The filter that comes back.
    before: Arc<Filter>,
    /// The defaults that outlive a restart once the change is confirmed.
    kept: KeptDefaults,
}

impl Pending {
    /// Has `before` come back after a while. If a change is pending already, the filter before that one does.
    /// `kept` is what outlives a restart once the change is confirmed.
    pub fn set(&self, before: Arc<Filter>, after: Duration, kept: KeptDefaults) {
        let mut change = self.lock();
        let (before, kept) = match change.take() {
            Some(earlier) => (earlier.before, kept.or(earlier.kept)),
            None => (before, kept),
        };
        *change = Some(Change { at: Instant::now() + after, before, kept });
        drop(change);
        self.changed.notify_one();
    }

    /// Keeps what is in force. Returns the defaults that are to outlive a restart; `None`: nothing was to be undone.
    pub fn confirm(&self) -> Option<KeptDefaults> {
        let kept = self.lock().take().map(|change| change.kept);
        self.changed.notify_one();
        kept
    }

    /// The time until it is undone.
    pub fn left(&self) -> Option<Duration> {
        let at = self.lock().as_ref()?.at;
        Some(at.saturating_duration_since(Instant::now()))
    }

    /// Waits until a change is to be undone, however often that time changes.
    async fn due(&self) -> Arc<Filter> {
        loop {
            let at = self.lock().as_ref().map(|change| change.at);
            let Some(at) = at else {
                self.changed.notified().await;
                continue;
            };
            tokio::select! {
                () = sleep_until(at) => {}
                () = self.changed.notified() => continue,
            }
            // It may have been confirmed at the last moment.
            let mut change = self.lock();
            if let Some(due) = change.take_if(|change| change.at <= Instant::now()) {
                return due.before;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Change>> {
        self.change.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Daemon {
    /// Undoes each change of the filter that nobody confirms in time, for ever.
    pub(super) async fn undo_unconfirmed(&self) {
        loop {
            let before = self.pending_filter.due().await;
            let _guard = self.reloading.lock().await;
            let (ipv4, ipv6, rules) = (before.ipv4.name(), before.ipv6.name(), before.rules.len());
            match self.change_filter(before).await {
                Ok(()) => warn!(
                    "the change of the filter was not confirmed and is undone: IPv4 {ipv4}, IPv6 {ipv6}, rules: {rules}"
                ),
                Err(refusal) => error!("the filter cannot be undone: {refusal}"),
            }
        }
    }

    /// Keeps the filter that is in force.
    pub(super) fn confirm_filter(&self) -> Result<(), Refusal> {
        let Some(kept) = self.pending_filter.confirm() else { return Ok(()) };
        info!("the change of the filter is confirmed");
        match kept == KeptDefaults::default() {
            true => Ok(()),
            false => self.persist_defaults(kept),
        }
    }

    /// Has defaults of the filter outlive a restart.
    pub(super) fn persist_defaults(&self, kept: KeptDefaults) -> Result<(), Refusal> {
        self.filter_settings.persist(kept).map_err(|error| {
            let file = self.filter_settings.file().display();
            let message = format!(
                "{file} cannot be written, so that this is forgotten when vpnd ends: {error}; mend that, or name another \
                 file in vpnd.toml: [filter] file"
            );
            Refusal::new(RefusalCode::NotPossible, message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::protocol::DefaultAction as Kept;
    use esp::filter::DefaultAction;

    const DENY_IPV4: KeptDefaults = KeptDefaults { ipv4: Some(Kept::Deny), ipv6: None };
    const DENY_IPV6: KeptDefaults = KeptDefaults { ipv4: None, ipv6: Some(Kept::Deny) };

    fn filter(ipv4: DefaultAction) -> Arc<Filter> {
        Arc::new(Filter { ipv4, ..Filter::default() })
    }

    #[tokio::test(start_paused = true)]
    async fn an_unconfirmed_change_is_due_at_its_deadline() {
        let pending = Pending::default();
        let start = Instant::now();
        pending.set(filter(DefaultAction::Permit), Duration::from_secs(60), DENY_IPV4);
        pending.set(filter(DefaultAction::Deny), Duration::from_secs(90), DENY_IPV6);
        assert_eq!(pending.left(), Some(Duration::from_secs(90)));
        assert_eq!(pending.due().await.ipv4, DefaultAction::Permit, "the one before both changes");
        assert_eq!(start.elapsed().as_secs(), 90);
        assert_eq!(pending.left(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_confirmed_change_is_never_due() {
        let pending = Pending::default();
        pending.set(filter(DefaultAction::Permit), Duration::from_secs(60), DENY_IPV4);
        pending.set(filter(DefaultAction::Permit), Duration::from_secs(60), DENY_IPV6);
        assert_eq!(pending.confirm(), Some(DENY_IPV6.or(DENY_IPV4)), "both are kept");
        assert_eq!(pending.confirm(), None);
        let day = Duration::from_secs(86_400);
        assert!(tokio::time::timeout(day, pending.due()).await.is_err());
    }
}
