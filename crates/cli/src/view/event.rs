//! Events of the engine.

use super::tunnel::failure as failure_info;
use control::protocol::Happening;
use ike::event::{Event, EventKind};
use std::time::SystemTime;

/// Shows an event of the engine that happened at this time.
pub fn happening(event: &Event, at: SystemTime) -> Happening {
    let (mut suite, mut failure, mut reason) = (None, None, None);
    match &event.kind {
        EventKind::Established { suite: s } | EventKind::Rekeyed { suite: s } => {
            suite = Some(s.to_string());
        }
        EventKind::Failed(f) | EventKind::TurnedAway(f) => failure = Some(failure_info(f)),
        EventKind::Closed { reason: r } => reason = Some(r.to_string()),
        _ => {}
    }
    Happening {
        time: stamp(at),
        event: event_name(event).to_owned(),
        tunnel: event.tunnel.clone(),
        child: event.child.clone(),
        peer: event.peer,
        suite,
        failure,
        reason,
        missed: None,
        message: event.kind.to_string(),
    }
}

/// Tells a slow reader how many events it has missed.
pub fn missed(count: u64, at: SystemTime) -> Happening {
    Happening {
        time: stamp(at),
        event: "missed".to_owned(),
        tunnel: String::new(),
        child: None,
        peer: None,
        suite: None,
        failure: None,
        reason: None,
        missed: Some(count),
        message: format!("{count} events missed: they came faster than they were read"),
    }
}

fn stamp(at: SystemTime) -> String {
    humantime::format_rfc3339_millis(at).to_string()
}

/// Stable name of a kind of event, for logs.
pub fn event_name(event: &Event) -> &'static str {
    match event.kind {
        EventKind::Negotiating { .. } => "negotiating",
        EventKind::Established { .. } => "established",
        EventKind::Rekeyed { .. } => "rekeyed",
        EventKind::Failed(_) => "failed",
        EventKind::Closed { .. } => "closed",
        EventKind::TurnedAway(_) => "turned_away",
        EventKind::Moved { .. } => "moved",
        EventKind::Readdressed { .. } => "readdressed",
        EventKind::Restored(_) => "restored",
        EventKind::Warning(_) => "warning",
        _ => "other",
    }
}
