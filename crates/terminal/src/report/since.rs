//! Since when a tunnel is down, and why.

use super::{duration, plain};
use control::protocol::Down;
use std::time::Duration;

/// The last end of a tunnel: the time, how long ago that was, and the reason.
pub fn down(down: &Down) -> String {
    let Down { reason, seconds_ago, since, .. } = down;
    let ago = duration(Duration::from_secs(*seconds_ago));
    plain(&format!("since {} ({ago}): {reason}", clock(since, *seconds_ago))).into_owned()
}

/// The same behind the state of a tunnel; nothing if it is up, and if it was never up.
pub fn behind(state: &str, ended: Option<&Down>) -> String {
    match ended {
        Some(ended) if state == "down" => format!(" {}", down(ended)),
        Some(ended) => format!("; down {}", down(ended)),
        None => String::new(),
    }
}

/// The time of a moment as RFC 3339 writes it, so many seconds away: with the date unless those are less than twelve
/// hours.
pub fn clock(stamp: &str, seconds: u64) -> String {
    match stamp.trim_end_matches('Z').split_once('T') {
        Some((_, time)) if seconds < 12 * 3600 => format!("{time} UTC"),
        Some((date, time)) => format!("{date} {time} UTC"),
        None => stamp.to_owned(),
    }
}

/// `once`, `twice`, `3 times`.
pub fn times(n: u32) -> String {
    match n {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        n => format!("{n} times"),
    }
}
