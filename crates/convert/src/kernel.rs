//! Settings of one child that `vpnd` has for tunnels in the kernel: marks, XFRM interfaces and offload. They become a
//! section `[tunnel."NAME"]` of vpnd.toml.

use super::finding::Report;
use super::source::{Location, Value};
use policy::{Binding, Bindings};
use std::fmt::Write;

/// The settings of one child, as vpnd.toml has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Kernel {
    mark: Option<Line>,
    if_id: Option<Line>,
    offload: Option<Line>,
}

/// A value in TOML, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    value: String,
    location: Location,
}

/// The settings of a file by name.
type Settings = Vec<(String, Value)>;

/// Takes the settings out. Those that a child does not have are inherited.
pub(super) fn take(settings: &mut Settings, inherited: &Kernel, report: &mut Report) -> Kernel {
    if let Some(both) = remove(settings, &["mark"]) {
        for name in ["mark_in", "mark_out"] {
            if !settings.iter().any(|(known, _)| known == name) {
                settings.push((name.to_owned(), both.clone()));
            }
        }
    }
    let mark = pair(settings, &["mark_in", "mark-in"], &["mark_out", "mark-out"], mark, report);
    let if_id = pair(settings, &["if_id_in"], &["if_id_out"], interface, report);
    Kernel {
        mark: mark.or_else(|| inherited.mark.clone()),
        if_id: if_id.or_else(|| inherited.if_id.clone()),
        offload: offload(settings, report).or_else(|| inherited.offload.clone()),
    }
}

fn remove(settings: &mut Settings, names: &[&str]) -> Option<Value> {
    let place = settings.iter().position(|(name, _)| names.contains(&name.as_str()))?;
    Some(settings.remove(place).1)
}

/// One value for both directions. `read`: the value in TOML, `None` if it asks for nothing.
fn pair(
    settings: &mut Settings,
    inbound: &[&str],
    outbound: &[&str],
    read: fn(&str) -> Result<Option<String>, &'static str>,
    report: &mut Report,
) -> Option<Line> {
    let [first, second] = [inbound, outbound].map(|names| {
        let value = remove(settings, names)?;
        match read(value.text.trim()) {
            Ok(line) => line.map(|line| (line, value)),
            Err(why) => {
                report.dropped(&value.location, format!("{}: {why}", value.shown(names[0])), "");
                None
            }
        }
    });
    let (name, other) = (inbound[0], outbound[0]);
    match (first, second) {
        (None, None) => None,
        (Some((a, value)), Some((b, _))) if a == b => {
            Some(Line { value: a, location: value.location })
        }
        (Some((_, a)), Some((_, b))) => {
            let message = format!(
                "{} and {}: vpnd has one value for both directions",
                a.shown(name),
                b.shown(other)
            );
            report.dropped(&a.location, message, "write the same for both");
            None
        }
        (Some((line, value)), None) | (None, Some((line, value))) => {
            let message = format!("{name} or {other} alone: vpnd uses it for both directions");
            report.changed(&value.location, message, "packets of both directions need it");
            Some(Line { value: line, location: value.location })
        }
    }
}

/// A number, or a number and a mask.
fn mark(text: &str) -> Result<Option<String>, &'static str> {
    match value_and_mask(text) {
        Some((0, 0)) => Ok(None),
        Some((value, u32::MAX)) => Ok(Some(format!("\"{value:#x}\""))),
        Some((value, mask)) => Ok(Some(format!("\"{:#x}/{mask:#x}\"", value & mask))),
        None => Err("vpnd.toml has a number, or a number and a mask, for each tunnel"),
    }
}

fn value_and_mask(text: &str) -> Option<(u32, u32)> {
    let (value, mask) = text.split_once('/').unwrap_or((text, "0xffffffff"));
    number(value).zip(number(mask))
}

fn interface(text: &str) -> Result<Option<String>, &'static str> {
    match number(text) {
        Some(0) => Ok(None),
        Some(number) => Ok(Some(number.to_string())),
        None => Err("vpnd.toml has a number for each tunnel"),
    }
}

fn number(text: &str) -> Option<u32> {
    match text.trim().strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.trim().parse().ok(),
    }
}

fn offload(settings: &mut Settings, report: &mut Report) -> Option<Line> {
    let value = remove(settings, &["hw_offload", "nic-offload", "nic_offload"])?;
    let wanted = match value.text.trim().to_ascii_lowercase().as_str() {
        "no" | "false" | "0" => return None,
        "yes" | "true" | "1" | "crypto" => "\"crypto\"",
        "packet" => "\"packet\"",
        "auto" => "\"auto\"",
        _ => {
            let message = format!("{} is not understood", value.shown("hw_offload"));
            report.dropped(&value.location, message, "write no, crypto, packet or auto");
            return None;
        }
    };
    Some(Line { value: wanted.to_owned(), location: value.location })
}

