//! `vpnd exec` as an ordinary user without any capability: a command that has the tunnels as its only network.

use crate::proxy::{HOST, Scene, megabyte};
use libtest_mimic::Trial;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, chown};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::{Command, Output, Stdio};
use testkit::nobody::as_nobody;
use testkit::space::Space;
use testkit::{FILTERED, NOBODY, Need, policies, test};

const NEEDS: &[Need] = &[
    Need::All(FILTERED),
    Need::Program("curl"),
    Need::Program("setpriv"),
    Need::Program("unshare"),
    Need::OfNobody(&[Need::Tun, Need::UserNamespaces]),
];

pub fn trials() -> Vec<Trial> {
    vec![
        test("a command of an ordinary user has the tunnels as its only network", NEEDS, network),
        test("a command has its own input, signals and status", NEEDS, process),
        test("a command that cannot be started says why", NEEDS, refusals),
    ]
}

/// Runs a command inside, after options of `vpnd exec`.
fn run(scene: &Scene, options: &[&str], command: &[&str]) -> Output {
    let mut vpnd = scene.vpnd("exec", options);
    vpnd.arg("--").args(command);
    output(&scene.host, vpnd)
}

fn output(space: &Space, mut command: Command) -> Output {
    space.run(move || command.output()).expect("the program is there")
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn network() {
    let scene = Scene::new();
    let watch = scene.hub.space.watch("wire");
    let before = scene.host.state();
    let port = scene.serves(megabyte());
    scene.resolves_at(53);
    let by_name = format!("http://db.example:{port}/");
    let curl = ["curl", "--silent", "--show-error", "--noproxy", "*", "--max-time", "120"];
    let fetched = run(&scene, &["--dns", HOST], &[&curl[..], &[&by_name]].concat());
    assert_eq!(fetched.status.code(), Some(0), "{}", told(&fetched));
    assert!(fetched.stdout == megabyte(), "{} octets", fetched.stdout.len());

    // Both ends reach each other, nobody else is reached, and there is no other device.
    let script = format!(
        "ping -q -c 3 -W 60 {HOST} >&2 || exit 20
         curl -sS --max-time 60 http://192.0.2.1/ && exit 21
         curl -sS --max-time 60 http://172.16.1.1/ && exit 22
         ip -brief link | cut -d' ' -f1 | sort | tr '\\n' ' '
         ip route; id -u; grep CapEff /proc/self/status; cat /etc/resolv.conf"
    );
    let seen = run(&scene, &["--dns", HOST], &["sh", "-c", &script]);
    let text = String::from_utf8(seen.stdout.clone()).expect("text");
    assert_eq!(seen.status.code(), Some(0), "{text}{}", told(&seen));
    assert!(
        text.starts_with("lo vpn0 10.1.0.0/24 dev vpn0 proto 86 scope link src 10.2.0.1"),
        "{text}"
    );
    assert!(text.contains("\n65534\nCapEff:\t0000000000000000\n"), "{text}");
    assert!(text.ends_with(&format!("nameserver {HOST}\n")), "{text}");
    // Unix sockets are files; abstract ones belong to a network namespace.
    let path = scene.home.path("service.sock");
    let abstract_name = format!("vpnd-exec-test-{}", std::process::id());
    let listeners = {
        let (path, name) = (path.clone(), abstract_name.clone());
        scene.host.run(move || {
            let address = SocketAddr::from_abstract_name(name).expect("a name");
            [UnixListener::bind(path), UnixListener::bind_addr(&address)]
                .map(|listener| listener.expect("free"))
        })
    };
    chown(&path, Some(NOBODY.into()), Some(NOBODY.into())).expect("as root");
    for listener in listeners {
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let _ = (&stream).read(&mut [0; 4096]);
                let _ = (&stream).write_all(b"HTTP/1.0 200 OK\r\n\r\nserved");
            }
        });
    }
    let script = format!(
        "curl -sS --max-time 60 --unix-socket {} http://service/ || exit 30
         curl -sS --max-time 60 --abstract-unix-socket {abstract_name} http://service/ && exit 31
         true",
        path.display()
    );
    let seen = run(&scene, &[], &["sh", "-c", &script]);
    assert_eq!(
        (seen.status.code(), &seen.stdout[..]),
        (Some(0), &b"served"[..]),
        "{}",
        told(&seen)
    );
    // The Delete has reached the gateway.
    scene.hub.await_list(&[]);
    watch.nothing_in_the_clear();
    scene.host.is_as_before(&before);
}

