//! `vpnctl list`: a line for each tunnel of either phase, or everything about each.

use super::fitting::Fitting;
use super::status::{keys_exported, quantum_safety, window};
use super::{Colour, Fields, bytes, count, duration, narrowed, plain, since};
use control::protocol::{Child, Down, IkeSa, Tunnel, TunnelPolicy};
use std::fmt::Write;
use std::net::IpAddr;
use std::time::Duration;

/// The columns of LOCAL and REMOTE, and that of TUNNEL.
const MOVABLE: &[&[usize]] = &[&[4, 5], &[2]];

/// Some of a daemon's tunnels, in the order of the policy.
#[derive(Clone, Copy)]
pub struct Part<'t> {
    /// The tunnels.
    pub tunnels: &'t [Tunnel],
    /// The first of them is the rest of the last one of the part before.
    pub continues: bool,
}

impl<'t> Part<'t> {
    /// All tunnels.
    pub fn whole(tunnels: &'t [Tunnel]) -> Self {
        Self { tunnels, continues: false }
    }

    /// The tunnels, each with whether its phase 1 is still to be told.
    fn iter(self) -> impl Iterator<Item = (bool, &'t Tunnel)> {
        let each = self.tunnels.iter().enumerate();
        each.map(move |(at, tunnel)| (at > 0 || !self.continues, tunnel))
    }
}

/// One row per tunnel, phase 2 below the phase 1 that carries it, with a header.
pub fn list(part: Part<'_>, colour: Colour) -> String {
    let header =
        ["PHASE", "NUMBER", "TUNNEL", "STATE", "LOCAL", "REMOTE", "UP", "REKEY", "IN", "OUT"];
    let mut table = Fitting::new(header, MOVABLE);
    for (is_new, tunnel) in part.iter() {
        if is_new {
            phase1_row(&mut table, tunnel, colour);
        }
        for child in &tunnel.children {
            let sa = child.child_sa.as_ref();
            table.row([
                "2".to_owned(),
                child.number.to_string(),
                plain(&child.name).into_owned(),
                colour.state(state(tunnel, child)),
                narrowed::local(child, ", "),
                narrowed::remote(child, ", "),
                seconds(sa.map(|sa| sa.established_seconds)),
                seconds(sa.and_then(|sa| sa.rekey_in_seconds)),
                sa.map_or_else(dash, |sa| bytes(sa.bytes_in)),
                sa.map_or_else(dash, |sa| bytes(sa.bytes_out)),
            ]);
            if let Some(down) = child.down.as_ref().filter(|down| !is_told(down, tunnel)) {
                table.remark(format!("down {}", since::down(down)));
            }
        }
    }
    let exported = part.tunnels.iter().find_map(|tunnel| keys_exported(tunnel, colour));
    table.render(colour) + &exported.map(|remark| remark + "\n").unwrap_or_default()
}

fn phase1_row(table: &mut Fitting<10>, tunnel: &Tunnel, colour: Colour) {
    let sa = tunnel.ike_sa.as_ref();
    table.row([
        "1".to_owned(),
        tunnel.number.to_string(),
        plain(&tunnel.name).into_owned(),
        colour.state(&tunnel.state),
        // The addresses of the SA are those in use: a NAT or a move may have changed them.
        side(&tunnel.local_id, sa.map(|sa| sa.local.ip()).or(tunnel.local_address)),
        side(&tunnel.remote_id, sa.map(|sa| sa.remote.ip()).or(tunnel.remote_address)),
        seconds(sa.and_then(|sa| sa.established_seconds)),
        seconds(sa.and_then(|sa| sa.rekey_in_seconds)),
        dash(),
        dash(),
    ]);
    if let Some(unanswered) = &tunnel.unanswered {
        table.remark(plain(&unanswered.message).into_owned());
    }
    if let Some(down) = &tunnel.down {
        table.remark(format!("down {}", since::down(down)));
    }
}

fn dash() -> String {
    "-".to_owned()
}

