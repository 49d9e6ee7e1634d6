//! The endpoint: HTTP/1.1, `GET` of `/metrics` and of the page.
//!
//! A page in a browser can have the browser send requests to addresses of this machine, but not choose the Host header.
//! So only a request that names an address, or a name from the settings, is answered (DNS rebinding).
//!
//! ```text
//! accept ─▶ a connection's place ─▶ request ─▶ an answer's place ─▶ whose? ─┬─▶ /metrics, page ─▶ answer, and the
//!               ▲      ▲                                                     │                   connection ends
//!               │      └── taken from the oldest one that has asked nothing  └─▶ /api/events ─▶ a stream's place
//!               └────────────────────────────── given back, both ─────────────────────────────────────┘
//! ```

use crate::address::Bound;
use crate::page::{self, Answer, words};
use crate::source::Source;
use host::socket_file::SocketFile;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, server::conn::http1};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

mod stream;
mod visitor;

/// The type of the text of a scrape.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The headers of every answer. The policy lets the page have what comes from this endpoint, and no script but the one
/// in its file; that one cannot make markup of text.
const HEADERS: [(&str, &str); 5] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
         frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; \
         trusted-types 'none'",
    ),
    ("cache-control", "no-store"),
    ("cross-origin-resource-policy", "same-origin"),
    ("referrer-policy", "no-referrer"),
    ("x-content-type-options", "nosniff"),
];

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The requests that are answered.
#[derive(Clone, Debug)]
pub struct Access {
    /// Over TCP, the Host header must be an address, `localhost` or one of these names.
    pub hosts: Vec<String>,
    /// Whether there is a page for browsers, too.
    pub page: bool,
}

/// Limits on the resources that clients may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests that are answered at the same time; others wait until one of them ends.
    pub connections: usize,
    /// Further connections at the same time. A new one takes the place of the oldest one that has asked nothing yet.
    pub waiting: usize,
    /// Streams of events at the same time, which are not among these connections. Others are refused.
    pub streams: usize,
    /// For a stream of events; a browser then asks for another one.
    pub stream: Duration,
    /// For the header of a request to arrive.
    pub header: Duration,
    /// For a request and its answer.
    pub all: Duration,
    /// Octets of the header of a request.
    pub octets: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 16,
            waiting: 64,
            streams: 8,
            stream: Duration::from_secs(600),
            header: Duration::from_secs(5),
            all: Duration::from_secs(60),
            octets: 16 * 1024,
        }
    }
}

/// A socket that listens, in a runtime.
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, #[allow(dead_code, reason = "it goes with the listener")] SocketFile),
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A running endpoint.
struct Endpoint<S> {
    source: Arc<S>,
    /// `None`: whatever the Host header says.
    hosts: Option<Vec<String>>,
    page: bool,
    limits: Limits,
    answers: Arc<Semaphore>,
    streams: Arc<Semaphore>,
}

/// A connection that may not have asked anything yet.
struct Silent {
    has_asked: Arc<AtomicBool>,
    task: AbortHandle,
}

/// The places of a connection: its own, and from its request on that of an answer.
struct Places {
    connection: OwnedSemaphorePermit,
    answer: Mutex<Option<OwnedSemaphorePermit>>,
    has_asked: Arc<AtomicBool>,
}

