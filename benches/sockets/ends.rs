//! Both ends of the connections: a server on the right host, and clients on the left one. A connection begins with an
//! octet that says what it is for.

use serde::{Deserialize, Serialize};
use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Octets that are handed over at once, as iperf3 does.
const PIECE: usize = 128 << 10;

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
        let counts = counts.clone();
        tokio::spawn(async move {
            let octet = stream.read_u8().await?;
            let traffic = Traffic::ALL.into_iter().find(|traffic| traffic.octet() == octet);
            let count = counts.add();
            match traffic.ok_or_else(|| io::Error::other("no traffic has this octet"))? {
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
    let piece = vec![0x5a; PIECE];
    loop {
        let octets = stream.write(&piece).await?;
        count.fetch_add(octets as u64, Relaxed);
    }
}

async fn take(mut stream: impl AsyncRead + Unpin, count: &AtomicU64) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    while let octets @ 1.. = stream.read(&mut piece).await? {
        count.fetch_add(octets as u64, Relaxed);
    }
    Ok(())
}

/// So many connections of a client, which run until they are dropped.
pub struct Clients {
    tasks: JoinSet<io::Result<()>>,
    trips: Arc<Mutex<Vec<Duration>>>,
}

impl Clients {
    /// Opens all of them, and returns when all are open.
    ///
    /// # Errors
    /// If one cannot be opened.
    pub async fn open<S, F>(
        number: usize,
        traffic: Traffic,
        connect: impl Fn() -> F,
    ) -> Result<Self, String>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        F: Future<Output = Result<S, String>>,
    {
        let mut clients = Self { tasks: JoinSet::new(), trips: Arc::default() };
        let mut streams = Vec::new();
        for _ in 0..number {
            let mut stream = connect().await?;
            stream.write_u8(traffic.octet()).await.map_err(|error| error.to_string())?;
            streams.push(stream);
        }
        for stream in streams {
            let trips = Arc::clone(&clients.trips);
            clients.tasks.spawn(async move {
                let uncounted = AtomicU64::new(0);
                match traffic {
                    Traffic::Out => give(stream, &uncounted).await,
                    Traffic::In => take(stream, &uncounted).await,
                    Traffic::Echo => ask(stream, &trips).await,
                }
            });
        }
        Ok(clients)
    }

    /// The round trips so far, sorted.
    pub fn trips(&self) -> Vec<Duration> {
        let mut trips = self.trips.lock().unwrap_or_else(PoisonError::into_inner).clone();
        trips.sort_unstable();
        trips
    }
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
