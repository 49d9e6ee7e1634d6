//! Numbers as people read them.

use std::time::Duration;

/// A duration in its two largest units: `45s`, `2m 5s`, `1h 2m`, `3d 4h`; below a second, milliseconds.
pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 if duration.is_zero() => "0s".to_owned(),
        0 => format!("{}ms", duration.as_millis().max(1)),
        1..60 => format!("{seconds}s"),
        60..3600 => in_two_units(seconds / 60, 'm', seconds % 60, 's'),
        3600..86_400 => in_two_units(seconds / 3600, 'h', seconds % 3600 / 60, 'm'),
        _ => in_two_units(seconds / 86_400, 'd', seconds % 86_400 / 3600, 'h'),
    }
}

fn in_two_units(large: u64, unit: char, small: u64, sub: char) -> String {
    if small == 0 { format!("{large}{unit}") } else { format!("{large}{unit} {small}{sub}") }
}

/// A number of octets with a binary prefix: `0 B`, `1023 B`, `1.5 MiB`.
pub fn bytes(octets: u64) -> String {
    scaled(octets, 1024, &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"])
}

/// A rate with a decimal prefix: `950 Mbit/s`, `1.2 Gbit/s`.
pub fn rate(bits_per_second: u64) -> String {
    scaled(bits_per_second, 1000, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"])
}

/// A number in at most four characters: `999`, `1.2k`, `34M`.
pub fn compact(n: u64) -> String {
    scaled(n, 1000, &["", "k", "M", "G", "T", "P", "E"]).replace(' ', "")
}

/// A number with its thousands apart: `1 234 567`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// One decimal below ten, none above: integers only, so that no value rounds to one that does not exist (1024 KiB).
fn scaled(value: u64, base: u64, units: &[&str]) -> String {
    let mut unit = 1_u64;
    let mut index = 0;
    while index + 1 < units.len() && value / unit >= base {
        unit *= base;
        index += 1;
    }
    let whole = value / unit;
    if index == 0 || whole >= 10 {
        format!("{whole} {}", units[index])
    } else {
        format!("{whole}.{} {}", value % unit / (unit / 10).max(1) % 10, units[index])
    }
}
