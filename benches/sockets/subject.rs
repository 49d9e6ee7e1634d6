//! The ways from a program on the left host to a server behind the right gateway.

use crate::ends::{Clients, Traffic};
use benchkit::{Host, Keys, missing, program};
use lab::load::processor;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use testkit::daemon::{Daemon, write_secret};
use testkit::process::{Process, last_lines};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Runtime;

/// How long something may take until it is there.
const PATIENCE: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(20);
/// Lines of a log that an error has.
const LAST: usize = 8;
/// The time in which all connections of a measurement have to come about.
const CONNECTING: Duration = Duration::from_secs(10);
/// The port of the server.
pub const PORT: u16 = 5000;
/// The port on the left host that a program forwards.
const FORWARDED: u16 = 5001;
const WIREGUARD_PORT: u16 = 51_820;
const DEVICE: &str = "wg-right";

/// A way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A gateway in the process of the client.
    Inside,
    /// `vpnd proxy`, which forwards a port.
    Proxy,
    /// `vpnd` with its TUN device; the client uses the host's TCP.
    Tun,
    /// onetun, which forwards a port: boringtun and smoltcp.
    OneTun,
    /// The program `netstack` beside this file, which forwards a port: wireguard-go and gVisor's TCP.
    Netstack,
}

impl Kind {
    /// In the order of the tables.
    pub const ALL: [Self; 5] = [Self::Inside, Self::Proxy, Self::Tun, Self::OneTun, Self::Netstack];

    /// For the tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Inside => "vpn, in the process",
            Self::Proxy => "vpnd proxy",
            Self::Tun => "vpnd, TUN device",
            Self::OneTun => "onetun",
            Self::Netstack => "wireguard-go, netstack",
        }
    }

    /// Why it cannot be measured here, if it cannot.
    pub fn lacking(self) -> Option<String> {
        let needs: &[&str] = match self {
            Self::Inside | Self::Proxy | Self::Tun => &[],
            Self::OneTun => &["onetun", RIGHT_WIREGUARD, "wg"],
            Self::Netstack => &["netstack", RIGHT_WIREGUARD, "wg"],
        };
        needs.iter().find_map(|name| missing(name))
    }

    fn is_wireguard(self) -> bool {
        matches!(self, Self::OneTun | Self::Netstack)
    }
}

/// The gateway of the right host for the programs that speak WireGuard: the fastest in userspace that is known.
const RIGHT_WIREGUARD: &str = "wireguard-go-tailscale";

/// The program that has an end of the tunnel.
enum End {
    Daemon(Daemon),
    Other(Process),
}

impl End {
    fn id(&self) -> u32 {
        match self {
            Self::Daemon(daemon) => daemon.process().id(),
            Self::Other(process) => process.id(),
        }
    }
}

/// A way that is up.
pub struct Subject<'a> {
    kind: Kind,
    hosts: &'a [Host; 2],
    left: Option<End>,
    right: Option<End>,
    directory: tempfile::TempDir,
}

