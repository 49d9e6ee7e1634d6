//! Settings that strongSwan has for each connection and `vpnd` once, in vpnd.toml.

use super::draft::Draft;
use super::finding::{Loss, Report};
use super::kernel::Kernel;
use super::quantity::{flag, time};
use super::source::{Location, Value};
use std::fmt::Write;

/// One line of vpnd.toml.
pub(super) struct Setting {
    /// The section, the name, and the value in TOML.
    pub section: &'static str,
    pub name: &'static str,
    pub value: String,
    pub location: Location,
    /// The section of the file that has it.
    pub level: Level,
}

/// A kind of section in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Connection,
    Child,
}

/// Section, name and value in TOML; `None` if `vpnd` does so without a setting. The error says which values there are.
type Line = Result<Option<(&'static str, &'static str, String)>, &'static str>;

/// Reads a setting of a connection or child that `vpnd` has in vpnd.toml; `None`: it is no such setting.
///
/// # Errors
/// The values that the setting may have, if this one cannot be read.
fn read(level: Level, name: &str, value: &Value) -> Option<Result<Option<Setting>, &'static str>> {
    let text = value.text.trim().to_ascii_lowercase();
    let line = match name {
        "dpd_delay" | "dpddelay" => seconds(&text, "liveness_interval"),
        "reauth_time" if time(&text).is_some_and(|time| time.is_zero()) => Ok(None),
        "reauth_time" => seconds(&text, "reauthenticate"),
        "dpd_action" | "dpdaction" => action(&text, "liveness_action"),
        "close_action" | "closeaction" => action(&text, "close_action"),
        "mobike" => switch(&text, "ike", "mobike"),
        "fragmentation" => match text.as_str() {
            "accept" | "force" => Ok(Some(("ike", "fragmentation", "true".into()))),
            _ => switch(&text, "ike", "fragmentation"),
        },
        "encap" | "forceencaps" | "encapsulation" => match (flag(&text), text.as_str()) {
            (Some(true), _) | (_, "force") => Ok(Some(("esp", "encap", "\"always\"".into()))),
            (Some(false), _) | (_, "auto") => Ok(None),
            _ => Err("write yes or no"),
        },
        "replay_window" | "replay-window" => match text.parse::<u32>() {
            Ok(packets) => Ok(Some(("esp", "replay_window", packets.to_string()))),
            Err(_) => Err("write a number of packets"),
        },
        _ => return None,
    };
    Some(line.map(|line| {
        line.map(|(section, name, toml)| Setting {
            section,
            name,
            value: toml,
            location: value.location.clone(),
            level,
        })
    }))
}

fn seconds(text: &str, name: &'static str) -> Line {
    match time(text) {
        None => Err("write a time like 30s"),
        Some(time) if time.is_zero() => Ok(Some(("ike", name, "\"off\"".into()))),
        Some(time) => Ok(Some(("ike", name, format!("\"{}s\"", time.as_secs())))),
    }
}

fn switch(text: &str, section: &'static str, name: &'static str) -> Line {
    match flag(text) {
        None => Err("write yes or no"),
        Some(on) => Ok(Some((section, name, on.to_string()))),
    }
}

fn action(text: &str, name: &'static str) -> Line {
    let action = match text {
        "none" | "clear" => "\"clear\"",
        "trap" | "hold" | "route" => "\"trap\"",
        "restart" | "restart_by_peer" | "start" => "\"restart\"",
        _ => return Err("write none, trap or restart"),
    };
    Ok(Some(("ike", name, action.into())))
}

/// Takes out of a connection or child what `vpnd` has in vpnd.toml.
pub(super) fn take(
    level: Level,
    from: &mut Vec<(String, Value)>,
    settings: &mut Vec<Setting>,
    report: &mut Report,
) {
    from.retain(|(name, value)| match read(level, name, value) {
        None => true,
        Some(Ok(setting)) => {
            settings.extend(setting);
            false
        }
        Some(Err(help)) => {
            report.dropped(
                &value.location,
                format!("{} is not understood", value.shown(name)),
                help,
            );
            false
        }
    });
}

/// The lines of vpnd.toml. Where connections differ, the first counts, and that is reported.
pub(super) fn write(draft: &Draft, kernel: &[(String, Kernel)], report: &mut Report) -> String {
    let mut text = String::new();
    for section in ["ike", "esp"] {
        let of_section: Vec<&Setting> =
            draft.settings.iter().filter(|setting| setting.section == section).collect();
        let mut written: Vec<&Setting> = Vec::new();
        for setting in &of_section {
            match written.iter().find(|other| other.name == setting.name) {
                None => written.push(setting),
                Some(first) if first.value == setting.value => {}
                Some(first) => {
                    let message = format!(
                        "{} is {} here and {} at {}: vpnd has one for all tunnels, and the first is used",
                        setting.name, setting.value, first.value, first.location
                    );
                    let loss = match is_weaker(&first.value, &setting.value) {
                        true => Loss::FunctionLost,
                        false => Loss::Changed,
                    };
                    report.add(loss, &setting.location, message, "choose one in vpnd.toml");
                }
            }
        }
        if written.is_empty() {
            continue;
        }
        // Writing to a String cannot fail.
        let _ = writeln!(text, "[{section}]");
        for setting in written {
            let Setting { name, value, location, .. } = setting;
            let _ = writeln!(text, "# {location}\n{name} = {value}");
            let times = of_section.iter().filter(|other| other.name == *name).count();
            report_spread(draft, setting, times, report);
        }
    }
    for (tunnel, kernel) in kernel {
        text.push_str(&kernel.section(tunnel));
    }
    text
}

/// Returns `true` if a tunnel with the value `wanted` does something by itself that it does not do with `used`.
fn is_weaker(used: &str, wanted: &str) -> bool {
    let [used, wanted] = [used, wanted].map(|value| match value {
        "false" | "\"off\"" | "\"clear\"" => 0,
        "\"trap\"" => 1,
        _ => 2,
    });
    used < wanted
}

/// Reports a setting that some connections or children have, and in vpnd all tunnels.
fn report_spread(draft: &Draft, setting: &Setting, times: usize, report: &mut Report) {
    let children: usize = draft.connections.iter().map(|c| c.children.len()).sum();
    let (what, sections) = match setting.level {
        Level::Connection => ("connections", draft.connections.len()),
        Level::Child => ("children", children),
    };
    if times < sections {
        let Setting { section, name, value, location, .. } = setting;
        let message = format!(
            "{name} = {value} is that of {times} of {sections} {what}: vpnd has one for all tunnels, and it applies to all"
        );
        let help = format!(
            "[{section}] of vpnd.toml has it; remove it there if the others must not have it"
        );
        report.changed(location, message, help);
    }
}
