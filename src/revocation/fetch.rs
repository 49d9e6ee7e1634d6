//! Fetching one revocation list over HTTP.
//!
//! Plain HTTP only: each list carries its issuer's signature. By HTTPS, a list about the certificate of its own server
//! could not be fetched (RFC 5280 §8).

use super::reach::Reach;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::header::{ACCEPT, HOST, LOCATION, USER_AGENT};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Redirections that are followed.
const REDIRECTIONS: usize = 2;

/// Limits of a fetch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Time for all of it.
    pub time: Duration,
    /// Octets of the answer.
    pub size: usize,
}

/// A list could not be fetched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FetchError {
    #[error("not an http address")]
    Scheme,
    #[error("cannot resolve the name {host}: {why}")]
    Resolve { host: String, why: String },
    #[error(
        "{address} {problem}; if the list is to come from there, name {host} in [certificates] crl_hosts, or put the \
         list into a file ([certificates] crls)"
    )]
    Address { host: String, address: IpAddr, problem: String },
    #[error("the networks of this machine are not known: {0}")]
    Networks(String),
    #[error("cannot connect: {0}")]
    Connect(String),
    #[error("the server answers {0}")]
    Status(u16),
    #[error("more than {REDIRECTIONS} redirections")]
    Redirections,
    #[error("the answer breaks off or is larger than {size} octets: {why}")]
    Body { size: usize, why: String },
    #[error("no whole answer within {0:?}")]
    Time(Duration),
}

/// Returns `true` if a URL is one that [`get`] can fetch.
pub(super) fn is_http(url: &str) -> bool {
    url.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http://"))
}

/// Fetches the octets at a URL, from a server within `reach`.
pub(super) async fn get(
    url: &str,
    limits: Limits,
    reach: Reach<'_>,
) -> Result<Vec<u8>, FetchError> {
    tokio::time::timeout(limits.time, follow(url, limits, reach))
        .await
        .unwrap_or(Err(FetchError::Time(limits.time)))
}

async fn follow(url: &str, limits: Limits, reach: Reach<'_>) -> Result<Vec<u8>, FetchError> {
    let mut uri: Uri = url.parse().map_err(|_| FetchError::Scheme)?;
    for _ in 0..=REDIRECTIONS {
        match ask(&uri, limits, reach).await? {
            Answer::Body(octets) => return Ok(octets),
            Answer::Elsewhere(next) => uri = next,
        }
    }
    Err(FetchError::Redirections)
}

enum Answer {
    Body(Vec<u8>),
    Elsewhere(Uri),
}

