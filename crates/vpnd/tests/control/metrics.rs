//! Metrics of a daemon around the gateway in memory.

use crate::running;
use control::client::Client;
use control::protocol::Command;
use ike::failure::{Failure, FailureKind};
use metrics::{Address, Bound};
use policy::Policy;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use tempfile::TempDir;
use testkit::until;
use vpn::MemoryGateway;
use vpnd::certificates::Keeper;
use vpnd::config::{Config, Log};
use vpnd::daemon::metrics::serve;
use vpnd::daemon::{self, Daemon};

const SAMPLE: &str = include_str!("../../../../tests/policies/site/left.xml");

fn ask(socket: &Path, path: &str) -> UnixStream {
    let mut stream = UnixStream::connect(socket).expect("the endpoint listens");
    let request = format!("GET {path} HTTP/1.0\r\nHost: vpnd\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it is taken");
    stream
}

fn get(socket: &Path, path: &str) -> String {
    let mut text = String::new();
    ask(socket, path).read_to_string(&mut text).expect("text");
    text
}

fn scrape(socket: &Path) -> String {
    get(socket, "/metrics")
}

/// The answer of the page's API at a path.
fn json(socket: &Path, path: &str) -> Value {
    let answer = get(socket, path);
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.contains(" 200 "), "{answer}");
    serde_json::from_str(body).expect("JSON")
}

/// Scrapes until these lines are there: a text may be a second old.
fn tells(socket: &Path, lines: &[&str]) -> String {
    let mut last = String::new();
    let look = || {
        last = scrape(socket);
        lines.iter().all(|line| last.lines().any(|l| l == *line)).then(|| last.clone())
    };
    until("metrics", look, || format!("{lines:?}"))
}

/// A daemon around a gateway in memory, with a client; it ends when it is told to.
struct Running {
    directory: TempDir,
    memory: MemoryGateway,
    client: Client,
    thread: JoinHandle<()>,
}

impl Running {
    fn start() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| directory.path().join(name);
        let loaded = policy::xml::read("left.xml", SAMPLE).expect("the sample is valid");
        let policy = Arc::new(loaded.policy);
        let memory = MemoryGateway::new(Arc::clone(&policy));
        let levels = daemon::start_log(&Log::default());
        let keeper = Arc::new(Keeper::default());
        let daemon = Daemon::new(memory.gateway().clone(), path("policy.xml"), keeper, levels)
            .with_policy(policy, loaded.definitions)
            .configured(None, Config::default());
        let endpoint = Bound::new(&Address::Unix(path("metrics.sock"))).expect("a free path");
        let thread = running::start_with(daemon, path("control.sock"), Some(endpoint));
        let client = Client::connect(&path("control.sock")).expect("the daemon listens");
        Self { directory, memory, client, thread }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("metrics.sock")
    }

    fn ask(&mut self, command: Command) {
        self.client.ask(command).expect("it is done");
    }

    fn stop(mut self) {
        self.ask(Command::Stop { keep_guard: false });
        self.thread.join().expect("no panic");
    }
}

#[test]
fn metrics_follow_a_tunnel_and_its_failures() {
    let mut running = Running::start();
    let socket = running.socket();
    tells(
        &socket,
        &[
            "vpnd_tunnel_up{tunnel=\"site\"} 0",
            "vpnd_child_state{tunnel=\"site\",child=\"site_lan\"} 0",
            "vpnd_tunnels{phase=\"2\",state=\"down\"} 1",
        ],
    );
    running.ask(Command::Activate { names: vec!["site".to_owned()] });
    running.ask(Command::Rekey { name: "site".to_owned() });
    let sent =
        "vpnd_child_packets_total{tunnel=\"site\",child=\"site_lan\",direction=\"out\"} 3400";
    tells(
        &socket,
        &[
            "vpnd_tunnel_up{tunnel=\"site\"} 1",
            "vpnd_tunnel_rekeys_total{tunnel=\"site\"} 1",
            "vpnd_established_total{phase=\"1\"} 1",
            sent,
        ],
    );
    running.ask(Command::Deactivate { name: "site".to_owned() });
    running.memory.fail("site", Failure::new(FailureKind::NoAnswer, String::new()));
    running.ask(Command::Activate { names: vec!["site".to_owned()] });
    // The tunnel and its counts stay.
    tells(
        &socket,
        &[
            "vpnd_tunnel_up{tunnel=\"site\"} 0",
            "vpnd_child_up{tunnel=\"site\",child=\"site_lan\"} 0",
            "vpnd_closed_total{phase=\"1\"} 1",
            "vpnd_failures_total{reason=\"no_answer\"} 1",
            sent,
        ],
    );
    running.stop();
    assert!(!socket.exists());
}

