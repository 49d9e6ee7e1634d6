//! The VPNs that are compared, and how each is brought up between two hosts.

mod openvpn;
mod strongswan;
mod vpnd;
mod wireguard;

use crate::wire::Host;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
pub use vpnd::{Build, Tunnels, program as build, spread};

/// How long a VPN may take until packets pass.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks at whether something is there.
const PAUSE: Duration = Duration::from_millis(20);
/// The unit of times in `/proc` (USER_HZ is 100 on all that this runs on).
const TICK: Duration = Duration::from_millis(10);

/// One of them.
#[derive(Clone, Debug)]
pub struct Vpn {
    /// Its name in the tables.
    pub name: &'static str,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Wire,
    Vpnd(vpnd::Setup),
    StrongSwan { plugins: Option<&'static str> },
    WireGuard { program: &'static str, arguments: &'static [&'static str] },
    OpenVpn { arguments: &'static [&'static str] },
}

/// No VPN: the wire itself.
pub const WIRE: &str = "the wire alone";
/// The product as it comes.
pub const VPND: &str = "vpnd";
/// The same path with a cipher that only copies.
pub const VPND_NULL: &str = "vpnd, NULL cipher";
/// AES-256-GCM.
pub const VPND_256: &str = "vpnd, AES-256-GCM";
/// The same with nothing but portable software.
pub const VPND_PORTABLE: &str = "vpnd, AES-256-GCM, in-core off";
/// Debian's charon as it comes.
pub const STRONGSWAN: &str = "strongSwan kernel-libipsec";
/// The fastest WireGuard in userspace that is known.
pub const TAILSCALE: &str = "wireguard-go of Tailscale";

/// All of them, in the order of the tables.
pub fn all() -> Vec<Vpn> {
    let vpnd = |name, setup| Vpn { name, kind: Kind::Vpnd(setup) };
    let plain = vpnd::Setup::default;
    let wireguard =
        |name, program, arguments| Vpn { name, kind: Kind::WireGuard { program, arguments } };
    let openvpn = |name, arguments| Vpn { name, kind: Kind::OpenVpn { arguments } };
    vec![
        Vpn { name: WIRE, kind: Kind::Wire },
        vpnd(VPND, plain()),
        vpnd(VPND_256, vpnd::Setup { esp: "ESP_AES256_GCM_16", ..plain() }),
        vpnd(
            VPND_PORTABLE,
            vpnd::Setup {
                esp: "ESP_AES256_GCM_16",
                config: "[crypto]\nin_core_enabled = false",
                ..plain()
            },
        ),
        vpnd("vpnd, native ESP", vpnd::Setup { config: "encap = \"never\"", ..plain() }),
        vpnd(VPND_NULL, vpnd::Setup { build: Build::NullCipher, ..plain() }),
        Vpn { name: STRONGSWAN, kind: Kind::StrongSwan { plugins: None } },
        Vpn {
            name: "strongSwan, few plugins",
            kind: Kind::StrongSwan { plugins: Some(strongswan::FEW) },
        },
        wireguard("wireguard-go", "wireguard-go", &["-f"]),
        wireguard(TAILSCALE, "wireguard-go-tailscale", &["-f"]),
        wireguard("gotatun", "gotatun", &["-f", "--disable-drop-privileges"]),
        wireguard("boringtun", "boringtun-cli", &["-f", "--disable-drop-privileges"]),
        openvpn("OpenVPN", &[]),
        openvpn("OpenVPN, large buffers", openvpn::LARGE_BUFFERS),
    ]
}

impl Vpn {
    /// A `vpnd` with very many SAs.
    pub fn with_tunnels(name: &'static str, tunnels: Tunnels) -> Self {
        Self { name, kind: Kind::Vpnd(vpnd::Setup { tunnels, ..vpnd::Setup::default() }) }
    }

    /// Whether it competes.
    pub fn is_peer(&self) -> bool {
        !matches!(self.kind, Kind::Vpnd(_) | Kind::Wire)
    }

    /// Why it cannot run here, if it cannot.
    pub fn lacking(&self) -> Option<String> {
        match &self.kind {
            Kind::Wire | Kind::Vpnd(_) => None,
            Kind::StrongSwan { .. } => strongswan::lacking(),
            Kind::WireGuard { program, .. } => ["wg", program].into_iter().find_map(missing),
            Kind::OpenVpn { .. } => ["openvpn", "openssl"].into_iter().find_map(missing),
        }
    }

    /// Starts both ends and waits until packets pass.
    pub fn up(&self, hosts: &[Host; 2]) -> Result<Running, String> {
        let mut running = Running::new()?;
        let started = match &self.kind {
            Kind::Wire => hosts.iter().try_for_each(|host| host.add_inner_and_route(hosts)),
            Kind::Vpnd(setup) => vpnd::up(setup, hosts, &mut running),
            Kind::StrongSwan { plugins } => strongswan::up(*plugins, hosts, &mut running),
            Kind::WireGuard { program, arguments } => {
                wireguard::up(program, arguments, hosts, &mut running)
            }
            Kind::OpenVpn { arguments } => openvpn::up(arguments, hosts, &mut running),
        };
        let ping = format!("ping -n -c 1 -W 1 {}", hosts[1].inner);
        started
            .and_then(|()| wait("the first packet through it", || hosts[0].run(&ping).is_ok()))
            .map_err(|error| format!("{}: {error}\n{}", self.name, running.last_words()))?;
        Ok(running)
    }
}

impl Host {
    fn add_inner(&self) -> Result<(), String> {
        self.ip(format!("addr add {}/32 dev lo\n", self.inner))
    }

    fn add_inner_and_route(&self, hosts: &[Host; 2]) -> Result<(), String> {
        self.add_inner()?;
        let there = hosts.iter().find(|host| host.name != self.name).expect("there are two");
        self.ip(format!("route add {}/32 via {}\n", there.inner, there.outer))
    }
}

/// The programs of a VPN that is up. Dropping it kills them; their namespaces go with the hosts.
pub struct Running {
    processes: Vec<Child>,
    directory: tempfile::TempDir,
}

impl Running {
    fn new() -> Result<Self, String> {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        Ok(Self { processes: Vec::new(), directory })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf, String> {
        use std::os::unix::fs::OpenOptionsExt;
        let path = self.path(name);
        let mut options = fs::File::options();
        let file = options.create(true).truncate(true).write(true).mode(0o600).open(&path);
        file.and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()))
            .map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path)
    }