/// Serves clients until the future is dropped.
///
/// # Errors
/// If the runtime does not take the socket.
pub async fn serve<S: Source>(
    bound: Bound,
    access: Access,
    limits: Limits,
    source: Arc<S>,
) -> io::Result<()> {
    let Access { hosts, page } = access;
    let (listener, hosts) = match bound {
        Bound::Tcp(listener) => (Listener::Tcp(TcpListener::from_std(listener)?), Some(hosts)),
        // No browser connects to a Unix socket.
        Bound::Unix(listener, file) => {
            (Listener::Unix(UnixListener::from_std(listener)?, file), None)
        }
    };
    let streams = Arc::new(Semaphore::new(limits.streams));
    let answers = Arc::new(Semaphore::new(limits.connections));
    let endpoint = Arc::new(Endpoint { source, hosts, page, limits, answers, streams });
    let places = Arc::new(Semaphore::new(limits.connections + limits.waiting));
    let mut clients = JoinSet::new();
    let mut silent: VecDeque<Silent> = VecDeque::new();
    loop {
        while clients.try_join_next().is_some() {}
        let accepted: io::Result<Box<dyn Stream>> = match &listener {
            Listener::Tcp(listener) => listener.accept().await.map(|(s, _)| Box::new(s) as _),
            Listener::Unix(listener, _) => listener.accept().await.map(|(s, _)| Box::new(s) as _),
        };
        match accepted {
            Ok(stream) => {
                silent.retain(|s| !s.has_asked.load(Ordering::Relaxed) && !s.task.is_finished());
                // A stranger that opens connections and says nothing keeps nobody waiting.
                if places.available_permits() == 0
                    && let Some(oldest) = silent.pop_front()
                {
                    oldest.task.abort();
                }
                let Ok(connection) = Arc::clone(&places).acquire_owned().await else {
                    return Ok(());
                };
                let has_asked = Arc::new(AtomicBool::new(false));
                let asked = Arc::clone(&has_asked);
                let places = Places { connection, answer: Mutex::default(), has_asked: asked };
                let task = clients.spawn(converse(stream, places, Arc::clone(&endpoint)));
                silent.push_back(Silent { has_asked, task });
            }
            Err(error) => {
                // Out of descriptors: until one is freed, accept would fail again at once.
                warn!(%error, "cannot accept a connection for metrics");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Answers one request. A stream of events gives the places back.
async fn converse<S: Source>(stream: Box<dyn Stream>, places: Places, endpoint: Arc<Endpoint<S>>) {
    let Places { connection: place, answer, has_asked } = places;
    let answer = Arc::new(answer);
    let of_answer = Arc::clone(&answer);
    let lasting = Arc::new(Notify::new());
    let limits = endpoint.limits;
    let begun = Arc::clone(&lasting);
    let service = service_fn(move |request: Request<Incoming>| {
        has_asked.store(true, Ordering::Relaxed);
        let (endpoint, begun) = (Arc::clone(&endpoint), Arc::clone(&begun));
        let of_answer = Arc::clone(&of_answer);
        // No request needs its body.
        let (head, _) = request.into_parts();
        async move {
            let place = Arc::clone(&endpoint.answers).acquire_owned().await.ok();
            *of_answer.lock().unwrap_or_else(PoisonError::into_inner) = place;
            Ok::<_, Infallible>(endpoint.respond(&head, &begun).await)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header)
        .max_buf_size(limits.octets)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = sleep(limits.all) => return debug!("a connection for metrics took too long"),
        () = lasting.notified() => {
            drop((place, answer.lock().unwrap_or_else(PoisonError::into_inner).take()));
            // The stream ends before, but for a browser that does not take it.
            match timeout(limits.stream + limits.all, connection).await {
                Ok(ended) => ended,
                Err(_) => return debug!("a stream of events was not read"),
            }
        }
    };
    if let Err(error) = ended {
        debug!(%error, "a connection for metrics ended early");
    }
}

impl<S: Source> Endpoint<S> {
    /// `lasting` is told if the answer is a stream.
    async fn respond(&self, request: &Parts, lasting: &Notify) -> Response<Body> {
        if let Some(refusal) = self.refusal(request) {
            return response(refusal);
        }
        match request.uri.path() {
            "/metrics" => response(match self.source.scrape().await {
                Some(body) => Answer { status: StatusCode::OK, content: OPENMETRICS, body },
                None => words(StatusCode::SERVICE_UNAVAILABLE, "the gateway has stopped\n"),
            }),
            page::EVENTS if request.method == Method::HEAD => with_headers(
                StatusCode::OK,
                stream::EVENT_STREAM,
                Full::<Bytes>::default().boxed_unsync(),
            ),
            page::EVENTS => match stream::begin(self.source.news(), &self.streams, self.limits) {
                Some(body) => {
                    lasting.notify_one();
                    with_headers(StatusCode::OK, stream::EVENT_STREAM, body)
                }
                None => {
                    let text = "too many browsers read the events already; close one of them\n";
                    response(words(StatusCode::SERVICE_UNAVAILABLE, text))
                }
            },
            _ => response(page::answer(request, &*self.source).await),
        }
    }

    /// The refusal of a request that nothing is asked for.
    fn refusal(&self, request: &Parts) -> Option<Answer> {
        if self.hosts.as_ref().is_some_and(|hosts| !visitor::is_for_us(request, hosts)) {
            let text = "the Host header names neither an address nor a host of the setting hosts of [metrics] in vpnd.toml\n";
            return Some(words(StatusCode::MISDIRECTED_REQUEST, text));
        }
        if visitor::is_cross_site(request) {
            let text = "a page of another site has sent this request; enter the address yourself\n";
            return Some(words(StatusCode::FORBIDDEN, text));
        }
        let path = request.uri.path();
        if path != "/metrics" && !page::has(path) {
            let text = "nothing is here: the metrics are at /metrics, and the page is at /\n";
            return Some(words(StatusCode::NOT_FOUND, text));
        }
        if path != "/metrics" && !self.page {
            let text = "the page is off: the setting page of [metrics] in vpnd.toml turns it on; the metrics are at /metrics\n";
            return Some(words(StatusCode::NOT_FOUND, text));
        }
        let reads = [Method::GET, Method::HEAD].contains(&request.method);
        (!reads).then(|| {
            words(StatusCode::METHOD_NOT_ALLOWED, "metrics and the page can only be read\n")
        })
    }
}

fn response(answer: Answer) -> Response<Body> {
    let Answer { status, content, body } = answer;
    let mut response = with_headers(status, content, Full::new(body).boxed_unsync());
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

fn with_headers(status: StatusCode, content: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    for (name, value) in [("content-type", content)].into_iter().chain(HEADERS) {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests;