#[test]
fn the_page_tells_of_a_tunnel_why_it_is_down_and_what_happens() {
    let mut running = Running::start();
    let socket = running.socket();
    let list = json(&socket, "/api/tunnels");
    assert_eq!(list["totals"], json!({"up": 0, "negotiating": 0, "blocked": 0, "down": 1}));
    let row = &list["rows"][0];
    let told = ["tunnel", "child", "state", "condition", "peer"].map(|field| row[field].clone());
    assert_eq!(told, ["site", "site_lan", "down", "down", "192.0.2.2"].map(Value::from));

    let mut events = ask(&socket, "/api/events");
    let mut seen = String::new();
    let mut until_seen = |text: &str| {
        let mut octets = [0; 1024];
        while !seen.contains(text) {
            let n = events.read(&mut octets).expect("it is open");
            assert!(n > 0, "ended before {text:?}: {seen}");
            seen.push_str(std::str::from_utf8(&octets[..n]).expect("text"));
        }
    };
    until_seen("event: latest\ndata: []");
    running.ask(Command::Activate { names: vec!["site".to_owned()] });
    until_seen("\"event\":\"established\"");
    // Whoever is told of an event finds its effect.
    let list = until(
        "an effect",
        || Some(json(&socket, "/api/tunnels")).filter(|list| list["totals"]["up"] == 1),
        String::new,
    );
    let row = &list["rows"][0];
    assert_eq!(
        (&row["condition"], &row["bytes_out"]),
        (&json!("up"), &list["traffic"]["bytes_out"])
    );
    assert!(row["bytes_out"].as_u64() > Some(0), "{row}");
    // One that comes later is told it, too.
    let mut later = ask(&socket, "/api/events");
    let mut first = String::new();
    while !first.contains("established") {
        let mut octets = [0; 1024];
        let n = later.read(&mut octets).expect("it is open");
        first.push_str(std::str::from_utf8(&octets[..n]).expect("text"));
    }
    assert!(first.contains("event: latest\ndata: [{"), "{first}");

    running.ask(Command::Deactivate { name: "site".to_owned() });
    until_seen("\"event\":\"closed\"");
    let no_answer = Failure::new(FailureKind::NoAnswer, "no answer from <192.0.2.2>".to_owned());
    running.memory.fail("site", no_answer);
    running.ask(Command::Activate { names: vec!["site".to_owned()] });
    until_seen("\"event\":\"failed\"");
    let why = json(&socket, "/api/why?name=site_lan");
    assert_eq!((&why["name"], &why["state"]), (&json!("site_lan"), &json!("down")));
    let why = json(&socket, "/api/why?name=site");
    let text = why["text"].as_str().expect("a text");
    assert!(text.starts_with("site  phase 1, down") && text.contains("<192.0.2.2>"), "{text}");
    let unknown = get(&socket, "/api/why?name=sit");
    assert!(unknown.contains(" 404 ") && unknown.contains("did you mean \"site\"?"), "{unknown}");
    let drops = json(&socket, "/api/drops");
    assert_eq!(drops["reasons"], json!([{"name": "replayed", "count": 3, "meaning": ""}]));
    assert_eq!(json(&socket, "/api/certificates"), json!({"rows": [], "omitted": 0}));
    // Browsers that read events do not hold up the end.
    running.stop();
    events.read_to_string(&mut String::new()).expect("it ends");
}

#[test]
fn a_reload_does_not_wait_for_the_end_of_a_scrape() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("policy.xml"), SAMPLE).expect("writable");
    let of_file = policy::xml::read("left.xml", SAMPLE).expect("the sample is valid").policy;
    let numbered = |number: usize| {
        let mut tunnel = (*of_file.tunnels[0]).clone();
        tunnel.name = format!("site{number}");
        Arc::new(tunnel)
    };
    let many = Arc::new(Policy { tunnels: (0..200).map(numbered).collect() });
    let memory = MemoryGateway::new(Arc::clone(&many));
    let levels = daemon::start_log(&Log::default());
    let daemon = Daemon::new(
        memory.gateway().clone(),
        path("policy.xml"),
        Arc::new(Keeper::default()),
        levels,
    );
    let daemon = daemon.with_policy(many, Default::default()).configured(None, Config::default());
    let daemon = Arc::new(daemon);
    let socket = path("metrics.sock");
    let endpoint = Bound::new(&Address::Unix(socket.clone())).expect("a free path");
    // One thread: a task that is spawned has begun when this one goes on after a yield.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let text = runtime.expect("a runtime").block_on(async {
        let _serving = serve(endpoint, &daemon, memory.gateway().events());
        memory.keep_pages();
        let scrape = tokio::task::spawn_blocking(move || scrape(&socket));
        memory.page_wanted().await;
        let reloading = Arc::clone(&daemon);
        let reload = tokio::spawn(async move { reloading.reload(false, None).await });
        tokio::task::yield_now().await;
        memory.give_pages(1);
        // While three pages of the old policy have not been given.
        reload.await.expect("no panic").expect("the file is valid");
        memory.give_pages(100);
        scrape.await.expect("no panic")
    });
    assert!(text.contains("vpnd_tunnel_up{tunnel=\"site\"} 0\n"), "{text}");
    assert!(!text.contains("site1"), "of the policy before: {text}");
}
