//! The kernel's IPsec by hand: the document's two policies and two states on either host.

use super::found::Capacity;
use crate::site::{Site, WIRE};
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

/// Key and salt of each direction, one octet over and over: they protect this process's own traffic.
fn key(octet: u8) -> String {
    format!("0x{}", format!("{octet:02x}").repeat(20))
}

const AEAD: &str = "rfc4106(gcm(aes))";

/// Has the kernels of both hosts protect TCP between them, in transport mode with AES-128-GCM.
///
/// # Errors
/// Where a kernel refuses; the text is what `ip` says of it.
pub(super) fn protect(site: &Site) -> Result<(), String> {
    let [left, right] = WIRE.map(|address| address.to_string());
    for end in [0, 1] {
        let (here, there) = if end == 0 { (&left, &right) } else { (&right, &left) };
        for (source, target, direction) in [(here, there, "out"), (there, here, "in")] {
            let octet = if source == &left { 0x31 } else { 0x32 };
            let state = format!(
                "xfrm state add src {source} dst {target} proto esp spi 0x07 mode transport reqid 0x07 \
                 replay-window 32 aead {AEAD} {} 128",
                key(octet),
            );
            let policy = format!(
                "xfrm policy add dir {direction} src {source} dst {target} proto tcp \
                 tmpl src {source} dst {target} proto esp spi 0x07 mode transport reqid 0x07",
            );
            for line in [state, policy] {
                site.command(end, "ip", &line.split(' ').collect::<Vec<_>>())?;
            }
        }
    }
    Ok(())
}

/// Leads the traffic of a tunnel in the kernel to the other host, which `vpnd` leaves to the program that runs it.
///
/// # Errors
/// Where a kernel refuses; the text is what `ip` says of it.
pub(super) fn route(site: &Site, addresses: [Ipv4Addr; 2]) -> Result<(), String> {
    for end in [0, 1] {
        let (here, there, router) = (addresses[end], addresses[1 - end], WIRE[1 - end]);
        let line = format!("route replace {there} via {router} src {here}");
        site.command(end, "ip", &line.split(' ').collect::<Vec<_>>())?;
    }
    Ok(())
}

/// The number of SAs that the kernel's simulated card (netdevsim) takes; `None` if there is no such driver.
pub(super) fn capacity() -> Option<Capacity> {
    let bus = Path::new("/sys/bus/netdevsim");
    fs::write(bus.join("new_device"), "1 1").ok()?;
    let device = fs::read_dir(bus.join("devices/netdevsim1/net")).ok()?.flatten().next()?;
    let device = device.file_name().into_string().ok()?;
    ip(&format!("addr add 10.9.0.1/24 dev {device}")).ok()?;
    ip(&format!("link set {device} up")).ok()?;
    let add = |number: usize, offload: &str| {
        let spi = 0x1000 + number;
        ip(&format!(
            "xfrm state add src 10.9.0.1 dst 10.9.0.2 proto esp spi {spi} reqid 1 mode transport aead {AEAD} {} 128{offload}",
            key(0x33),
        ))
    };
    let offload = format!(" offload dev {device} dir out");
    let mut taken = 0;
    let refusal = loop {
        match add(taken, &offload) {
            Ok(()) if taken < 2_048 => taken += 1,
            Ok(()) => break None,
            Err(error) => break Some(error),
        }
    };
    let software = add(taken, "").is_ok();
    Some(Capacity { device: format!("{device} (netdevsim)"), taken, refusal, software })
}

fn ip(line: &str) -> Result<(), String> {
    let output =
        Command::new("ip").args(line.split(' ')).output().map_err(|e| format!("ip: {e}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let errors = errors.trim().trim_end_matches('.').replace('\n', "; ");
    if output.status.success() { Ok(()) } else { Err(errors) }
}
