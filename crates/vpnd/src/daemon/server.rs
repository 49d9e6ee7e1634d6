//! The answering side of the control protocol: who may connect, how much a client may send and how long it may take.

use crate::view;
use control::protocol::{Command, MAX_REQUEST, Refusal, RefusalCode, Reply, Response, parse};
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{ReadHalf, WriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{debug, warn};
use vpn::Events;
use zeroize::Zeroizing;

mod socket;

pub use socket::{SocketError, bind};

/// The service that answers requests.
pub trait Service: Send + Sync + 'static {
    /// Carries out one command.
    fn answer(&self, command: Command) -> impl Future<Output = Result<Reply, Refusal>> + Send;
    /// Events from now on; a receiver that falls behind is told so.
    fn events(&self) -> Events;
}

/// Limits on the resources that clients may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at the same time.
    pub clients: usize,
    /// Connections at the same time that watch events: they stay, and must leave room for others.
    pub watchers: usize,
    /// Requests above 64 KiB at the same time, each of which may need room for [`MAX_REQUEST`] octets; more of them
    /// wait.
    pub large_requests: usize,
    /// For the next request to arrive in full.
    pub read: Duration,
    /// For an answer to be taken.
    pub write: Duration,
}

/// Octets of a request up to which it counts as small.
const SMALL_REQUEST: usize = 64 * 1024;

const _: () = assert!(
    MAX_REQUEST >= 2 * policy::xml::MAX_FILE_LEN + SMALL_REQUEST,
    "the largest policy fits into a request"
);

impl Default for Limits {
    fn default() -> Self {
        Self {
            clients: 32,
            watchers: 8,
            large_requests: 2,
            read: Duration::from_secs(60),
            write: Duration::from_secs(10),
        }
    }
}

/// Serves clients until `stopping` turns true; each has its own task, so that none waits for another. Requests that
/// are being carried out then are still answered.
///
/// When this returns, nobody can connect any more. The clients' connections close with the returned value: a client
/// that waits for this may rely on all that the daemon has undone before.
///
/// Only root and `owner`, the user the daemon runs as, are answered.
pub async fn serve<S: Service>(
    listener: UnixListener,
    owner: u32,
    service: Arc<S>,
    limits: Limits,
    mut stopping: watch::Receiver<bool>,
) -> Vec<UnixStream> {
    let slots = Arc::new(Semaphore::new(limits.clients));
    let shared = Arc::new(Slots {
        watchers: Semaphore::new(limits.watchers),
        large_requests: Semaphore::new(limits.large_requests),
    });
    let mut clients: JoinSet<Option<UnixStream>> = JoinSet::new();
    loop {
        while clients.try_join_next().is_some() {}
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopping.wait_for(|stopping| *stopping) => break,
        };
        let mut stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors: until one is freed, accept would fail again at once.
                warn!(%error, "cannot accept a control connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        match stream.peer_cred() {
            Ok(peer) if peer.uid() == 0 || peer.uid() == owner => {}
            Ok(peer) => {
                warn!(uid = peer.uid(), "refused a control connection of another user");
                continue;
            }
            Err(error) => {
                warn!(%error, "refused a control connection of an unknown user");
                continue;
            }
        }
        let service = Arc::clone(&service);
        let shared = Arc::clone(&shared);
        match Arc::clone(&slots).try_acquire_owned() {
            Ok(slot) => {
                let stopping = stopping.clone();
                clients.spawn(async move {
                    let stops = stopping.clone();
                    let conversation =
                        converse(&mut stream, &*service, limits, &shared, stopping).await;
                    if let Err(error) = conversation {
                        debug!(%error, "a control connection ended early");
                    }
                    drop(slot);
                    stops.borrow().then_some(stream)
                });
            }
            Err(_) => turn_away(&stream, &busy("clients", limits.clients)),
        }
    }
    drop(listener);
    // A request that is still unanswered then is cut off with its task.
    let mut open = Vec::new();
    let answered = async {
        while let Some(client) = clients.join_next().await {
            open.extend(client.ok().flatten());
        }
    };
    let _ = timeout(limits.write, answered).await;
    open
}

/// Resources that the connections share.
struct Slots {
    watchers: Semaphore,
    large_requests: Semaphore,
}

/// Tells a client that there are too many, without waiting for it: a fresh socket takes one short line at once.
fn turn_away(stream: &UnixStream, refusal: &Refusal) {
    if let Err(error) = stream.try_write(&Response::new(Err(refusal.clone())).line()) {
        debug!(%error, "a control connection ended early");
    }
}