/// Everything about each tunnel, a name and a value per line, an empty line between tunnels.
pub fn verbose(part: Part<'_>, colour: Colour) -> String {
    let mut text = String::new();
    for (is_new, tunnel) in part.iter() {
        if is_new {
            phase1(&mut text, tunnel, colour);
        }
        for child in &tunnel.children {
            phase2(&mut text, tunnel, child, colour);
        }
    }
    if let Some(remark) = part.tunnels.iter().find_map(|tunnel| keys_exported(tunnel, colour)) {
        text.push_str(&remark);
        text.push('\n');
    }
    text
}

/// A child that waits for its IKE SA is being negotiated, too, and the IKE SA is what one can wait for.
pub fn state<'t>(tunnel: &'t Tunnel, child: &'t Child) -> &'t str {
    if child.state == "down" && tunnel.state == "negotiating" {
        &tunnel.state
    } else {
        &child.state
    }
}

/// Returns `true` if the tunnel's own line tells the end of its child, because both ended together.
fn is_told(down: &Down, tunnel: &Tunnel) -> bool {
    tunnel.down.as_ref().is_some_and(|own| own == down)
}

fn side(id: &str, address: Option<IpAddr>) -> String {
    match address {
        Some(address) if address.to_string() == id => id.to_owned(),
        Some(address) => format!("{} ({address})", plain(id)),
        None => format!("{} (any)", plain(id)),
    }
}

fn seconds(seconds: Option<u64>) -> String {
    seconds.map_or("-".to_owned(), |seconds| duration(Duration::from_secs(seconds)))
}

/// The algorithms of a suite by what they do.
pub struct Algorithms<'s> {
    /// The cipher.
    pub encryption: Option<&'s str>,
    /// The integrity algorithm beside a cipher that has none of its own.
    pub integrity: Option<&'s str>,
    /// The pseudorandom function.
    pub prf: Option<&'s str>,
    /// The key exchange, or several.
    pub group: Option<&'s str>,
    /// AH, which has no cipher.
    pub ah: bool,
}

impl<'s> Algorithms<'s> {
    /// Reads what a suite's `Display` has written.
    pub fn of(suite: &'s str) -> Self {
        let mut algorithms =
            Self { encryption: None, integrity: None, prf: None, group: None, ah: false };
        for part in suite.split('/').filter(|part| !part.is_empty() && *part != "ESN") {
            let is_group = ["MODP-", "ECP-", "CURVE"].iter().any(|start| part.starts_with(start));
            let place = match part {
                "AH" => {
                    algorithms.ah = true;
                    continue;
                }
                part if part.starts_with("PRF-") => &mut algorithms.prf,
                _ if is_group => &mut algorithms.group,
                _ if algorithms.encryption.is_none() && !algorithms.ah => {
                    &mut algorithms.encryption
                }
                _ => &mut algorithms.integrity,
            };
            *place = Some(part);
        }
        algorithms
    }
}

