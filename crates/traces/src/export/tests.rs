use super::*;
use crate::span::{Outcome, SpanId, TraceId, Value};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use prost::Message;
use std::convert::Infallible;
use std::time::SystemTime;
use tokio::net::TcpListener;

/// A collector that answers its first requests with these numbers, and others with 200. Returns its place, and the requests
/// that it has taken.
async fn collector(
    answers: Vec<u16>,
) -> (Endpoint, mpsc::UnboundedReceiver<ExportTraceServiceRequest>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("bound");
    let (taken, requests) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut answers = answers.into_iter();
        loop {
            let (stream, _) = listener.accept().await.expect("a client");
            let status = StatusCode::from_u16(answers.next().unwrap_or(200)).expect("a number");
            let taken = taken.clone();
            let answer = service_fn(move |request: Request<Incoming>| {
                let taken = taken.clone();
                async move {
                    assert_eq!(request.uri().path(), "/v1/traces");
                    assert_eq!(request.headers()["content-type"], "application/x-protobuf");
                    let body = request.into_body().collect().await.expect("a whole request");
                    if status == StatusCode::OK {
                        let decoded = ExportTraceServiceRequest::decode(body.to_bytes());
                        taken.send(decoded.expect("protobuf")).expect("somebody reads");
                    }
                    let mut response = Response::new(Full::<Bytes>::default());
                    *response.status_mut() = status;
                    Ok::<_, Infallible>(response)
                }
            });
            // The client may close first.
            let connection = hyper::server::conn::http1::Builder::new();
            let _ = connection.serve_connection(TokioIo::new(stream), answer).await;
        }
    });
    let endpoint =
        Endpoint { host: at.ip().to_string(), port: at.port(), path: "/v1/traces".into() };
    (endpoint, requests)
}

fn span(id: u64, outcome: Outcome) -> Span {
    let begun = SystemTime::UNIX_EPOCH + Duration::from_nanos(5);
    Span {
        trace: TraceId((7 << 64) | 8),
        id: SpanId(id),
        parent: (id > 1).then_some(SpanId(1)),
        name: "IKE_AUTH".into(),
        is_exchange: id > 1,
        begun,
        ended: begun + Duration::from_nanos(3),
        attributes: vec![("vpn.tunnel", Value::from("site")), ("ike.message_id", Value::Number(1))],
        moments: vec![(begun, "retransmission")],
        outcome,
        live: crate::live::Live(tracing::Span::none()),
    }
}

const LIMITS: Limits = Limits {
    queue: 4,
    batch: 2,
    delay: Duration::from_millis(1),
    time: Duration::from_secs(60),
    pause: Duration::from_millis(1),
    finish_within: Duration::from_secs(60),
};

#[tokio::test]
async fn a_collector_reads_the_spans() {
    let (endpoint, mut requests) = collector(vec![]).await;
    let exporter = Exporter::start(endpoint, "vpnd", "gate", LIMITS);
    exporter.push(span(1, Outcome::Ok));
    exporter.push(span(2, Outcome::Error("no answer".to_owned())));
    assert_eq!(exporter.finish().await, 0);
    let request = requests.recv().await.expect("a request");
    let [of_host] = &request.resource_spans[..] else { panic!("{request:?}") };
    let text = |value: &str| Some(Any::StringValue(value.to_owned()));
    let attributes = &of_host.resource.as_ref().expect("who sends").attributes;
    let named = |name: &str| {
        let found = attributes.iter().find(|attribute| attribute.key == name);
        found.and_then(|attribute| attribute.value.clone()?.value)
    };
    assert_eq!((named("service.name"), named("host.name")), (text("vpnd"), text("gate")));
    let spans = &of_host.scope_spans[0].spans;
    let [first, second] = &spans[..] else { panic!("{spans:?}") };
    let trace = [[0; 7].as_slice(), &[7], &[0; 7], &[8]].concat();
    assert_eq!((&first.trace_id, &second.trace_id), (&trace, &trace));
    assert_eq!((first.kind, second.kind), (1, 3), "internal, client");
    assert_eq!((first.parent_span_id.len(), &second.parent_span_id), (0, &first.span_id));
    assert_eq!((first.start_time_unix_nano, first.end_time_unix_nano), (5, 8));
    assert_eq!(first.events[0].name, "retransmission");
    let status = |span: &opentelemetry_proto::tonic::trace::v1::Span| {
        let status = span.status.clone().expect("a status");
        (status.code, status.message)
    };
    assert_eq!(status(first), (1, String::new()), "OK");
    assert_eq!(status(second), (2, "no answer".to_owned()), "ERROR");
    let number = first.attributes[1].value.clone().and_then(|value| value.value);
    assert_eq!(number, Some(Any::IntValue(1)));
}

#[tokio::test]
async fn a_collector_that_cannot_now_gets_the_same_again() {
    let (endpoint, mut requests) = collector(vec![503, 429]).await;
    let exporter = Exporter::start(endpoint, "vpnd", "gate", LIMITS);
    exporter.push(span(1, Outcome::Ok));
    let request = requests.recv().await.expect("a request");
    assert_eq!(request.resource_spans[0].scope_spans[0].spans.len(), 1);
    assert_eq!(exporter.finish().await, 0);
}

#[tokio::test]
async fn a_request_that_the_collector_refuses_for_good_is_lost() {
    let (endpoint, mut requests) = collector(vec![400]).await;
    let exporter = Exporter::start(endpoint, "vpnd", "gate", Limits { batch: 1, ..LIMITS });
    exporter.push(span(1, Outcome::Ok));
    exporter.push(span(2, Outcome::Ok));
    let request = requests.recv().await.expect("the second one");
    assert_eq!(request.resource_spans[0].scope_spans[0].spans[0].span_id[7], 2);
    assert_eq!(exporter.finish().await, 1);
}

/// One thread: the sender has not run yet when the queue is full.
#[tokio::test]
async fn nobody_waits_for_a_collector_that_is_not_there() {
    let unused = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr();
    let port = unused.expect("bound").port();
    let endpoint = Endpoint { host: "127.0.0.1".to_owned(), port, path: "/v1/traces".to_owned() };
    let limits = Limits { finish_within: Duration::ZERO, ..LIMITS };
    let exporter = Exporter::start(endpoint, "vpnd", "gate", limits);
    (1..=10).for_each(|id| exporter.push(span(id, Outcome::Ok)));
    assert_eq!(exporter.lost(), 6);
    assert_eq!(exporter.finish().await, 6);
}

#[test]
fn numbers_at_random_differ() {
    assert_ne!(random_id(), random_id());
}
