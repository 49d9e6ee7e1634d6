//! Both ends of the connections: a server on the right host, and clients on the left one.
//!
//! A connection begins with an octet that says what it is for. The server sends it back, so that the client knows that
//! it has reached the server, not only a program that forwards. A second octet of the client begins the traffic, once
//! all connections are open.

use serde::{Deserialize, Serialize};
use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout_at;

/// Octets that are handed over at once, as iperf3 does. All connections send the same ones, so that none has memory for
/// them.
static PIECE: [u8; 128 << 10] = [0x5a; 128 << 10];
/// Connections that are opened at the same time. More are too many for some of the programs.
const AT_ONCE: usize = 32;

/// The traffic of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub enum Traffic {
    /// The client sends as much as it can.
    Out,
    /// The server does.
    In,
    /// The client sends an octet, the server sends it back, and so on.
    Echo,
}

impl Traffic {
    const ALL: [Self; 3] = [Self::Out, Self::In, Self::Echo];

    fn octet(self) -> u8 {
        self as u8
    }
}

/// Octets of the payload of each connection that the server has received, or sent.
#[derive(Clone, Default)]
pub struct Counts(Arc<Mutex<Vec<Arc<AtomicU64>>>>);

impl Counts {
    /// Forgets the connections so far.
    pub fn clear(&self) {
        self.lock().clear();
    }

    /// Those of all connections since then, in the order in which they began.
    pub fn now(&self) -> Vec<u64> {
        self.lock().iter().map(|count| count.load(Relaxed)).collect()
    }

    fn add(&self) -> Arc<AtomicU64> {
        let count = Arc::default();
        self.lock().push(Arc::clone(&count));
        count
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<AtomicU64>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves every connection until the runtime ends.
pub async fn serve(listener: TcpListener, counts: Counts) -> io::Result<()> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        // The kernel would try to send the rest of a connection for minutes, out of memory that the next needs.
        stream.set_zero_linger()?;
        let counts = counts.clone();
        tokio::spawn(async move {
            let octet = stream.read_u8().await?;
            let traffic = Traffic::ALL.into_iter().find(|traffic| traffic.octet() == octet);
            let traffic = traffic.ok_or_else(|| io::Error::other("no traffic has this octet"))?;
            stream.write_u8(octet).await?;
            stream.read_u8().await?;
            let count = counts.add();
            match traffic {
                Traffic::Out => take(stream, &count).await,
                Traffic::In => give(stream, &count).await,
                Traffic::Echo => loop {
                    let octet = stream.read_u8().await?;
                    stream.write_u8(octet).await?;
                },
            }
        });
    }
}

async fn give(mut stream: impl AsyncWrite + Unpin, count: &AtomicU64) -> io::Result<()> {
    loop {
        let octets = stream.write(&PIECE).await?;
        count.fetch_add(octets as u64, Relaxed);
    }
}

async fn take(mut stream: impl AsyncRead + Unpin, count: &AtomicU64) -> io::Result<()> {
    let mut piece = vec![0; PIECE.len()];
    while let octets @ 1.. = stream.read(&mut piece).await? {
        count.fetch_add(octets as u64, Relaxed);
    }
    Ok(())
}

/// A connection of a client.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for S {}

/// Open connections of a client, which end when they are dropped.
pub struct Clients<S> {
    traffic: Traffic,
    /// Those without traffic yet.
    idle: Vec<S>,
    tasks: JoinSet<io::Result<()>>,
    trips: Arc<Mutex<Vec<Duration>>>,
}

impl<S: Stream> Clients<S> {
    /// Opens so many, as far as they come about within the time.
    ///
    /// # Errors
    /// If none comes about.
    pub async fn open<F>(
        number: usize,
        traffic: Traffic,
        patience: Duration,
        connect: impl Fn() -> F,
    ) -> Result<Self, String>
    where
        F: Future<Output = Result<S, String>> + Send + 'static,
    {
        let ends = tokio::time::Instant::now() + patience;
        let mut opening = JoinSet::new();
        let (mut begun, mut idle, mut failure) = (0, Vec::new(), String::new());
        loop {
            while begun < number && opening.len() < AT_ONCE {
                begun += 1;
                opening.spawn(timeout_at(ends, begin(connect(), traffic)));
            }
            match opening.join_next().await {
                None => break,
                Some(Ok(Ok(Ok(stream)))) => idle.push(stream),
                Some(Ok(Ok(Err(error)))) => failure = error,
                Some(Ok(Err(_))) => failure = format!("no answer within {patience:?}"),
                Some(Err(panic)) => failure = panic.to_string(),
            }
        }
        match idle.is_empty() {
            true => Err(failure),
            false => Ok(Self { traffic, idle, tasks: JoinSet::new(), trips: Arc::default() }),
        }
    }

    /// The number that are open, while none has traffic.
    pub fn number(&self) -> usize {
        self.idle.len()
    }

    /// Begins the traffic of all.
    pub fn start(&mut self) {
        for mut stream in self.idle.drain(..) {
            let (traffic, trips) = (self.traffic, Arc::clone(&self.trips));
            self.tasks.spawn(async move {
                stream.write_u8(0).await?;
                let uncounted = AtomicU64::new(0);
                match traffic {
                    Traffic::Out => give(stream, &uncounted).await,
                    Traffic::In => take(stream, &uncounted).await,
                    Traffic::Echo => ask(stream, &trips).await,
                }
            });
        }
    }

    /// The round trips so far, sorted.
    pub fn trips(&self) -> Vec<Duration> {
        let mut trips = self.trips.lock().unwrap_or_else(PoisonError::into_inner).clone();
        trips.sort_unstable();
        trips
    }
}

/// Opens a connection as far as the server.
async fn begin<S: Stream>(
    connecting: impl Future<Output = Result<S, String>>,
    traffic: Traffic,
) -> Result<S, String> {
    let mut stream = connecting.await?;
    let greet = async {
        stream.write_u8(traffic.octet()).await?;
        stream.read_u8().await
    };
    greet.await.map_err(|error| format!("the server does not answer: {error}"))?;
    Ok(stream)
}

/// Between two questions, so that the tunnel is idle before each.
const INTERVAL: Duration = Duration::from_millis(2);

async fn ask(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    trips: &Mutex<Vec<Duration>>,
) -> io::Result<()> {
    let mut ticks = tokio::time::interval(INTERVAL);
    loop {
        ticks.tick().await;
        let begun = Instant::now();
        stream.write_u8(7).await?;
        stream.flush().await?;
        stream.read_u8().await?;
        trips.lock().unwrap_or_else(PoisonError::into_inner).push(begun.elapsed());
    }
}
