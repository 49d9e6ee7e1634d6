//! nftables' program, and its language for traffic.

use policy::{PortRange, Selector};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::process::{Command, Stdio};

/// The possible paths of the program. PATH is not used, since this runs with privileges.
const NFT: [&str; 4] = ["/usr/sbin/nft", "/sbin/nft", "/usr/bin/nft", "/usr/local/sbin/nft"];

/// Name of a table for a device.
pub fn table(purpose: &str, device: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    format!("vpn_{purpose}_{}", device.chars().map(plain).collect::<String>())
}

/// Returns `true` if this host has the program.
pub fn available() -> bool {
    program().is_some()
}

/// Carries out a script, all of it or nothing.
pub fn run(script: &str) -> io::Result<()> {
    start(&["-f", "-"], script).map(drop)
}

/// Removes a table, if it is there.
pub fn remove(name: &str) -> io::Result<()> {
    // Naming the table before deleting it makes the deletion succeed where there is none.
    if available() {
        run(&format!("table inet {name}\ndelete table inet {name}\n"))
    } else {
        Ok(())
    }
}

/// Whether the system has a table. If nft cannot tell, there is none.
pub fn exists(table: &str) -> bool {
    available() && counters(table).is_ok()
}

/// The program's listing of the named counters of a table.
pub fn counters(table: &str) -> io::Result<String> {
    start(&["list", "counters", "table", "inet", table], "")
}

/// Expressions for what goes from any of `from` to any of `to`, one for each pair that can meet.
pub fn flows(from: &[Selector], to: &[Selector]) -> Vec<String> {
    let family = |s: &Selector| s.addresses.start().is_ipv4();
    let protocols =
        |a: &Selector, b: &Selector| a.protocol == 0 || b.protocol == 0 || a.protocol == b.protocol;
    let meet = |from: &Selector, to: &Selector| family(from) == family(to) && protocols(from, to);
    let pairs =
        from.iter().flat_map(|f| to.iter().filter(move |t| meet(f, t)).map(move |t| (f, t)));
    pairs.map(|(from, to)| flow(from, to)).collect()
}

/// Commands that add rules to the chain of a table, by which what goes from any of `from` to any of `to` has this verdict.
pub fn verdicts(
    [table, chain]: [&str; 2],
    (from, to): (&[Selector], &[Selector]),
    verdict: &str,
) -> String {
    let flows = flows(from, to).into_iter();
    flows.map(|flow| format!("add rule inet {table} {chain} {flow} {verdict}\n")).collect()
}

fn flow(from: &Selector, to: &Selector) -> String {
    let family = if from.addresses.start().is_ipv4() { "ip" } else { "ip6" };
    format!(
        "{family} saddr {} {family} daddr {}{}",
        addresses(from),
        addresses(to),
        upper_layer(from, to)
    )
}

fn addresses(selector: &Selector) -> String {
    let (start, end): (IpAddr, IpAddr) = (selector.addresses.start(), selector.addresses.end());
    if start == end { start.to_string() } else { format!("{start}-{end}") }
}

/// Protocol and ports, which for ICMP are type and code.
fn upper_layer(from: &Selector, to: &Selector) -> String {
    let protocol = from.protocol.max(to.protocol);
    if protocol == 0 {
        return String::new();
    }
    let mut text = format!(" meta l4proto {protocol}");
    if matches!(protocol, 6 | 17 | 33 | 132 | 136) {
        for (name, ports) in [("sport", from.ports), ("dport", to.ports)] {
            if ports != PortRange::ANY {
                // Writing to a String cannot fail.
                let _ = write!(text, " th {name} {}-{}", ports.start(), ports.end());
            }
        }
    }
    text
}

fn start(arguments: &[&str], input: &str) -> io::Result<String> {
    let program = program().ok_or_else(|| {
        io::Error::new(io::ErrorKind::NotFound, "nftables' program nft is not installed")
    })?;
    let mut child = Command::new(program)
        .args(arguments)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut pipe) = child.stdin.take() {
        pipe.write_all(input.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
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

    #[test]
    fn table_names_are_plain() {
        assert_eq!(table("guard", "vpn0"), "vpn_guard_vpn0");
        assert_eq!(table("filter", "a.b-c; drop"), "vpn_filter_a_b_c__drop");
    }
}
