//! The changes that a reload makes, or would make.

use super::{Colour, plain};
use control::protocol::{Change, Reloaded};
use std::fmt::Write;

/// The changes that a reload makes, or would make.
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
pub(super) fn changes(all: &[Change], colour: Colour) -> String {
    let mut text = String::new();
    let (untouched, changed): (Vec<_>, Vec<_>) = all.iter().partition(|c| c.effect == "untouched");
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

fn name(change: &Change) -> String {
    match &change.child {
        Some(child) => format!("{}/{}", plain(&change.tunnel), plain(child)),
        None => plain(&change.tunnel).into_owned(),
    }
}
