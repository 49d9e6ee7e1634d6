//! What people see: tables, states, durations and counts in words.
//!
//! Text that came from a peer or a file passes through [`plain`], so that it cannot steer the terminal.

use console::Style;
use control::protocol::{Activation, Change, ChildSa, FailureInfo, IkeSa, Reloaded, Tunnel};
use std::borrow::Cow;
use std::fmt::Write;
use std::time::Duration;

mod certificates;
pub(crate) mod list;
mod manual;
mod offload;
mod overview;
mod stored;
mod table;
mod why;
mod workers;

pub use certificates::certificates;
pub use control::quantity::{bytes, compact, count, duration, rate};
pub(crate) use list::Algorithms;
pub use list::{list, verbose};
pub use manual::manual;
pub use offload::{not_offloaded, offload, resynced, summary as offload_summary};
pub use overview::{filter, overview, trace};
pub use stored::stored;
pub use table::Table;
pub use why::{happening, why};
pub use workers::workers;

/// Whether to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colour(pub bool);

impl Colour {
    /// Colours where standard output is a terminal and neither `NO_COLOR` nor `TERM=dumb` objects.
    pub fn of_stdout() -> Self {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self(wanted && console::Term::stdout().features().colors_supported())
    }

    /// Emphasises a heading.
    pub fn heading(self, text: &str) -> String {
        self.paint(Style::new().bold(), text)
    }

    /// Marks what is well.
    pub fn good(self, text: &str) -> String {
        self.paint(Style::new().green(), text)
    }

    /// Marks what is under way or deserves attention.
    pub fn notice(self, text: &str) -> String {
        self.paint(Style::new().yellow(), text)
    }

    /// Marks what is wrong.
    pub fn bad(self, text: &str) -> String {
        self.paint(Style::new().red(), text)
    }

    /// Marks what is less important.
    pub fn faint(self, text: &str) -> String {
        self.paint(Style::new().dim(), text)
    }

    /// As [`Colour::bad`], line by line, so that a pager shows them all alike.
    fn bad_lines(self, text: &str) -> String {
        let line = |line: &str| {
            let (indent, words) = line.split_at(line.len() - line.trim_start().len());
            format!("{indent}{}\n", self.bad(words))
        };
        text.lines().map(line).collect()
    }

    fn paint(self, style: Style, text: &str) -> String {
        style.force_styling(self.0).apply_to(text).to_string()
    }

    fn state(self, state: &str) -> String {
        match state {
            "established" => self.good(state),
            "negotiating" | "rekeying" | "closing" => self.notice(state),
            _ => self.faint(&plain(state)),
        }
    }
}

/// Escapes control characters.
pub fn plain(text: &str) -> Cow<'_, str> {
    if text.chars().any(char::is_control) {
        let escape = |c: char| {
            if c.is_control() { c.escape_default().collect() } else { String::from(c) }
        };
        Cow::Owned(text.chars().map(escape).collect())
    } else {
        Cow::Borrowed(text)
    }
}

/// Reminds of what must not last.
fn keys_exported(tunnel: &Tunnel, colour: Colour) -> Option<String> {
    let directory = plain(tunnel.keys_exported_to.as_ref()?);
    let remark = format!(
        "INSECURE: keys are written to {directory}; to end that, start vpnd without --insecure-export-keys"
    );
    Some(colour.bad(&remark))
}

/// Everything there is to know about one tunnel.
pub fn status(tunnel: &Tunnel, colour: Colour) -> String {
    let mut text =
        format!("{} {}\n", colour.heading(&plain(&tunnel.name)), colour.state(&tunnel.state));
    let mut fields = Fields::new("  ");
    let side = |id: &str, address: Option<std::net::IpAddr>| match address {
        Some(address) if address.to_string() == id => id.to_owned(),
        Some(address) => format!("{} at {address}", plain(id)),
        None => format!("{} at any address", plain(id)),
    };
    fields.add("local", side(&tunnel.local_id, tunnel.local_address));
    fields.add("remote", side(&tunnel.remote_id, tunnel.remote_address));
    if let Some(sa) = &tunnel.ike_sa {
        ike_sa(&mut fields, sa);
    }
    last_failure(&mut fields, tunnel.last_failure.as_ref(), &tunnel.state, colour);
    if let Some(remark) = keys_exported(tunnel, colour) {
        fields.add("keys", remark);
    }
    fields.write(&mut text, colour);
    for child in &tunnel.children {
        let _ = writeln!(
            text,
            "  {} {}",
            colour.heading(&plain(&child.name)),
            colour.state(&child.state)
        );
        let mut fields = Fields::new("    ");
        fields.add("mode", child.mode.clone());
        fields.add("local", child.local.join(", "));
        fields.add("remote", child.remote.join(", "));
        if let Some(sa) = &child.child_sa {
            child_sa(&mut fields, sa);
        }
        last_failure(&mut fields, child.last_failure.as_ref(), &child.state, colour);
        fields.write(&mut text, colour);
    }
    text
}

