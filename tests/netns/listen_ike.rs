//! `--listen-ike` of `vpnd proxy` and `vpnd exec`: where the peers of an ordinary user can begin.

use crate::proxy::{NEEDS, Proxy, Scene, megabyte};
use libtest_mimic::Trial;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Output, Stdio};
use testkit::{Need, test, until};

/// The address that the policy gives to the host of the ordinary user, and another one of that host.
const OWN: &str = "192.0.2.1";
const OTHER: &str = "192.0.2.3";
/// The address of this host's end in the tunnel, and that of the gateway's.
const INNER: &str = "10.1.0.1";
const FAR: &str = "10.2.0.1";

pub fn trials() -> Vec<Trial> {
    const EXEC: &[Need] = &[Need::All(NEEDS), Need::OfNobody(&[Need::Tun, Need::UserNamespaces])];
    vec![
        test("a gateway begins with a proxy that listens for IKE at an address", NEEDS, begun),
        test("a proxy listens for IKE where its option says", NEEDS, chosen),
        test("a proxy that cannot listen for IKE says where, and what to do", NEEDS, refusals),
        test("a command listens for IKE where its option says", EXEC, exec),
    ]
}

impl Scene {
    /// Returns `true` if a program could have the port of NAT traversal at an address of the host.
    fn is_free(&self, address: &'static str) -> bool {
        self.host.run(move || UdpSocket::bind((address, 4500))).is_ok()
    }

    /// A proxy whose log goes to a file.
    fn logging(&self, arguments: &[&str]) -> (Proxy, PathBuf) {
        let path = self.home.path("log");
        let log = File::create(&path).expect("writable");
        (self.proxy_with(arguments, log.into()), path)
    }

    fn refused(&self, name: &str, arguments: &[&str], words: &[&str]) -> Output {
        let mut command = self.vpnd(name, arguments);
        if name == "exec" {
            command.args(["--", "true"]);
        }
        let output = self.host.run(move || command.output()).expect("setpriv is there");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}: it runs");
        for word in words {
            assert!(text.contains(word), "{arguments:?}: no {word:?} in {text}");
        }
        output
    }
}

fn begun() {
    let scene = Scene::on_one_wire();
    let watch = scene.hub.space.watch("wire");
    // The gateway begins on port 500.
    scene.host.set("ipv4/ip_unprivileged_port_start", "500");
    let local = scene.host.run(|| TcpListener::bind("127.0.0.1:0")).expect("free");
    let port = local.local_addr().expect("bound").port();
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = local.accept().expect("accepted");
        stream.write_all(&megabyte()).expect("written");
    });
    let back = format!("8082:127.0.0.1:{port}");
    let proxy = scene.proxy(&["--listen-ike", OWN, "-R", &back]);
    assert_eq!(scene.hub.ctl_ok(&["activate", "site"]), "site: up\n");
    let sa = scene.hub.json(&["status", "site", "--json"])["ike_sa"].clone();
    assert_eq!(sa["remote"], format!("{OWN}:4500"), "{sa}");
    let body = scene.hub.space.run(|| {
        let mut stream = TcpStream::connect((INNER, 8082)).expect("connected");
        let mut body = Vec::new();
        stream.read_to_end(&mut body).expect("read");
        body
    });
    assert!(body == megabyte(), "{} octets", body.len());
    serving.join().expect("no panic");
    proxy.stop();
    watch.nothing_in_the_clear();
    assert!(scene.is_free(OWN));
}

