//! Work with certificates: done at once, or kept waiting as long as a scenario likes.

use super::World;
use crate::host::{Host, HostId};
use ike::proof::crl::Crl;
use ike::proof::outside::{Signature, Unsigned};
use ike::proof::trust::Trust;
use ike::proof::{Job, Step, Wanted};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// When every world begins, since 1970: 2026-01-01.
pub const UNIX_START: Duration = Duration::from_secs(1_767_225_600);

impl World {
    /// The virtual time since 1970.
    pub fn unix_time(&self) -> Duration {
        UNIX_START + self.now
    }

    /// Gives a host its certificates and authorities.
    pub fn trust(&mut self, host: HostId, trust: Arc<Trust>) {
        let host = &mut self.hosts[host.0];
        host.trust = Arc::clone(&trust);
        host.engine.replace_trust(trust);
    }

    /// Lets a host fetch this revocation list from this address.
    pub fn publish(&mut self, host: HostId, url: &str, crl: Arc<Crl>) {
        self.hosts[host.0].crls.insert(url.into(), crl);
    }

    /// Keeps the host's work with certificates waiting until [`World::release_jobs`].
    pub fn hold_jobs(&mut self, host: HostId) {
        self.hosts[host.0].held_jobs.get_or_insert_default();
    }

    /// Does the work that was kept waiting; returns how much that was.
    pub fn release_jobs(&mut self, host: HostId) -> usize {
        let jobs = self.hosts[host.0].held_jobs.take().unwrap_or_default();
        let number = jobs.len();
        jobs.into_iter().for_each(|job| self.take_job(host, job));
        self.drain(host);
        number
    }

    /// Does the first piece of the work that was kept waiting; the rest, and what comes of the first, waits on. Returns
    /// `false` if no work waits.
    pub fn release_first_job(&mut self, host: HostId) -> bool {
        let mut held = self.hosts[host.0].held_jobs.take().unwrap_or_default();
        let first = (!held.is_empty()).then(|| held.remove(0));
        let is_there = first.is_some();
        if let Some(job) = first {
            self.take_job(host, job);
        }
        self.hosts[host.0].held_jobs = Some(held);
        self.drain(host);
        is_there
    }

    pub(super) fn take_job(&mut self, host: HostId, job: Job) {
        if let Some(held) = &mut self.hosts[host.0].held_jobs {
            return held.push(job);
        }
        let (unix_time, now) = (self.unix_time(), self.instant());
        let host = &mut self.hosts[host.0];
        let mut job = job;
        loop {
            match job.run(unix_time) {
                Step::Done(done) => return host.engine.handle_done(now, done),
                Step::Fetch(fetch) => {
                    let results = fetch.wanted.iter().map(|wanted| host.find_list(wanted));
                    let results = results.collect();
                    job = fetch.resume(results);
                }
                Step::Sign(sign) => {
                    let signature = poll_once(sign.begin());
                    job = sign.resume(signature);
                }
            }
        }
    }
}

/// The signature of a key outside, which must be there at once: virtual time does not pass meanwhile.
fn poll_once(mut signature: Signature) -> Result<Vec<u8>, Unsigned> {
    match signature.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(made) => made,
        Poll::Pending => panic!("a key of a simulated host does not wait"),
    }
}

impl Host {
    /// Fetches a revocation list, and keeps it for good.
    fn find_list(&mut self, wanted: &Wanted) -> Result<Arc<Crl>, String> {
        let lists = if wanted.fetch { &self.crls } else { &self.kept_crls };
        let found = wanted.urls.iter().find_map(|url| Some((url, lists.get(url)?)));
        let found = found.map(|(url, list)| (url.clone(), Arc::clone(list)));
        if wanted.fetch {
            self.fetched.extend(wanted.urls.iter().cloned());
            self.kept_crls.extend(found.clone());
        }
        found.map(|(_, list)| list).ok_or(format!("{} does not answer", wanted.urls.join(", ")))
    }
}