/// The marks and interfaces of phase 2 tunnels, by which the kernel tells their packets apart. Those that have neither
/// may be in userspace ([`Kernel::section`]).
pub(super) fn bindings(children: &[(String, Kernel)]) -> Bindings {
    let bound =
        children.iter().filter(|(_, kernel)| kernel.mark.is_some() || kernel.if_id.is_some());
    let bindings: Bindings = bound.map(|(name, kernel)| (name.clone(), kernel.binding())).collect();
    bindings.with_others(Binding::ANY)
}

impl Kernel {
    fn binding(&self) -> Binding {
        let mark = self.mark.as_ref();
        Binding {
            mark: mark.and_then(|line| value_and_mask(line.value.trim_matches('"'))),
            if_id: self.if_id.as_ref().and_then(|line| number(&line.value)),
            ..Binding::default()
        }
    }

    /// Reports the settings, which concern this side's kernel, as lost in the settings of the other end.
    pub fn report_lost(&self, report: &mut Report) {
        for (name, line) in self.lines() {
            let message = format!("{name} = {}: it concerns this side's kernel", line.value);
            report.dropped(&line.location, message, "");
        }
    }

    fn lines(&self) -> impl Iterator<Item = (&'static str, &Line)> {
        let all = [("mark", &self.mark), ("if_id", &self.if_id), ("offload", &self.offload)];
        all.into_iter().filter_map(|(name, line)| Some((name, line.as_ref()?)))
    }

    /// The section of a tunnel; empty if it has no such settings.
    pub fn section(&self, tunnel: &str) -> String {
        let mut text = String::new();
        if self.lines().next().is_none() {
            return text;
        }
        let name = tunnel.replace('\\', "\\\\").replace('"', "\\\"");
        // Only the kernel has marks and interfaces; without them vpnd may protect what no card takes.
        let plane = if self.mark.is_some() || self.if_id.is_some() { "xfrm" } else { "auto" };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "\n[tunnel.\"{name}\"]\ndataplane = \"{plane}\"");
        for (name, Line { value, location }) in self.lines() {
            let _ = writeln!(text, "# {location}\n{name} = {value}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Finding;

    fn taken(settings: &[(&str, &str)]) -> (String, Vec<Finding>) {
        let location = |line| Location { file: "f".into(), line };
        let value = |(line, (name, text)): (usize, &(&str, &str))| {
            ((*name).to_owned(), Value::new(*text, &location(line + 1)))
        };
        let mut settings: Settings = settings.iter().enumerate().map(value).collect();
        let mut report = Report::default();
        let kernel = take(&mut settings, &Kernel::default(), &mut report);
        assert!(settings.is_empty());
        (kernel.section("a \"b\""), report.into_findings())
    }

    #[test]
    fn equal_values_of_both_directions_become_one_section() {
        let marks = [("mark_in", "17/0xff"), ("mark_out", "0x11/0xff"), ("hw_offload", "yes")];
        let (section, findings) = taken(&marks);
        assert_eq!(
            section,
            "\n[tunnel.\"a \\\"b\\\"\"]\ndataplane = \"xfrm\"\n# f:1\nmark = \"0x11/0xff\"\n# f:3\noffload = \"crypto\"\n"
        );
        assert_eq!(findings, []);
        let (section, findings) = taken(&[("if_id_in", "7"), ("if_id_out", "0x7")]);
        assert!(section.ends_with("dataplane = \"xfrm\"\n# f:1\nif_id = 7\n"), "{section}");
        assert_eq!(findings, []);
        let (section, _) = taken(&[("hw_offload", "auto")]);
        assert!(section.contains("dataplane = \"auto\"\n"), "{section}");
        let (section, findings) = taken(&[("mark", "0x5")]);
        assert!(section.contains("mark = \"0x5\"\n") && findings.is_empty(), "{section}");
    }

    #[test]
    fn values_that_vpnd_cannot_have_are_reported() {
        let (section, findings) = taken(&[("mark_in", "1"), ("mark_out", "2")]);
        assert_eq!(section, "");
        assert!(findings[0].to_string().contains("one value for both directions"));
        let (section, findings) = taken(&[("if_id_out", "7")]);
        assert!(section.contains("if_id = 7\n"));
        assert!(findings[0].to_string().contains("alone: vpnd uses it for both"), "{findings:?}");
        for wrong in [("mark_in", "%unique"), ("if_id_in", "%unique-dir"), ("hw_offload", "maybe")]
        {
            let (section, findings) = taken(&[wrong]);
            assert!(section.is_empty() && findings.len() == 1, "{findings:?}");
        }
        for nothing in [("mark_in", "0/0x00000000"), ("if_id_in", "0"), ("hw_offload", "no")] {
            assert_eq!(taken(&[nothing]), (String::new(), Vec::new()));
        }
    }
}
