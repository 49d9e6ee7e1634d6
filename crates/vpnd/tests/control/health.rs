//! `vpnctl check-health` against a daemon around the gateway in memory.

use crate::running;
use control::client::Client;
use control::protocol::Command as Ask;
use ike::failure::{Failure, FailureKind};
use serde_json::Value;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use vpn::MemoryGateway;
use vpn::findings::{Finding, FindingKind};
use vpnd::certificates::Keeper;
use vpnd::config::Log;
use vpnd::daemon::{self, Daemon};

const SAMPLE: &str = include_str!("../../../../tests/policies/site/left.xml");

/// The exit status and the text of a check.
fn check(socket: &Path, arguments: &str) -> (i32, String) {
    let mut command = Command::new(testkit::vpnctl());
    command.arg("--control").arg(socket).arg("check-health").args(arguments.split_whitespace());
    let output = command.output().expect("it runs");
    let text = String::from_utf8(output.stdout).expect("text");
    (output.status.code().expect("it exits"), text)
}

#[test]
fn the_exit_status_tells_how_a_tunnel_is() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| directory.path().join(name);
    let policy = policy::xml::read("left.xml", SAMPLE).expect("the sample is valid").policy;
    let memory = MemoryGateway::new(Arc::new(policy));
    let levels = daemon::start_log(&Log::default());
    let keeper = Arc::new(Keeper::default());
    let daemon = Daemon::new(memory.gateway().clone(), path("policy.xml"), keeper, levels);
    let socket = path("control.sock");
    let thread = running::start(daemon, socket.clone());
    let mut client = Client::connect(&socket).expect("the daemon listens");
    let mut ask = |command| drop(client.ask(command).expect("it is done"));

    let waiting = "VPND WARNING - site_lan: down; it waits for vpnctl activate or the peer: the policy has neither \
                   AutoStart nor OnDemand for it | tunnels_up=0;;;0;1 children_up=0;;;0;1\n";
    let (status, text) = check(&socket, "site");
    assert!(status == 1 && text.starts_with(waiting), "{status} {text}");
    ask(Ask::Activate { names: vec!["site".to_owned()] });
    let up = "VPND OK - 1 of 1 phase 2 tunnels up | tunnels_up=1;;;0;1 children_up=1;;;0;1\n";
    assert_eq!(check(&socket, "site"), (0, up.to_owned()));
    assert_eq!(check(&socket, "site_lan").0, 0);
    // The guard of this host is none of this daemon's.
    let (_, text) = check(&socket, "--format json");
    let health: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(health["children"]["up"], 1, "{text}");
    assert!(health["problems"].as_array().expect("a list").iter().all(|p| p["tunnel"].is_null()));

    memory.find(Finding::new("site_lan", FindingKind::Forwarding, true, "it does not forward"));
    let (status, text) = check(&socket, "site --format json");
    let health: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((status, &health["exit_status"]), (2, &Value::from(2)), "{text}");
    assert_eq!(health["problems"][0]["level"], "critical", "{text}");
    // It is asked about without a name, too.
    assert!(check(&socket, "").1.contains("CRITICAL: site_lan: "), "{text}");

    let (status, text) = check(&socket, "sites");
    assert!(status == 3 && text.starts_with("VPND UNKNOWN - "), "{status} {text}");
    assert_eq!(check(&socket, "--format xml").0, 3, "wrong arguments");
    ask(Ask::Deactivate { name: "site".to_owned() });
    memory.fail("site", Failure::new(FailureKind::NoAnswer, String::new()));
    ask(Ask::Stop { keep_guard: false });
    thread.join().expect("no panic");
    let (status, text) = check(&socket, "");
    assert!(status == 2 && text.starts_with("VPND CRITICAL - no vpnd is listening"), "{text}");
}

#[test]
fn a_daemon_that_does_not_answer_is_critical() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let socket = directory.path().join("control.sock");
    let _listener = UnixListener::bind(&socket).expect("a free path");
    let (status, text) = check(&socket, "--timeout 1");
    assert!(status == 2 && text.contains("has not answered within 1 s"), "{status} {text}");
}