    /// Starts a program on a host, its output in a file.
    fn start(&mut self, host: &Host, mut command: Command) -> Result<(), String> {
        let log = fs::File::create(self.path(&format!("{}.log", host.name)));
        let log = log.map_err(|error| error.to_string())?;
        let errors = log.try_clone().map_err(|error| error.to_string())?;
        command.stdin(Stdio::null()).stdout(log).stderr(errors).process_group(0);
        let name = command.get_program().to_string_lossy().into_owned();
        let process = host.space.run(move || command.spawn());
        self.processes.push(process.map_err(|error| format!("{name}: {error}"))?);
        Ok(())
    }

    /// Processor time of all its programs so far.
    pub fn used(&self) -> Result<Duration, String> {
        self.processes.iter().map(|process| used(process.id())).sum()
    }

    /// Memory of its programs that is resident, kilobytes.
    pub fn memory_kb(&self) -> u64 {
        self.processes.iter().filter_map(|process| memory_kb(process.id())).sum()
    }

    fn last_words(&self) -> String {
        let mut words = String::new();
        let Ok(files) = fs::read_dir(self.directory.path()) else { return words };
        for path in files.flatten().map(|file| file.path()) {
            if path.extension().is_some_and(|extension| extension == "log") {
                let text = fs::read_to_string(&path).unwrap_or_default();
                let lines: Vec<&str> = text.lines().collect();
                let end = lines[lines.len().saturating_sub(12)..].join("\n");
                words += &format!("---- {}\n{end}\n", path.display());
            }
        }
        words
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for process in &mut self.processes {
            // One that has ended already needs no signal.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn used(process: u32) -> Result<Duration, String> {
    let path = format!("/proc/{process}/stat");
    let stat = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    // proc_pid_stat(5): behind the name in parentheses comes the third field; the 14th and 15th are wanted.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    Ok(TICK * fields.skip(11).take(2).filter_map(|field| field.parse::<u32>().ok()).sum::<u32>())
}

fn memory_kb(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn wait(what: &str, mut is_there: impl FnMut() -> bool) -> Result<(), String> {
    let begun = Instant::now();
    while !is_there() {
        if begun.elapsed() > PATIENCE {
            return Err(format!("not within {PATIENCE:?}: {what}"));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// Where `benches/tunnel/peers.sh` puts programs.
fn peers() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peers"))
}

/// The program's path, if it is installed.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    [peers().to_owned()].into_iter().chain(system).map(|d| d.join(name)).find(|p| p.exists())
}

fn missing(name: &str) -> Option<String> {
    program(name)
        .is_none()
        .then(|| format!("there is no {name}; benches/tunnel/peers.sh installs it"))
}
