//! `vpnd proxy` as an ordinary user without any capability, behind an address translator: the tunnels as a proxy.

use libtest_mimic::Trial;
use nix::sys::signal::Signal;
use socket2::{Domain, Socket, Type};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use testkit::gateway::{Gateway, PATIENT};
use testkit::nobody::{Home, as_nobody};
use testkit::process::Printing;
use testkit::space::Space;
use testkit::{FILTERED, Need, eventually, policies, test};

pub const NEEDS: &[Need] = &[Need::All(FILTERED), Need::Program("curl"), Need::Program("setpriv")];

/// The address of the gateway's network, and that of the proxy's end.
pub const HOST: &str = "10.1.0.1";
const OWN: &str = "10.2.0.1";

pub fn trials() -> Vec<Trial> {
    vec![
        test("curl goes through a proxy of an ordinary user", NEEDS, curl),
        test("ports are forwarded in both directions", NEEDS, forwards),
        test("a proxy that cannot start says why", NEEDS, refusals),
        test("clients of a proxy that are gone leave nothing", NEEDS, gone),
        test(
            "one host behind the tunnel does not take all places of a forwarded port",
            NEEDS,
            shares,
        ),
    ]
}

/// A gateway, an address translator, and a host behind it that nobody else reaches.
pub struct Scene {
    pub hub: Gateway,
    pub host: Space,
    _nat: Option<Space>,
    /// The directory of the ordinary user: `vpnd`, its policy and its configuration.
    pub home: Home,
}

impl Scene {
    pub fn new() -> Self {
        let [of_hub, own] =
            policies::guest("guest", "10.2.0.", "172.16.1.2", ["192.0.2.1", "192.0.2.1"]);
        let mut hub = Gateway::new("hub", &of_hub, PATIENT, "");
        hub.space.ip(&format!("address add {HOST}/32 dev lo"));
        let nat = Space::new("nat");
        nat.set("ipv4/ip_forward", "1");
        Space::connect((&nat, "out", &["192.0.2.254/24"]), (&hub.space, "wire", &["192.0.2.1/24"]));
        nat.sh("nft add table ip nat");
        nat.sh("nft add chain ip nat post { type nat hook postrouting priority 100 ; }");
        nat.sh("nft add rule ip nat post oifname out masquerade");
        let host = Space::new("guest");
        Space::connect((&nat, "in", &["172.16.1.1/24"]), (&host, "wire", &["172.16.1.2/24"]));
        host.ip("route add default via 172.16.1.1");
        hub.start();
        Self::of(hub, host, Some(nat), &own)
    }

    /// A gateway that may begin, and a host on the same wire, with two addresses there.
    pub fn on_one_wire() -> Self {
        let [own, of_hub] = policies::site();
        let mut hub = Gateway::new("hub", &of_hub, PATIENT, "");
        hub.space.ip("address add 10.2.0.1/32 dev lo");
        let host = Space::new("guest");
        let addresses = &["192.0.2.1/24", "192.0.2.3/24"];
        Space::connect((&host, "wire", addresses), (&hub.space, "wire", &["192.0.2.2/24"]));
        hub.start();
        Self::of(hub, host, None, &own)
    }

    fn of(hub: Gateway, host: Space, nat: Option<Space>, policy: &str) -> Self {
        let home = Home::make();
        home.copy(Path::new(env!("CARGO_BIN_EXE_vpnd")), "vpnd");
        home.write("policy.xml", policy);
        home.write("vpnd.toml", &format!("[ike]\n{PATIENT}"));
        Self { hub, host, _nat: nat, home }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        self.vpnd("proxy", arguments)
    }

    /// A command of `vpnd` of that user.
    pub fn vpnd(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = as_nobody(self.home.path("vpnd"));
        command
            .args([name, "--exit-with-parent", "--policy"])
            .arg(self.home.path("policy.xml"))
            .arg("--config")
            .arg(self.home.path("vpnd.toml"))
            .args(arguments)
            .stdin(Stdio::null());
        command
    }

    pub fn proxy(&self, arguments: &[&str]) -> Proxy {
        self.proxy_with(arguments, Stdio::inherit())
    }

    /// The same with a place for its log.
    pub fn proxy_with(&self, arguments: &[&str], log: Stdio) -> Proxy {
        let mut command = self.command(arguments);
        command.args(["--listen", "127.0.0.1:0"]).stderr(log);
        let mut printing = Printing::start(&self.host.0, command).expect("setpriv is there");
        let line = printing.line("ready: SOCKS5 and HTTP CONNECT on ");
        let address = line.split(',').next().expect("an address").to_owned();
        Proxy { printing, address }
    }

    /// The standard output of curl, and its status.
    fn curl(&self, arguments: &[&str]) -> (Vec<u8>, i32) {
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--max-time", "120"]).args(arguments);
        let output = self.host.run(move || command.output()).expect("curl is there");
        (output.stdout, output.status.code().unwrap_or(-1))
    }

