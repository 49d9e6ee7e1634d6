//! Any WireGuard in userspace that takes the name of its device and is commanded by `wg`.

use super::{Running, wait};
use benchkit::{Host, Keys, missing, program};
use std::path::Path;
use std::process::Command;
use testkit::daemon::write_secret;

/// 1500 octets less WireGuard's headers.
const MTU: u32 = 1420;
const PORT: u16 = 51_820;

pub fn up(
    name: &str,
    arguments: &[&str],
    hosts: &[Host; 2],
    running: &mut Running,
) -> Result<(), String> {
    let binary = program(name).ok_or_else(|| missing(name).unwrap_or_default())?;
    let keys = [Keys::make()?, Keys::make()?];
    for (at, host) in hosts.iter().enumerate() {
        let there = &hosts[1 - at];
        // The sockets of all namespaces are in one directory.
        let device = format!("wg{}{}", std::process::id() % 1_000_000, host.name);
        let device = &device[..device.len().min(14)];
        let socket = format!("/var/run/wireguard/{device}.sock");
        // One that was killed leaves its socket behind, and then it is not there yet.
        let _ = std::fs::remove_file(&socket);
        let mut command = Command::new(&binary);
        command.args(arguments).arg(device).env("WG_LOG_LEVEL", "error");
        running.start(host, command)?;
        wait("the socket of the device", || Path::new(&socket).exists())?;
        let file = running.path(&format!("{}.key", host.name));
        write_secret(&file, &keys[at].private);
        let (public, outer, inner) = (&keys[1 - at].public, there.outer, there.inner);
        host.run(&format!(
            "wg set {device} private-key {} listen-port {PORT} peer {public} endpoint {outer}:{PORT} allowed-ips {inner}/32",
            file.display(),
        ))?;
        host.ip(format!(
            "addr add {}/32 dev {device}\nlink set {device} mtu {MTU} up\nroute add {inner}/32 dev {device}\n",
            host.inner,
        ))?;
    }
    Ok(())
}