impl<'a> Subject<'a> {
    /// Starts the gateways and waits until a connection comes about.
    pub fn up(kind: Kind, hosts: &'a [Host; 2]) -> Result<Self, String> {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let mut subject = Self { kind, hosts, left: None, right: None, directory };
        match kind.is_wireguard() {
            true => subject.wireguard()?,
            false => subject.ipsec()?,
        }
        Ok(subject)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts a program on a host, its output in a file.
    fn start(&self, host: &Host, command: Command) -> Result<End, String> {
        let log = self.path(&format!("{}.log", host.name));
        Process::start(&host.space, command, &log).map(End::Other)
    }

    fn target(&self) -> SocketAddr {
        (self.hosts[1].inner, PORT).into()
    }

    fn ipsec(&mut self) -> Result<(), String> {
        let [left, right] = self.hosts;
        let mut new = Command::new(testkit::vpnctl());
        new.current_dir(self.directory.path()).args(["policy", "new", "--suite", "aes128-gcm"]);
        new.arg("--local").arg(left.outer.to_string());
        new.arg("--remote").arg(right.outer.to_string());
        new.arg("--protect").arg(format!("{}/32={}/32", left.inner, right.inner));
        let made = new.output().map_err(|error| format!("vpnctl: {error}"))?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).into_owned());
        }
        right.ip(format!("addr add {}/32 dev lo\n", right.inner))?;
        self.right = Some(self.vpnd(right)?);
        match self.kind {
            Kind::Tun => {
                left.ip(format!("addr add {}/32 dev lo\n", left.inner))?;
                self.left = Some(self.vpnd(left)?);
            }
            Kind::Proxy => {
                let mut proxy = Command::new(env!("CARGO_BIN_EXE_vpnd"));
                proxy.arg("proxy").arg("--policy").arg(self.path("left.xml"));
                proxy.args(["--listen", "127.0.0.1:0", "-L"]);
                proxy.arg(format!("{FORWARDED}:{}", self.target()));
                self.left = Some(self.start(left, proxy)?);
            }
            _ => {}
        }
        Ok(())
    }

    /// The daemon of a host, which answers commands when this returns.
    fn vpnd(&self, host: &Host) -> Result<End, String> {
        let policy = self.path(&format!("{}.xml", host.name));
        let policy = fs::read_to_string(policy).map_err(|error| error.to_string())?;
        let mut daemon =
            Daemon::new(host.name, self.path(host.name)).with_policy(&policy).with_config("", "");
        daemon.start(&host.space)?;
        Ok(End::Daemon(daemon))
    }

    fn wireguard(&mut self) -> Result<(), String> {
        let [left, right] = self.hosts;
        let keys = [Keys::make()?, Keys::make()?];
        let (device, socket) = (wireguard_device(), wireguard_socket());
        // One that was killed leaves its socket behind, and the next would seem to be there.
        let _ = fs::remove_file(&socket);
        let mut gateway = Command::new(known(RIGHT_WIREGUARD)?);
        gateway.args(["-f", &device]).env("WG_LOG_LEVEL", "error");
        self.right = Some(self.start(right, gateway)?);
        self.wait("the socket of the device", || socket.exists())?;
        let key = self.path("right.key");
        write_secret(&key, &keys[1].private);
        right.run(&format!(
            "wg set {device} private-key {} listen-port {WIREGUARD_PORT} peer {} allowed-ips {}/32",
            key.display(),
            keys[0].public,
            left.inner,
        ))?;
        right.ip(format!(
            "addr add {}/32 dev {device}\nlink set {device} mtu 1420 up\nroute add {}/32 dev {device}\n",
            right.inner, left.inner,
        ))?;
        let endpoint = format!("{}:{WIREGUARD_PORT}", right.outer);
        let command = match self.kind {
            Kind::OneTun => {
                let mut onetun = Command::new(known("onetun")?);
                onetun.arg(format!("127.0.0.1:{FORWARDED}:{}:TCP", self.target()));
                onetun.args(["--endpoint-addr", &endpoint, "--log", "error"]);
                onetun.args(["--endpoint-public-key", &keys[1].public]);
                onetun.args(["--private-key", &keys[0].private]);
                onetun.args(["--source-peer-ip", &left.inner.to_string()]);
                onetun
            }
            _ => {
                let mut netstack = Command::new(known("netstack")?);
                netstack.arg(format!("127.0.0.1:{FORWARDED}")).arg(left.inner.to_string());
                netstack.args([&keys[0].private, &keys[1].public, &endpoint]);
                netstack.arg(self.target().to_string());
                netstack
            }
        };
        self.left = Some(self.start(left, command)?);
        Ok(())
    }

    fn wait(&self, what: &str, mut is_there: impl FnMut() -> bool) -> Result<(), String> {
        let begun = Instant::now();
        while !is_there() {
            if begun.elapsed() > PATIENCE {
                return Err(format!("not within {PATIENCE:?}: {what}\n{}", self.last_words()));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn last_words(&self) -> String {
        let words = [&self.left, &self.right].into_iter().zip(self.hosts).map(|(end, host)| {
            let log = self.path(&format!("{}.log", host.name));
            match end {
                Some(End::Daemon(daemon)) => daemon.last_words(),
                _ => last_lines(&fs::read_to_string(log).unwrap_or_default(), LAST),
            }
        });
        words.collect::<Vec<_>>().join("\n")
    }

    /// Opens connections; there may be fewer than are wanted.
    ///
    /// # Errors
    /// If none comes about.
    pub fn open(&self, traffic: Traffic, number: usize) -> Result<Open<'_>, String> {
        if self.kind == Kind::Inside {
            return self.open_inside(traffic, number);
        }
        let left = &self.hosts[0];
        let (source, target) = match self.kind {
            Kind::Tun => (left.inner, self.target()),
            _ => (Ipv4Addr::LOCALHOST, (Ipv4Addr::LOCALHOST, FORWARDED).into()),
        };
        let connect =
            move || async move { connect(source, target).await.map_err(|e| e.to_string()) };
        let runtime = left.space.run(Runtime::new).map_err(|error| error.to_string())?;
        let open = |number, patience| {
            let opening = Clients::open(number, traffic, patience, connect);
            runtime.block_on(async { tokio::spawn(opening).await.map_err(|e| e.to_string())? })
        };
        // The forward is there, and the tunnel up.
        self.wait("the first connection", || open(1, PAUSE * 50).is_ok())?;
        let clients =
            open(number, CONNECTING).map_err(|e| format!("{e}\n{}", self.last_words()))?;
        let number = clients.number();
        let client = Client::Outside { clients, runtime: Some(runtime) };
        Ok(Open { subject: self, client, number })
    }

    fn open_inside(&self, traffic: Traffic, number: usize) -> Result<Open<'_>, String> {
        let this = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(this);
        command.arg("inside").arg(self.path("left.xml")).arg(self.target().to_string());
        command.arg(match traffic {
            Traffic::Out => "out",
            Traffic::In => "in",
            Traffic::Echo => "echo",
        });
        command.arg(number.to_string()).arg(CONNECTING.as_secs().to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process =
            self.hosts[0].space.run(move || command.spawn()).map_err(|e| e.to_string())?;
        let input = process.stdin.take().ok_or("it is piped")?;
        let output = BufReader::new(process.stdout.take().ok_or("it is piped")?);
        let client = Client::Inside { process, input, output };
        let mut open = Open { subject: self, client, number: 0 };
        let number = open.line()?.parse();
        open.number = number.map_err(|_| format!("no connection\n{}", self.last_words()))?;
        Ok(open)
    }
}

impl Drop for Subject<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_file(wireguard_socket());
    }
}

