//! Metrics of a daemon around the gateway in memory.

use crate::memory::MemoryGateway;
use crate::running;
use cli::certificates::Keeper;
use cli::config::{Config, Log};
use cli::daemon::metrics::serve;
use cli::daemon::{self, Daemon, Gateway};
use control::client::Client;
use control::protocol::Command;
use ike::failure::{Failure, FailureKind};
use metrics::{Address, Bound};
use policy::Policy;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use testkit::until;

const SAMPLE: &str = include_str!("../../../../tests/policies/site/left.xml");

fn scrape(socket: &Path) -> String {
    let mut stream = UnixStream::connect(socket).expect("the endpoint listens");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: vpnd\r\n\r\n").expect("it is taken");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("text");
    text
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

#[test]
fn metrics_follow_a_tunnel_and_its_failures() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| directory.path().join(name);
    let loaded = policy::xml::read("left.xml", SAMPLE).expect("the sample is valid");
    let policy = Arc::new(loaded.policy);
    let gateway = MemoryGateway::new(Arc::clone(&policy));
    let keeper = Arc::new(Keeper::default());
    let daemon = Daemon::new(
        gateway.clone(),
        path("policy.xml"),
        keeper,
        daemon::start_log(&Log::default()),
    );
    let daemon = daemon.with_policy(policy, loaded.definitions).configured(None, Config::default());
    let socket = path("metrics.sock");
    let endpoint = Bound::new(&Address::Unix(socket.clone())).expect("a free path");
    let thread = running::start_with(daemon, path("control.sock"), Some(endpoint));
    let mut client = Client::connect(&path("control.sock")).expect("the daemon listens");
    let mut ask = |command| drop(client.ask(command).expect("it is done"));
    tells(
        &socket,
        &[
            "vpnd_tunnel_up{tunnel=\"site\"} 0",
            "vpnd_child_state{tunnel=\"site\",child=\"site_lan\"} 0",
            "vpnd_tunnels{phase=\"2\",state=\"down\"} 1",
        ],
    );
    ask(Command::Activate { names: vec!["site".to_owned()] });
    ask(Command::Rekey { name: "site".to_owned() });
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
    ask(Command::Deactivate { name: "site".to_owned() });
    gateway.fail("site", Failure::new(FailureKind::NoAnswer, String::new()));
    ask(Command::Activate { names: vec!["site".to_owned()] });
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
    ask(Command::Stop { keep_guard: false });
    thread.join().expect("no panic");
    assert!(!socket.exists());
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
    let gateway = MemoryGateway::new(Arc::clone(&many));
    let levels = daemon::start_log(&Log::default());
    let daemon =
        Daemon::new(gateway.clone(), path("policy.xml"), Arc::new(Keeper::default()), levels);
    let daemon = daemon.with_policy(many, Default::default()).configured(None, Config::default());
    let daemon = Arc::new(daemon);
    let socket = path("metrics.sock");
    let endpoint = Bound::new(&Address::Unix(socket.clone())).expect("a free path");
    // One thread: a task that is spawned has begun when this one goes on after a yield.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let text = runtime.expect("a runtime").block_on(async {
        let _serving = serve(endpoint, &daemon, gateway.events());
        gateway.keep_pages();
        let scrape = tokio::task::spawn_blocking(move || scrape(&socket));
        gateway.page_wanted().await;
        let reloading = Arc::clone(&daemon);
        let reload = tokio::spawn(async move { reloading.reload(false, None).await });
        tokio::task::yield_now().await;
        gateway.give_pages(1);
        // While three pages of the old policy have not been given.
        reload.await.expect("no panic").expect("the file is valid");
        gateway.give_pages(100);
        scrape.await.expect("no panic")
    });
    assert!(text.contains("vpnd_tunnel_up{tunnel=\"site\"} 0\n"), "{text}");
    assert!(!text.contains("site1"), "of the policy before: {text}");
}
