//! Requests and their responses over TCP: on standing connections, or each on a connection of its own.

use super::{End, PATIENCE, failed, join};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The shape of a transaction.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Its name in the document.
    pub name: &'static str,
    /// The application that it stands for.
    pub like: &'static str,
    /// Octets of a request.
    pub request: usize,
    /// Octets of a response.
    pub response: usize,
    /// Each has a connection of its own, which is closed after it.
    pub connects: bool,
}

/// The transactions of a measurement.
#[derive(Clone, Debug)]
pub struct Transactions {
    /// The duration of each that ended, in order.
    pub times: Vec<Duration>,
    /// The duration of the measurement.
    pub lasted: Duration,
}

/// The state that all clients share.
struct Course {
    phase: AtomicU8,
    /// Transactions that count.
    ended: AtomicU64,
}

/// The phases of a measurement, for its threads.
const WARM_UP: u8 = 0;
const MEASURE: u8 = 1;
const STOP: u8 = 2;

/// Connections with a transaction under way on each at any time.
pub struct Clients {
    course: Arc<Course>,
    clients: Vec<JoinHandle<io::Result<Vec<Duration>>>>,
    servers: Vec<JoinHandle<io::Result<()>>>,
}

impl Clients {
    /// Lets so many clients at one end ask servers at the other.
    ///
    /// # Errors
    /// Where a connection does not come about.
    pub fn start(
        from: End<'_>,
        to: End<'_>,
        workload: Workload,
        number: usize,
    ) -> Result<Self, String> {
        let course = Arc::new(Course { phase: AtomicU8::new(WARM_UP), ended: AtomicU64::new(0) });
        let mut all = Self { course, clients: vec![], servers: vec![] };
        for _ in 0..number {
            let address = to.address;
            // A port for each: those of closed connections are not free again at once.
            let listener = to.space.run(move || TcpListener::bind((address, 0))).map_err(failed)?;
            let target = listener.local_addr().map_err(failed)?;
            let (source, course) = (from.address, Arc::clone(&all.course));
            let client = from.space.run(move || Client::new(source, target, workload));
            let client = client.map_err(failed)?;
            // The kernel has taken the connection already.
            let server = to.spawn(move || serve(&listener, workload));
            all.servers.push(server);
            all.clients.push(from.spawn(move || client.ask(&course)));
        }
        Ok(all)
    }

    /// Counts transactions for a while after they have found their pace, and until one has ended; `mark` is called when
    /// it begins and when it ends.
    ///
    /// # Errors
    /// Where one fails.
    pub fn measure(
        self,
        settle: Duration,
        lasting: Duration,
        mut mark: impl FnMut(),
    ) -> Result<Transactions, String> {
        std::thread::sleep(settle);
        mark();
        let begun = Instant::now();
        self.course.phase.store(MEASURE, Relaxed);
        std::thread::sleep(lasting);
        // One at least, however long it takes.
        while self.course.ended.load(Relaxed) == 0 && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
        // While their threads are there still: the time of ended threads is not told.
        mark();
        let lasted = begun.elapsed();
        self.course.phase.store(STOP, Relaxed);
        let mut times = Vec::new();
        for client in self.clients {
            times.extend(join(client).map_err(failed)?);
        }
        for server in self.servers {
            join(server).map_err(failed)?;
        }
        times.sort_unstable();
        Ok(Transactions { times, lasted })
    }
}

/// One transaction on a connection of its own, from an end to the other.
///
/// # Errors
/// Where the connection does not come about, or ends early.
pub fn once(from: End<'_>, to: End<'_>, workload: Workload) -> Result<(), String> {
    let workload = Workload { connects: false, ..workload };
    let (source, address) = (from.address, to.address);
    let listener = to.space.run(move || TcpListener::bind((address, 0))).map_err(failed)?;
    let target = listener.local_addr().map_err(failed)?;
    let mut stream = from.space.run(move || connect(source, target)).map_err(failed)?;
    let server = to.spawn(move || serve(&listener, workload));
    let mut response = vec![0; workload.response];
    let asked = stream.write_all(&vec![0x3c; workload.request]);
    asked.and_then(|()| stream.read_exact(&mut response)).map_err(failed)?;
    drop(stream);
    join(server).map_err(failed)
}

struct Client {
    source: Ipv4Addr,
    target: SocketAddr,
    workload: Workload,
    stream: TcpStream,
}

impl Client {
    fn new(source: Ipv4Addr, target: SocketAddr, workload: Workload) -> io::Result<Self> {
        Ok(Self { source, target, workload, stream: connect(source, target)? })
    }

    /// Asks until it is to stop; how long each transaction took that counts.
    fn ask(mut self, course: &Course) -> io::Result<Vec<Duration>> {
        let request = vec![0x3c; self.workload.request];
        let mut response = vec![0; self.workload.response];
        let mut times = Vec::new();
        let mut is_connected = true;
        loop {
            let begun = Instant::now();
            if !is_connected {
                self.stream = connect(self.source, self.target)?;
            }
            self.stream.write_all(&request)?;
            self.stream.read_exact(&mut response)?;
            if self.workload.connects {
                // Until the server has closed it.
                self.stream.read_exact(&mut [0]).map_or_else(end_of_file, |()| Err(surplus()))?;
                is_connected = false;
            }
            match course.phase.load(Relaxed) {
                // The first one of a connection that stood before has not paid for it.
                MEASURE => {
                    times.push(begun.elapsed());
                    course.ended.fetch_add(1, Relaxed);
                }
                STOP => break,
                _ => {}
            }
        }
        if self.workload.connects {
            // The server waits for one more, which has nothing to ask.
            drop(connect(self.source, self.target)?);
        }
        Ok(times)
    }
}

fn end_of_file(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::UnexpectedEof { Ok(()) } else { Err(error) }
}

fn surplus() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a response is longer than it should be")
}

/// A connection on which nothing waits for more to send along.
fn connect(source: Ipv4Addr, target: SocketAddr) -> io::Result<TcpStream> {
    let stream = super::connect(source, target)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Answers until a connection ends without a request.
fn serve(listener: &TcpListener, workload: Workload) -> io::Result<()> {
    let response = vec![0x3e; workload.response];
    let mut request = vec![0; workload.request];
    loop {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        loop {
            match stream.read_exact(&mut request) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                outcome => outcome?,
            }
            stream.write_all(&response)?;
            if workload.connects {
                break;
            }
        }
    }
}
