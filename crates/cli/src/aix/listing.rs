//! The output of `ike cmd=list`, which is empty if there are no tunnels.

use control::protocol::{Child, Tunnel};
use std::fmt::Write;
use terminal::report::list::state;
use terminal::report::{Algorithms, plain};

/// The phase of the tunnels that are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    One,
    /// Phase 1, each with the phase 2 tunnels it carries.
    OneAndItsOwn,
    Two,
}

/// The tunnels and fields to show.
pub(super) struct Show<'s> {
    pub phase: Option<Phase>,
    /// Also those that are only defined.
    pub db: bool,
    /// Returns `true` for the number of a tunnel that was asked for.
    pub chosen: &'s dyn Fn(u32) -> bool,
}

enum Line<'t> {
    One(&'t Tunnel),
    Two(&'t Tunnel, &'t Child),
}

/// A table with a line for each tunnel.
pub(super) fn short(tunnels: &[Tunnel], show: &Show<'_>) -> String {
    let lines = lines(tunnels, show);
    if lines.is_empty() {
        return String::new();
    }
    let mut text = row(["Phase", "Tun Id", "Status", "Local Id", "Remote Id"]);
    for line in lines {
        text += &match line {
            Line::One(tunnel) => row([
                "1",
                &tunnel.number.to_string(),
                status(&tunnel.state),
                &plain(tunnel.local_id_value()),
                &plain(tunnel.remote_id_value()),
            ]),
            Line::Two(tunnel, child) => row([
                "2",
                &child.number.to_string(),
                status(state(tunnel, child)),
                &child.local.join(","),
                &child.remote.join(","),
            ]),
        };
    }
    text
}

fn row([phase, id, status, local, remote]: [&str; 5]) -> String {
    format!("{phase:<7}{id:<8}{status:<12}{local:<30} {remote}\n")
}

/// A label and a value on each line, an empty line between tunnels.
pub(super) fn verbose(tunnels: &[Tunnel], show: &Show<'_>) -> String {
    let mut parts = Vec::new();
    for line in lines(tunnels, show) {
        let mut text = String::new();
        let fields = match line {
            Line::One(tunnel) => {
                // Writing to a String cannot fail, here and below.
                let _ = writeln!(text, "Phase 1 Tunnel ID             {}", tunnel.number);
                phase1(tunnel)
            }
            Line::Two(tunnel, child) => {
                let _ = writeln!(text, "Phase 2 Tunnel ID             {}", child.number);
                phase2(tunnel, child)
            }
        };
        for (label, value) in fields {
            let label = format!("{label}:");
            let _ = writeln!(text, "  {label:<28}{value}");
        }
        parts.push(text);
    }
    parts.join("\n")
}

fn lines<'t>(tunnels: &'t [Tunnel], show: &Show<'_>) -> Vec<Line<'t>> {
    let mut lines = Vec::new();
    let mut of_phase2 = Vec::new();
    for tunnel in tunnels {
        let active = show.db || tunnel.state != "down";
        let one = active && show.phase != Some(Phase::Two) && (show.chosen)(tunnel.number);
        if one {
            lines.push(Line::One(tunnel));
        }
        for child in &tunnel.children {
            let active = show.db || state(tunnel, child) != "down";
            match show.phase {
                Some(Phase::One) => {}
                Some(Phase::OneAndItsOwn) if one && active => lines.push(Line::Two(tunnel, child)),
                Some(Phase::OneAndItsOwn) => {}
                None | Some(Phase::Two) if active && (show.chosen)(child.number) => {
                    of_phase2.push(Line::Two(tunnel, child));
                }
                None | Some(Phase::Two) => {}
            }
        }
    }
    lines.extend(of_phase2);
    lines
}

/// AIX's word for a state.
fn status(state: &str) -> &'static str {
    match state {
        "established" | "rekeying" => "Active",
        "negotiating" => "Negotiating",
        "closing" => "Expired",
        _ => "Dormant",
    }
}

