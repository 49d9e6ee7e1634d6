//! One request to a collector (OTLP/HTTP).

use crate::endpoint::Endpoint;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message;
use std::io;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Octets of the longest answer.
const LONGEST_ANSWER: usize = 64 << 10;

/// A collector did not take a request.
#[derive(Debug, thiserror::Error)]
pub(super) enum PostError {
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    #[error("the connection breaks off: {0}")]
    Http(#[from] hyper::Error),
    #[error("the collector answers {0}")]
    Status(StatusCode),
    #[error("no answer within {0:?}")]
    Time(Duration),
    #[error("not a request: {0}")]
    Request(#[from] hyper::http::Error),
}

impl PostError {
    /// Returns `true` if the same request will not be taken later either (OTLP/HTTP, "Retryable response codes").
    pub fn is_final(&self) -> bool {
        match self {
            Self::Status(status) => !matches!(status.as_u16(), 429 | 502 | 503 | 504),
            Self::Request(_) => true,
            _ => false,
        }
    }
}

/// Sends a request. Returns the number of spans in it that the collector refuses.
pub(super) async fn post(
    endpoint: &Endpoint,
    body: Bytes,
    time: Duration,
) -> Result<u64, PostError> {
    tokio::time::timeout(time, ask(endpoint, body)).await.unwrap_or(Err(PostError::Time(time)))
}

async fn ask(endpoint: &Endpoint, body: Bytes) -> Result<u64, PostError> {
    let stream = TcpStream::connect((&*endpoint.host, endpoint.port)).await;
    let stream = TokioIo::new(stream.map_err(PostError::Connect)?);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
    // Ends with this function, however that ends.
    let mut tasks = JoinSet::new();
    tasks.spawn(connection);
    let request = Request::post(&endpoint.path)
        .header(HOST, endpoint.authority())
        .header(CONTENT_TYPE, "application/x-protobuf")
        .header(USER_AGENT, concat!("vpnd/", env!("CARGO_PKG_VERSION")))
        .body(Full::new(body))?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    if !status.is_success() {
        return Err(PostError::Status(status));
    }
    // Whatever else it says, it has taken the request.
    let Ok(answer) = Limited::new(response.into_body(), LONGEST_ANSWER).collect().await else {
        return Ok(0);
    };
    let answer = ExportTraceServiceResponse::decode(answer.to_bytes()).unwrap_or_default();
    let refused = answer.partial_success.map_or(0, |partial| partial.rejected_spans);
    Ok(u64::try_from(refused).unwrap_or(0))
}
