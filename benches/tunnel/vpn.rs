//! The VPNs that are compared, and how each is brought up between two hosts.

mod openvpn;
mod strongswan;
mod vpnd;
mod wireguard;

use crate::plan::Part;
use benchkit::{Host, missing, used};
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use testkit::daemon::Daemon;
use testkit::process::{Process, last_lines};
use testkit::strongswan::Charon;
pub use vpnd::{Build, Tunnels, program as build};

/// How long a VPN may take until packets pass.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks at whether something is there.
const PAUSE: Duration = Duration::from_millis(20);
/// Lines of a log that an error has.
const LAST: usize = 12;

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
            Kind::Wire => [[0, 1], [1, 0]]
                .iter()
                .try_for_each(|&[here, there]| add_inner_and_route(&hosts[here], &hosts[there])),
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

/// Gives a host its address behind the tunnel.
fn add_inner(host: &Host) -> Result<(), String> {
    host.ip(format!("addr add {}/32 dev lo\n", host.inner))
}

/// The same, and a route to the other host's over the wire.
fn add_inner_and_route(host: &Host, other: &Host) -> Result<(), String> {
    add_inner(host)?;
    host.ip(format!("route add {}/32 via {}\n", other.inner, other.outer))
}

/// The programs of a VPN that is up. Dropping it kills them; their namespaces go with the hosts.
pub struct Running {
    daemons: Vec<Daemon>,
    charons: Vec<Charon>,
    others: Vec<Process>,
    directory: tempfile::TempDir,
}

impl Running {
    fn new() -> Result<Self, String> {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        Ok(Self { daemons: Vec::new(), charons: Vec::new(), others: Vec::new(), directory })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts a program on a host, its output in a file.
    fn start(&mut self, host: &Host, command: Command) -> Result<(), String> {
        let log = self.path(&format!("{}.log", host.name));
        self.others.push(Process::start(&host.space, command, &log)?);
        Ok(())
    }

    fn processes(&self) -> impl Iterator<Item = &Process> {
        let daemons = self.daemons.iter().map(Daemon::process);
        daemons.chain(self.charons.iter().map(Charon::process)).chain(&self.others)
    }

    /// Processor time of all its programs so far.
    pub fn used(&self) -> Result<Duration, String> {
        self.processes().map(|process| used(process.id())).sum()
    }

    /// Memory of its programs that is resident, kilobytes.
    pub fn memory_kb(&self) -> u64 {
        self.processes().filter_map(|process| process.kilobytes("RssAnon")).sum()
    }

    fn last_words(&self) -> String {
        let daemons = self.daemons.iter().map(Daemon::last_words);
        let mut words: Vec<String> =
            daemons.chain(self.charons.iter().map(Charon::last_words)).collect();
        for name in ["left", "right"] {
            let log = fs::read_to_string(self.path(&format!("{name}.log")));
            words.extend(log.map(|log| format!("---- {name}\n{}", last_lines(&log, LAST))));
        }
        words.join("\n")
    }
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
