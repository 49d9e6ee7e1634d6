//! Metrics, as a monitoring system reads them from the daemon.

use crate::site::{hosts, passes, two};
use libtest_mimic::Trial;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Command;
use testkit::gateway::Gateway;
use testkit::process::Process;
use testkit::{FILTERED, GATEWAYS, Need, test, until};

pub fn trials() -> Vec<Trial> {
    vec![
        test("metrics are read of tunnels that are up and down", FILTERED, metrics_are_read),
        test("metrics are off unless they are configured", GATEWAYS, metrics_are_off),
        test("Prometheus reads metrics, alerts and the dashboard", SCRAPED, prometheus_reads_them),
        test("the alerts come when they should", RULES, alerts_come),
    ]
}

const SCRAPED: &[Need] = &[Need::All(FILTERED), Need::File(PROMETHEUS)];
const RULES: &[Need] = &[Need::File(PROMTOOL)];
const PROMETHEUS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/prometheus/usr/bin/prometheus");
const PROMTOOL: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/prometheus/usr/bin/promtool");
const MONITORING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/monitoring");

const PORT: u16 = 9400;
const HOST: &str = "127.0.0.1:9400";

/// The answer to a request for metrics, without its head, and the status.
fn answer(stream: impl Read + Write, host: &str) -> (u16, String) {
    get(stream, "/metrics", host)
}

fn get(mut stream: impl Read + Write, target: &str, host: &str) -> (u16, String) {
    // An answer in one piece, until the other side closes.
    let request = format!("GET {target} HTTP/1.0\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it is taken");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("text");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.expect("a status"), body.to_owned())
}

fn connect(gateway: &Gateway) -> std::io::Result<TcpStream> {
    connect_to(gateway, PORT)
}

fn connect_to(gateway: &Gateway, port: u16) -> std::io::Result<TcpStream> {
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    gateway.space.run(move || TcpStream::connect(at))
}

fn scrape(gateway: &Gateway) -> String {
    let (status, text) = answer(connect(gateway).expect("it listens"), HOST);
    assert_eq!(status, 200, "{text}");
    text
}

/// The value of a line of metrics.
fn value(text: &str, series: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    rest.map(|value| value.parse().expect("a number"))
}

/// Scrapes until a line has such a value: a text may be a second old.
fn tells(gateway: &Gateway, series: &str, wanted: impl Fn(f64) -> bool) -> String {
    let look = || Some(scrape(gateway)).filter(|text| value(text, series).is_some_and(&wanted));
    until(series, look, || gateway.log())
}

fn metrics_are_read() {
    let [mut left, mut right] = two();
    left.configure(&format!("[metrics]\nlisten = {HOST:?}\n"));
    let socket = right.path("metrics.sock");
    right.configure(&format!("[metrics]\nlisten = {socket:?}\n"));
    left.start();
    right.start();
    let child = "{tunnel=\"site\",child=\"site_lan\"}";
    let up = format!("vpnd_child_up{child}");
    let sent = "vpnd_child_packets_total{tunnel=\"site\",child=\"site_lan\",direction=\"out\"}";
    tells(&left, &up, |value| value == 0.0);

    left.ctl_ok(&["activate"]);
    let hosts = hosts(&left, &right);
    passes(&hosts, b"counted");
    left.ctl_ok(&["rekey", "site_lan"]);
    tells(&left, &format!("vpnd_child_rekeys_total{child}"), |rekeys| rekeys == 1.0);
    // Events are counted by a task of their own.
    let measured = "vpnd_negotiation_duration_seconds_count{phase=\"1\"}";
    let text = tells(&left, measured, |count| count == 1.0);
    assert_eq!(value(&text, &up), Some(1.0));
    assert!(value(&text, sent) >= Some(1.0), "{text}");
    let rekeyed = "vpnd_exchange_duration_seconds_count{exchange=\"rekey_child\"}";
    assert_eq!(value(&text, rekeyed), Some(1.0), "{text}");
    let sealed = "vpnd_crypto_operations_total{user=\"esp\",function=\"AES-GCM-";
    assert!(text.lines().any(|line| line.starts_with(sealed)), "{text}");
    for known in [
        "vpnd_stage_packets_total{stage=\"seal\"}",
        "vpnd_guard_dropped_packets_total{direction=\"out\"}",
        "vpnd_confined{process=\"vpnd\",part=\"no_new_privs\"}",
    ] {
        assert!(value(&text, known).is_some(), "{known}\n{text}");
    }

    // The other side, at its socket, which nobody else can use.
    let mode = fs::metadata(&socket).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let unix = || UnixStream::connect(&socket).expect("it listens");
    let (status, text) = answer(unix(), "vpnd");
    assert_eq!((status, value(&text, &up)), (200, Some(1.0)), "{text}");
    // A page in a browser could have sent this one.
    let (status, refusal) = answer(connect(&left).expect("it listens"), "evil.example");
    assert!(status == 421 && refusal.contains("hosts of [metrics]"), "{status} {refusal}");

    left.ctl_ok(&["deactivate", "site"]);
    let text = tells(&left, &up, |value| value == 0.0);
    assert!(value(&text, sent) >= Some(1.0), "its counts stay: {text}");
    assert_eq!(value(&text, "vpnd_tunnel_state{tunnel=\"site\"}"), Some(0.0), "{text}");

    left.ctl_ok(&["stop"]);
    assert!(left.wait().success());
    assert!(connect(&left).is_err(), "nobody listens any more");
    right.stop();
    assert!(!socket.exists());
    // Another start finds both free.
    left.start();
    tells(&left, &up, |value| value == 0.0);
}

