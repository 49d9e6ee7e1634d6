//! Revocation lists that are not in a file: fetched where certificates say, and kept.
//!
//! Only certificates whose chain has been found valid make the gateway fetch anything, and only lists that their issuer
//! has signed are kept: who answers in the place of a server can make a fetch fail, but not for longer than a minute.

mod fetch;
mod store;

use crate::certificates::pem;
use crate::driver::Fetcher;
use aws_lc_rs::digest::{SHA256, digest};
use fetch::{Limits, is_elsewhere, is_http};
use ike::proof::Wanted;
use ike::proof::crl::Crl;
use policy::DistinguishedName;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use store::Store;

/// A list is asked for again after this long, though it may be valid for longer: a revocation is to be known soon.
const REFRESH: Duration = Duration::from_secs(24 * 3600);
/// After a failure, a server is left alone for this long.
const PAUSE: Duration = Duration::from_secs(60);
/// Addresses of one issuer's list that are tried.
const ADDRESSES: usize = 4;
/// Lists and failures that are remembered.
const ENTRIES: usize = 1000;
/// Octets of all lists that are remembered.
const OCTETS: usize = 128 << 20;

/// Settings for the download of revocation lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Lists are fetched.
    pub fetch: bool,
    /// Time for one attempt.
    pub timeout: Duration,
    /// Octets of one list at most.
    pub max_size: usize,
    /// Directory where they are kept over restarts.
    pub cache: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { fetch: true, timeout: Duration::from_secs(5), max_size: 16 << 20, cache: None }
    }
}

/// Fetched lists, by the address each came from.
#[derive(Debug)]
pub struct Lists {
    settings: Settings,
    limits: Limits,
    store: Option<Store>,
    entries: Mutex<BTreeMap<String, Entry>>,
}

impl Default for Lists {
    /// Fetches with the default settings.
    fn default() -> Self {
        Self::new(Settings::default())
    }
}

#[derive(Debug, Default)]
struct Entry {
    /// Held by whoever fetches; others wait and find what it found.
    gate: Arc<tokio::sync::Mutex<()>>,
    list: Option<List>,
    /// The reason of the last failure.
    failure: Option<String>,
    /// When it is asked for again, since 1970.
    ask_again: Duration,
}

/// A list and the key that has signed it.
#[derive(Clone, Debug)]
struct List {
    crl: Arc<Crl>,
    key: Vec<u8>,
}

impl Entry {
    /// The stored answer for a wanted list, unless it is time to ask again.
    fn known(&self, wanted: &Wanted, now: Duration) -> Option<Result<Arc<Crl>, String>> {
        if now >= self.ask_again {
            return None;
        }
        self.usable(wanted, now).map(Ok).or_else(|| self.failure.clone().map(Err))
    }

    fn usable(&self, wanted: &Wanted, now: Duration) -> Option<Arc<Crl>> {
        let fits = |list: &&List| {
            list.crl.is_current(now)
                && *list.crl.issuer() == wanted.issuer
                && wanted.issuer_keys.contains(&list.key)
        };
        self.list.as_ref().filter(fits).map(|list| Arc::clone(&list.crl))
    }
}

impl Lists {
    /// None yet; those in the cache directory are read when they are needed.
    pub fn new(settings: Settings) -> Self {
        let limits =
            Limits { time: settings.timeout, size: settings.max_size, address: is_elsewhere };
        let store = settings.cache.clone().map(Store::new);
        Self { settings, limits, store, entries: Mutex::default() }
    }

    /// The function that the engine's driver calls for lists.
    pub(crate) fn fetcher(self: &Arc<Self>) -> Fetcher {
        let lists = Arc::clone(self);
        Arc::new(move |wanted| {
            let lists = Arc::clone(&lists);
            Box::pin(async move { lists.find(wanted).await })
        })
    }

    /// Finds a current list for each issuer, from memory, the cache directory or its address.
    ///
    /// # Errors
    /// For each issuer the reason why it has no list, for the operator.
    pub async fn find(self: &Arc<Self>, wanted: Vec<Wanted>) -> Vec<Result<Arc<Crl>, String>> {
        let finding: Vec<_> = wanted
            .into_iter()
            .map(|wanted| {
                let lists = Arc::clone(self);
                tokio::spawn(async move { lists.find_one(&wanted).await })
            })
            .collect();
        let mut found = Vec::new();
        for finding in finding {
            found.push(finding.await.unwrap_or_else(|error| Err(error.to_string())));
        }
        found
    }

    /// Makes failures be forgotten, so that the next attempt asks again.
    pub fn retry(&self) {
        self.with_entries(|entries| {
            for entry in entries.values_mut().filter(|entry| entry.failure.is_some()) {
                entry.ask_again = Duration::ZERO;
            }
        });
    }

    /// The lists that were fetched, each with its address.
    pub fn listing(&self) -> Vec<(String, Arc<Crl>)> {
        self.with_entries(|entries| {
            let lists = entries
                .iter()
                .filter_map(|(url, e)| Some((url.clone(), Arc::clone(&e.list.as_ref()?.crl))));
            lists.collect()
        })
    }

