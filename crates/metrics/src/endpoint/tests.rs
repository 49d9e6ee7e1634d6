use super::*;
use crate::Address;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Notify;

/// A gateway that answers when it is let, and counts what it is asked.
#[derive(Default)]
struct Twin {
    asked: AtomicUsize,
    /// Those that wait for an answer at the same time, now and at most.
    waiting: AtomicUsize,
    most: AtomicUsize,
    held: Option<Notify>,
    stopped: bool,
}

impl Source for Twin {
    async fn scrape(&self) -> Option<Bytes> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let waiting = self.waiting.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(waiting, Ordering::SeqCst);
        if let Some(held) = &self.held {
            held.notified().await;
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        (!self.stopped).then(|| Bytes::from_static(b"vpnd_tunnels 1\n# EOF\n"))
    }
}

/// Serves at a free port; returns where.
fn at_port(twin: &Arc<Twin>, limits: Limits) -> std::net::SocketAddr {
    let free = Address::Tcp(([127, 0, 0, 1], 0).into());
    let bound = Bound::new(&free).expect("a free port");
    let Bound::Tcp(listener) = &bound else { unreachable!("it was asked for") };
    let at = listener.local_addr().expect("it is bound");
    tokio::spawn(serve(bound, vec!["gate.example".to_owned()], limits, Arc::clone(twin)));
    at
}

/// Sends octets and reads until the other side closes.
async fn ask(stream: impl AsyncRead + AsyncWrite, request: &str) -> String {
    tokio::pin!(stream);
    stream.write_all(request.as_bytes()).await.expect("it is taken");
    let mut answer = String::new();
    // A refusal may come as a reset behind the answer.
    let _ = stream.read_to_string(&mut answer).await;
    answer
}

async fn ask_port(at: std::net::SocketAddr, request: &str) -> String {
    ask(TcpStream::connect(at).await.expect("it listens"), request).await
}

#[tokio::test]
async fn the_text_is_had_by_get_and_by_nothing_else() {
    let twin = Arc::new(Twin::default());
    let at = at_port(&twin, Limits::default());
    let answer = ask_port(at, "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9400\r\n\r\n").await;
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(head.to_lowercase().contains(&format!("content-type: {OPENMETRICS}")), "{answer}");
    assert_eq!(body, "vpnd_tunnels 1\n# EOF\n");
    let head = ask_port(at, "HEAD /metrics HTTP/1.1\r\nHost: [::1]\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.ends_with("\r\n\r\n"), "{head}");
    assert_eq!(twin.asked.load(Ordering::SeqCst), 2);
    for (request, status) in [
        ("POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", "405"),
        ("DELETE /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", "405"),
        ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"),
        ("GET /metrics/../secret HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"),
        ("nonsense\r\n\r\n", "400"),
    ] {
        let answer = ask_port(at, request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request}{answer}");
    }
    let long =
        format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(20_000));
    let answer = ask_port(at, &long).await;
    assert!(!answer.contains("vpnd_tunnels"), "{answer}");
    assert_eq!(twin.asked.load(Ordering::SeqCst), 2, "the gateway was not asked again");
}

#[tokio::test]
async fn a_foreign_host_is_refused() {
    let twin = Arc::new(Twin::default());
    let at = at_port(&twin, Limits::default());
    let host = |host: &str| format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n");
    for ours in ["127.0.0.1", "192.0.2.1:9400", "[::1]:9400", "LOCALHOST:9400", "Gate.Example"] {
        let answer = ask_port(at, &host(ours)).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{ours}: {answer}");
    }
    let foreign =
        ["evil.example", "evil.example:9400", "127.0.0.1.evil.example", "x@127.0.0.1", ""];
    let two = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n".to_owned();
    let target = "GET http://evil.example/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned();
    let none = "GET /metrics HTTP/1.0\r\n\r\n".to_owned();
    for request in foreign.map(host).into_iter().chain([two, target, none]) {
        let answer = ask_port(at, &request).await;
        let refused = ["HTTP/1.1 421", "HTTP/1.0 421", "HTTP/1.1 400"];
        assert!(refused.iter().any(|status| answer.starts_with(status)), "{request}{answer}");
    }
    assert_eq!(twin.asked.load(Ordering::SeqCst), 5);
}

#[tokio::test]
async fn a_unix_socket_answers_whatever_the_host() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path: PathBuf = directory.path().join("metrics.sock");
    let bound = Bound::new(&Address::Unix(path.clone())).expect("a free path");
    let twin = Arc::new(Twin { stopped: true, ..Twin::default() });
    let server = tokio::spawn(serve(bound, Vec::new(), Limits::default(), twin));
    let stream = UnixStream::connect(&path).await.expect("it listens");
    let answer = ask(stream, "GET /metrics HTTP/1.1\r\nHost: vpnd\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    server.abort();
    assert!(server.await.is_err_and(|error| error.is_cancelled()) && !path.exists());
}

#[tokio::test]
async fn more_connections_than_allowed_wait() {
    let twin = Arc::new(Twin { held: Some(Notify::new()), ..Twin::default() });
    let at = at_port(&twin, Limits { connections: 1, ..Limits::default() });
    let mut asks = JoinSet::new();
    for _ in 0..3 {
        asks.spawn(ask_port(at, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    }
    while !asks.is_empty() {
        // It lets one of them go on, now or as soon as it asks.
        twin.held.as_ref().expect("as made").notify_one();
        let answer = asks.join_next().await.expect("one is left").expect("no panic");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    assert_eq!(twin.most.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_slow_client_is_left() {
    let twin = Arc::new(Twin { held: Some(Notify::new()), ..Twin::default() });
    let at = at_port(&twin, Limits::default());
    // A header that never ends, and an answer that never comes: time goes on by itself in this test.
    for request in ["GET /metrics HTTP/1.1\r\n", "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"]
    {
        let answer = ask_port(at, request).await;
        assert!(!answer.contains("200 OK"), "{answer}");
    }
}
