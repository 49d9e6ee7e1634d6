//! The VPNs that are compared, and how each is brought up between two hosts.

mod openvpn;
mod strongswan;
mod vpnd;
mod wireguard;

use crate::plan::Part;
use crate::wire::Host;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
pub use vpnd::{Build, Tunnels, program as build};

/// How long a VPN may take until packets pass.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks at whether something is there.
const PAUSE: Duration = Duration::from_millis(20);
/// The unit of times in `/proc` (USER_HZ is 100 on all that this runs on).
pub const TICK_MS: u64 = 10;

/// One of them.
#[derive(Clone, Debug)]
pub struct Vpn {
    /// Its name in the tables.
    pub name: String,
    /// How much is measured of it.
    pub part: Part,
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
/// The same with nothing but portable software (`in_core_enabled = false`).
pub const VPND_PORTABLE: &str = "vpnd, AES-256-GCM, off: RustCrypto";
/// The same by a daemon whose AWS-LC finds no instructions for cryptography.
pub const VPND_SOFTWARE: &str = "vpnd, AES-256-GCM, off: AWS-LC's software";
/// The environment of that daemon.
const WITHOUT_INSTRUCTIONS: &[(&str, &str)] = &[(crypto::HIDING, crypto::HIDING_ALL)];
/// Debian's charon as it comes.
pub const STRONGSWAN: &str = "strongSwan kernel-libipsec";
/// The fastest WireGuard in userspace that is known.
pub const TAILSCALE: &str = "wireguard-go of Tailscale";

/// A build of the product with so many SAs, each for its share of the same addresses.
pub fn with_tunnels(build: &str, tunnels: u16) -> String {
    match tunnels {
        1 => format!("{build}, one SA for all addresses"),
        2..1_000 => format!("{build}, {tunnels} SAs"),
        _ => format!("{build}, {},{:03} SAs", tunnels / 1_000, tunnels % 1_000),
    }
}

/// The name of another build of the product: that of its file, which is hardly ever just `vpnd`.
fn build_name(program: &Path) -> String {
    match program.file_name().and_then(|name| name.to_str()) {
        Some(name) if name != VPND => name.to_owned(),
        _ => format!("{} (the other build)", program.display()),
    }
}

fn other(program: &Path) -> Build {
    Build::Other(program.to_owned())
}

/// All of them, in the order of the tables, with those other builds of the product; at last the product with one SA and
/// with each of these numbers of SAs, and each other build likewise.
pub fn all(tunnels: &[u16], beside: &[PathBuf]) -> Vec<Vpn> {
    let vpn = |name: &str, part, kind| Vpn { name: name.to_owned(), part, kind };
    let vpnd = |name: &str, part, setup| vpn(name, part, Kind::Vpnd(setup));
    let plain = vpnd::Setup::default;
    let wireguard =
        |name, program, arguments| vpn(name, Part::Whole, Kind::WireGuard { program, arguments });
    let openvpn = |name, part, arguments| vpn(name, part, Kind::OpenVpn { arguments });
    let few = Kind::StrongSwan { plugins: Some(strongswan::FEW) };
    let gcm_256 = || vpnd::Setup { esp: "ESP_AES256_GCM_16", ..plain() };
    let off = "[crypto]\nin_core_enabled = false";
    let mut all = vec![
        vpn(WIRE, Part::Whole, Kind::Wire),
        vpnd(VPND, Part::Whole, plain()),
        vpnd(
            "vpnd, native ESP",
            Part::Variant,
            vpnd::Setup { config: "encap = \"never\"", ..plain() },
        ),
        vpnd(
            "vpnd, metrics read every second",
            Part::Variant,
            vpnd::Setup { is_watched: true, ..plain() },
        ),
        vpnd(VPND_NULL, Part::Stream, vpnd::Setup { build: Build::NullCipher, ..plain() }),
        vpnd(VPND_256, Part::Stream, gcm_256()),
        vpnd(VPND_PORTABLE, Part::Stream, vpnd::Setup { config: off, ..gcm_256() }),
        vpnd(
            VPND_SOFTWARE,
            Part::Stream,
            vpnd::Setup { environment: WITHOUT_INSTRUCTIONS, ..gcm_256() },
        ),
        vpn(STRONGSWAN, Part::Whole, Kind::StrongSwan { plugins: None }),
        vpn("strongSwan, few plugins", Part::Variant, few),
        wireguard("wireguard-go", "wireguard-go", &["-f"]),
        wireguard(TAILSCALE, "wireguard-go-tailscale", &["-f"]),
        wireguard("gotatun", "gotatun", &["-f", "--disable-drop-privileges"]),
        wireguard("boringtun", "boringtun-cli", &["-f", "--disable-drop-privileges"]),
        openvpn("OpenVPN", Part::Whole, &[]),
        openvpn("OpenVPN, large buffers", Part::Variant, openvpn::LARGE_BUFFERS),
    ];
    let builds = || beside.iter().map(|program| (build_name(program), other(program)));
    let whole =
        |(name, build): (String, Build)| vpnd(&name, Part::Whole, vpnd::Setup { build, ..plain() });
    all.splice(2..2, builds().map(whole));
    let addresses = tunnels.iter().copied().max().unwrap_or(0);
    let numbers: Vec<u16> = [1].iter().take(tunnels.len()).chain(tunnels).copied().collect();
    for (name, build) in [(VPND.to_owned(), Build::Product)].into_iter().chain(builds()) {
        all.extend(numbers.iter().map(|&number| {
            let tunnels = Some(Tunnels { number, addresses });
            let setup = vpnd::Setup { build: build.clone(), tunnels, ..plain() };
            vpnd(&with_tunnels(&name, number), Part::Addresses, setup)
        }));
    }
    all
}

impl Vpn {
    /// Whether it competes.
    pub fn is_peer(&self) -> bool {
        !matches!(self.kind, Kind::Vpnd(_) | Kind::Wire)
    }

    /// How many SAs share the addresses that its traffic goes to, where there are very many.
    pub fn tunnels(&self) -> Option<u16> {
        match &self.kind {
            Kind::Vpnd(setup) => setup.tunnels.map(|tunnels| tunnels.number),
            _ => None,
        }
    }

    /// The addresses behind the right end that its traffic goes to in turn.
    pub fn targets(&self, hosts: &[Host; 2]) -> Vec<Ipv4Addr> {
        match &self.kind {
            Kind::Vpnd(vpnd::Setup { tunnels: Some(tunnels), .. }) => tunnels.targets().collect(),
            _ => vec![hosts[1].inner],
        }
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
    let ticks = ticks::<2>(&format!("/proc/{process}/stat"))?;
    Ok(Duration::from_millis(ticks.iter().sum::<u64>() * TICK_MS))
}

/// Processor time that a process has used, in the unit of `/proc`: as user and as system, then its children that it has
/// waited for.
pub fn ticks<const N: usize>(path: &str) -> Result<[u64; N], String> {
    let stat = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    // proc_pid_stat(5): behind the name in parentheses comes the third field; the 14th and the next are wanted.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let ticks: Vec<u64> = fields.skip(11).take(N).filter_map(|field| field.parse().ok()).collect();
    ticks.try_into().map_err(|_| format!("{path}: not as expected"))
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
