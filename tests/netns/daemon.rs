//! `vpnd start` and `vpnctl` through the life of a tunnel.

use crate::site::{LEFT, LEFT_POLICY, RIGHT, RIGHT_POLICY, two};
use cli::demo::capture::Capture;
use cli::demo::network::WIRE;
use nix::net::if_::if_nametoindex;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn a_tunnel_from_first_to_last() {
    let Some([mut left, mut right]) = two() else { return };
    let untouched = left.system();
    let capture = right.space.run(|| Capture::start(if_nametoindex(WIRE)?)).expect("a watch");
    left.start();
    right.start();
    assert_eq!(left.ctl_ok(&["list"]).lines().count(), 1, "the header alone");
    assert_eq!(left.ctl_ok(&["list", "--json"]), "[]\n");
    assert!(left.ctl_ok(&["list", "--all"]).contains("site_lan  down"));

    // While the tunnel is down, its traffic goes nowhere.
    let hosts = |left: &crate::site::Gateway, right: &crate::site::Gateway| {
        let from = left.space.run(|| UdpSocket::bind((LEFT.inner, 0))).expect("an address");
        let to = right.space.run(|| UdpSocket::bind((RIGHT.inner, 0))).expect("an address");
        to.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket takes it");
        from.connect(to.local_addr().expect("bound")).expect("a route");
        (from, to)
    };
    let (from, to) = hosts(&left, &right);
    // Refused or swallowed, as the data plane likes, but not sent.
    let _ = from.send(b"too early");

    assert_eq!(left.ctl_ok(&["activate"]), "site: up\n");
    from.send(b"protected").expect("the tunnel is up");
    let mut packet = [0; 64];
    let length = to.recv(&mut packet).expect("it arrives");
    assert_eq!(&packet[..length], b"protected");

    assert_eq!(right.ctl_ok(&["rekey", "site_lan"]), "site_lan: rekeyed\n");
    assert_eq!(left.ctl_ok(&["rekey", "site"]), "site: rekeyed\n");
    from.send(b"rekeyed").expect("the tunnel is up");
    assert_eq!(to.recv(&mut packet).expect("it arrives"), 7);
    let status = json(&left.ctl_ok(&["status", "site", "--json"]));
    assert_eq!(status["state"], "established");
    assert_eq!(status["ike_sa"]["rekeys"], 1);
    assert_eq!(status["children"][0]["child_sa"]["rekeys"], 1);
    assert!(status["children"][0]["child_sa"]["packets_out"].as_u64() >= Some(2), "{status}");
    assert!(left.ctl_ok(&["status", "site_lan"]).contains("rekeyed once"));
    assert!(left.ctl_fails(&["status", "sitte"], 1).contains("did you mean \"site\"?"));

    assert_eq!(left.ctl_ok(&["deactivate", "site"]), "site: down\n");
    right.await_log(&["\"event\":\"closed\"", "\"tunnel\":\"site\""]);
    assert_eq!(right.ctl_ok(&["list", "--json"]), "[]\n");

    left.ctl_ok(&["activate", "site_lan"]);
    assert_eq!(left.ctl_ok(&["stop"]), "vpnd has stopped\n");
    assert!(left.wait().success());
    right.await_log(&["\"event\":\"closed\""]);
    assert_eq!(left.system(), untouched, "every change is undone");
    assert!(!left.path("control.sock").exists());
    assert!(left.ctl_fails(&["list"], 3).contains("no vpnd is listening on"));
    right.signal(Signal::SIGTERM);
    assert!(right.wait().success());
    assert_eq!(capture.finish().expect("it counts").cleartext, 0);
    for line in left.log().lines().chain(right.log().lines()) {
        let _: Value = serde_json::from_str(line).expect("every line of the log is an object");
    }
}

#[test]
fn failures_are_told_with_their_reason() {
    let Some([mut left, mut right]) = two() else { return };
    left.start();
    let error = left.ctl_fails(&["activate", "site"], 1);
    assert!(error.contains("site: failed: no answer from the peer"), "{error}");
    let status = left.ctl_ok(&["status", "site"]);
    assert!(status.contains("down because") && status.contains("no answer"), "{status}");

    right.write_policy(&RIGHT_POLICY.replace("replace-this-key", "replaced-that-key"));
    right.start();
    let error = left.ctl_fails(&["activate", "site"], 1);
    assert!(error.contains("site: failed: authentication failed"), "{error}");
    right.await_log(&["\"level\":\"WARN\"", "authentication_failed"]);

    right.write_policy(RIGHT_POLICY);
    right.ctl_ok(&["reload"]);
    assert_eq!(left.ctl_ok(&["activate", "site"]), "site: up\n");
}