fn ike_sa(fields: &mut Fields, sa: &IkeSa) {
    let nat = match (sa.nat_local, sa.nat_remote) {
        (false, false) => "none",
        (true, false) => "this side is behind a NAT",
        (false, true) => "the peer is behind a NAT",
        (true, true) => "both sides are behind a NAT",
    };
    fields.add("path", format!("{} to {}", sa.local, sa.remote));
    fields.add("NAT", nat.to_owned());
    if !sa.suite.is_empty() {
        fields.add("suite", plain(&sa.suite).into_owned());
    }
    fields.add("SPIs", format!("initiator {}, responder {}", sa.initiator_spi, sa.responder_spi));
    fields.add("role", if sa.initiator { "initiator" } else { "responder" }.to_owned());
    times(fields, sa.established_seconds, sa.rekey_in_seconds, sa.expires_in_seconds, sa.rekeys);
}

fn child_sa(fields: &mut Fields, sa: &ChildSa) {
    let sequence = if sa.esn { ", 64-bit sequence numbers" } else { "" };
    let travels = match sa.encapsulation.as_str() {
        "udp" => "in UDP",
        "ah" => "in AH",
        _ => "natively",
    };
    fields.add("suite", format!("{}{sequence}, {travels}", plain(&sa.suite)));
    fields.add("SPIs", format!("in {}, out {}", sa.inbound_spi, sa.outbound_spi));
    if let Some(place) = offload::place(&sa.placed) {
        fields.add("place", place);
    }
    fields.add("in", format!("{} packets, {}", count(sa.packets_in), bytes(sa.bytes_in)));
    fields.add("out", format!("{} packets, {}", count(sa.packets_out), bytes(sa.bytes_out)));
    fields.add("refused", format!("{} packets", count(sa.refused)));
    if let (Some(inner), Some(path)) = (sa.inner_mtu, sa.path_mtu) {
        let who = if sa.path_mtu_learned { ", as a router there has said" } else { "" };
        fields.add("MTU", format!("{inner} inside, {path} on the way to the peer{who}"));
    }
    let up = Some(sa.established_seconds);
    times(fields, up, sa.rekey_in_seconds, sa.expires_in_seconds, sa.rekeys);
}

fn times(
    fields: &mut Fields,
    up: Option<u64>,
    rekey: Option<u64>,
    expiry: Option<u64>,
    rekeys: u64,
) {
    let seconds = |s: u64| duration(Duration::from_secs(s));
    if let Some(up) = up {
        let times = match rekeys {
            0 => String::new(),
            1 => ", rekeyed once".to_owned(),
            n => format!(", rekeyed {n} times"),
        };
        fields.add("up", format!("{}{times}", seconds(up)));
    }
    match (rekey, expiry) {
        (Some(rekey), Some(expiry)) => {
            fields.add("rekey", format!("in {}, expires in {}", seconds(rekey), seconds(expiry)));
        }
        (Some(rekey), None) => fields.add("rekey", format!("in {}", seconds(rekey))),
        (None, Some(expiry)) => fields.add("expires", format!("in {}", seconds(expiry))),
        (None, None) => {}
    }
}

fn last_failure(fields: &mut Fields, failure: Option<&FailureInfo>, state: &str, colour: Colour) {
    let Some(failure) = failure else { return };
    let ago = failure
        .seconds_ago
        .map(|s| format!(" ({} ago)", duration(Duration::from_secs(s))))
        .unwrap_or_default();
    let text = format!("{}{ago}", plain(&failure.message));
    // A failed rekey or an earlier attempt is history while the SA is up.
    if state == "established" {
        fields.add("last failure", text);
    } else {
        fields.add("down because", colour.bad(&text));
    }
}

