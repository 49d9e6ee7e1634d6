//! `vpnd start` and `vpnctl` through the life of a tunnel.

use crate::confinement::helpers_of;
use crate::planted::{Planted, plants};
use crate::site::{hosts, passes, two};
use libtest_mimic::Trial;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;
use testkit::{GATEWAYS, Need, PATIENCE, Stopped, WITH_NFT, test, until};

/// The test starts `vpnd` with fewer capabilities.
const BOUNDED: &[Need] = &[Need::All(GATEWAYS), Need::Program("setpriv")];

pub fn trials() -> Vec<Trial> {
    vec![
        test("a tunnel from first to last", WITH_NFT, a_tunnel_from_first_to_last),
        plants("a failed start tells the reason", BOUNDED, a_failed_start_tells_the_reason),
        test("three capabilities are enough", BOUNDED, three_capabilities_are_enough),
        test("the service manager is told", GATEWAYS, the_service_manager_is_told),
        test(
            "the helper is the main process of a service",
            GATEWAYS,
            the_helper_is_the_main_process,
        ),
        test(
            "a worker that is stuck gives no sign of life",
            GATEWAYS,
            a_worker_that_is_stuck_gives_no_sign_of_life,
        ),
        test("a daemon without tunnels sleeps", GATEWAYS, a_daemon_without_tunnels_sleeps),
    ]
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

fn a_tunnel_from_first_to_last() {
    let [mut left, mut right] = two();
    let untouched = left.space.state();
    let watch = right.space.watch("wire");
    left.start();
    right.start();
    assert_eq!(left.ctl_ok(&["list"]).lines().count(), 1, "the header alone");
    assert_eq!(left.ctl_ok(&["list", "--json"]), "[]\n");
    assert!(left.ctl_ok(&["list", "--all"]).contains("site_lan  down"));

    // While the tunnel is down, its traffic goes nowhere.
    let hosts = hosts(&left, &right);
    // Refused or swallowed, as the data plane likes, but not sent.
    let _ = hosts.0.send(b"too early");

    assert_eq!(left.ctl_ok(&["activate"]), "site: up\n");
    passes(&hosts, b"protected");

    assert_eq!(right.ctl_ok(&["rekey", "site_lan"]), "site_lan: rekeyed\n");
    assert_eq!(left.ctl_ok(&["rekey", "site"]), "site: rekeyed\n");
    passes(&hosts, b"rekeyed");
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
    assert_eq!(
        left.ctl_ok(&["stop"]),
        "vpnd has stopped; the traffic of its tunnels is no longer blocked, and takes the host's other routes\n"
    );
    assert!(left.wait().success());
    right.await_log(&["\"event\":\"closed\""]);
    left.space.is_as_before(&untouched);
    assert!(!left.path("control.sock").exists());
    assert!(left.ctl_fails(&["list"], 3).contains("no vpnd is listening on"));
    right.signal(Signal::SIGTERM);
    assert!(right.wait().success());
    watch.nothing_in_the_clear();
    for line in left.log().lines().chain(right.log().lines()) {
        let _: Value = serde_json::from_str(line).expect("every line of the log is an object");
    }
}

fn a_failed_start_tells_the_reason(planted: &Planted) {
    let [mut left, _right] = two();
    left.start();
    let refused_with = |status: i32, mut command: Command| {
        let output = left.space.run(move || command.output()).expect("vpnd is built");
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        assert!(output.stdout.is_empty(), "not ready: {output:?}");
        String::from_utf8(output.stderr).expect("text")
    };
    let refused = |command: Command| refused_with(1, command);
    let error = refused(left.command());
    let error = json(&error);
    let message = error["message"].as_str().expect("a text");
    assert!(message.contains("another vpnd is listening on"), "{error}");
    assert!(left.ctl_ok(&["list"]).starts_with("PHASE"), "the first one lives");

    let second = |control: &str| {
        let mut second = Command::new(env!("CARGO_BIN_EXE_vpnd"));
        second.args(["start", "--config", "none", "--policy"]).arg(left.path("policy.xml"));
        second.arg("--control").arg(left.path(control)).env_remove("NOTIFY_SOCKET");
        refused(second)
    };
    planted.now();
    planted.is_said("a second vpnd", "vpnd start", &second("control.sock"));
    planted.is_said("another IKE daemon has UDP 500", "vpnd start", &second("other"));

    let mut no_policy = Command::new(env!("CARGO_BIN_EXE_vpnd"));
    no_policy
        .args(["start", "--config", "none", "--policy", "/nonexistent.xml", "--control"])
        .arg(left.path("other"));
    // It may be there later, as a file of another file system that is mounted at boot.
    let error = refused(no_policy);
    assert!(error.contains("cannot read the policy /nonexistent.xml"), "{error}");
    let wrong = left.path("wrong.toml");
    std::fs::write(&wrong, "[metric]\n").expect("writable");
    let mut misconfigured = Command::new(env!("CARGO_BIN_EXE_vpnd"));
    misconfigured.args(["start", "--config"]).arg(&wrong).arg("--control").arg(left.path("other"));
    let error = refused_with(78, misconfigured);
    assert!(error.contains("did you mean metrics?"), "{error}");

    let mut bare = Command::new("setpriv");
    bare.args(["--bounding-set", "-net_raw", "--inh-caps", "-all", "--"])
        .arg(env!("CARGO_BIN_EXE_vpnd"))
        .args(["start", "--config", "none", "--policy"])
        .arg(left.path("policy.xml"))
        .arg("--control")
        .arg(left.path("other"));
    let error = refused(bare);
    assert!(error.contains("vpnd lacks CAP_NET_RAW (to send and receive ESP): run it"), "{error}");
    assert!(!left.path("other").exists());
}

fn three_capabilities_are_enough() {
    let [mut left, mut right] = two();
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

fn the_service_manager_is_told() {
    let [mut left, _right] = two();
    let path = left.path("notify");
    let manager = UnixDatagram::bind(&path).expect("a free path");
    manager.set_read_timeout(Some(PATIENCE)).expect("a socket takes it");
    let mut command = left.command();
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "60000000");
    left.start_as(command);
    let next = || {
        let mut text = [0; 1024];
        let length = manager.recv(&mut text).expect("vpnd tells");
        String::from_utf8(text[..length].to_vec()).expect("text")
    };
    assert!(next().contains("READY=1"));
    assert_eq!(next(), "WATCHDOG=1\n");
    // That may come at any time, again and again.
    let told =
        || std::iter::repeat_with(next).find(|text| text != "WATCHDOG=1\n").expect("endless");
    // A taken-over thread could send to any process by the socket. Another process has it.
    let process = left.json(&["status", "--json"])["pid"].as_u64().expect("a number");
    assert_eq!(datagram_sockets(process), 0);
    let helper = helpers_of(process);
    assert_eq!(helper.iter().map(|&helper| datagram_sockets(helper)).collect::<Vec<_>>(), [1]);
    left.signal(Signal::SIGHUP);
    let reloading = told();
    assert!(reloading.contains("RELOADING=1") && reloading.contains("MONOTONIC_USEC="));
    assert!(told().contains("READY=1"));
    left.signal(Signal::SIGTERM);
    assert!(told().contains("STOPPING=1"));
    assert!(left.wait().success());
}

fn the_helper_is_the_main_process() {
    let [mut left, _right] = two();
    let path = left.path("notify");
    let manager = UnixDatagram::bind(&path).expect("a free path");
    manager.set_read_timeout(Some(PATIENCE)).expect("a socket takes it");
    let next = || {
        let mut text = [0; 1024];
        let length = manager.recv(&mut text).expect("vpnd tells");
        String::from_utf8(text[..length].to_vec()).expect("text")
    };
    let mut service = Command::new("/bin/sh");
    let inner = left.command();
    service
        .args(["-c", "SYSTEMD_EXEC_PID=$$ exec \"$0\" \"$@\""])
        .arg(inner.get_program())
        .args(inner.get_args())
        .env("NOTIFY_SOCKET", &path);
    left.start_as(service);
    let told = next();
    let main = told.strip_prefix("MAINPID=").and_then(|number| number.trim().parse::<u64>().ok());
    let main = main.unwrap_or_else(|| panic!("no number in {told:?}"));
    assert!(next().contains("READY=1"));
    let process = left.json(&["status", "--json"])["pid"].as_u64().expect("a number");
    assert_ne!(main, process);
    assert_eq!((datagram_sockets(process), datagram_sockets(main)), (0, 1));
    // A service manager takes over the children of processes that have ended.
    assert_eq!(helpers_of(process), Vec::<u64>::new());
    left.crash();
    let ended = || {
        let status = fs::read_to_string(format!("/proc/{main}/status")).unwrap_or_default();
        (status.is_empty() || status.contains("State:\tZ")).then_some(())
    };
    until("the helper to end with the daemon", ended, || left.log());
}

fn a_worker_that_is_stuck_gives_no_sign_of_life() {
    let [mut left, mut right] = two();
    right.start();
    let path = left.path("notify");
    let manager = UnixDatagram::bind(&path).expect("a free path");
    manager.set_read_timeout(Some(PATIENCE)).expect("a socket takes it");
    let mut command = left.command();
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "3000000");
    left.start_as(command);
    assert_eq!(left.ctl_ok(&["activate"]), "site: up\n");
    let process = left.json(&["status", "--json"])["pid"].as_i64().expect("a number");
    let process = i32::try_from(process).expect("a process");
    let last = |words: &str| left.log().rfind(words).unwrap_or_default();
    for settings in
        [["schedule=run-to-completion", "workers=2"], ["schedule=pipeline", "workers=1"]]
    {
        left.ctl_ok(&["workers", "set", settings[0], settings[1]]);
        let workers = left.json(&["workers", "--json"]);
        for worker in workers["threads"].as_array().expect("a list") {
            let name = worker["name"].as_str().expect("a name");
            let stuck = format!("the thread {name} is stuck");
            let stopped = Stopped::new(process, name);
            let missed = || (last(&stuck) > last("answer again")).then_some(());
            until("the thread to be missed", missed, || left.log());
            // Signs of life from before that.
            manager.set_nonblocking(true).expect("a socket takes it");
            while manager.recv(&mut [0; 1024]).is_ok() {}
            left.ctl_ok(&["list"]);
            assert!(manager.recv(&mut [0; 1024]).is_err(), "a sign of life");
            manager.set_nonblocking(false).expect("a socket takes it");
            drop(stopped);
            let back = || (last("answer again") > last(&stuck)).then_some(());
            until("the thread to answer", back, || left.log());
            let mut text = [0; 1024];
            let length = manager.recv(&mut text).expect("vpnd tells");
            assert_eq!(text[..length], *b"WATCHDOG=1\n");
        }
    }
    left.signal(Signal::SIGTERM);
    assert!(left.wait().success());
}

