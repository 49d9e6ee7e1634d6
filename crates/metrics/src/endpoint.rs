//! The endpoint: HTTP/1.1, `GET /metrics` and nothing else.
//!
//! A page in a browser can have the browser send requests to addresses of this machine, but not choose the Host header.
//! So only a request that names an address, or a name from the settings, is answered (DNS rebinding).

use crate::address::Bound;
use host::socket_file::SocketFile;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST, X_CONTENT_TYPE_OPTIONS};
use hyper::http::request::Parts;
use hyper::http::uri::Authority;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, server::conn::http1};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{debug, warn};

/// The type of the text.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The side that has the numbers.
pub trait Source: Send + Sync + 'static {
    /// The text of a scrape; `None`: the gateway has stopped.
    fn scrape(&self) -> impl Future<Output = Option<Bytes>> + Send;
}

/// Limits on the resources that clients may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at the same time; others wait until one of them ends.
    pub connections: usize,
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
            connections: 8,
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

/// Serves clients until the future is dropped. Over TCP, the Host header must be an address, `localhost` or one of
/// `hosts`.
///
/// # Errors
/// If the runtime does not take the socket.
pub async fn serve<S: Source>(
    bound: Bound,
    hosts: Vec<String>,
    limits: Limits,
    source: Arc<S>,
) -> io::Result<()> {
    let (listener, hosts) = match bound {
        Bound::Tcp(listener) => (Listener::Tcp(TcpListener::from_std(listener)?), Some(hosts)),
        // No browser connects to a Unix socket.
        Bound::Unix(listener, file) => {
            (Listener::Unix(UnixListener::from_std(listener)?, file), None)
        }
    };
    let hosts = Arc::new(hosts);
    let slots = Arc::new(Semaphore::new(limits.connections));
    let mut clients = JoinSet::new();
    loop {
        while clients.try_join_next().is_some() {}
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return Ok(()) };
        let accepted: io::Result<Box<dyn Stream>> = match &listener {
            Listener::Tcp(listener) => listener.accept().await.map(|(s, _)| Box::new(s) as _),
            Listener::Unix(listener, _) => listener.accept().await.map(|(s, _)| Box::new(s) as _),
        };
        match accepted {
            Ok(stream) => {
                let (source, hosts) = (Arc::clone(&source), Arc::clone(&hosts));
                clients.spawn(async move {
                    converse(stream, limits, source, hosts).await;
                    drop(slot);
                });
            }
            Err(error) => {
                // Out of descriptors: until one is freed, accept would fail again at once.
                warn!(%error, "cannot accept a connection for metrics");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Answers one request.
async fn converse<S: Source>(
    stream: Box<dyn Stream>,
    limits: Limits,
    source: Arc<S>,
    hosts: Arc<Option<Vec<String>>>,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let (source, hosts) = (Arc::clone(&source), Arc::clone(&hosts));
        // No request needs its body.
        let (head, _) = request.into_parts();
        async move { Ok::<_, Infallible>(answer(&head, &*source, hosts.as_deref()).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header)
        .max_buf_size(limits.octets)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    match timeout(limits.all, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(%error, "a connection for metrics ended early"),
        Err(_) => debug!("a connection for metrics took too long"),
    }
}

async fn answer<S: Source>(
    request: &Parts,
    source: &S,
    hosts: Option<&[String]>,
) -> Response<Full<Bytes>> {
    if hosts.is_some_and(|hosts| !is_for_us(request, hosts)) {
        let text = "the Host header names neither an address nor a host of the setting hosts of [metrics] in vpnd.toml\n";
        return words(StatusCode::MISDIRECTED_REQUEST, text);
    }
    if request.uri.path() != "/metrics" {
        return words(StatusCode::NOT_FOUND, "the metrics are at /metrics\n");
    }
    if ![Method::GET, Method::HEAD].contains(&request.method) {
        let mut refusal = words(StatusCode::METHOD_NOT_ALLOWED, "metrics can only be read\n");
        refusal.headers_mut().insert(ALLOW, "GET, HEAD".parse().expect("plain ASCII"));
        return refusal;
    }
    match source.scrape().await {
        Some(text) => response(StatusCode::OK, OPENMETRICS, text),
        None => words(StatusCode::SERVICE_UNAVAILABLE, "the gateway has stopped\n"),
    }
}

fn words(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    response(status, "text/plain; charset=utf-8", Bytes::from_static(text.as_bytes()))
}

fn response(status: StatusCode, content: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    for (name, value) in
        [(CONTENT_TYPE, content), (CACHE_CONTROL, "no-store"), (X_CONTENT_TYPE_OPTIONS, "nosniff")]
    {
        headers.insert(name, hyper::header::HeaderValue::from_static(value));
    }
    response
}

/// Returns `true` if a request names an address, this host, or one of `hosts`, wherever it names a host.
fn is_for_us(request: &Parts, hosts: &[String]) -> bool {
    let mut named = request.headers.get_all(HOST).iter();
    let (Some(host), None) = (named.next(), named.next()) else { return false };
    let host = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
    let of_target = request.uri.authority();
    host.is_some_and(|host| is_ours(&host, hosts)) && of_target.is_none_or(|a| is_ours(a, hosts))
}

fn is_ours(authority: &Authority, hosts: &[String]) -> bool {
    let host = authority.host();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let known = bare.parse::<IpAddr>().is_ok()
        || host.eq_ignore_ascii_case("localhost")
        || hosts.iter().any(|ours| host.eq_ignore_ascii_case(ours));
    known && !authority.as_str().contains('@')
}

#[cfg(test)]
mod tests;