fn phase1(text: &mut String, tunnel: &Tunnel, colour: Colour) {
    let title = format!("Phase 1 tunnel {}: {}", tunnel.number, plain(&tunnel.name));
    // Writing to a String cannot fail, here and below.
    let _ = writeln!(text, "{}", colour.heading(&title));
    let mut fields = Fields::new("  ");
    fields.add("Status", colour.state(&tunnel.state));
    if let Some(unanswered) = &tunnel.unanswered {
        fields.tell_bad("Unanswered", plain(&unanswered.message).into_owned());
    }
    add_down(&mut fields, tunnel.down.as_ref());
    if let Some(policy) = &tunnel.policy {
        fields.add("Local ID Type", policy.local_id_type.clone());
    }
    fields.add("Local ID", plain(tunnel.local_id_value()).into_owned());
    if let Some(policy) = &tunnel.policy {
        fields.add("Remote ID Type", policy.remote_id_type.clone());
    }
    fields.add("Remote ID", plain(tunnel.remote_id_value()).into_owned());
    fields.add("Mode", "IKEv2".to_owned());
    if let Some(policy) = &tunnel.policy {
        fields.add("Security Policy", named(policy.protection.as_deref()));
        fields.add("Allowed Roles", policy.role.clone());
        fields.add("Auth Method", policy.authentication.replace('_', " "));
    }
    if let Some(sa) = &tunnel.ike_sa {
        fields.add("Role", if sa.initiator { "initiator" } else { "responder" }.to_owned());
        let algorithms = Algorithms::of(&sa.suite);
        fields.add("Encryption Alg", named(algorithms.encryption));
        fields.add("Integrity Alg", integrity(&algorithms));
        fields.add("PRF Alg", named(algorithms.prf));
        fields.add("DH Group", named(algorithms.group));
        let safety = quantum_safety(sa.quantum_safe, sa.not_quantum_safe.as_deref());
        safety.into_iter().for_each(|text| fields.add("Quantum Safe", text));
        fields.add("Local Address", sa.local.to_string());
        fields.add("Remote Address", sa.remote.to_string());
        fields.add("NAT", nat(sa.nat_local, sa.nat_remote).to_owned());
        fields.add("Initiator SPI", sa.initiator_spi.clone());
        fields.add("Responder SPI", sa.responder_spi.clone());
    }
    if let Some(policy) = &tunnel.policy {
        fields.add("Key Lifetime", key_lifetime(policy, tunnel.ike_sa.as_ref()));
        fields.add("Key Lifesize", "no limit".to_owned());
        let bounds = policy.responder_window.as_ref();
        bounds.into_iter().for_each(|bounds| fields.add("Responder Window", window(bounds)));
    }
    if let Some(sa) = &tunnel.ike_sa {
        fields.add("Key Rem Lifetime", remaining(sa.expires_in_seconds));
        fields.add("Key Refresh In", remaining(sa.rekey_in_seconds));
    }
    if let Some(policy) = &tunnel.policy {
        fields.add("Key Refresh Overlap", format!("{}%", policy.overlap_percent));
    }
    if let Some(sa) = &tunnel.ike_sa {
        fields.add("Keys Refreshed", times(sa.rekeys));
        fields.add("Tunnel Up For", remaining(sa.established_seconds));
    }
    end(fields, text, tunnel.last_failure.as_ref(), colour);
}

fn phase2(text: &mut String, tunnel: &Tunnel, child: &Child, colour: Colour) {
    let title = format!("Phase 2 tunnel {}: {}", child.number, plain(&child.name));
    let _ = writeln!(text, "{}", colour.heading(&title));
    let mut fields = Fields::new("  ");
    fields.add("Status", colour.state(state(tunnel, child)));
    add_down(&mut fields, child.down.as_ref());
    fields.add("Assoc P1 Tunnel", format!("{} ({})", tunnel.number, plain(&tunnel.name)));
    // One selector has addresses, protocol and ports; there may be several.
    fields.add("Local Traffic", narrowed::local(child, ", "));
    fields.add("Remote Traffic", narrowed::remote(child, ", "));
    if let Some(policy) = &child.policy {
        fields.add("Security Policy", named(policy.protection.as_deref()));
        fields.add("Allowed Roles", policy.role.clone());
        let pfs = if policy.pfs.is_empty() { "none".to_owned() } else { policy.pfs.join(" or ") };
        fields.add("PFS", pfs);
        let bounds = policy.responder_window.as_ref();
        bounds.into_iter().for_each(|bounds| fields.add("Responder Window", window(bounds)));
        fields.add("Auto Start", yes(policy.auto_start));
        fields.add("On Demand", yes(policy.on_demand));
    }
    let Some(sa) = &child.child_sa else {
        fields.add("Encap Mode", format!("ESP_{}", child.mode));
        return end(fields, text, child.last_failure.as_ref(), colour);
    };
    let algorithms = Algorithms::of(&sa.suite);
    let protocol = if algorithms.ah { "AH" } else { "ESP" };
    let travels = if sa.encapsulation == "udp" { " in UDP" } else { "" };
    fields.add("Encap Mode", format!("{protocol}_{}{travels}", child.mode));
    fields.add("Encryption Alg", named(algorithms.encryption));
    fields.add("Auth Alg", integrity(&algorithms));
    fields.add("DH Group", named(algorithms.group));
    let safety = quantum_safety(sa.quantum_safe, sa.not_quantum_safe.as_deref());
    safety.into_iter().for_each(|text| fields.add("Quantum Safe", text));
    fields.add("Extended Seq Num", yes(sa.esn));
    fields.add("Inbound SPI", sa.inbound_spi.clone());
    fields.add("Outbound SPI", sa.outbound_spi.clone());
    if let Some(lifetime) = sa.lifetime_seconds {
        fields.add("SA Lifetime", whole(lifetime));
    }
    fields.add("SA Lifesize", kilobytes(sa.lifesize_bytes));
    fields.add("SA Rem Lifetime", remaining(sa.expires_in_seconds));
    fields.add("SA Rem Lifesize", kilobytes(sa.lifesize_left_bytes));
    fields.add("Key Refresh In", remaining(sa.rekey_in_seconds));
    if let Some(overlap) = sa.overlap_percent {
        fields.add("Key Refresh Overlap", format!("{overlap}%"));
    }
    fields.add("Keys Refreshed", times(sa.rekeys));
    fields.add("Tunnel Up For", remaining(Some(sa.established_seconds)));
    fields.add("In", format!("{} packets, {}", count(sa.packets_in), bytes(sa.bytes_in)));
    fields.add("Out", format!("{} packets, {}", count(sa.packets_out), bytes(sa.bytes_out)));
    fields.add("Refused", format!("{} packets", count(sa.refused)));
    end(fields, text, child.last_failure.as_ref(), colour);
}

