//! A check of the privileges that a gateway needs.

use std::fs;
use std::io;

/// Number of CAP_NET_BIND_SERVICE in a capability set.
const NET_BIND_SERVICE: u32 = 10;
/// Number of CAP_NET_ADMIN.
const NET_ADMIN: u32 = 12;
/// Number of CAP_NET_RAW.
const NET_RAW: u32 = 13;

/// The port of IKE (RFC 7296 §2), below the ports every user may bind.
const IKE_PORT: u32 = 500;

/// Something that a gateway needs is missing.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    /// A capability.
    #[error(
        "vpnd lacks {}: run it as root (sudo vpnd start …), or as the service that config/vpnd.service describes",
        .0.join(", ")
    )]
    Capabilities(Vec<String>),
    /// The TUN device.
    #[error(
        "cannot use /dev/net/tun: {0}\n  load the driver with: modprobe tun; in a container, pass the device with --device /dev/net/tun"
    )]
    Tun(io::Error),
}

/// Checks the capabilities of this process and the driver of the TUN device.
///
/// # Errors
/// Names everything that is missing, and what each is needed for.
pub fn check() -> Result<(), PrivilegeError> {
    // Where /proc is not there, the first system call that is refused will tell.
    if let Ok(status) = fs::read_to_string("/proc/thread-self/status") {
        let first_port = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start")
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(1024);
        let missing = missing(&status, first_port);
        if !missing.is_empty() {
            return Err(PrivilegeError::Capabilities(missing));
        }
    }
    let tun = fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun");
    tun.map(drop).map_err(PrivilegeError::Tun)
}

/// Reads the effective set out of `/proc/…/status`.
fn missing(status: &str, first_port: u32) -> Vec<String> {
    let Some(effective) = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
    else {
        return Vec::new();
    };
    let needed = [
        (NET_ADMIN, "CAP_NET_ADMIN (for the TUN device and its routes)", true),
        (NET_RAW, "CAP_NET_RAW (to send and receive ESP)", true),
        (NET_BIND_SERVICE, "CAP_NET_BIND_SERVICE (for UDP port 500)", first_port > IKE_PORT),
    ];
    needed
        .iter()
        .filter(|(bit, _, needed)| *needed && effective & (1 << bit) == 0)
        .map(|(_, name, _)| (*name).to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_what_is_missing() {
        let status = |set: &str| format!("Name:\tvpnd\nCapPrm:\t0\nCapEff:\t{set}\nCapBnd:\t0\n");
        assert!(missing(&status("000001ffffffffff"), 1024).is_empty());
        assert!(missing(&status("0000000000003400"), 1024).is_empty());
        assert_eq!(missing(&status("0000000000000000"), 1024).len(), 3);
        assert_eq!(missing(&status("0000000000000000"), 500).len(), 2);
        assert!(missing(&status("0000000000001400"), 1024)[0].starts_with("CAP_NET_RAW"));
        assert!(missing("no such line", 1024).is_empty());
    }
}