async fn ask(uri: &Uri, limits: Limits, reach: Reach<'_>) -> Result<Answer, FetchError> {
    let (Some("http"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(FetchError::Scheme);
    };
    let (host, port) = (authority.host(), authority.port_u16());
    let stream = connect(host, port.unwrap_or(80), reach).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    // Ends with this function, however that ends.
    let mut tasks = JoinSet::new();
    tasks.spawn(connection);
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    // The Host header leaves out user names and passwords of the URL.
    let host = port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    let request = Request::get(path)
        .header(HOST, host)
        .header(ACCEPT, "application/pkix-crl, */*")
        .header(USER_AGENT, "vpnd")
        .body(Empty::<Bytes>::new())
        .map_err(|_| FetchError::Scheme)?;
    let response = sender.send_request(request).await.map_err(broken)?;
    let status = response.status();
    if status.is_redirection() {
        let location = response.headers().get(LOCATION).and_then(|location| location.to_str().ok());
        let next = location.and_then(|location| resolve(uri, location));
        return next.map(Answer::Elsewhere).ok_or(FetchError::Status(status.as_u16()));
    }
    if status != StatusCode::OK {
        return Err(FetchError::Status(status.as_u16()));
    }
    let body = Limited::new(response.into_body(), limits.size).collect().await;
    let body =
        body.map_err(|error| FetchError::Body { size: limits.size, why: error.to_string() })?;
    Ok(Answer::Body(body.to_bytes().to_vec()))
}

fn broken(error: hyper::Error) -> FetchError {
    FetchError::Connect(error.to_string())
}

/// Where a redirection leads: an absolute URL, or a path on the same server.
fn resolve(from: &Uri, location: &str) -> Option<Uri> {
    if !location.starts_with('/') {
        return location.parse().ok();
    }
    let mut parts = from.clone().into_parts();
    parts.path_and_query = Some(location.parse().ok()?);
    Uri::from_parts(parts).ok()
}

async fn connect(host: &str, port: u16, reach: Reach<'_>) -> Result<TcpStream, FetchError> {
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let found = tokio::net::lookup_host((name, port))
        .await
        .map_err(|error| FetchError::Resolve { host: host.into(), why: error.to_string() });
    let addresses: Vec<SocketAddr> = found?.collect();
    let mut last = FetchError::Resolve { host: host.into(), why: "it has no address".into() };
    for address in addresses {
        if let Err(error) = reach.check(name, address.ip()) {
            last = error;
            continue;
        }
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = FetchError::Connect(format!("{address}: {error}")),
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::Policy;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    const LIMITS: Limits = Limits { time: Duration::from_secs(300), size: 64 };

    /// Fetches from a server of this machine, whose host the operator has named.
    async fn get(url: &str, limits: Limits) -> Result<Vec<u8>, FetchError> {
        let (hosts, policy) = (["127.0.0.1".to_owned()], Policy::default());
        super::get(url, limits, Reach { hosts: &hosts, policy: &policy, own: || Ok(vec![]) }).await
    }

    /// Serves these answers, one connection each. Returns the URL of the server, and the requests that it received.
    async fn server(answers: Vec<String>) -> (String, tokio::task::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/a.crl", listener.local_addr().expect("bound"));
        let task = tokio::spawn(async move {
            let mut asked = Vec::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().await.expect("a client");
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    request.push(stream.read_u8().await.expect("a whole request"));
                }
                let text = String::from_utf8(request).expect("text");
                asked.push(text.lines().next().unwrap_or_default().to_owned());
                stream.write_all(answer.as_bytes()).await.expect("taken");
            }
            asked
        });
        (url, task)
    }

    fn ok(body: &str) -> String {
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    }

    fn moved(to: &str) -> String {
        format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")
    }

    #[tokio::test]
    async fn a_list_is_fetched_also_through_redirections() {
        let (url, server) = server(vec![moved("/b.crl?c=1"), ok("list")]).await;
        assert_eq!(get(&url, LIMITS).await, Ok(b"list".to_vec()));
        let asked = server.await.expect("no panic");
        assert_eq!(asked, ["GET /a.crl HTTP/1.1", "GET /b.crl?c=1 HTTP/1.1"]);
    }

    #[tokio::test]
    async fn redirections_have_an_end() {
        let (url, _server) = server(vec![moved("/a.crl"); 3]).await;
        assert_eq!(get(&url, LIMITS).await, Err(FetchError::Redirections));
    }

    #[tokio::test]
    async fn an_answer_that_is_no_list_says_why() {
        let (url, _server) = server(vec!["HTTP/1.1 404 Not Found\r\n\r\n".into()]).await;
        assert_eq!(get(&url, LIMITS).await, Err(FetchError::Status(404)));
        let (url, _server) = server(vec![moved("https://a.example/")]).await;
        assert_eq!(get(&url, LIMITS).await, Err(FetchError::Scheme));
        let (url, _server) = server(vec![ok(&"x".repeat(65))]).await;
        assert!(matches!(get(&url, LIMITS).await, Err(FetchError::Body { size: 64, .. })));
        assert_eq!(get("ldap://a.example/cn=ca", LIMITS).await, Err(FetchError::Scheme));
    }

    #[tokio::test]
    async fn a_silent_server_is_left() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("bound"));
        let limits = Limits { time: Duration::from_millis(50), ..LIMITS };
        assert_eq!(get(&url, limits).await, Err(FetchError::Time(limits.time)));
    }

    #[tokio::test]
    async fn a_server_that_is_named_sends_nobody_to_another_of_this_machine() {
        let (url, _server) = server(vec![moved("http://127.0.0.2:1/")]).await;
        let error = get(&url, LIMITS).await.expect_err("nobody has named that one");
        assert!(matches!(&error, FetchError::Address { host, .. } if host == "127.0.0.2"));
        assert!(
            error.to_string().contains("name 127.0.0.2 in [certificates] crl_hosts"),
            "{error}"
        );
    }
}
