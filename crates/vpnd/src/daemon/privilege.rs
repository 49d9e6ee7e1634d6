//! A check of the privileges that a gateway needs.

use host::tun_file::{self, TunFileError};
use std::fs;

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
    /// Capabilities.
    #[error(
        "vpnd lacks {}: run it as root (sudo vpnd start …), or as the service (systemctl start vpnd)\n  a \
         container needs {}",
        join(.0, ", ", |lack| lack.name),
        join(.0, " ", |lack| lack.option)
    )]
    Capabilities(Vec<Lack>),
    /// The TUN device.
    #[error(transparent)]
    Tun(#[from] TunFileError),
}

/// A capability that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lack {
    /// The capability, and the reason why vpnd needs it.
    name: &'static str,
    /// The option of a container's runtime that makes up for it.
    option: &'static str,
}

fn join(lacks: &[Lack], separator: &str, text: fn(&Lack) -> &'static str) -> String {
    lacks.iter().map(text).collect::<Vec<_>>().join(separator)
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
    tun_file::check()?;
    Ok(())
}

/// Reads the effective set out of `/proc/…/status`.
fn missing(status: &str, first_port: u32) -> Vec<Lack> {
    let Some(effective) = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
    else {
        return Vec::new();
    };
    let needed = [
        (
            NET_ADMIN,
            Lack {
                name: "CAP_NET_ADMIN (for the TUN device and its routes)",
                option: "--cap-add NET_ADMIN",
            },
        ),
        (
            NET_RAW,
            Lack { name: "CAP_NET_RAW (to send and receive ESP)", option: "--cap-add NET_RAW" },
        ),
        (
            NET_BIND_SERVICE,
            Lack {
                name: "CAP_NET_BIND_SERVICE (for UDP port 500)",
                // Rather this than the capability: it is about this network alone.
                option: "--sysctl net.ipv4.ip_unprivileged_port_start=500",
            },
        ),
    ];
    let needed = needed.iter().filter(|(bit, _)| *bit != NET_BIND_SERVICE || first_port > IKE_PORT);
    needed.filter(|(bit, _)| effective & (1 << bit) == 0).map(|(_, lack)| *lack).collect()
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
        assert!(missing(&status("0000000000001400"), 1024)[0].name.starts_with("CAP_NET_RAW"));
        assert!(missing("no such line", 1024).is_empty());
    }

    #[test]
    fn a_container_is_told_its_options() {
        let status = "CapEff:\t0000000000001000\n";
        let text = PrivilegeError::Capabilities(missing(status, 1024)).to_string();
        assert!(
            text.contains("lacks CAP_NET_RAW (to send and receive ESP), CAP_NET_BIND_"),
            "{text}"
        );
        let options = "--cap-add NET_RAW --sysctl net.ipv4.ip_unprivileged_port_start=500";
        assert!(text.ends_with(&format!("\n  a container needs {options}")), "{text}");
    }
}
