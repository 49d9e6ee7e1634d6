//! Work with certificates, beside the engine: on as many threads as there are cores, and revocation lists fetched
//! meanwhile hold none of them.

use ike::proof::crl::Crl;
use ike::proof::{Done, Job, Step, Wanted};
use policy::Policy;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::spawn_blocking;

/// The result of a [`Fetcher`]: for each wanted list the list, or the reason why there is none.
pub type Fetched = Pin<Box<dyn Future<Output = Vec<Result<Arc<Crl>, String>>> + Send>>;

/// Fetches revocation lists, but from no network that the policy protects. Their signatures are checked afterwards.
pub type Fetcher = Arc<dyn Fn(Vec<Wanted>, Arc<Policy>) -> Fetched + Send + Sync>;

/// Where jobs run.
pub(super) struct Jobs {
    cores: Arc<Semaphore>,
    fetcher: Fetcher,
    policy: Arc<Policy>,
    done: mpsc::UnboundedSender<Done>,
}

impl Jobs {
    /// The jobs, and the receiver of their results.
    pub fn new(fetcher: Fetcher, policy: Arc<Policy>) -> (Self, mpsc::UnboundedReceiver<Done>) {
        let (done, results) = mpsc::unbounded_channel();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        (Self { cores: Arc::new(Semaphore::new(cores)), fetcher, policy, done }, results)
    }

    /// Replaces the policy for the jobs that start from now on.
    pub fn replace_policy(&mut self, policy: Arc<Policy>) {
        self.policy = policy;
    }

    pub fn start(&self, job: Job) {
        let (cores, fetcher, done) =
            (Arc::clone(&self.cores), Arc::clone(&self.fetcher), self.done.clone());
        let policy = Arc::clone(&self.policy);
        tokio::spawn(async move {
            if let Some(result) = run(job, &cores, &fetcher, &policy).await {
                // The engine has stopped: nobody is left to care.
                let _ = done.send(result);
            }
        });
    }
}

/// `None` when the runtime goes down.
async fn run(
    mut job: Job,
    cores: &Semaphore,
    fetcher: &Fetcher,
    policy: &Arc<Policy>,
) -> Option<Done> {
    loop {
        let core = cores.acquire().await.ok()?;
        let step = spawn_blocking(move || job.run(unix_time())).await.ok()?;
        drop(core);
        match step {
            Step::Done(done) => return Some(done),
            Step::Fetch(fetch) => {
                let results = fetcher(fetch.wanted.clone(), Arc::clone(policy)).await;
                job = fetch.resume(results);
            }
            // No core is held meanwhile: a key that is slow keeps no other one waiting.
            Step::Sign(sign) => {
                let signature = sign.begin().await;
                job = sign.resume(signature);
            }
        }
    }
}

/// The system's clock, which counts for certificates and revocation lists only: IKE's timers and lifetimes use the
/// monotonic clock.
fn unix_time() -> Duration {
    // A clock before 1970 makes every certificate one of the future, which is said.
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
