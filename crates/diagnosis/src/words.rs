//! Numbers in sentences.

use std::time::Duration;

/// A span of time: `0s`, `12ms`, `59s`, `1m 5s`, `2h 3m`, `4d 5h`.
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

/// `once`, `twice`, `3 times`.
pub fn times(n: u32) -> String {
    match n {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        n => format!("{n} times"),
    }
}