fn busy(whom: &str, number: usize) -> Refusal {
    let message = format!("vpnd serves {number} {whom} already; try again later");
    Refusal::new(RefusalCode::Busy, message)
}

/// Answers one request after the other until the client is gone, breaks the rules or takes too long.
async fn converse<S: Service>(
    stream: &mut UnixStream,
    service: &S,
    limits: Limits,
    slots: &Slots,
    mut stopping: watch::Receiver<bool>,
) -> io::Result<()> {
    let (reader, mut writer) = stream.split();
    let mut reader = BufReader::new(reader);
    loop {
        let (request, large) = tokio::select! {
            biased;
            read = timeout(limits.read, read_request(&mut reader, &slots.large_requests)) => read??,
            _ = stopping.wait_for(|stopping| *stopping) => return Ok(()),
        };
        if request.is_empty() {
            return Ok(());
        }
        let whole = request.ends_with(b"\n");
        let parsed = parse(&request);
        drop(request);
        let outcome = match parsed {
            Ok(Command::Events { names }) => {
                // Watching goes on for long, and needs no room.
                drop(large);
                let slot = slots.watchers.try_acquire();
                let known = service.answer(Command::Events { names: names.clone() }).await;
                match (slot, known) {
                    (Ok(_slot), Ok(_)) => {
                        return watch(&mut reader, &mut writer, service, &names, stopping).await;
                    }
                    (Ok(_), Err(refusal)) => Err(refusal),
                    (Err(_), _) => Err(busy("clients that watch events", limits.watchers)),
                }
            }
            Ok(command) => {
                let outcome = service.answer(command).await;
                drop(large);
                outcome
            }
            Err(refusal) => Err(refusal),
        };
        timeout(limits.write, writer.write_all(&Response::new(outcome).line())).await??;
        if !whole {
            // Where the next request would begin is unknown.
            return Ok(());
        }
    }
}

/// Reads up to the end of a line, or up to [`MAX_REQUEST`] octets. A long request takes a slot.
async fn read_request<'s>(
    reader: &mut BufReader<ReadHalf<'_>>,
    large_requests: &'s Semaphore,
) -> io::Result<(Zeroizing<Vec<u8>>, Option<SemaphorePermit<'s>>)> {
    // Both buffers are as long as they can get: one that grows leaves copies of a policy's keys behind.
    let mut small = Zeroizing::new(Vec::with_capacity(SMALL_REQUEST));
    (&mut *reader).take(SMALL_REQUEST as u64).read_until(b'\n', &mut small).await?;
    if small.len() < SMALL_REQUEST || small.ends_with(b"\n") {
        return Ok((small, None));
    }
    let slot = large_requests.acquire().await.map_err(io::Error::other)?;
    let mut request = Zeroizing::new(Vec::with_capacity(MAX_REQUEST));
    request.extend_from_slice(&small);
    reader.take((MAX_REQUEST - SMALL_REQUEST) as u64).read_until(b'\n', &mut request).await?;
    Ok((request, Some(slot)))
}

/// Tells a client of events until it is gone or the daemon stops. Events that it does not take in time wait in a queue
/// of bounded length; it is told how many it has missed.
async fn watch<S: Service>(
    reader: &mut BufReader<ReadHalf<'_>>,
    writer: &mut WriteHalf<'_>,
    service: &S,
    names: &[String],
    mut stopping: watch::Receiver<bool>,
) -> io::Result<()> {
    // Before the answer, so that nothing falls between.
    let mut events = service.events();
    writer.write_all(&Response::new(Ok(Reply::Done)).line()).await?;
    let mut nothing = [0];
    loop {
        let event = tokio::select! {
            event = events.recv() => match event {
                Some(event) => event,
                None => return Ok(()),
            },
            // The client sends something, or has gone: the conversation is over.
            _ = reader.read(&mut nothing) => return Ok(()),
            _ = stopping.wait_for(|stopping| *stopping) => return Ok(()),
        };
        let (now, missed) = (SystemTime::now(), events.missed());
        let missed = (missed > 0).then(|| view::missed(missed, now));
        for happening in missed.into_iter().chain([view::happening(&event, now)]) {
            if !happening.concerns(names) {
                continue;
            }
            let line = Response::event(happening).line();
            tokio::select! {
                written = writer.write_all(&line) => written?,
                _ = stopping.wait_for(|stopping| *stopping) => return Ok(()),
            }
        }
    }
}
