//! OpenVPN without its kernel module, point to point, AES-256-GCM.

use super::Running;
use benchkit::Host;
use std::process::Command;

/// Options for speed from OpenVPN's manual.
pub const LARGE_BUFFERS: &[&str] =
    &["--sndbuf", "4194304", "--rcvbuf", "4194304", "--txqueuelen", "1000", "--fast-io"];
const PORT: &str = "1194";

pub fn up(arguments: &[&str], hosts: &[Host; 2], running: &mut Running) -> Result<(), String> {
    let mut fingerprints = Vec::new();
    for host in hosts {
        let [key, certificate] =
            ["key", "crt"].map(|end| running.path(&format!("{}.{end}", host.name)));
        let subject = format!("/CN={}", host.name);
        openssl(&[
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "30",
            "-subj",
            &subject,
            "-keyout",
            &key.to_string_lossy(),
            "-out",
            &certificate.to_string_lossy(),
        ])?;
        let arguments =
            ["x509", "-noout", "-fingerprint", "-sha256", "-in", &certificate.to_string_lossy()];
        let printed = openssl(&arguments)?;
        let fingerprint = printed.split_once('=').ok_or("openssl printed no fingerprint")?.1;
        fingerprints.push(fingerprint.trim().to_owned());
    }
    // The server first: a client that does not find it waits for seconds.
    for at in [1, 0] {
        let (host, there) = (&hosts[at], &hosts[1 - at]);
        let addresses =
            [&host.outer, &there.outer, &host.inner, &there.inner].map(ToString::to_string);
        let [local, remote, inner, inner_there] = &addresses;
        let role: &[&str] =
            if at == 1 { &["--tls-server", "--dh", "none"] } else { &["--tls-client"] };
        let mut command = Command::new("openvpn");
        command.args(["--dev", "tun", "--proto", "udp", "--lport", PORT, "--rport", PORT]);
        command.args(["--local", local, "--remote", remote, "--topology", "p2p"]);
        command.args(["--ifconfig", inner, inner_there]).args(role);
        command.args([
            "--peer-fingerprint",
            &fingerprints[1 - at],
            "--data-ciphers",
            "AES-256-GCM",
        ]);
        command.arg("--cert").arg(running.path(&format!("{}.crt", host.name)));
        command.arg("--key").arg(running.path(&format!("{}.key", host.name)));
        command.args(["--disable-dco", "--verb", "3"]).args(arguments);
        running.start(host, command)?;
    }
    Ok(())
}

fn openssl(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("openssl").args(arguments).output();
    let output = output.map_err(|error| format!("openssl: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("openssl: {}", String::from_utf8_lossy(&output.stderr))),
    }
}