/// Open connections, with their clients.
pub struct Open<'a> {
    subject: &'a Subject<'a>,
    client: Client,
    /// The number of them.
    pub number: usize,
}

enum Client {
    Outside { clients: Clients<TcpStream>, runtime: Option<Runtime> },
    Inside { process: Child, input: ChildStdin, output: BufReader<ChildStdout> },
}

impl Open<'_> {
    /// Begins their traffic.
    pub fn start(&mut self) -> Result<(), String> {
        match &mut self.client {
            Client::Outside { clients, runtime } => {
                let _inside = runtime.as_ref().map(Runtime::enter);
                clients.start();
                Ok(())
            }
            Client::Inside { input, .. } => {
                writeln!(input, "start").map_err(|error| error.to_string())
            }
        }
    }

    /// The process that has the left end of the connections, where one has.
    fn left(&self) -> Option<u32> {
        match &self.client {
            Client::Inside { process, .. } => Some(process.id()),
            Client::Outside { .. } => self.subject.left.as_ref().map(End::id),
        }
    }

    /// Processor time so far of both ends' programs: of a gateway in the process with the client's own.
    pub fn used(&self) -> Result<Duration, String> {
        let processes = self.left().into_iter().chain(self.subject.right.as_ref().map(End::id));
        processes.map(processor::used).sum()
    }

    /// Octets of memory that the left end's program has in use. The kernel's, which has the connections of
    /// [`Kind::Tun`], do not count.
    pub fn memory(&self) -> Option<u64> {
        let left = self.left().filter(|_| self.subject.kind != Kind::Tun)?;
        let status = fs::read_to_string(format!("/proc/{left}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
    }

    /// A line of the process that has the gateway inside.
    fn line(&mut self) -> Result<String, String> {
        let Client::Inside { output, .. } = &mut self.client else { return Ok(String::new()) };
        let mut line = String::new();
        output.read_line(&mut line).map_err(|error| error.to_string())?;
        Ok(line.trim().to_owned())
    }

    /// Ends the connections. The median of the round trips, zero where there were none.
    pub fn close(mut self) -> Result<Duration, String> {
        match &mut self.client {
            Client::Outside { clients, .. } => Ok(crate::median(&clients.trips())),
            Client::Inside { input, .. } => {
                writeln!(input, "end").map_err(|error| error.to_string())?;
                let line = self.line()?;
                let nanoseconds = line.parse();
                let nanoseconds = nanoseconds.map_err(|_| format!("no round trip: {line}"))?;
                Ok(Duration::from_nanos(nanoseconds))
            }
        }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        match &mut self.client {
            Client::Outside { runtime, .. } => {
                if let Some(runtime) = runtime.take() {
                    runtime.shutdown_background();
                }
            }
            Client::Inside { process, .. } => {
                let _ = process.kill();
                let _ = process.wait();
            }
        }
    }
}

async fn connect(source: Ipv4Addr, target: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((source, 0).into())?;
    let stream = socket.connect(target).await?;
    stream.set_nodelay(true)?;
    // As at the server.
    stream.set_zero_linger()?;
    Ok(stream)
}

/// Only one is there at a time.
fn wireguard_device() -> String {
    format!("{DEVICE}{}", std::process::id() % 10_000)
}

/// The socket by which `wg` commands the right gateway.
fn wireguard_socket() -> PathBuf {
    PathBuf::from(format!("/var/run/wireguard/{}.sock", wireguard_device()))
}

fn known(name: &str) -> Result<PathBuf, String> {
    program(name).ok_or_else(|| format!("there is no {name}"))
}