/// One line of `vpnctl activate`.
pub fn activation(activation: &Activation, colour: Colour) -> String {
    let name = plain(&activation.name);
    match &activation.failure {
        None if activation.up => format!("{name}: {}", colour.good("up")),
        None => format!("{name}: {}", colour.bad("failed")),
        Some(failure) => format!("{name}: {}: {}", colour.bad("failed"), plain(&failure.message)),
    }
}

/// What a reload changes, or would change.
pub fn reloaded(reloaded: &Reloaded, colour: Colour) -> String {
    let tunnels = match reloaded.tunnels {
        1 => "1 tunnel".to_owned(),
        n => format!("{n} tunnels"),
    };
    let mut text = match reloaded.dry_run {
        true if reloaded.changes.iter().all(|c| c.effect == "untouched")
            && reloaded.filter.is_empty() =>
        {
            return format!("a reload would change nothing ({tunnels})\n");
        }
        true => format!("a reload would change this; nothing has changed yet ({tunnels})\n"),
        false => format!("policy reloaded: {tunnels}\n"),
    };
    text.push_str(&changes(&reloaded.changes, colour));
    for change in &reloaded.filter {
        let effect = match change.effect.as_str() {
            "added" => colour.good(&change.effect),
            "removed" => colour.bad(&change.effect),
            effect => colour.notice(&plain(effect)),
        };
        let _ = writeln!(text, "  filter: {effect} {}", plain(&change.message));
    }
    text
}

/// A line for each tunnel that changes, and how many do not.
fn changes(all: &[Change], colour: Colour) -> String {
    let mut text = String::new();
    let (untouched, changed): (Vec<_>, Vec<_>) = all.iter().partition(|c| c.effect == "untouched");
    let name = |change: &Change| match &change.child {
        Some(child) => format!("{}/{}", plain(&change.tunnel), plain(child)),
        None => plain(&change.tunnel).into_owned(),
    };
    let width = changed.iter().map(|c| name(c).chars().count()).max().unwrap_or(0);
    for change in &changed {
        let message = plain(&change.message);
        let message = match change.effect.as_str() {
            "added" => colour.good(&message),
            "removed" | "reestablished" => colour.bad(&message),
            _ => colour.notice(&message),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {:width$}  {message}", name(change));
    }
    if !untouched.is_empty() {
        let _ = writeln!(text, "  {} untouched", untouched.len());
    }
    text
}

/// Discards by reason with what they mean, the most frequent first; with `all` also those that never happened.
pub fn counters(
    counters: &std::collections::BTreeMap<String, u64>,
    all: bool,
    colour: Colour,
) -> String {
    let shown = counters.iter().filter(|(_, n)| all || **n > 0);
    let (mut kernel, mut own): (Vec<_>, Vec<_>) =
        shown.partition(|(reason, _)| reason.starts_with("xfrm."));
    if own.is_empty() && kernel.is_empty() {
        return "nothing was discarded\n".to_owned();
    }
    let mut text = String::new();
    let mut section = |title: &'static str, rows: &mut Vec<(&String, &u64)>| {
        if rows.is_empty() {
            return;
        }
        if !text.is_empty() {
            text.push('\n');
        }
        rows.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
        let mut table = Table::new([title, "REASON", "MEANING"]);
        for (reason, n) in rows {
            let meaning = crate::counters::explanation(reason).unwrap_or("-").to_owned();
            table.row([count(**n), plain(reason).into_owned(), meaning]);
        }
        text.push_str(&table.render(colour));
    };
    section("DISCARDED", &mut own);
    // Of the whole network namespace, whoever's the SAs are.
    section("DROPPED BY THE KERNEL", &mut kernel);
    text
}

/// Lines of a name and a value, the values in one column.
pub struct Fields {
    indent: &'static str,
    lines: Vec<(&'static str, String)>,
}

impl Fields {
    /// No lines yet; each will begin with `indent`.
    pub fn new(indent: &'static str) -> Self {
        Self { indent, lines: Vec::new() }
    }

    /// Adds a line.
    pub fn add(&mut self, name: &'static str, value: String) {
        self.lines.push((name, value));
    }

    /// Appends the lines to `text`.
    pub fn write(&self, text: &mut String, colour: Colour) {
        let width = self.lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, value) in &self.lines {
            let padded = format!("{name:<width$}");
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{}{}  {value}", self.indent, colour.faint(&padded));
        }
    }
}

#[cfg(test)]
mod tests;
