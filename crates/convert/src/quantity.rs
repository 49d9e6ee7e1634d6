//! Lengths of time and volumes as strongSwan writes them.

use crate::finding::Report;
use crate::source::Value;
use std::time::Duration;

/// Seconds, or a number with `s`, `m`, `h`, `d` or `w`.
pub(super) fn time(text: &str) -> Option<Duration> {
    scaled(text, &[('s', 1), ('m', 60), ('h', 3600), ('d', 86_400), ('w', 604_800)])
        .map(Duration::from_secs)
}

/// The time in a setting; `None`, reported, if it is not one.
pub(super) fn read_time(name: &str, value: &Value, report: &mut Report) -> Option<Duration> {
    let read = time(&value.text);
    if read.is_none() {
        let message = format!("{name}: {:?} is no time", value.text.as_str());
        report.dropped(&value.location, message, "write it like 30s, 5m or 1h");
    }
    read
}

/// The octets in a setting; `None` if it is 0, or, reported, no number of octets.
pub(super) fn read_volume(name: &str, value: &Value, report: &mut Report) -> Option<u64> {
    let read = volume(&value.text);
    if read.is_none() {
        let message = format!("{name}: {:?} is no number of octets", value.text.as_str());
        report.dropped(&value.location, message, "write it like 500m");
    }
    read.filter(|octets| *octets > 0)
}

/// Octets, or a number with `k`, `m` or `g`.
fn volume(text: &str) -> Option<u64> {
    let lower = text.trim().to_ascii_lowercase();
    scaled(&lower, &[('k', 1 << 10), ('m', 1 << 20), ('g', 1 << 30)])
}

fn scaled(text: &str, units: &[(char, u64)]) -> Option<u64> {
    let text = text.trim();
    let unit = units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(*unit)?, *factor)));
    let (digits, factor) = unit.unwrap_or((text, 1));
    let digits = digits.trim();
    let digits_only = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let number = digits_only.then(|| digits.parse::<u64>().ok()).flatten()?;
    number.checked_mul(factor)
}

/// `yes` and `no` in all their spellings.
pub(super) fn flag(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "yes" | "true" | "enabled" | "on" | "y" | "1" => Some(true),
        "no" | "false" | "disabled" | "off" | "n" | "0" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        assert_eq!(time("90"), Some(Duration::from_secs(90)));
        assert_eq!(time("5m"), Some(Duration::from_secs(300)));
        assert_eq!(time(" 2 h "), Some(Duration::from_secs(7200)));
        assert_eq!(volume("500M"), Some(500 << 20));
        for wrong in
            ["", "m", "5x", "5mm", "-1", "1.5h", "99999999999999999999", "9999999999999999999d"]
        {
            assert_eq!(time(wrong), None, "{wrong}");
        }
    }
}
