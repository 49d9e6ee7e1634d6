//! Any WireGuard in userspace that takes the name of its device and is commanded by `wg`.

use super::{Running, missing, program, wait};
use crate::wire::Host;
use std::path::Path;
use std::process::{Command, Stdio};

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
    let keys = [key()?, key()?];
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
        let file = running.write(&format!("{}.key", host.name), &keys[at].0)?;
        let (public, outer, inner) = (&keys[1 - at].1, there.outer, there.inner);
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

/// A private key and the public one of it.
fn key() -> Result<(String, String), String> {
    let error = |error: std::io::Error| format!("wg: {error}");
    let output = Command::new("wg").arg("genkey").output().map_err(error)?;
    let private = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let mut wg = Command::new("wg");
    let wg = wg.arg("pubkey").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = wg.spawn().map_err(error)?;
    if let Some(mut input) = process.stdin.take() {
        std::io::Write::write_all(&mut input, private.as_bytes()).map_err(error)?;
    }
    let output = process.wait_with_output().map_err(error)?;
    Ok((private, String::from_utf8_lossy(&output.stdout).trim().to_owned()))
}
