//! `mkfilt` and `lsfilt`: what happens to traffic that no tunnel covers.

use super::{Flags, Settings, Trouble, connect, tunnels};
use crate::lockout::{self, Answer};
use control::client::Client;
use control::protocol::DefaultAction;
use control::protocol::{Command, FilterInfo, FilterRuleInfo, Reply};
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use terminal::report::plain;

const MAKE: &str = "\
Usage: mkfilt -v 4|6 -u [-z P|D [--yes | --for 60s]]
       mkfilt -v 4|6 -d";

const LIST: &str = "Usage: lsfilt -v 4|6 [-O]";

/// `-u` puts the rules in force, `-z` says what becomes of the rest, `-d` lets everything pass. As on AIX, the rest has
/// that fate after a restart, too.
///
/// AIX has neither `--yes` nor `--for`: a host that drops everything may no longer be reached.
pub(super) fn make(words: &[String], _out: &mut dyn Write) -> Result<(), Trouble> {
    let (words, caution) = Caution::take(words)?;
    let words = words.as_slice();
    let flags = Flags::read(words, "v:uz:dg:i", MAKE)?;
    let v4 = family(&flags, MAKE)?;
    if flags.has('g') || flags.has('i') {
        let message =
            "vpnd counts what it denies, and logs no packets: see the counts with vpnctl filter";
        return Err(Trouble::usage(message, MAKE));
    }
    let action = match (flags.has('d'), flags.value('z')) {
        (true, None) if !flags.has('u') => DefaultAction::Permit,
        (false, Some("P" | "p")) => DefaultAction::Permit,
        (false, Some("D" | "d")) => DefaultAction::Deny,
        // The rules of vpnd.toml are in force from the daemon's start.
        (false, None) if flags.has('u') => return Ok(()),
        (_, Some(other)) => return Err(Trouble::usage(format!("-z is P or D, not {other}"), MAKE)),
        _ => return Err(Trouble::usage("-u or -d is needed", MAKE)),
    };
    let (ipv4, ipv6) = if v4 { (Some(action), None) } else { (None, Some(action)) };
    let family = if v4 { "IPv4" } else { "IPv6" };
    let mut settings = Settings::open("mkfilt")?;
    if caution.time.is_some() {
        settings.need_daemon("leave out --for: nobody would undo the change in time")?;
    }
    if action == DefaultAction::Deny && !caution.yes && caution.time.is_none() {
        let filter = ask(&mut settings.client, Command::Filter)?;
        let denied = if v4 { filter.ipv4 } else { filter.ipv6 } == "deny";
        if !denied && lockout::ask("mkfilt", &[family])? == Answer::No {
            return Err(Trouble::new("not confirmed"));
        }
    }
    let undo_after_seconds = caution.time.map(|time| time.as_secs());
    let change = Command::SetFilter { ipv4, ipv6, undo_after_seconds, persist: true };
    let FilterInfo { file, .. } = ask(&mut settings.client, change)?;
    settings.tell_kept(&file.unwrap_or_default());
    if let Some(seconds) = undo_after_seconds {
        eprintln!(
            "mkfilt: undone in {seconds} seconds unless confirmed with: vpnctl filter --confirm"
        );
    }
    Ok(())
}

/// How careful the operator who types the command is.
#[derive(Default)]
struct Caution {
    yes: bool,
    time: Option<Duration>,
}

impl Caution {
    /// Takes its options out of the words.
    fn take(words: &[String]) -> Result<(Vec<String>, Self), Trouble> {
        let mut caution = Self::default();
        let mut rest = Vec::new();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--yes" => caution.yes = true,
                "--for" => {
                    let time = words.next().map_or("", String::as_str);
                    let time = lockout::time(time);
                    caution.time = Some(time.map_err(|why| Trouble::usage(why, MAKE))?);
                }
                _ => rest.push(word.clone()),
            }
        }
        Ok((rest, caution))
    }
}

fn family(flags: &Flags, usage: &'static str) -> Result<bool, Trouble> {
    match (flags.value('v'), flags.operands.as_slice()) {
        (Some("4"), []) => Ok(true),
        (Some("6"), []) => Ok(false),
        _ => Err(Trouble::usage("-v 4 or -v 6 is needed", usage)),
    }
}

fn ask(client: &mut Client, command: Command) -> Result<FilterInfo, Trouble> {
    match client.ask(command)? {
        Reply::Filter(filter) => Ok(filter),
        reply => Err(client.unexpected(&reply).into()),
    }
}

/// A rule of the list, without its number.
struct Rule {
    action: &'static str,
    source: End,
    destination: End,
    direction: &'static str,
    tunnel: u32,
    description: String,
}

/// Addresses, protocol and ports of one side, as in `10.1.0.0/24[tcp/443]`.
#[derive(Clone)]
struct End {
    address: String,
    mask: String,
    protocol: String,
    operation: &'static str,
    port: String,
}

