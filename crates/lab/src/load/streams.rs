//! Streams of TCP that carry as much as they can.

use super::{End, PATIENCE, connect, failed, join};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

/// Octets that a stream hands over at once, as iperf3 does.
const PIECE: usize = 128 << 10;

/// Streams that run until they are dropped.
pub struct Streams {
    received: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    sockets: Vec<TcpStream>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Streams {
    /// So many from one end to the other.
    ///
    /// # Errors
    /// Where one does not come about.
    pub fn start(from: End<'_>, to: End<'_>, number: usize) -> Result<Self, String> {
        let mut streams = Self {
            received: Arc::default(),
            stop: Arc::default(),
            sockets: Vec::new(),
            threads: Vec::new(),
        };
        let (source, address) = (from.address, to.address);
        let listener = to.space.run(move || TcpListener::bind((address, 0))).map_err(failed)?;
        let target = listener.local_addr().map_err(failed)?;
        for _ in 0..number {
            let sender = from.space.run(move || connect(source, target)).map_err(failed)?;
            let (receiver, _) = listener.accept().map_err(failed)?;
            for socket in [&sender, &receiver] {
                streams.sockets.push(socket.try_clone().map_err(failed)?);
            }
            let received = Arc::clone(&streams.received);
            streams.threads.push(to.spawn(move || take(receiver, &received)));
            let stop = Arc::clone(&streams.stop);
            streams.threads.push(from.spawn(move || give(sender, &stop)));
        }
        Ok(streams)
    }

    /// Octets received so far.
    pub fn received(&self) -> u64 {
        self.received.load(Relaxed)
    }

    /// Measures the octets that arrive in a time, after another in which the streams find their speed. `look` is
    /// called when it begins and when it ends.
    ///
    /// # Errors
    /// Where nothing arrives.
    pub fn measure(
        &self,
        settle: Duration,
        lasting: Duration,
        mut look: impl FnMut(),
    ) -> Result<Rate, String> {
        sleep(settle);
        look();
        let (begun, before) = (Instant::now(), self.received());
        sleep(lasting);
        // On a busy host, nothing may have arrived yet.
        while self.received() == before && begun.elapsed() < PATIENCE {
            sleep(Duration::from_millis(1));
        }
        let (elapsed, octets) = (begun.elapsed(), self.received() - before);
        look();
        if octets == 0 {
            return Err(format!("no octet of a stream arrived within {elapsed:?}"));
        }
        let octets = octets as f64;
        Ok(Rate { octets, per_second: octets / elapsed.as_secs_f64() })
    }
}

/// The octets that arrived in a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// In all.
    pub octets: f64,
    /// In a second.
    pub per_second: f64,
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        for socket in &self.sockets {
            // The other end may have been faster.
            let _ = socket.shutdown(Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            // The error of a stream that is cut off is nobody's concern.
            let _ = join(thread);
        }
    }
}

fn give(mut socket: TcpStream, stop: &AtomicBool) -> io::Result<()> {
    let piece = vec![0x5a; PIECE];
    while !stop.load(Relaxed) {
        socket.write_all(&piece)?;
    }
    Ok(())
}

fn take(mut socket: TcpStream, received: &AtomicU64) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    while let octets @ 1.. = socket.read(&mut piece)? {
        received.fetch_add(octets as u64, Relaxed);
    }
    Ok(())
}