fn metrics_are_off() {
    let [mut left, _right] = two();
    left.start();
    assert!(connect(&left).is_err(), "nobody listens");
    left.stop();
    left.configure("[metrics]\nlisten = \"192.0.2.99:9400\"\n");
    assert!(!left.try_start());
    assert!(
        left.log().contains("listen of [metrics] in vpnd.toml can name another address"),
        "{}",
        left.log()
    );
}

/// A Prometheus on the host of a gateway, which ends with this value.
struct Prometheus<'g> {
    gateway: &'g Gateway,
    _process: Process,
}

impl<'g> Prometheus<'g> {
    const PORT: u16 = 9090;

    /// Starts one that scrapes this gateway each second.
    fn start(gateway: &'g Gateway) -> Self {
        let config = gateway.path("prometheus.yml");
        let text = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
             rule_files: [\"{MONITORING}/vpnd.rules.yml\"]\n\
             scrape_configs: [{{job_name: vpnd, static_configs: [{{targets: [{HOST:?}]}}]}}]\n"
        );
        fs::write(&config, text).expect("writable");
        let mut command = Command::new(PROMETHEUS);
        command
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", gateway.path("prometheus").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{}", Self::PORT));
        let log = gateway.path("prometheus.log");
        let process = Process::start(&gateway.space.0, command, &log).expect("it is installed");
        Self { gateway, _process: process }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.gateway.path("prometheus.log")).unwrap_or_default()
    }

    /// The answer of its interface; `None` while there is none.
    fn ask(&self, target: &str) -> Option<Value> {
        let stream = connect_to(self.gateway, Self::PORT).ok()?;
        let (status, text) = get(stream, target, "127.0.0.1");
        (status == 200).then(|| serde_json::from_str(&text).expect("JSON"))
    }

    /// The series that answer an expression.
    fn query(&self, expression: &str) -> Vec<Value> {
        let escaped = expression.bytes().map(|octet| format!("%{octet:02x}")).collect::<String>();
        let answer = self.ask(&format!("/api/v1/query?query={escaped}"));
        answer.and_then(|a| a["data"]["result"].as_array().cloned()).unwrap_or_default()
    }

    /// Waits until an expression has an answer.
    fn answers(&self, expression: &str) {
        let look = || (!self.query(expression).is_empty()).then_some(());
        until(expression, look, || self.log());
    }
}

/// The expressions of a dashboard, for all gateways.
fn expressions(dashboard: &Value) -> Vec<String> {
    let panels = dashboard["panels"].as_array().expect("a list");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let expressions = targets.map(|target| target["expr"].as_str().expect("a text"));
    let filled = |text: &str| {
        text.replace("$job", ".*").replace("$instance", ".*").replace("$__rate_interval", "1m")
    };
    expressions.map(filled).collect()
}

fn prometheus_reads_them() {
    let [mut left, mut right] = two();
    left.configure(&format!("[metrics]\nlisten = {HOST:?}\n"));
    left.start();
    right.start();
    left.ctl_ok(&["activate"]);
    passes(&hosts(&left, &right), b"counted");
    let prometheus = Prometheus::start(&left);
    prometheus.answers("up == 1");
    prometheus.answers("vpnd_child_up{tunnel=\"site\"} == 1");
    let text =
        fs::read_to_string(format!("{MONITORING}/vpnd.dashboard.json")).expect("it is there");
    let expressions = expressions(&serde_json::from_str(&text).expect("JSON"));
    assert!(expressions.len() > 20, "{expressions:?}");
    for expression in &expressions {
        prometheus.answers(expression);
    }
    left.ctl_ok(&["deactivate", "site"]);
    prometheus
        .answers("ALERTS{alertname=\"VpndTunnelDown\",alertstate=\"pending\",child=\"site_lan\"}");
    left.signal(Signal::SIGTERM);
    prometheus.answers("ALERTS{alertname=\"VpndAbsent\"}");
    drop(prometheus);
    assert!(left.wait().success());
}

fn alerts_come() {
    for arguments in
        [["check", "rules", "vpnd.rules.yml"], ["test", "rules", "vpnd.rules.test.yml"]]
    {
        let mut command = Command::new(PROMTOOL);
        command.args(arguments).current_dir(MONITORING);
        let output = command.output().expect("it is installed");
        let said = format!("{output:?}");
        assert!(output.status.success(), "{said}");
    }
    // Each alert has a case.
    let text = |name| fs::read_to_string(format!("{MONITORING}/{name}")).expect("it is there");
    let (rules, cases) = (text("vpnd.rules.yml"), text("vpnd.rules.test.yml"));
    let alerts: Vec<&str> =
        rules.lines().filter_map(|l| l.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 10, "{alerts:?}");
    for alert in alerts {
        assert!(cases.contains(&format!("alertname: {alert}\n        exp_alerts:\n")), "{alert}");
    }
}