#[test]
fn a_hangup_reloads_the_policy_or_keeps_the_old_one() {
    let Some([mut left, mut right]) = two() else { return };
    left.start();
    right.start();
    left.ctl_ok(&["activate"]);

    left.write_policy(&LEFT_POLICY.replace("192.0.2.2", "192.0.2.300"));
    left.signal(Signal::SIGHUP);
    left.await_log(&["\"level\":\"ERROR\"", "the old policy stays in force", "192.0.2.300"]);
    let error = left.ctl_fails(&["reload"], 1);
    assert!(error.contains("policy.xml:") && error.contains("192.0.2.300"), "{error}");
    assert!(left.ctl_ok(&["list"]).contains("established"));

    // A second site beside the first, which does not notice.
    let element = |name: &str| {
        let (start, end) = (format!("<{name} "), format!("</{name}>"));
        let from = LEFT_POLICY.find(&start).expect("the sample has it");
        let to = from + LEFT_POLICY[from..].find(&end).expect("it ends") + end.len();
        &LEFT_POLICY[from..to]
    };
    let other = ["IKETunnel", "IKEPresharedKey", "IPSecTunnel"].map(element).concat();
    let other = other
        .replace("IKE_TunnelName=\"site\"", "IKE_TunnelName=\"other\"")
        .replace("site_lan", "other_lan")
        .replace("192.0.2.2", "192.0.2.3")
        .replace("10.2.0.", "10.3.0.");
    left.write_policy(&LEFT_POLICY.replace("</AIX_VPN>", &format!("{other}</AIX_VPN>")));
    left.signal(Signal::SIGHUP);
    left.await_log(&["policy reloaded"]);
    let list = left.ctl_ok(&["list", "--all"]);
    let state = |child: &str| {
        let line = list.lines().find(|line| line.split_whitespace().nth(1) == Some(child));
        line.and_then(|line| line.split_whitespace().nth(2))
    };
    assert_eq!((state("site_lan"), state("other_lan")), (Some("established"), Some("down")));
    assert!(!right.log().contains("\"event\":\"closed\""), "{}", right.log());
}

#[test]
fn a_killed_daemon_is_cleaned_up_after() {
    let Some([mut left, _right]) = two() else { return };
    let untouched = left.system();
    left.start();
    left.signal(Signal::SIGKILL);
    assert!(!left.wait().success());
    assert!(left.path("control.sock").exists(), "nobody was left to remove it");
    left.start();
    left.signal(Signal::SIGINT);
    assert!(left.wait().success());
    assert_eq!(left.system(), untouched, "both daemons' changes are undone");
}

#[test]
fn what_prevents_a_start_is_told() {
    let Some([mut left, _right]) = two() else { return };
    left.start();
    let refused = |mut command: Command| {
        let output = left.space.run(move || command.output()).expect("vpnd is built");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(output.stdout.is_empty(), "not ready: {output:?}");
        String::from_utf8(output.stderr).expect("text")
    };
    let error = refused(left.command());
    let error = json(&error);
    let message = error["message"].as_str().expect("a text");
    assert!(message.contains("another vpnd is listening on"), "{error}");
    assert!(left.ctl_ok(&["list"]).starts_with("TUNNEL"), "the first one lives");

    let mut no_policy = Command::new(env!("CARGO_BIN_EXE_vpnd"));
    no_policy.args(["start", "--policy", "/nonexistent.xml", "--control"]).arg(left.path("other"));
    assert!(refused(no_policy).contains("cannot read the policy /nonexistent.xml"));

    let mut bare = Command::new("setpriv");
    bare.args(["--bounding-set", "-net_raw", "--inh-caps", "-all", "--"])
        .arg(env!("CARGO_BIN_EXE_vpnd"))
        .args(["start", "--policy"])
        .arg(left.path("policy.xml"))
        .arg("--control")
        .arg(left.path("other"));
    let error = refused(bare);
    assert!(error.contains("vpnd lacks CAP_NET_RAW (to send and receive ESP): run it"), "{error}");
    assert!(!left.path("other").exists());
}

#[test]
fn three_capabilities_are_enough() {
    let Some([mut left, mut right]) = two() else { return };
    right.start();
    let mut bounded = Command::new("setpriv");
    let inner = left.command();
    bounded
        .args([
            "--bounding-set",
            "-all,+net_admin,+net_raw,+net_bind_service",
            "--no-new-privs",
            "--",
        ])
        .arg(inner.get_program())
        .args(inner.get_args());
    left.start_as(bounded);
    assert_eq!(left.ctl_ok(&["activate"]), "site: up\n");
    left.ctl_ok(&["stop"]);
    assert!(left.wait().success());
}

#[test]
fn the_service_manager_is_told() {
    let Some([mut left, _right]) = two() else { return };
    let path = left.path("notify");
    let manager = UnixDatagram::bind(&path).expect("a free path");
    manager.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket takes it");
    let mut command = left.command();
    command.env("NOTIFY_SOCKET", &path);
    left.start_as(command);
    let told = || {
        let mut text = [0; 1024];
        let length = manager.recv(&mut text).expect("vpnd tells");
        String::from_utf8(text[..length].to_vec()).expect("text")
    };
    assert!(told().contains("READY=1"));
    left.signal(Signal::SIGHUP);
    let reloading = told();
    assert!(reloading.contains("RELOADING=1") && reloading.contains("MONOTONIC_USEC="));
    assert!(told().contains("READY=1"));
    left.signal(Signal::SIGTERM);
    assert!(told().contains("STOPPING=1"));
    assert!(left.wait().success());
}