type Field = (&'static str, String);

fn phase1(tunnel: &Tunnel) -> Vec<Field> {
    let sa = tunnel.ike_sa.as_ref();
    let policy = tunnel.policy.as_ref();
    let algorithms = Algorithms::of(sa.map_or("", |sa| &sa.suite));
    let authentication = policy.map(|policy| match policy.authentication.as_str() {
        "preshared_key" => "Preshared Key",
        _ => "Signature",
    });
    let initiator = sa.is_none_or(|sa| sa.initiator);
    vec![
        ("Tunnel Name", plain(&tunnel.name).into_owned()),
        ("Local ID Type", policy.map(|policy| policy.local_id_type.clone()).unwrap_or_default()),
        ("Local ID", plain(tunnel.local_id_value()).into_owned()),
        ("Remote ID Type", policy.map(|policy| policy.remote_id_type.clone()).unwrap_or_default()),
        ("Remote ID", plain(tunnel.remote_id_value()).into_owned()),
        ("Mode", "IKEv2".to_owned()),
        (
            "Security Policy",
            policy.and_then(|policy| policy.protection.clone()).unwrap_or_default(),
        ),
        ("Role", role(sa.map(|sa| sa.initiator)).to_owned()),
        ("Encryption Alg", named(algorithms.encryption)),
        ("Auth Alg", authentication.unwrap_or_default().to_owned()),
        ("Hash Alg", named(algorithms.integrity.or(algorithms.prf))),
        ("DH Group", named(algorithms.group)),
        ("Key Lifetime", seconds(policy.map(|policy| policy.lifetime_seconds_of(initiator)))),
        ("Key Lifesize", kilobytes(None)),
        ("Key Rem Lifetime", seconds(sa.and_then(|sa| sa.expires_in_seconds))),
        ("Key Rem Lifesize", kilobytes(None)),
        ("Key Refresh Overlap", percent(policy.map(|policy| policy.overlap_percent))),
        ("Tunnel Lifetime", seconds(None)),
        ("Tunnel Lifesize", kilobytes(None)),
        ("Tun Rem Lifetime", seconds(None)),
        ("Status", status(&tunnel.state).to_owned()),
    ]
}

fn phase2(tunnel: &Tunnel, child: &Child) -> Vec<Field> {
    let sa = child.child_sa.as_ref();
    let policy = child.policy.as_ref();
    let algorithms = Algorithms::of(sa.map_or("", |sa| &sa.suite));
    let local = Traffic::of(&child.local);
    let remote = Traffic::of(&child.remote);
    let pfs = policy.is_some_and(|policy| !policy.pfs.is_empty());
    let protocol = if algorithms.ah { "AH" } else { "ESP" };
    vec![
        ("Tunnel Name", plain(&child.name).into_owned()),
        ("Local ID Type", local.kind.to_owned()),
        ("Local ID", local.addresses.clone()),
        ("Local Subnet Mask", local.mask.clone()),
        ("Local Port", local.ports.clone()),
        ("Local Protocol", local.protocol.clone()),
        ("Remote ID Type", remote.kind.to_owned()),
        ("Remote ID", remote.addresses.clone()),
        ("Remote Subnet Mask", remote.mask.clone()),
        ("Remote Port", remote.ports.clone()),
        ("Remote Protocol", remote.protocol.clone()),
        ("Mode", "IKEv2".to_owned()),
        (
            "Security Policy",
            policy.and_then(|policy| policy.protection.clone()).unwrap_or_default(),
        ),
        ("Role", role(tunnel.ike_sa.as_ref().map(|sa| sa.initiator)).to_owned()),
        ("Encryption Alg", named(algorithms.encryption)),
        (
            "AH Transform",
            if algorithms.ah { named(algorithms.integrity) } else { "N/A".to_owned() },
        ),
        ("Auth Alg", named(algorithms.integrity)),
        ("PFS", if pfs { "Yes" } else { "No" }.to_owned()),
        ("SA Lifetime", seconds(sa.and_then(|sa| sa.lifetime_seconds))),
        ("SA Lifesize", kilobytes(sa.and_then(|sa| sa.lifesize_bytes))),
        ("SA Rem Lifetime", seconds(sa.and_then(|sa| sa.expires_in_seconds))),
        ("SA Rem Lifesize", kilobytes(sa.and_then(|sa| sa.lifesize_left_bytes))),
        ("Key Refresh Overlap", percent(sa.and_then(|sa| sa.overlap_percent))),
        ("Tunnel Lifetime", seconds(None)),
        ("Tunnel Lifesize", kilobytes(None)),
        ("Tun Rem Lifetime", seconds(None)),
        ("Tun Rem Lifesize", kilobytes(None)),
        ("Assoc P1 Tunnel", tunnel.number.to_string()),
        ("Encap Mode", format!("{protocol}_{}", child.mode)),
        ("Status", status(state(tunnel, child)).to_owned()),
    ]
}

fn named(name: Option<&str>) -> String {
    name.map_or("N/A".to_owned(), |name| plain(name).into_owned())
}

fn role(initiator: Option<bool>) -> &'static str {
    match initiator {
        Some(true) => "Initiator",
        Some(false) => "Responder",
        None => "N/A",
    }
}

/// No limit is 0.
fn seconds(seconds: Option<u64>) -> String {
    format!("{} Seconds", seconds.unwrap_or(0))
}

fn kilobytes(octets: Option<u64>) -> String {
    format!("{} Kbytes", octets.unwrap_or(0) / 1024)
}

fn percent(percent: Option<u8>) -> String {
    percent.map_or("N/A".to_owned(), |percent| format!("{percent}%"))
}

/// One side's traffic, taken apart: `10.1.0.0/24[tcp/443]`.
struct Traffic {
    kind: &'static str,
    addresses: String,
    mask: String,
    ports: String,
    protocol: String,
}

impl Traffic {
    fn of(selectors: &[String]) -> Self {
        let first = selectors.first().map_or("", String::as_str);
        let (addresses, rest) = first.split_once('[').unwrap_or((first, ""));
        let (protocol, ports) = match rest.trim_end_matches(']').split_once('/') {
            Some((protocol, ports)) => (protocol, ports),
            None => (rest.trim_end_matches(']'), ""),
        };
        let v6 = addresses.contains(':');
        let (kind, address, mask) = match addresses.split_once('/') {
            Some((address, length)) => {
                let kind = if v6 { "IPV6_Subnet" } else { "IPV4_Subnet" };
                (kind, address, mask(length, v6))
            }
            None if addresses.contains('-') => (
                if v6 { "IPV6_Address_Range" } else { "IPV4_Address_Range" },
                addresses,
                "N/A".to_owned(),
            ),
            None => (if v6 { "IPV6_Address" } else { "IPV4_Address" }, addresses, "N/A".to_owned()),
        };
        let several = if selectors.len() > 1 { ",..." } else { "" };
        // AIX writes 0 where all ports or all protocols are meant.
        let [ports, protocol] =
            [ports, protocol].map(|text| if text.is_empty() { "0" } else { text }.to_owned());
        Self { kind, addresses: format!("{address}{several}"), mask, ports, protocol }
    }
}

fn mask(length: &str, v6: bool) -> String {
    let bits = length.parse::<u32>().unwrap_or(0);
    match v6 {
        true => length.to_owned(),
        false => std::net::Ipv4Addr::from(!u32::MAX.checked_shr(bits).unwrap_or(0)).to_string(),
    }
}
