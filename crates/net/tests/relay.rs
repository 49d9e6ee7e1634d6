//! Relays between a stream and a socket of this host, whose ends say nothing, go, and break, in virtual time.

mod ends;

use ends::{PATIENCE, connected, pair};
use net::TcpStream;
use net::datagrams::Fate;
use net::relay::{Limits, Local, RelayError, relay};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, DuplexStream, ReadBuf, duplex, split};
use tokio::task::JoinHandle;

const SECOND: Duration = Duration::from_secs(1);

/// The relay's end of a pipe, in the place of a socket.
struct Socket {
    stream: DuplexStream,
    told: Arc<Told>,
}

#[derive(Default)]
struct Told {
    /// The program has closed its end in both directions.
    gone: AtomicBool,
    broken: AtomicBool,
}

struct Reader {
    half: tokio::io::ReadHalf<DuplexStream>,
    told: Arc<Told>,
}

impl AsyncRead for Reader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.half).poll_read(cx, buffer)
    }
}

impl Local for Socket {
    type Reader = Reader;
    type Writer = tokio::io::WriteHalf<DuplexStream>;

    fn into_halves(self, _: Duration) -> (Self::Reader, Self::Writer) {
        let (half, writer) = split(self.stream);
        (Reader { half, told: self.told }, writer)
    }

    fn has_said_all(_: &Self::Reader) {}

    fn is_gone(reader: &Self::Reader) -> bool {
        reader.told.gone.load(Relaxed)
    }

    fn end(reader: Self::Reader, _: Self::Writer, why: Option<&RelayError>) {
        reader.told.broken.store(why.is_some(), Relaxed);
    }
}

struct Scene {
    program: DuplexStream,
    peer: TcpStream,
    relay: JoinHandle<Result<(), RelayError>>,
    told: Arc<Told>,
    /// Nothing passes between the peers any more.
    cut: Arc<AtomicBool>,
    _ends: [ends::End; 2],
}

impl Scene {
    async fn new() -> Self {
        let cut = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&cut);
        let wire = move |_| if seen.load(Relaxed) { Fate::Lost } else { Fate::Arrives };
        let ends = pair(Arc::new(wire), |_| {});
        let [stream, peer] = connected(&ends, false).await;
        let (program, socket) = duplex(4096);
        let told = Arc::new(Told::default());
        let socket = Socket { stream: socket, told: Arc::clone(&told) };
        let relay = tokio::spawn(relay(socket, stream, Limits::default()));
        Self { program, peer, relay, told, cut, _ends: ends }
    }

    /// How the relay has ended, and whether the program has learned that the connection is broken.
    async fn end(&mut self) -> (Result<(), RelayError>, bool) {
        let ended = tokio::time::timeout(Limits::default().idle * 3, &mut self.relay).await;
        (ended.expect("it hangs").expect("no panic"), self.told.broken.load(Relaxed))
    }
}

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it hangs")
}

async fn reads_to_end(peer: &mut TcpStream) -> Vec<u8> {
    let mut octets = Vec::new();
    in_time(peer.read_to_end(&mut octets)).await.expect("in order");
    octets
}

#[tokio::test(start_paused = true)]
async fn both_ends_have_all_before_the_end() {
    let mut scene = Scene::new().await;
    let (question, answer) = (ends::octets(200_000, 3), ends::octets(300_000, 5));
    let (mut from, mut to) = split(scene.program);
    let client = async {
        to.write_all(&question).await.expect("written");
        to.shutdown().await.expect("shut down");
        let mut octets = Vec::new();
        from.read_to_end(&mut octets).await.expect("read");
        octets
    };
    let server = async {
        let read = reads_to_end(&mut scene.peer).await;
        // It thinks for longer than a socket is looked at again.
        tokio::time::sleep(SECOND * 30).await;
        scene.peer.write_all(&answer).await.expect("written");
        scene.peer.shutdown().await.expect("shut down");
        read
    };
    let (answered, asked) = in_time(async { tokio::join!(client, server) }).await;
    assert!(answered == answer && asked == question);
    in_time(&mut scene.relay).await.expect("no panic").expect("in order");
    assert!(!scene.told.broken.load(Relaxed));
}