fn chosen() {
    const REMARK: &str =
        "the peer cannot begin, only this side can begin: this side listens at UDP 192.0.2.3:4500";
    let scene = Scene::on_one_wire();
    for (arguments, free, remark) in [
        (&[][..], [false, true], None),
        (&["--listen-ike", OWN], [false, true], None),
        (&["--listen-ike", OTHER], [true, false], Some(REMARK)),
        (&["--listen-ike", OWN, "--listen-ike", OTHER], [false, false], None),
        (&["--listen-ike", "0.0.0.0"], [false, false], None),
        (&["--listen-ike", "none"], [true, true], None),
    ] {
        let (proxy, log) = scene.logging(arguments);
        let look = || fs::read_to_string(&log).expect("readable");
        assert_eq!([OWN, OTHER].map(|at| scene.is_free(at)), free, "{arguments:?}: {}", look());
        if let Some(remark) = remark {
            until(remark, || look().contains(remark).then_some(()), look);
        }
        proxy.stop();
        let is_told = look().contains("the peer cannot begin");
        assert_eq!(is_told, remark.is_some(), "{arguments:?}: {}", look());
    }
    // Without a port of its own, this side begins.
    let port = scene.hub.space.run(|| TcpListener::bind((FAR, 0))).expect("free");
    let target = format!("8081:{}", port.local_addr().expect("bound"));
    let proxy = scene.proxy(&["--listen-ike", "none", "-L", &target]);
    let mut client = scene.host.run(|| TcpStream::connect("127.0.0.1:8081")).expect("it listens");
    let (mut server, _) = port.accept().expect("accepted");
    client.write_all(b"begun\n").expect("written");
    let mut line = String::new();
    BufReader::new(&mut server).read_line(&mut line).expect("text");
    assert_eq!(line, "begun\n");
    let sa = scene.hub.json(&["status", "site", "--json"])["ike_sa"].clone();
    let remote = sa["remote"].as_str().expect("an address");
    assert!(remote.starts_with("192.0.2.1:") && remote != "192.0.2.1:4500", "{sa}");
    proxy.stop();
}

const FAULTS: [(&[&str], &[&str]); 5] = [
    (
        &["--listen-ike", "192.0.2.99"],
        &[
            "cannot listen on UDP 192.0.2.99:4500: Cannot assign requested address",
            "it is not an address of this host",
            "leave the choice to the policy",
        ],
    ),
    (&["--listen-ike", "192.0.2.1:4500"], &["'192.0.2.1:4500'", "leave the port out"]),
    (
        &["--listen-ike", "gateway.example"],
        &["'gateway.example'", "it has to be an address of this host, or none"],
    ),
    (
        &["--listen-ike", "none", "--listen-ike", "192.0.2.1"],
        &["--listen-ike none", "192.0.2.1", "leave one of the two out"],
    ),
    (
        &["--listen-ike", "192.0.2.1"],
        &[
            "cannot start the gateway: cannot listen on UDP 192.0.2.1:4500: Address already in use",
            "ss -ulpn 'sport = 4500'",
            "leave the choice to the policy",
        ],
    ),
];

fn refusals() {
    let scene = Scene::on_one_wire();
    // Another program has the port, of another user, so that nobody may look whose it is.
    let _taken = scene.host.run(|| UdpSocket::bind((OWN, 4500))).expect("free");
    for (arguments, words) in FAULTS {
        scene.refused("proxy", arguments, words);
    }
}

fn exec() {
    let scene = Scene::on_one_wire();
    let taken = scene.host.run(|| UdpSocket::bind((OWN, 4500))).expect("free");
    for (arguments, words) in FAULTS {
        let refused = scene.refused("exec", arguments, words);
        // clap ends with 2.
        assert!(matches!(refused.status.code(), Some(125 | 2)), "{arguments:?}: {refused:?}");
    }
    // By default, a port that is taken is a remark. Who only wants to begin gets none.
    for (arguments, is_told) in [(&[][..], true), (&["--listen-ike", "none"], false)] {
        let mut command = scene.vpnd("exec", arguments);
        command.args(["--", "true"]).stdout(Stdio::piped());
        let output = scene.host.run(move || command.output()).expect("setpriv is there");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{text}");
        let remark = "the peer cannot begin, only this side can begin: this side cannot listen on UDP 192.0.2.1:4500";
        assert_eq!(text.contains(remark), is_told, "{arguments:?}: {text}");
    }
    drop(taken);
    let mut command = scene.vpnd("exec", &["--listen-ike", OTHER]);
    command.args(["--", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = scene.host.run(move || command.spawn()).expect("setpriv is there");
    let mut input = process.stdin.take().expect("it is piped");
    input.write_all(b"runs\n").expect("it reads");
    let mut line = String::new();
    let printed = process.stdout.take().expect("it is piped");
    BufReader::new(printed).read_line(&mut line).expect("text");
    assert_eq!(line, "runs\n");
    assert_eq!([OWN, OTHER].map(|at| scene.is_free(at)), [true, false]);
    drop(input);
    assert!(process.wait().expect("a child of ours").success());
}
