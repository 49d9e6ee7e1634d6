//! The explanation of a tunnel's state as the control protocol has it. The causes, the comparisons and the cures are those
//! of the crate `diagnosis`.

use control::protocol::{
    Defined, Down, ExplainedFailure, Explanation, Renewal, Row, Sent, Unanswered, Waits,
};
use diagnosis::{Cure, Element, Explained, Tunnel};
use ike::status::{self, Ended, IkeStatus, Next, PastFailure};
use policy::xml::Definitions;
use std::time::{Duration, SystemTime};
use terminal::report::since::clock;

/// Explains a phase 1 tunnel with its phase 2 tunnels, or with the one of that name only. `now` is the time of the
/// status.
pub fn explain(
    status: &IkeStatus,
    only: Option<&str>,
    definitions: &Definitions,
    now: SystemTime,
) -> Explanation {
    tunnel(diagnosis::tunnel::explain(status, only, definitions), 1, now)
}

fn tunnel(explained: Tunnel, phase: u8, now: SystemTime) -> Explanation {
    let [failures, turned_away] = [explained.failures, explained.turned_away]
        .map(|failures| failures.into_iter().map(|failure| failed(failure, now)).collect());
    Explanation {
        name: explained.name,
        phase,
        state: explained.state.name().to_owned(),
        up_seconds: explained.up_for.map(|up| up.as_secs()),
        up_since: explained.up_for.map(|up| stamp(now, up)),
        down: explained.ended.map(|ended| shown_end(ended, now)),
        fault: explained.fault,
        waits: explained.waits.map(shown_wait),
        unanswered: explained.unanswered.map(|request| shown_silence(request, now)),
        renewal: explained.renewal.and_then(renewal),
        failures,
        turned_away,
        defined: explained.elements.into_iter().map(defined).collect(),
        children: explained.children.into_iter().map(|child| tunnel(child, 2, now)).collect(),
        findings: Vec::new(),
    }
}

/// The moment so long ago, as RFC 3339 writes it.
fn stamp(now: SystemTime, ago: Duration) -> String {
    let at = now.checked_sub(ago).unwrap_or(SystemTime::UNIX_EPOCH);
    humantime::format_rfc3339_seconds(at).to_string()
}

fn texts(cures: Vec<Cure>) -> Vec<String> {
    cures.into_iter().map(|cure| cure.text).collect()
}

fn defined(element: Element) -> Defined {
    let Element { kind, name, file, line } = element;
    Defined { element: kind, name, file, line }
}

/// The end of a tunnel that was up.
pub(crate) fn down(ended: &Ended, tunnel: &str, now: SystemTime) -> Down {
    shown_end(diagnosis::tunnel::ended(ended, tunnel), now)
}

fn shown_end(ended: Explained<Ended>, now: SystemTime) -> Down {
    let (ago, explanation) = (ended.value.ago, ended.explanation);
    Down {
        reason: explanation.cause,
        seconds_ago: ago.as_secs(),
        since: stamp(now, ago),
        cure: texts(explanation.cures),
    }
}

/// A request that the peer has not answered yet.
pub(crate) fn unanswered(unanswered: &status::Unanswered, now: SystemTime) -> Unanswered {
    shown_silence(diagnosis::tunnel::unanswered(unanswered), now)
}

fn shown_silence(unanswered: Explained<status::Unanswered>, now: SystemTime) -> Unanswered {
    let (request, explanation) = (unanswered.value, unanswered.explanation);
    let given_up_at = stamp(now + request.given_up_in, Duration::ZERO);
    let until = clock(&given_up_at, request.given_up_in.as_secs());
    let parts = [vec![explanation.cause, format!("given up at {until}")], explanation.evidence];
    Unanswered {
        message: parts.concat().join("; "),
        sent: Some(Sent {
            request: request.silence.request,
            times: request.silence.sent,
            most: request.most,
        }),
        silent_seconds: request.silent_for.as_secs(),
        given_up_at,
        cure: texts(explanation.cures),
    }
}

fn renewal(renewal: Explained<status::Renewal>) -> Option<Renewal> {
    let attempt = match renewal.value {
        status::Renewal::Widened => "widened",
        status::Renewal::NewChildSa => "new_child_sa",
        status::Renewal::NewIkeSa => "new_ike_sa",
        status::Renewal::Again { .. } => "again",
        _ => return None,
    };
    Some(Renewal { attempt: attempt.to_owned(), message: renewal.explanation.cause })
}

/// The event that a tunnel waits for.
pub(crate) fn waits(next: &Next) -> Waits {
    shown_wait(diagnosis::tunnel::waits(next))
}

fn shown_wait(waits: Explained<Next>) -> Waits {
    let (what, within) = match &waits.value {
        Next::Answer { again_in, .. } => ("answer", *again_in),
        Next::Attempt { after, .. } => ("attempt", Some(*after)),
        Next::Packet => ("packet", None),
        Next::Command { .. } => ("command", None),
        Next::Family(_) => ("family", None),
        Next::Peer => ("peer", None),
        _ => ("other", None),
    };
    let sent = match waits.value {
        Next::Answer { request, sent, most, .. } => Some(Sent { request, times: sent, most }),
        _ => None,
    };
    Waits {
        what: what.to_owned(),
        message: waits.explanation.cause,
        seconds: within.map(|within| within.as_secs()),
        sent,
    }
}

fn failed(failed: Explained<PastFailure>, now: SystemTime) -> ExplainedFailure {
    let (past, explanation) = (failed.value, failed.explanation);
    let rows = explanation.comparison.into_iter();
    let comparison = rows.map(|diagnosis::Row { item, here, there, differs }| Row {
        item,
        here,
        there,
        differs,
    });
    ExplainedFailure {
        kind: past.failure.kind.name().to_owned(),
        message: explanation.cause,
        seconds_ago: past.ago.as_secs(),
        at: stamp(now, past.ago),
        overcome_at: past.overcome_ago.map(|ago| stamp(now, ago)),
        reloaded_at: past.outdated_ago.map(|ago| stamp(now, ago)),
        times: past.times,
        authenticated: !past.failure.unauthenticated,
        overcome: past.overcome,
        peer: past.peer,
        comparison: comparison.collect(),
        cure: texts(explanation.cures),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terminal::report::since::times;

    /// `diagnosis` knows no control protocol, and its sentences stand beside reports of `vpnctl`.
    #[test]
    fn numbers_in_causes_are_written_as_in_reports() {
        let millis =
            [0, 1, 999, 1000, 59_999, 60_000, 3_599_000, 3_660_000, 86_400_000, 95_000_000];
        for span in millis.map(Duration::from_millis) {
            assert_eq!(diagnosis::words::duration(span), terminal::report::duration(span));
        }
        for n in 1..5 {
            assert_eq!(diagnosis::words::times(n), times(n));
        }
    }
}