#[tokio::test(start_paused = true)]
async fn a_connection_ends_with_its_program_though_the_peer_does_not_end_it() {
    let mut scene = Scene::new().await;
    scene.program.write_all(b"all").await.expect("written");
    scene.told.gone.store(true, Relaxed);
    drop(std::mem::replace(&mut scene.program, duplex(1).0));
    let (outcome, broken) = scene.end().await;
    assert!(matches!(outcome, Err(RelayError::Gone)), "{outcome:?}");
    assert!(!broken);
    assert_eq!(reads_to_end(&mut scene.peer).await, b"all", "the peer has all, and an orderly end");
}

#[tokio::test(start_paused = true)]
async fn a_program_that_has_said_all_is_left_when_the_peer_says_nothing() {
    let mut scene = Scene::new().await;
    scene.program.shutdown().await.expect("shut down");
    // Each word begins the time again.
    for _ in 0..5 {
        tokio::time::sleep(Limits::default().half_closed - SECOND).await;
        scene.peer.write_u8(7).await.expect("written");
        assert_eq!(in_time(scene.program.read_u8()).await.expect("read"), 7);
    }
    let (outcome, broken) = scene.end().await;
    assert!(matches!(outcome, Err(RelayError::HalfClosed(_))), "{outcome:?}");
    assert!(broken);
    in_time(async { while scene.peer.write_u8(7).await.is_ok() {} }).await;
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_has_said_all_is_left_when_the_program_says_nothing() {
    let mut scene = Scene::new().await;
    scene.peer.shutdown().await.expect("shut down");
    let (outcome, broken) = scene.end().await;
    assert!(matches!(outcome, Err(RelayError::HalfClosed(_))), "{outcome:?}");
    assert!(broken);
}

#[tokio::test(start_paused = true)]
async fn ends_that_say_nothing_are_left_after_the_idle_limit() {
    let mut scene = Scene::new().await;
    for _ in 0..3 {
        tokio::time::sleep(Limits::default().idle - SECOND).await;
        scene.program.write_u8(7).await.expect("written");
        assert_eq!(in_time(scene.peer.read_u8()).await.expect("read"), 7);
    }
    let (outcome, broken) = scene.end().await;
    assert!(matches!(outcome, Err(RelayError::Idle(_))), "{outcome:?}");
    assert!(broken);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_nothing_is_left_after_the_idle_limit() {
    let mut scene = Scene::new().await;
    let octets = vec![7; 8 << 20];
    let ended = tokio::time::timeout(Limits::default().idle * 3, &mut scene.relay);
    let (written, ended) = tokio::join!(scene.program.write_all(&octets), ended);
    assert!(written.is_err(), "nobody reads");
    let outcome = ended.expect("it hangs").expect("no panic");
    assert!(matches!(outcome, Err(RelayError::Idle(_))), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn both_ends_learn_that_the_other_is_broken() {
    let mut scene = Scene::new().await;
    scene.peer.reset();
    let (outcome, broken) = scene.end().await;
    assert!(matches!(outcome, Err(RelayError::Broken(_))) && broken, "{outcome:?}");

    let mut scene = Scene::new().await;
    // The peer's answer finds nobody.
    scene.program = duplex(1).0;
    scene.peer.write_u8(7).await.expect("written");
    let (outcome, _) = scene.end().await;
    assert!(outcome.is_err(), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn a_peer_whose_host_is_gone_is_found_out_before_the_idle_limit() {
    let mut scene = Scene::new().await;
    scene.cut.store(true, Relaxed);
    let (outcome, broken) = scene.end().await;
    let Err(RelayError::Broken(error)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert!(broken);
}
