//! The product.

use super::{Running, add_inner};
use benchkit::Host;
use benchkit::policy::Site;
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{sleep, spawn};
use std::time::Duration;
use testkit::daemon::Daemon;

/// How it is set up.
#[derive(Clone, Debug)]
pub struct Setup {
    /// ESP's algorithm, as the policy spells it.
    pub esp: &'static str,
    /// Lines of `[esp]` in its configuration.
    pub config: &'static str,
    /// It serves metrics, and somebody reads them every second.
    pub is_watched: bool,
    /// Variables of its environment.
    pub environment: &'static [(&'static str, &'static str)],
    /// The build of `vpnd` that runs.
    pub build: Build,
    /// Child SAs beside the one for the address behind the other end.
    pub tunnels: Option<Tunnels>,
}

/// A build of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Build {
    /// As it is shipped.
    Product,
    /// With a cipher that only copies, to see what the rest costs.
    NullCipher,
    /// Another program, such as one that was built before a change.
    Other(PathBuf),
}

/// So many Child SAs, which share so many addresses of `10.201.0.0/16` among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnels {
    pub number: u16,
    pub addresses: u16,
}

impl Tunnels {
    /// All addresses.
    pub fn targets(self) -> impl Iterator<Item = Ipv4Addr> {
        (0..self.addresses).map(address)
    }

    /// First and last address of each Child SA.
    fn ranges(self) -> impl Iterator<Item = [Ipv4Addr; 2]> {
        let [number, addresses] = [self.number, self.addresses].map(u32::from);
        let bound = move |n| u16::try_from(n * addresses / number).unwrap_or(u16::MAX);
        (0..number).map(move |n| [bound(n), bound(n + 1) - 1].map(address))
    }
}

fn address(n: u16) -> Ipv4Addr {
    let [high, low] = n.to_be_bytes();
    Ipv4Addr::new(10, 201, high, low)
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            esp: "ESP_AES128_GCM_16",
            config: "",
            is_watched: false,
            environment: &[],
            build: Build::Product,
            tunnels: None,
        }
    }
}

/// The program of a build; made if it has to be.
pub fn program(build: &Build) -> Result<PathBuf, String> {
    match build {
        Build::Product => Ok(PathBuf::from(env!("CARGO_BIN_EXE_vpnd"))),
        Build::NullCipher => null_cipher(),
        Build::Other(program) => Ok(program.clone()),
    }
}

fn null_cipher() -> Result<PathBuf, String> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let target = PathBuf::from(root).join("target/null-cipher");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([
        "build",
        "--quiet",
        "--release",
        "--bin",
        "vpnd",
        "--features",
        "vpn-daemon/insecure-null-cipher",
    ]);
    cargo.arg("--target-dir").arg(&target).current_dir(root);
    match cargo.status() {
        Ok(status) if status.success() => Ok(target.join("release/vpnd")),
        Ok(status) => Err(format!("building vpnd with the NULL cipher: {status}")),
        Err(error) => Err(format!("cargo: {error}")),
    }
}

pub fn up(setup: &Setup, hosts: &[Host; 2], running: &mut Running) -> Result<(), String> {
    let program = program(&setup.build)?;
    let mut watched = Vec::new();
    for (at, host) in hosts.iter().enumerate() {
        add_inner(host)?;
        host.ip("route add local 10.201.0.0/16 dev lo\n".repeat(at))?;
        let mut daemon = Daemon::new(host.name, running.path(host.name))
            .with_program(program.clone())
            .with_environment(setup.environment.iter().copied())
            .with_policy(&policy(setup, host, &hosts[1 - at], at == 0))
            .with_config("mobike = false", setup.config);
        if setup.is_watched {
            let metrics = daemon.path("metrics");
            daemon.configure(&format!("[metrics]\nlisten = {metrics:?}\n"));
            watched.push(metrics);
        }
        daemon.start(&host.space)?;
        running.daemons.push(daemon);
    }
    running.daemons[0].try_ctl(&["activate"])?;
    watched.into_iter().for_each(|socket| drop(spawn(move || watch(&socket))));
    Ok(())
}

/// Reads metrics as a monitoring system does, but more often, until the endpoint is gone.
fn watch(socket: &Path) {
    while let Ok(mut stream) = UnixStream::connect(socket) {
        let asked = stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: vpnd\r\n\r\n");
        if asked.and_then(|()| stream.read_to_end(&mut Vec::new())).is_err() {
            return;
        }
        sleep(Duration::from_secs(1));
    }
}

fn policy(setup: &Setup, here: &Host, there: &Host, is_left: bool) -> String {
    let [left, right] = if is_left { [here, there] } else { [there, here] };
    let others = setup.tunnels.into_iter().flat_map(Tunnels::ranges);
    let ranges = [[right.inner; 2]].into_iter().chain(others).map(|right| {
        let left = [left.inner; 2];
        if is_left { [left, right] } else { [right, left] }
    });
    Site { here: here.outer, there: there.outer, esp: setup.esp }.policy(ranges)
}
