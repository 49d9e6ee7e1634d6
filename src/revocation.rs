//! Revocation lists that are not in a file: fetched where certificates say, and kept.
//!
//! Only certificates whose chain has been found valid make the gateway fetch anything, and only lists that their issuer
//! has signed are kept, the newest of each: a server that somebody else runs in the issuer's place can make a fetch
//! fail, but not for longer than a minute, and cannot bring back a list from before a revocation.

mod fetch;
mod reach;
mod store;

use crate::certificates::pem;
use crate::driver::Fetcher;
use crypto::asymmetric::{Hash, digest};
use fetch::{Limits, is_http};
use ike::proof::Wanted;
use ike::proof::crl::Crl;
use policy::Policy;
use reach::{Reach, own_networks};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use store::Store;

/// The time from one fetch of a list to the next, though the list may be valid for longer: a revocation is to be known
/// soon.
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
    /// Names and addresses of hosts, as in URLs, that may be asked although they are in a network of this machine or of
    /// a tunnel.
    pub hosts: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            fetch: true,
            timeout: Duration::from_secs(5),
            max_size: 16 << 20,
            cache: None,
            hosts: Vec::new(),
        }
    }
}

/// Fetched lists, by the address that each came from and the key that has signed it.
#[derive(Debug)]
pub struct Lists {
    settings: Settings,
    limits: Limits,
    store: Option<Store>,
    entries: Mutex<BTreeMap<Source, Entry>>,
}

/// The origin of a list. Nobody but the owner of the key can replace the list of a source, not even the server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Source {
    url: String,
    /// SubjectPublicKeyInfo of the issuer, in DER.
    key: Vec<u8>,
}

impl Default for Lists {
    /// Fetches with the default settings.
    fn default() -> Self {
        Self::new(Settings::default())
    }
}

#[derive(Debug, Default)]
struct Entry {
    /// Held by the task that fetches the list; others wait and use its result.
    gate: Arc<tokio::sync::Mutex<()>>,
    list: Option<Arc<Crl>>,
    /// The reason of the last failure.
    failure: Option<String>,
    /// When it is asked for again, since 1970.
    ask_again: Duration,
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
        let list = self.list.as_ref()?;
        (list.is_current(now) && *list.issuer() == wanted.issuer).then(|| Arc::clone(list))
    }
}

impl Lists {
    /// None yet; those in the cache directory are read when they are needed.
    pub fn new(settings: Settings) -> Self {
        let limits = Limits { time: settings.timeout, size: settings.max_size };
        let store = settings.cache.clone().map(Store::new);
        Self { settings, limits, store, entries: Mutex::default() }
    }

    /// The function that the engine's driver calls for lists.
    pub(crate) fn fetcher(self: &Arc<Self>) -> Fetcher {
        let lists = Arc::clone(self);
        Arc::new(move |wanted, policy| {
            let lists = Arc::clone(&lists);
            Box::pin(async move { lists.find(wanted, &policy).await })
        })
    }

    /// Finds a current list for each issuer, from memory, the cache directory or, where it is to be fetched, its
    /// address. No server in a network that a tunnel of `policy` protects is asked, unless [`Settings::hosts`] names
    /// it.
    ///
    /// # Errors
    /// For each issuer the reason why it has no list, for the operator.
    pub async fn find(
        self: &Arc<Self>,
        wanted: Vec<Wanted>,
        policy: &Arc<Policy>,
    ) -> Vec<Result<Arc<Crl>, String>> {
        let finding: Vec<_> = wanted
            .into_iter()
            .map(|wanted| {
                let (lists, policy) = (Arc::clone(self), Arc::clone(policy));
                tokio::spawn(async move { lists.find_one(&wanted, &policy).await })
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
                .filter_map(|(source, e)| Some((source.url.clone(), Arc::clone(e.list.as_ref()?))));
            lists.collect()
        })
    }