    /// A server of HTTP behind the gateway, whose answer is always this.
    pub fn serves(&self, body: Vec<u8>) -> u16 {
        let listener = self.hub.space.run(|| TcpListener::bind((HOST, 0))).expect("free");
        let port = listener.local_addr().expect("bound").port();
        serve(listener, body);
        port
    }

    /// A server of DNS behind the gateway, for which every name is that host.
    fn resolves(&self) -> String {
        self.resolves_at(0)
    }

    /// The same at a certain port.
    pub fn resolves_at(&self, port: u16) -> String {
        let socket = self.hub.space.run(move || UdpSocket::bind((HOST, port))).expect("free");
        let address = socket.local_addr().expect("bound").to_string();
        std::thread::spawn(move || {
            let mut buffer = [0; 512];
            while let Ok((len, from)) = socket.recv_from(&mut buffer) {
                let mut answer = buffer[..len].to_vec();
                answer[2] = 0x80;
                // Type A.
                if answer[len - 3] == 1 {
                    answer[7] = 1;
                    answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 10, 1, 0, 1]);
                }
                let _ = socket.send_to(&answer, from);
            }
        });
        address
    }
}

fn serve(listener: TcpListener, body: Vec<u8>) {
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let body = body.clone();
            std::thread::spawn(move || {
                let mut request = BufReader::new(stream.try_clone().expect("a descriptor")).lines();
                while request.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
                let head = format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                let _ = stream.write_all(&[head.as_bytes(), &body].concat());
            });
        }
    });
}

pub struct Proxy {
    printing: Printing,
    address: String,
}

impl Proxy {
    pub fn stop(self) {
        self.printing.end_by(Signal::SIGTERM);
    }
}

pub fn megabyte() -> Vec<u8> {
    (0..1_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

fn curl() {
    let scene = Scene::new();
    let watch = scene.hub.space.watch("wire");
    let before = scene.host.state();
    let (port, server) = (scene.serves(megabyte()), scene.resolves());
    let proxy = scene.proxy(&["--dns", &server]);
    scene.host.is_as_before(&before);
    let (by_name, by_address) =
        (format!("http://db.example:{port}/"), format!("http://{HOST}:{port}/"));
    let http = format!("http://{}", proxy.address);
    for arguments in [
        ["--socks5-hostname", &proxy.address, &by_name],
        ["--socks5", &proxy.address, &by_address],
        ["--proxytunnel", "--proxy", &http],
    ] {
        let mut arguments = arguments.to_vec();
        if arguments[0] == "--proxytunnel" {
            arguments.push(&by_name);
        }
        let (body, status) = scene.curl(&arguments);
        assert_eq!(status, 0, "{arguments:?}");
        assert!(body == megabyte(), "{arguments:?}: {} octets", body.len());
    }
    // It has begun on port 4500, and the gateway has followed.
    let sa = scene.hub.json(&["status", "guest", "--json"])["ike_sa"].clone();
    let [local, remote] = ["local", "remote"].map(|end| sa[end].as_str().expect("an address"));
    assert_eq!(local, "192.0.2.1:4500");
    assert!(remote.starts_with("192.0.2.254:") && sa["nat_remote"] == true, "{sa}");

    // A connection that no tunnel covers is refused, and does not leave in another way (curl: 97 is an error of the
    // SOCKS proxy).
    let (_, status) = scene.curl(&["--socks5", &proxy.address, "http://192.0.2.1:80/"]);
    assert_eq!(status, 97);
    let arguments = ["--proxytunnel", "--proxy", &http, "--fail", "http://192.0.2.1:80/"];
    let (_, status) = scene.curl(&arguments);
    assert_ne!(status, 0);
    scene.hub.ctl_ok(&["rekey", "guest_lan"]);
    let (body, _) = scene.curl(&["--socks5-hostname", &proxy.address, &by_name]);
    assert!(body == megabyte());
    proxy.stop();
    scene.hub.await_list(&[]);
    watch.nothing_in_the_clear();
    scene.host.is_as_before(&before);
}

fn forwards() {
    let scene = Scene::new();
    let port = scene.serves(megabyte());
    let local = scene.host.run(|| TcpListener::bind("127.0.0.1:0")).expect("free");
    let local_port = local.local_addr().expect("bound").port();
    serve(local, megabyte());
    let (there, back) = (format!("8081:{HOST}:{port}"), format!("8082:127.0.0.1:{local_port}"));
    let proxy = scene.proxy(&["-L", &there, "-R", &back]);
    let (body, status) = scene.curl(&["http://127.0.0.1:8081/"]);
    assert!(status == 0 && body == megabyte(), "{status}: {} octets", body.len());
    // The tunnel is up now, so that the gateway's side reaches the port.
    let body = scene.hub.space.run(|| {
        let mut stream = std::net::TcpStream::connect((OWN, 8082)).expect("connected");
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("written");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("read");
        let head = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
        answer.split_off(head + 4)
    });
    assert!(body == megabyte(), "{} octets", body.len());
    proxy.stop();
}

/// A connection through the proxy's SOCKS5 to a port behind the gateway.
fn socks(scene: &Scene, proxy: &Proxy, port: u16) -> TcpStream {
    let address = proxy.address.clone();
    let mut client = scene.host.run(|| TcpStream::connect(address)).expect("it listens");
    client.write_all(&[5, 1, 0]).expect("written");
    let mut octets = [0; 10];
    client.read_exact(&mut octets[..2]).expect("an answer");
    client.write_all(&[5, 1, 0, 1, 10, 1, 0, 1]).expect("written");
    client.write_all(&port.to_be_bytes()).expect("written");
    client.read_exact(&mut octets).expect("an answer");
    assert_eq!(octets[..2], [5, 0]);
    client
}

/// Neither those that have closed their socket, though the server does not, nor those that gave up while the proxy
/// was connecting.
fn gone() {
    let scene = Scene::new();
    let listener = scene.hub.space.run(|| TcpListener::bind((HOST, 0))).expect("free");
    let port = listener.local_addr().expect("bound").port();
    // So long, the system answers for a socket that a program has closed: a minute if nobody changes it.
    scene.host.set("ipv4/tcp_fin_timeout", "2");
    let proxy = scene.proxy(&["-L", "8081:10.1.0.77:80"]);
    let descriptors = || {
        let directory = proxy.printing.process().proc("fd");
        fs::read_dir(directory).expect("it runs").count()
    };
    let before = descriptors();
    // Nobody answers for this address.
    let unanswered = scene.host.run(|| TcpStream::connect("127.0.0.1:8081")).expect("it listens");
    let mut kept = Vec::new();
    for _ in 0..50 {
        let mut client = socks(&scene, &proxy, port);
        client.write_all(b"all").expect("written");
        drop(client);
        let (mut server, _) = listener.accept().expect("accepted");
        let mut octets = Vec::new();
        server.read_to_end(&mut octets).expect("read");
        assert_eq!(octets, b"all");
        kept.push(server);
    }
    drop(unanswered);
    eventually("the proxy has closed its sockets", || (descriptors() <= before).then_some(()));
    proxy.stop();
}

/// A connection from an address of the gateway's side to the forwarded port. Returns `None` if it is refused.
fn forwarded(from: [u8; 4]) -> Option<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from((from, 0)).into()).expect("an own address");
    let to: SocketAddr = format!("{OWN}:8082").parse().expect("an address");
    let mut stream = socket.connect(&to.into()).ok().map(|()| TcpStream::from(socket))?;
    stream.read_exact(&mut [0]).ok().map(|()| stream)
}