/// The lifetime of an IKE SA; without one, of those that either side asks for.
fn key_lifetime(policy: &TunnelPolicy, sa: Option<&IkeSa>) -> String {
    match (sa, policy.lifetime_as_responder_seconds) {
        (Some(sa), _) => whole(policy.lifetime_seconds_of(sa.initiator)),
        (None, None) => whole(policy.lifetime_seconds),
        (None, Some(peers)) => {
            format!("{}, as responder {}", whole(policy.lifetime_seconds), whole(peers))
        }
    }
}

fn add_down(fields: &mut Fields, down: Option<&Down>) {
    if let Some(down) = down {
        fields.tell("Down", since::down(down));
    }
}

fn end(
    mut fields: Fields,
    text: &mut String,
    failure: Option<&control::protocol::FailureInfo>,
    colour: Colour,
) {
    if let Some(failure) = failure {
        fields.tell("Last Failure", plain(&failure.message).into_owned());
    }
    fields.write(text, colour);
    text.push('\n');
}

fn named(name: Option<&str>) -> String {
    name.map_or("none".to_owned(), |name| plain(name).into_owned())
}

fn times(times: u64) -> String {
    match times {
        0 => "never".to_owned(),
        1 => "once".to_owned(),
        n => format!("{n} times"),
    }
}

/// The integrity algorithm, or a remark that the cipher itself is an AEAD.
fn integrity(algorithms: &Algorithms<'_>) -> String {
    match (algorithms.integrity, algorithms.encryption) {
        (Some(integrity), _) => plain(integrity).into_owned(),
        (None, Some(_)) => "by the cipher".to_owned(),
        (None, None) => "none".to_owned(),
    }
}

fn yes(yes: bool) -> String {
    if yes { "yes" } else { "no" }.to_owned()
}

fn whole(seconds: u64) -> String {
    format!("{} ({seconds} seconds)", duration(Duration::from_secs(seconds)))
}

fn remaining(seconds: Option<u64>) -> String {
    seconds.map_or("-".to_owned(), whole)
}

fn kilobytes(octets: Option<u64>) -> String {
    octets.map_or("no limit".to_owned(), |octets| format!("{} Kbytes", octets / 1024))
}

fn nat(local: bool, remote: bool) -> &'static str {
    match (local, remote) {
        (false, false) => "none",
        (true, false) => "this side is behind one",
        (false, true) => "the peer is behind one",
        (true, true) => "both sides are behind one",
    }
}