fn process() {
    let scene = Scene::new();
    for (script, status) in [("exit 7", 7), ("kill -KILL $$", 137), ("umask | grep -q 0022", 0)] {
        let ended = run(&scene, &[], &["sh", "-c", script]);
        assert_eq!(ended.status.code(), Some(status), "{script}: {}", told(&ended));
    }
    for (program, status) in [("/no/such/program", 127), ("/etc", 126)] {
        let ended = run(&scene, &[], &[program]);
        assert_eq!(ended.status.code(), Some(status), "{}", told(&ended));
        assert!(told(&ended).contains(&format!("cannot run {program}: ")), "{}", told(&ended));
    }
    // It reads the input of vpnd, and a signal for vpnd is one for it.
    let script =
        "read line; trap 'echo \"$line\"; exit 9' USR1; echo ready; while :; do read x; done";
    let mut vpnd = scene.vpnd("exec", &[]);
    vpnd.args(["--", "sh", "-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = scene.host.run(move || vpnd.spawn()).expect("setpriv is there");
    let mut input = process.stdin.take().expect("it is piped");
    input.write_all(b"given\n").expect("it reads");
    let mut lines = BufReader::new(process.stdout.take().expect("it is piped")).lines();
    assert_eq!(lines.next().expect("a line").expect("text"), "ready");
    let id = Pid::from_raw(i32::try_from(process.id()).expect("a process"));
    kill(id, Signal::SIGUSR1).expect("ours");
    // The shell acts on the signal once it has read a line, or at once.
    let _ = input.write_all(b"\n");
    assert_eq!(lines.next().expect("a line").expect("text"), "given");
    assert_eq!(process.wait().expect("a child of ours").code(), Some(9));
}

fn refusals() {
    let scene = Scene::new();
    // No namespaces for this user.
    let none = "echo 0 > /proc/sys/user/max_user_namespaces; echo 0 > /proc/sys/user/max_net_namespaces; exec \"$@\"";
    let mut vpnd = as_nobody("unshare");
    vpnd.args(["--user", "--map-root-user", "sh", "-c", none, "sh"])
        .arg(scene.home.path("vpnd"))
        .args(["exec", "--policy"])
        .arg(scene.home.path("policy.xml"))
        .args(["--", "true"]);
    let refused = output(&scene.host, vpnd);
    assert_eq!(refused.status.code(), Some(125), "{}", told(&refused));
    let text = told(&refused);
    assert!(
        text.contains("sysctl user.max_user_namespaces is 0") && text.contains("vpnd proxy"),
        "{text}"
    );

    let refused = run(&scene, &["--address", "192.0.2.7"], &["true"]);
    assert_eq!(refused.status.code(), Some(125));
    assert!(
        told(&refused).contains("name one of their local networks with --address"),
        "{}",
        told(&refused)
    );

    // The peer has another key.
    let path = scene.home.path("policy.xml");
    let policy = fs::read_to_string(&path).expect("there");
    let other = policies::changed(
        &policy,
        "tests-replace-this-key-before-use",
        "another-key-of-this-length",
    );
    fs::write(&path, other).expect("writable");
    chown(&path, Some(NOBODY.into()), Some(NOBODY.into())).expect("given away");
    let refused = run(&scene, &[], &["echo", "never"]);
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(125), 0), "{}", told(&refused));
    let text = told(&refused);
    assert!(text.contains("no tunnel is up") && text.contains("guest_lan: "), "{text}");
}