    async fn find_one(&self, wanted: &Wanted) -> Result<Arc<Crl>, String> {
        let issuer = &wanted.issuer;
        if wanted.urls.is_empty() {
            return Err(format!(
                "the certificates of {issuer} do not say where its revocation list is; put the list into a file \
                 ([certificates] crls)"
            ));
        }
        if !self.settings.fetch {
            return Err(format!(
                "fetching is switched off ([certificates] fetch_crls); put the list of {issuer} into a file \
                 ([certificates] crls)"
            ));
        }
        let mut failures = Vec::new();
        for url in wanted.urls.iter().take(ADDRESSES) {
            if !is_http(url) {
                failures.push(format!("{url}: only http is fetched"));
                continue;
            }
            match self.find_at(url, wanted).await {
                Ok(list) => return Ok(list),
                Err(why) => failures.push(format!("{url}: {why}")),
            }
        }
        Err(failures.join("; "))
    }

    async fn find_at(&self, url: &str, wanted: &Wanted) -> Result<Arc<Crl>, String> {
        let gate = self.with_entries(|entries| {
            make_room(entries);
            Arc::clone(&entries.entry(url.to_owned()).or_default().gate)
        });
        let _guard = gate.lock().await;
        let known = self.with_entries(|entries| entries.get(url)?.known(wanted, unix_time()));
        if let Some(known) = known {
            return known;
        }
        if let Some(list) = self.stored(url, wanted).await {
            return Ok(self.keep(url, list));
        }
        let fetched = match fetch::get(url, self.limits).await {
            Ok(octets) => accept(octets, wanted).await,
            Err(error) => Err(error.to_string()),
        };
        match fetched {
            Ok(list) => {
                tracing::info!(url, issuer = %wanted.issuer, "revocation list fetched");
                if let Some(store) = &self.store {
                    store.put(url, list.crl.der()).await;
                }
                Ok(self.keep(url, list))
            }
            Err(why) => {
                tracing::warn!(url, issuer = %wanted.issuer, "revocation list not fetched: {why}");
                let now = unix_time();
                // One that was fetched before serves as long as it is valid.
                self.with_entries(|entries| {
                    let entry = entries.entry(url.to_owned()).or_default();
                    entry.ask_again = now + PAUSE;
                    entry.failure = Some(why.clone());
                    entry.usable(wanted, now).ok_or(why)
                })
            }
        }
    }

    /// A list in the cache directory, if it is current.
    async fn stored(&self, url: &str, wanted: &Wanted) -> Option<List> {
        if self.with_entries(|entries| entries.get(url).is_some_and(|e| e.list.is_some())) {
            return None;
        }
        let octets = self.store.as_ref()?.get(url).await?;
        accept(octets, wanted).await.ok()
    }

    fn keep(&self, url: &str, list: List) -> Arc<Crl> {
        let refresh = unix_time() + REFRESH;
        let ask_again = list.crl.next_update().map_or(refresh, |next| next.min(refresh));
        let crl = Arc::clone(&list.crl);
        self.with_entries(|entries| {
            let entry = entries.entry(url.to_owned()).or_default();
            (entry.list, entry.failure, entry.ask_again) = (Some(list), None, ask_again);
        });
        crl
    }

    fn with_entries<T>(&self, f: impl FnOnce(&mut BTreeMap<String, Entry>) -> T) -> T {
        // Every change is one assignment: what a panic leaves is whole.
        f(&mut self.entries.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Takes what came for a list, if it is one and current, and its issuer has signed it. A large one takes its time,
/// which others on this thread do not wait for.
async fn accept(octets: Vec<u8>, wanted: &Wanted) -> Result<List, String> {
    let (issuer, keys) = (wanted.issuer.clone(), wanted.issuer_keys.clone());
    let reading = tokio::task::spawn_blocking(move || read(&octets, &issuer, keys));
    reading.await.unwrap_or_else(|error| Err(error.to_string()))
}

fn read(octets: &[u8], issuer: &DistinguishedName, keys: Vec<Vec<u8>>) -> Result<List, String> {
    let der = pem::crl(octets);
    let crl = Crl::read(der.as_deref().unwrap_or(octets)).map_err(|error| format!("it {error}"))?;
    if crl.issuer() != issuer {
        return Err(format!("it is the list of {}", crl.issuer()));
    }
    let key = keys.into_iter().find(|key| crl.is_signed_by(key));
    let key = key.ok_or("its issuer has not signed it")?;
    if !crl.is_current(unix_time()) {
        return Err("it is outdated".into());
    }
    Ok(List { crl: Arc::new(crl), key })
}

/// Forgets what would be asked for again first, where there is too much.
fn make_room(entries: &mut BTreeMap<String, Entry>) {
    let octets = |entries: &BTreeMap<String, Entry>| -> usize {
        entries.values().filter_map(|entry| Some(entry.list.as_ref()?.crl.der().len())).sum()
    };
    while entries.len() >= ENTRIES || octets(entries) > OCTETS {
        let Some(url) = entries.iter().min_by_key(|(_, e)| e.ask_again).map(|(url, _)| url.clone())
        else {
            return;
        };
        entries.remove(&url);
    }
}

fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A file name that stands for an address.
fn file_name(url: &str) -> String {
    let hash = digest(&SHA256, url.as_bytes());
    let mut name: String = hash.as_ref().iter().map(|octet| format!("{octet:02x}")).collect();
    name.push_str(".crl");
    name
}

#[cfg(test)]
mod tests;