pub(super) fn list(words: &[String], out: &mut dyn Write) -> Result<(), Trouble> {
    let flags = Flags::read(words, "v:O", LIST)?;
    let v4 = family(&flags, LIST)?;
    let mut client = connect()?;
    let filter = ask(&mut client, Command::Filter)?;
    let mut rules =
        vec![passing("udp/500", v4, "IKE"), passing("udp/4500", v4, "IKE and ESP in UDP")];
    for rule in &filter.rules {
        rules.extend(of_filter(rule, v4));
    }
    for tunnel in tunnels(&mut client, true)? {
        for child in &tunnel.children {
            let sides = (child.local.iter()).flat_map(|a| child.remote.iter().map(move |b| (a, b)));
            for (local, remote) in sides.filter(|(local, _)| local.contains(':') != v4) {
                let (source, destination) = (End::of(local), End::of(remote));
                let description = plain(&child.name).into_owned();
                let (tunnel, direction) = (child.number, "both");
                rules.push(Rule {
                    action: "permit",
                    source,
                    destination,
                    direction,
                    tunnel,
                    description,
                });
            }
        }
    }
    let default = if v4 { &filter.ipv4 } else { &filter.ipv6 };
    let action = if default == "deny" { "deny" } else { "permit" };
    rules.push(Rule { action, description: "Default Rule".to_owned(), ..passing("", v4, "") });
    for (number, rule) in (1..).zip(&rules) {
        match flags.has('O') {
            true => line(out, number, rule)?,
            false => paragraph(out, number, rule)?,
        }
    }
    Ok(())
}

/// A rule for everybody's traffic of a protocol.
fn passing(traffic: &str, v4: bool, description: &str) -> Rule {
    let all = if v4 { "0.0.0.0/0" } else { "::/0" };
    let end =
        End::of(&if traffic.is_empty() { all.to_owned() } else { format!("{all}[{traffic}]") });
    let (source, destination, description) = (end.clone(), end, description.to_owned());
    Rule { action: "permit", source, destination, direction: "both", tunnel: 0, description }
}

/// A rule's pairs of this family.
fn of_filter(rule: &FilterRuleInfo, v4: bool) -> Vec<Rule> {
    let action = if rule.action == "discard" { "deny" } else { "permit" };
    let direction = match rule.direction.as_str() {
        "in" => "inbound",
        "out" => "outbound",
        _ => "both",
    };
    let mut rules = Vec::new();
    for local in &rule.local {
        for remote in
            rule.remote.iter().filter(|remote| remote.contains(':') == local.contains(':'))
        {
            if local.contains(':') == v4 {
                continue;
            }
            let (mut source, mut destination) = (End::of(local), End::of(remote));
            if direction == "inbound" {
                std::mem::swap(&mut source, &mut destination);
            }
            let description = plain(rule.name.as_deref().unwrap_or_default()).into_owned();
            rules.push(Rule { action, source, destination, direction, tunnel: 0, description });
        }
    }
    rules
}

impl End {
    fn of(selector: &str) -> Self {
        let (addresses, rest) = selector.split_once('[').unwrap_or((selector, ""));
        let rest = rest.trim_end_matches(']');
        let (protocol, port) = rest.split_once('/').unwrap_or((rest, ""));
        let v6 = addresses.contains(':');
        let (address, mask) = match addresses.split_once('/') {
            Some((address, length)) => (address, mask(length.parse().unwrap_or(0), v6)),
            // A range has no mask; AIX, too, writes both its ends.
            None => (addresses, mask(if v6 { 128 } else { 32 }, v6)),
        };
        let (operation, port) = match port {
            "" => ("any", "0"),
            range if range.contains('-') => ("range", range),
            one => ("eq", one),
        };
        let protocol = if protocol.is_empty() || protocol == "any" { "all" } else { protocol };
        Self {
            address: address.to_owned(),
            mask,
            protocol: protocol.to_owned(),
            operation,
            port: port.to_owned(),
        }
    }
}

fn mask(length: u32, v6: bool) -> String {
    match v6 {
        true => Ipv6Addr::from(!u128::MAX.checked_shr(length).unwrap_or(0)).to_string(),
        false => Ipv4Addr::from(!u32::MAX.checked_shr(length).unwrap_or(0)).to_string(),
    }
}

/// 22 fields between bars.
fn line(out: &mut dyn Write, number: u32, rule: &Rule) -> Result<(), Trouble> {
    let Rule { action, source, destination, direction, tunnel, description } = rule;
    let number = number.to_string();
    let tunnel = tunnel.to_string();
    // A bar in a name would be taken for the end of a field.
    let description = description.replace('|', "/");
    let fields = [
        number.as_str(),
        action,
        &source.address,
        &source.mask,
        &destination.address,
        &destination.mask,
        "no",
        &source.protocol,
        source.operation,
        &source.port,
        destination.operation,
        &destination.port,
        "both",
        direction,
        "no",
        "all packets",
        &tunnel,
        "all",
        "0",
        "none",
        "",
        &description,
    ];
    Ok(writeln!(out, "{}", fields.join("|"))?)
}

fn paragraph(out: &mut dyn Write, number: u32, rule: &Rule) -> Result<(), Trouble> {
    let Rule { action, source, destination, direction, tunnel, description } = rule;
    writeln!(out, "Rule {number}:")?;
    let fields = [
        ("Rule action", (*action).to_owned()),
        ("Source Address", source.address.clone()),
        ("Source Mask", source.mask.clone()),
        ("Destination Address", destination.address.clone()),
        ("Destination Mask", destination.mask.clone()),
        ("Protocol", source.protocol.clone()),
        ("Source Port", format!("{} {}", source.operation, source.port)),
        ("Destination Port", format!("{} {}", destination.operation, destination.port)),
        ("Direction", (*direction).to_owned()),
        ("Tunnel ID number", tunnel.to_string()),
        ("Rule description", description.clone()),
    ];
    for (label, value) in fields {
        writeln!(out, "{label:<21}: {value}")?;
    }
    Ok(writeln!(out)?)
}