fn shares() {
    let scene = Scene::new();
    scene.hub.space.ip("address add 10.1.0.2/32 dev lo");
    let port = scene.serves(b"up".to_vec());
    let local = scene.host.run(|| TcpListener::bind("127.0.0.1:0")).expect("free");
    let target = local.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for mut stream in local.incoming().flatten() {
            stream.write_all(b"x").expect("written");
            kept.push(stream);
        }
    });
    let proxy = scene.proxy(&["-R", &format!("8082:127.0.0.1:{target}")]);
    let page = format!("http://{HOST}:{port}/");
    let (body, _) = scene.curl(&["--socks5", &proxy.address, &page]);
    assert_eq!(body, b"up");
    let first: Vec<_> =
        scene.hub.space.run(|| (0..300).map_while(|_| forwarded([10, 1, 0, 1])).collect());
    assert_eq!(first.len(), 256);
    let another = scene.hub.space.run(|| forwarded([10, 1, 0, 2]));
    assert!(another.is_some(), "another host has a place");
    let (body, _) = scene.curl(&["--socks5", &proxy.address, &page]);
    assert_eq!(body, b"up");
    drop(first);
    proxy.stop();
}

fn refusals() {
    let scene = Scene::new();
    for (arguments, told) in [
        (&["--listen", "0.0.0.0:1080"][..], "0.0.0.0:1080 is not a loopback address"),
        (&["-L", "0.0.0.0:80:10.1.0.1:80"], "0.0.0.0:80 is not a loopback address"),
        (&["-L", "80:10.1.0.1:80"], "cannot listen on 127.0.0.1:80: Permission denied"),
        (&["-L", "80"], "it has to be [ADDRESS:]PORT:HOST:PORT"),
    ] {
        let mut command = scene.command(arguments);
        let output = scene.host.run(move || command.output()).expect("setpriv is there");
        let text = String::from_utf8(output.stderr).expect("text");
        assert!(!output.status.success() && text.contains(told), "{arguments:?}: {text}");
    }
}