/// The number of Unix sockets for datagrams that a process has.
fn datagram_sockets(process: u64) -> usize {
    let table = fs::read_to_string(format!("/proc/{process}/net/unix")).expect("it runs");
    let datagrams = table.lines().filter_map(|line| {
        // Num RefCount Protocol Flags Type St Inode Path
        let fields: Vec<&str> = line.split_whitespace().collect();
        (fields.get(4) == Some(&"0002")).then(|| format!("socket:[{}]", fields[6]))
    });
    let datagrams: Vec<String> = datagrams.collect();
    let files = fs::read_dir(format!("/proc/{process}/fd")).expect("it runs").flatten();
    let sockets = files.filter_map(|file| fs::read_link(file.path()).ok());
    sockets.filter(|file| datagrams.iter().any(|socket| file.as_os_str() == &**socket)).count()
}

fn a_daemon_without_tunnels_sleeps() {
    let [mut left, _] = two();
    left.start();
    assert_eq!(left.ctl_ok(&["list"]).lines().count(), 1, "the header alone");
    // The work that the start and the question have begun comes to an end first.
    let sleeps_for_a_second = || {
        let before = left.sleeps();
        std::thread::sleep(Duration::from_secs(1));
        (left.sleeps() == before).then_some(())
    };
    until("a second in which no thread wakes up", sleeps_for_a_second, String::new);
}
