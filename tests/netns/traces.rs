//! Spans of negotiations and rekeys, as a collector receives them from the daemon.

use crate::site::{hosts, passes, two};
use libtest_mimic::Trial;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use testkit::gateway::{GIVES_UP, Gateway};
use testkit::policies::{changed, site};
use testkit::{GATEWAYS, test, until};

pub fn trials() -> Vec<Trial> {
    vec![
        test("a collector gets spans of negotiations and rekeys", GATEWAYS, spans_of_a_tunnel),
        test("a span of a negotiation that fails has the reason", GATEWAYS, spans_of_a_failure),
        test("tunnels do not wait for a collector", GATEWAYS, without_a_collector),
    ]
}

const PORT: u16 = 4318;
const SETTING: &str = "[traces]\nendpoint = \"http://127.0.0.1:4318/v1/traces\"\n";
const OK: i32 = 1;
const ERROR: i32 = 2;

/// A collector on a gateway.
struct Collector<'a> {
    gateway: &'a Gateway,
    spans: Arc<Mutex<Vec<Span>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl<'a> Collector<'a> {
    fn start(gateway: &'a Gateway) -> Self {
        let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, PORT)).expect("a free port");
        let listener = gateway.space.run(bind);
        let (spans, stop) = (Arc::<Mutex<Vec<Span>>>::default(), Arc::<AtomicBool>::default());
        let (taken, end) = (Arc::clone(&spans), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept()
                && !end.load(Ordering::Relaxed)
            {
                let request = read(stream);
                let of_hosts = request.resource_spans.into_iter();
                let all = of_hosts.flat_map(|host| host.scope_spans).flat_map(|scope| scope.spans);
                taken.lock().expect("no thread panics").extend(all);
            }
        });
        Self { gateway, spans, stop, thread: Some(thread) }
    }

    /// Waits for a span with this name and status.
    fn await_span(&self, name: &str, status: i32) -> Span {
        let is_it = |span: &&Span| {
            span.name == name && span.status.as_ref().is_some_and(|told| told.code == status)
        };
        let look = || self.spans.lock().expect("no thread panics").iter().find(is_it).cloned();
        until(name, look, || format!("{:#?}\n{}", self.spans, self.gateway.log()))
    }

    /// The names of the spans that are parts of a span.
    fn parts_of(&self, whole: &Span) -> Vec<String> {
        let spans = self.spans.lock().expect("no thread panics");
        let parts = spans.iter().filter(|span| {
            span.trace_id == whole.trace_id
                && span.parent_span_id == whole.span_id
                && span.start_time_unix_nano >= whole.start_time_unix_nano
        });
        parts.map(|span| span.name.clone()).collect()
    }
}

impl Drop for Collector<'_> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let wake = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
        let _ = self.gateway.space.run(move || TcpStream::connect(wake));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Reads a request of OTLP over HTTP, and answers it.
fn read(stream: TcpStream) -> ExportTraceServiceRequest {
    let mut reader = BufReader::new(stream);
    let (mut length, mut line) = (0, String::new());
    while reader.read_line(&mut line).expect("a head") > 2 {
        let (name, value) = line.trim().split_once(' ').expect("a request or a field");
        match &*name.to_ascii_lowercase() {
            "post" => assert_eq!(value, "/v1/traces HTTP/1.1"),
            "content-type:" => assert_eq!(value, "application/x-protobuf"),
            "content-length:" => length = value.parse().expect("a number"),
            _ => {}
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("a whole request");
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    reader.get_mut().write_all(answer).expect("it is taken");
    ExportTraceServiceRequest::decode(&*body).expect("protobuf")
}

fn text(span: &Span, name: &str) -> Option<String> {
    let value = span.attributes.iter().find(|attribute| attribute.key == name)?.value.clone()?;
    match value.value? {
        Value::StringValue(text) => Some(text),
        _ => None,
    }
}

fn spans_of_a_tunnel() {
    let [mut left, mut right] = two();
    left.configure(SETTING);
    left.start();
    right.start();
    let left = &left;
    let collector = Collector::start(left);
    left.ctl_ok(&["activate"]);
    let child = collector.await_span("negotiate Child SA", OK);
    let whole = collector.await_span("negotiate IKE SA", OK);
    let parts = collector.parts_of(&whole);
    for part in ["IKE_SA_INIT", "IKE_AUTH", "negotiate Child SA"] {
        assert!(parts.iter().any(|name| name == part), "{part} in {parts:?}");
    }
    assert_eq!(text(&whole, "vpn.tunnel").as_deref(), Some("site"));
    assert_eq!(text(&whole, "network.peer.address").as_deref(), Some("192.0.2.2"));
    assert_eq!(text(&child, "vpn.child").as_deref(), Some("site_lan"));
    let sa = left.child_sa("site_lan");
    assert_eq!(text(&child, "esp.spi.in").as_deref(), sa["inbound_spi"].as_str(), "{sa}");

    left.ctl_ok(&["rekey", "site_lan"]);
    let rekey = collector.await_span("rekey Child SA", OK);
    let has_request =
        |whole: &Span| collector.parts_of(whole).iter().any(|name| name == "CREATE_CHILD_SA");
    assert!(has_request(&rekey));
    assert!(rekey.parent_span_id.is_empty() && rekey.trace_id != whole.trace_id);
    left.ctl_ok(&["rekey", "site"]);
    let rekey = collector.await_span("rekey IKE SA", OK);
    assert!(has_request(&rekey));

    // A collector that ends and begins again.
    drop(collector);
    let sockets = hosts(left, &right);
    passes(&sockets, b"without a collector");
    left.ctl_ok(&["deactivate", "site"]);
    left.ctl_ok(&["activate"]);
    let collector = Collector::start(left);
    collector.await_span("negotiate Child SA", OK);
}

fn spans_of_a_failure() {
    let mut policies = site();
    policies[1] = changed(&policies[1], "replace-this-key", "another-key");
    let [mut left, mut right] = Gateway::pair(&policies, [1, 2], GIVES_UP);
    left.configure(SETTING);
    right.configure(SETTING);
    left.start();
    right.start();
    let (left, right) = (&left, &right);
    let [collector, of_right] = [left, right].map(Collector::start);
    left.ctl_fails(&["activate"], 1);
    let reason = |span: &Span| span.status.clone().expect("a status").message;
    let whole = collector.await_span("negotiate IKE SA", ERROR);
    assert!(reason(&whole).starts_with("authentication failed"), "{whole:?}");
    assert_eq!(text(&whole, "error.type").as_deref(), Some("authentication_failed"));
    assert!(collector.parts_of(&whole).iter().any(|name| name == "IKE_AUTH"));
    // The other side has refused a peer.
    let refused = of_right.await_span("negotiate IKE SA", ERROR);
    assert_eq!(text(&refused, "network.peer.address").as_deref(), Some("192.0.2.1"));
    let all = format!("{:?}{:?}", collector.spans, of_right.spans);
    assert!(!["replace-this-key", "another-key"].iter().any(|key| all.contains(key)), "{all}");
}

fn without_a_collector() {
    let [mut left, mut right] = two();
    left.configure(SETTING);
    left.start();
    right.start();
    // Nothing is sent without the setting.
    let collector = Collector::start(&right);
    assert_eq!(left.ctl_ok(&["activate"]), "site: up\n");
    passes(&hosts(&left, &right), b"protected");
    left.ctl_ok(&["rekey", "site_lan"]);
    left.await_log(&["do not reach the collector http://127.0.0.1:4318/v1/traces", "[traces]"]);
    left.stop();
    assert!(collector.spans.lock().expect("no thread panics").is_empty());
}
