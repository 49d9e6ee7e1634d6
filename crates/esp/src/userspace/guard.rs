//! The guard against traffic that should have come protected and did not (RFC 4301 §5.2).
//!
//! A packet between a rule's selectors that arrives on any interface but the tunnel device was not opened by ESP. The
//! kernel would take it; nftables drops it first. The table is built anew, atomically, whenever the rules change.

use crate::plane::Rule;
use policy::{PortRange, Selector};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::process::{Command, Stdio};

/// Where the program may be; PATH is not asked, as this runs with privileges.
const NFT: [&str; 4] = ["/usr/sbin/nft", "/sbin/nft", "/usr/bin/nft", "/usr/local/sbin/nft"];

const CHAIN: &str = "unprotected";

/// Name of the table for a device.
pub(super) fn table(device: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    format!("vpn_guard_{}", device.chars().map(plain).collect::<String>())
}

/// Whether this host has nftables' program.
pub(super) fn available() -> bool {
    program().is_some()
}

/// Puts the guard for these rules in place of the former one.
pub(super) fn install<'a>(
    name: &str,
    device: &str,
    port: u16,
    rules: impl Iterator<Item = &'a Rule>,
) -> io::Result<()> {
    let mut script = base(name, device, port);
    rules.for_each(|rule| script.push_str(&drops(name, rule)));
    nft(&script)
}

/// Adds a rule to the guard.
pub(super) fn extend(name: &str, rule: &Rule) -> io::Result<()> {
    nft(&drops(name, rule))
}

/// Removes the guard, if it is there.
pub(super) fn remove(name: &str) -> io::Result<()> {
    if available() {
        nft(&format!("table inet {name}\ndelete table inet {name}\n"))
    } else {
        Ok(())
    }
}

/// The table with everything that is let through.
fn base(name: &str, device: &str, port: u16) -> String {
    // Naming the table before deleting it makes the deletion succeed where there is none yet.
    //
    // Fragments but the first show no ports. Alone they are harmless, and without their first they stay alone.
    // Neighbour discovery cannot be protected: it finds the link addresses that protected packets need.
    format!(
        "table inet {name}
delete table inet {name}
table inet {name} {{
  chain {CHAIN} {{
    type filter hook prerouting priority -350; policy accept;
    iifname {{ \"lo\", \"{device}\" }} accept
    meta l4proto {{ 50, 51 }} accept
    udp dport {{ 500, {port} }} accept
    ip frag-off & 0x1fff != 0 accept
    frag frag-off != 0 accept
    icmpv6 type {{ 133, 134, 135, 136, 137 }} accept
  }}
}}
"
    )
}

/// What is dropped for a rule.
fn drops(name: &str, rule: &Rule) -> String {
    let mut text = String::new();
    for (remote, local) in pairs(rule) {
        let family = if remote.addresses.start().is_ipv4() { "ip" } else { "ip6" };
        let _ = writeln!(
            text,
            "add rule inet {name} {CHAIN} {family} saddr {} {family} daddr {}{} counter drop",
            addresses(remote),
            addresses(local),
            upper_layer(remote, local)
        );
    }
    text
}

fn pairs(rule: &Rule) -> impl Iterator<Item = (&Selector, &Selector)> {
    let family = |s: &Selector| s.addresses.start().is_ipv4();
    let protocols =
        |a: &Selector, b: &Selector| a.protocol == 0 || b.protocol == 0 || a.protocol == b.protocol;
    rule.selectors.remote.iter().flat_map(move |remote| {
        rule.selectors
            .local
            .iter()
            .filter(move |local| family(remote) == family(local) && protocols(remote, local))
            .map(move |local| (remote, local))
    })
}

fn addresses(selector: &Selector) -> String {
    let (start, end): (IpAddr, IpAddr) = (selector.addresses.start(), selector.addresses.end());
    if start == end { start.to_string() } else { format!("{start}-{end}") }
}

/// Protocol and ports, which for ICMP are type and code.
fn upper_layer(remote: &Selector, local: &Selector) -> String {
    let protocol = remote.protocol.max(local.protocol);
    if protocol == 0 {
        return String::new();
    }
    let mut text = format!(" meta l4proto {protocol}");
    if matches!(protocol, 6 | 17 | 33 | 132 | 136) {
        for (name, ports) in [("sport", remote.ports), ("dport", local.ports)] {
            if ports != PortRange::ANY {
                let _ = write!(text, " th {name} {}-{}", ports.start(), ports.end());
            }
        }
    }
    text
}

fn nft(script: &str) -> io::Result<()> {
    let program = program().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    let mut child = Command::new(program)
        .args(["-f", "-"])
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(script.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("nft: {}", complaint.lines().next().unwrap_or("no reason given"))))
}

fn program() -> Option<&'static str> {
    NFT.into_iter().find(|path| std::fs::exists(path).unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plane::{RuleId, TrafficSelectors};
    use policy::AddressRange;

    fn selector(start: &str, end: &str, protocol: u8, ports: PortRange) -> Selector {
        let (start, end) = (start.parse().expect("address"), end.parse().expect("address"));
        Selector { protocol, addresses: AddressRange::new(start, end).expect("range"), ports }
    }

    #[test]
    fn only_pairs_that_can_meet_are_dropped() {
        let https = PortRange::new(443, 443).expect("range");
        let rule = Rule {
            id: RuleId(1),
            tunnel: "t".to_owned(),
            selectors: TrafficSelectors {
                local: vec![
                    selector("10.1.0.0", "10.1.255.255", 0, PortRange::ANY),
                    selector("fd01::1", "fd01::1", 0, PortRange::ANY),
                ],
                remote: vec![
                    selector("10.2.0.7", "10.2.0.7", 6, https),
                    selector("fd02::", "fd02::f", 0, PortRange::ANY),
                ],
            },
            trap: false,
        };
        assert_eq!(
            drops("g", &rule),
            "add rule inet g unprotected ip saddr 10.2.0.7 ip daddr 10.1.0.0-10.1.255.255 meta l4proto 6 \
             th sport 443-443 counter drop\n\
             add rule inet g unprotected ip6 saddr fd02::-fd02::f ip6 daddr fd01::1 counter drop\n"
        );
    }

    #[test]
    fn table_names_are_plain() {
        assert_eq!(table("vpn0"), "vpn_guard_vpn0");
        assert_eq!(table("a.b-c; drop"), "vpn_guard_a_b_c__drop");
    }
}
