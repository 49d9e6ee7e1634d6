use super::*;
use crate::Address;
use crate::news::tests::happening;
use crate::source::twin::Twin;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::{TcpStream, UnixStream};

/// Serves the page, too, at a free port; returns where.
fn at_port(twin: &Arc<Twin>, limits: Limits) -> SocketAddr {
    at_port_with(twin, limits, true)
}

fn at_port_with(twin: &Arc<Twin>, limits: Limits, page: bool) -> SocketAddr {
    let free = Address::Tcp(([127, 0, 0, 1], 0).into());
    let bound = Bound::new(&free).expect("a free port");
    let Bound::Tcp(listener) = &bound else { unreachable!("it was asked for") };
    let at = listener.local_addr().expect("it is bound");
    let access = Access { hosts: vec!["gate.example".to_owned()], page };
    tokio::spawn(serve(bound, access, limits, Arc::clone(twin)));
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

async fn ask_port(at: SocketAddr, request: &str) -> String {
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
    assert_eq!(twin.scrapes.load(Ordering::SeqCst), 2);
    for (request, status) in [
        ("POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", "405"),
        ("DELETE /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", "405"),
        ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", "405"),
        ("GET /api HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"),
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
    assert_eq!(twin.scrapes.load(Ordering::SeqCst), 2, "the gateway was not asked again");
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
    assert_eq!(twin.scrapes.load(Ordering::SeqCst), 5);
}

#[tokio::test]
async fn a_unix_socket_answers_whatever_the_host() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path: PathBuf = directory.path().join("metrics.sock");
    let bound = Bound::new(&Address::Unix(path.clone())).expect("a free path");
    let twin = Arc::new(Twin { stopped: true, ..Twin::default() });
    let access = Access { hosts: Vec::new(), page: true };
    let server = tokio::spawn(serve(bound, access, Limits::default(), twin));
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

/// As many connections as are kept say nothing, or begin a header and do not end it.
#[tokio::test]
async fn connections_that_ask_nothing_keep_nobody_waiting() {
    let twin = Arc::new(Twin::default());
    // Nothing ends by a limit of time in this test.
    let header = Duration::from_secs(3600);
    let limits = Limits { header, all: 2 * header, ..Limits::default() };
    let at = at_port(&twin, limits);
    let mut silent = Vec::new();
    for n in 0..2 * (limits.connections + limits.waiting) {
        let mut stream = TcpStream::connect(at).await.expect("it listens");
        if n % 2 == 0 {
            stream.write_all(b"GET /metrics HTTP/1.1\r\n").await.expect("it is taken");
        }
        silent.push(stream);
    }
    for _ in 0..3 {
        let scrape = ask_port(at, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let answer = timeout(Duration::from_secs(60), scrape).await.expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    // The oldest ones were closed, and those that came last are kept.
    let mut octets = [0; 1];
    let first = timeout(Duration::from_secs(60), silent[1].read(&mut octets)).await;
    assert!(matches!(first.expect("it is closed"), Ok(0) | Err(_)));
    let mut last = silent.pop().expect("some");
    last.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("kept");
    let mut answer = String::new();
    let _ = timeout(Duration::from_secs(60), last.read_to_string(&mut answer)).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
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

/// Each path of the page, with the type of what is there.
const PATHS: [(&str, &str); 9] = [
    ("/", "text/html; charset=utf-8"),
    ("/page.css", "text/css; charset=utf-8"),
    ("/page.js", "text/javascript; charset=utf-8"),
    ("/icon.svg", "image/svg+xml"),
    ("/api/tunnels?page=1&filter=&state=", "application/json"),
    ("/api/why?name=site", "application/json"),
    ("/api/certificates", "application/json"),
    ("/api/drops", "application/json"),
    (page::EVENTS, "text/event-stream"),
];

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

/// Sends a request and reads until the answer has this text.
async fn ask_until(at: SocketAddr, path: &str, text: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(at).await.expect("it listens");
    stream.write_all(get(path).as_bytes()).await.expect("it is taken");
    let answer = read_until(&mut stream, text).await;
    (stream, answer)
}

async fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let mut answer = String::new();
    let mut octets = [0; 4096];
    while !answer.contains(text) {
        let n = stream.read(&mut octets).await.expect("it is open");
        assert!(n > 0, "ended before {text:?}: {answer}");
        answer.push_str(std::str::from_utf8(&octets[..n]).expect("text"));
    }
    answer
}

#[tokio::test]
async fn every_answer_forbids_a_browser_whatever_the_page_does_not_need() {
    let twin = Arc::new(Twin::default());
    let at = at_port(&twin, Limits::default());
    let policy = "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                  img-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; \
                  require-trusted-types-for 'script'; trusted-types 'none'";
    for (path, content) in PATHS.into_iter().chain([("/metrics", OPENMETRICS)]) {
        let (_, answer) = ask_until(at, path, "\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
        for header in [
            &format!("content-type: {content}"),
            policy,
            "x-content-type-options: nosniff",
            "cache-control: no-store",
            "referrer-policy: no-referrer",
            "cross-origin-resource-policy: same-origin",
        ] {
            assert!(answer.contains(&format!("\r\n{header}\r\n")), "{path} {header}: {answer}");
        }
    }
    // Refusals, too.
    for request in [get("/nothing"), get("/api/why?name=nobody"), get("/api/tunnels?page=x")] {
        let answer = ask_port(at, &request).await;
        assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
        assert!(
            answer.contains(policy) && answer.contains("\r\ncontent-type: text/plain"),
            "{answer}"
        );
    }
}

#[test]
fn the_page_has_no_script_or_style_but_in_its_files() {
    let html = include_str!("../page/page.html");
    for inline in [
        " style=",
        "<style",
        "javascript:",
        "http:",
        "https:",
        " onclick",
        " onload",
        " onerror",
        "//",
    ] {
        assert!(!html.contains(inline), "{inline}");
    }
    assert_eq!(html.matches("<script").count(), 1);
    let script = include_str!("../page/page.js");
    for markup in [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "DOMParser",
        "new Function",
    ] {
        assert!(!script.contains(markup), "{markup}");
    }
    for elsewhere in ["http:", "https:"] {
        assert!(
            !script.contains(elsewhere) && !include_str!("../page/page.css").contains(elsewhere)
        );
    }
}

#[tokio::test]
async fn without_the_page_only_metrics_are_there() {
    let at = at_port_with(&Arc::new(Twin::default()), Limits::default(), false);
    for (path, _) in PATHS {
        let answer = ask_port(at, &get(path)).await;
        assert!(answer.starts_with("HTTP/1.1 404"), "{path}: {answer}");
        assert!(
            answer.contains("the setting page of [metrics] in vpnd.toml turns it on"),
            "{answer}"
        );
    }
    assert!(ask_port(at, &get("/metrics")).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn a_request_that_a_page_of_another_site_causes_is_refused() {
    let twin = Arc::new(Twin::default());
    let at = at_port(&twin, Limits::default());
    let request = |path: &str, site: &str, mode: &str, dest: &str| {
        format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: {site}\r\nSec-Fetch-Mode: {mode}\r\n\
             Sec-Fetch-Dest: {dest}\r\n\r\n"
        )
    };
    for (path, site, mode, dest, status) in [
        ("/api/tunnels", "same-origin", "cors", "empty", "200"),
        ("/", "none", "navigate", "document", "200"),
        ("/metrics", "none", "navigate", "document", "200"),
        // A link on another page.
        ("/", "cross-site", "navigate", "document", "200"),
        ("/", "cross-site", "navigate", "iframe", "403"),
        ("/", "cross-site", "no-cors", "image", "403"),
        ("/api/tunnels", "cross-site", "navigate", "document", "403"),
        ("/api/tunnels", "same-site", "cors", "empty", "403"),
        ("/api/events", "cross-site", "cors", "empty", "403"),
        ("/page.js", "cross-site", "no-cors", "script", "403"),
        ("/metrics", "cross-site", "no-cors", "empty", "403"),
    ] {
        let answer = ask_port(at, &request(path, site, mode, dest)).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{path} {site} {mode} {dest}: {answer}"
        );
    }
    // Another host by a name of its own.
    for (path, _) in PATHS {
        let answer =
            ask_port(at, &format!("GET {path} HTTP/1.1\r\nHost: evil.example\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 421"), "{path}: {answer}");
    }
}

#[tokio::test]
async fn an_explanation_is_told_as_json_and_an_unknown_name_is_refused() {
    let at = at_port(&Arc::new(Twin::default()), Limits::default());
    let answer = ask_port(at, &get("/api/why?name=site")).await;
    assert!(
        answer.ends_with("\r\n\r\n{\"name\":\"site\",\"state\":\"down\",\"text\":\"<b>\\n\"}"),
        "{answer}"
    );
    let answer = ask_port(at, &get("/api/why?name=%3Cscript%3E")).await;
    assert!(
        answer.starts_with("HTTP/1.1 404") && answer.ends_with("no tunnel \"<script>\"\n"),
        "{answer}"
    );
    for wrong in ["/api/why", "/api/why?tunnel=site", "/api/why?name=a&name=b"] {
        let answer = ask_port(at, &get(wrong)).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{wrong}: {answer}");
    }
    let stopped = Arc::new(Twin { stopped: true, ..Twin::default() });
    let at = at_port(&stopped, Limits::default());
    for path in ["/api/tunnels", "/api/drops", "/metrics"] {
        let answer = ask_port(at, &get(path)).await;
        assert!(
            answer.starts_with("HTTP/1.1 503") && answer.ends_with("the gateway has stopped\n"),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn events_arrive_while_scrapes_go_on() {
    let twin = Arc::new(Twin::default());
    twin.news.tell(&happening("before"));
    // One place for connections: a stream does not keep it.
    let at = at_port(&twin, Limits { connections: 1, streams: 2, ..Limits::default() });
    let (mut first, told) = ask_until(at, page::EVENTS, "before").await;
    assert!(told.contains("event: latest\ndata: [{"), "{told}");
    let (second, _) = ask_until(at, page::EVENTS, "before").await;
    let refused = ask_port(at, &get(page::EVENTS)).await;
    assert!(
        refused.starts_with("HTTP/1.1 503") && refused.contains("too many browsers"),
        "{refused}"
    );
    // It reads nothing, and so takes no place.
    let head = ask_port(at, "HEAD /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert!(!head.contains("latest"), "{head}");
    assert!(ask_port(at, &get("/metrics")).await.starts_with("HTTP/1.1 200"));
    twin.news.tell(&happening("after"));
    let told = read_until(&mut first, "after").await;
    assert!(told.contains("data: {\"time\":"), "{told}");
    // A place is free again when a browser has gone.
    drop(second);
    loop {
        let mut stream = TcpStream::connect(at).await.expect("it listens");
        stream.write_all(get(page::EVENTS).as_bytes()).await.expect("it is taken");
        if read_until(&mut stream, "\r\n\r\n").await.starts_with("HTTP/1.1 200") {
            break;
        }
    }
}

/// A conversation in memory, with the places for streams.
async fn conversation(twin: Twin, limits: Limits) -> (DuplexStream, Arc<Semaphore>) {
    let streams = Arc::new(Semaphore::new(1));
    let endpoint = Endpoint {
        source: Arc::new(twin),
        hosts: None,
        page: true,
        limits,
        answers: Arc::new(Semaphore::new(1)),
        streams: Arc::clone(&streams),
    };
    let connection = Arc::new(Semaphore::new(1)).acquire_owned().await.expect("it is open");
    let places = Places { connection, answer: Mutex::default(), has_asked: Arc::default() };
    let (browser, server) = tokio::io::duplex(4096);
    tokio::spawn(converse(Box::new(server), places, Arc::new(endpoint)));
    (browser, streams)
}

#[tokio::test(start_paused = true)]
async fn a_stream_outlasts_a_request_but_not_for_ever() {
    let limits = Limits::default();
    let (browser, _) = conversation(Twin::default(), limits).await;
    let begun = tokio::time::Instant::now();
    // Time goes on by itself in this test.
    let answer = ask(browser, &get(page::EVENTS)).await;
    assert!(begun.elapsed() >= limits.stream && limits.stream > limits.all, "{answer}");
    assert!(
        answer.contains("event: latest") && answer.contains(":\n\n"),
        "with heartbeats: {answer}"
    );
    assert!(answer.ends_with("\r\n0\r\n\r\n"), "it ends in order: {answer}");
}

#[tokio::test(start_paused = true)]
async fn a_browser_that_does_not_read_its_stream_loses_its_place() {
    let twin = Twin::default();
    for _ in 0..100 {
        twin.news.tell(&happening(&"x".repeat(200)));
    }
    let (mut browser, streams) = conversation(twin, Limits::default()).await;
    browser.write_all(get(page::EVENTS).as_bytes()).await.expect("it is taken");
    let mut octets = [0; 16];
    browser.read_exact(&mut octets).await.expect("it answers");
    assert_eq!(streams.available_permits(), 0);
    // The browser keeps the connection, and reads nothing more.
    let _place = streams.acquire().await.expect("it is open");
    drop(browser);
}