    async fn find_one(&self, wanted: &Wanted, policy: &Policy) -> Result<Arc<Crl>, String> {
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
            let source = Source { url: url.clone(), key: wanted.issuer_key.clone() };
            let found = match wanted.fetch {
                true => self.find_at(&source, wanted, policy).await,
                false => self.kept(&source, wanted).await.ok_or("it was not fetched".into()),
            };
            match found {
                Ok(list) => return Ok(list),
                Err(why) => failures.push(format!("{url}: {why}")),
            }
        }
        Err(failures.join("; "))
    }

    /// A list that was fetched before, if it is current.
    async fn kept(&self, source: &Source, wanted: &Wanted) -> Option<Arc<Crl>> {
        self.read_stored(source, wanted).await;
        self.with_entries(|entries| entries.get(source)?.usable(wanted, unix_time()))
    }

    async fn find_at(
        &self,
        source: &Source,
        wanted: &Wanted,
        policy: &Policy,
    ) -> Result<Arc<Crl>, String> {
        let gate = self.with_entry(source, |entry| Arc::clone(&entry.gate));
        let _guard = gate.lock().await;
        if let Some(known) = self.known(source, wanted) {
            return known;
        }
        self.read_stored(source, wanted).await;
        if let Some(known) = self.known(source, wanted) {
            return known;
        }
        let url = source.url.as_str();
        match self.fetch(source, wanted, policy).await {
            Ok(list) => {
                tracing::info!(url, issuer = %wanted.issuer, "revocation list fetched");
                if let Some(store) = &self.store {
                    store.put(source, list.der()).await;
                }
                Ok(list)
            }
            Err(why) => {
                tracing::warn!(url, issuer = %wanted.issuer, "revocation list not fetched: {why}");
                let now = unix_time();
                // One that was fetched before serves as long as it is valid.
                self.with_entry(source, |entry| {
                    entry.ask_again = now + PAUSE;
                    entry.failure = Some(why.clone());
                    entry.usable(wanted, now).ok_or(why)
                })
            }
        }
    }

    /// The outcome for a certificate if no server needs to be asked.
    fn known(&self, source: &Source, wanted: &Wanted) -> Option<Result<Arc<Crl>, String>> {
        self.with_entries(|entries| entries.get(source)?.known(wanted, unix_time()))
    }

    async fn fetch(
        &self,
        source: &Source,
        wanted: &Wanted,
        policy: &Policy,
    ) -> Result<Arc<Crl>, String> {
        let reach = Reach { hosts: &self.settings.hosts, policy, own: own_networks };
        let octets = fetch::get(&source.url, self.limits, reach).await;
        let list = accept(octets.map_err(|error| error.to_string())?, wanted).await?;
        let now = unix_time();
        if !list.is_current(now) {
            return Err("it is outdated".into());
        }
        self.keep(source, list, now)
    }

    /// Reads the list in the cache directory, if there is none of its source in memory.
    async fn read_stored(&self, source: &Source, wanted: &Wanted) {
        let has_list = self
            .with_entries(|entries| entries.get(source).is_some_and(|entry| entry.list.is_some()));
        let Some(store) = self.store.as_ref().filter(|_| !has_list) else { return };
        let Some(octets) = store.get(source).await else { return };
        if let Ok(list) = accept(octets, wanted).await {
            // It was fetched after it was made; nothing says how long after.
            let made = list.this_update().min(unix_time());
            // A newer one may be here meanwhile.
            let _ = self.keep(source, list, made);
        }
    }

    /// Keeps a list that was fetched at this time since 1970.
    ///
    /// # Errors
    /// If a newer one is here. A server, or anyone on the way to it, can send an old list that is still current.
    fn keep(&self, source: &Source, list: Arc<Crl>, fetched: Duration) -> Result<Arc<Crl>, String> {
        let refresh = fetched + REFRESH;
        let ask_again = list.next_update().map_or(refresh, |next| next.min(refresh));
        self.with_entry(source, |entry| {
            if entry.list.as_ref().is_some_and(|here| here.this_update() > list.this_update()) {
                return Err("it is older than the list that was fetched before".into());
            }
            (entry.list, entry.failure, entry.ask_again) =
                (Some(Arc::clone(&list)), None, ask_again);
            Ok(list)
        })
    }

    /// The entry of a source, which is made if there is none.
    fn with_entry<T>(&self, source: &Source, f: impl FnOnce(&mut Entry) -> T) -> T {
        self.with_entries(|entries| {
            if !entries.contains_key(source) {
                make_room(entries);
            }
            f(entries.entry(source.clone()).or_default())
        })
    }

    fn with_entries<T>(&self, f: impl FnOnce(&mut BTreeMap<Source, Entry>) -> T) -> T {
        // Every change is one assignment: the entries are whole after a panic.
        f(&mut self.entries.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Takes octets for a list if they are one of the wanted issuer, which has signed it. A large one takes its time, which
/// others on this thread do not wait for.
async fn accept(octets: Vec<u8>, wanted: &Wanted) -> Result<Arc<Crl>, String> {
    let wanted = wanted.clone();
    let reading = tokio::task::spawn_blocking(move || read(&octets, &wanted));
    reading.await.unwrap_or_else(|error| Err(error.to_string()))
}

fn read(octets: &[u8], wanted: &Wanted) -> Result<Arc<Crl>, String> {
    let der = pem::crl(octets);
    let crl = Crl::read(der.as_deref().unwrap_or(octets)).map_err(|error| format!("it {error}"))?;
    if *crl.issuer() != wanted.issuer {
        return Err(format!("it is the list of {}", crl.issuer()));
    }
    if !crl.is_signed_by(&wanted.issuer_key) {
        return Err("its issuer has not signed it".into());
    }
    Ok(Arc::new(crl))
}

/// Forgets what would be asked for again first, where there is too much.
fn make_room(entries: &mut BTreeMap<Source, Entry>) {
    while entries.len() >= ENTRIES || octets(entries) > OCTETS {
        let first = entries.iter().min_by_key(|(_, entry)| entry.ask_again);
        let Some(source) = first.map(|(source, _)| source.clone()) else { return };
        entries.remove(&source);
    }
}

fn octets(entries: &BTreeMap<Source, Entry>) -> usize {
    entries.values().filter_map(|entry| Some(entry.list.as_ref()?.der().len())).sum()
}

fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A file name that stands for a source.
fn file_name(source: &Source) -> String {
    let hash = digest(Hash::Sha256, &[source.url.as_bytes(), &[0], &source.key].concat());
    let mut name: String = hash.iter().map(|octet| format!("{octet:02x}")).collect();
    name.push_str(".crl");
    name
}

#[cfg(test)]
mod tests;
