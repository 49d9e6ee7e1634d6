//! The output of `vpnctl why` and `vpnctl events`.

use super::since::{self, clock, times};
use super::terminal::{self, width};
use super::{Colour, duration, plain};
use control::protocol::{ExplainedFailure, Explanation, FindingInfo, Happening, Row};
use std::borrow::Cow;
use std::fmt::Write;
use std::time::Duration;

/// An explanation of a tunnel's state, in words; with `all`, of failures that are history, too.
pub fn why(explanation: &Explanation, all: bool, colour: Colour) -> String {
    let mut text = String::new();
    subject(&mut text, explanation, "", all, colour);
    let (earlier, current): (Vec<&ExplainedFailure>, Vec<&ExplainedFailure>) =
        explanation.turned_away.iter().partition(|failure| {
            failure.reloaded_at.is_some()
                || explanation.up_seconds.is_some_and(|up| up < failure.seconds_ago)
        });
    let earlier = if all { earlier } else { Vec::new() };
    for failure in current.into_iter().chain(earlier) {
        let who = failure.peer.map_or_else(|| "somebody".to_owned(), |peer| peer.ip().to_string());
        let head =
            format!("turned away: {who}, who has not proved to be the peer; {}", when(failure));
        tell(&mut text, failure, &head, "  ", colour);
    }
    if let Some(name) = probed_as(explanation) {
        let hint = format!("do large packets vanish? vpnctl probe {name} tries sizes");
        wrapped(&mut text, "  ", "", &plain(&hint));
    }
    text
}

/// The name for a probe of a tunnel, if all of it is up and no fault is known.
fn probed_as(explanation: &Explanation) -> Option<&str> {
    let Explanation { name, unanswered, up_seconds, children, .. } = explanation;
    let up = up_seconds.is_some() && unanswered.is_none() && !children.is_empty();
    let passes = children.iter().all(|child| child.fault.is_none() && is_in_order(child));
    let name = if let [only] = &children[..] { &only.name } else { name };
    (up && passes).then_some(name)
}

fn subject(text: &mut String, explanation: &Explanation, indent: &str, all: bool, colour: Colour) {
    let Explanation { name, phase, state, fault, waits, failures, .. } = explanation;
    let unanswered = explanation.unanswered.as_ref();
    let head = format!("{}  phase {phase}, {}", colour.heading(&plain(name)), colour.state(state));
    wrapped(text, indent, &head, &plain(&since(explanation)));
    let deeper = format!("{indent}  ");
    if let Some(down) = explanation.down.as_ref().filter(|_| is_all(explanation)) {
        to_do(text, &down.cure, &deeper, colour);
    }
    match fault {
        Some(fault) => {
            let mut told = String::new();
            wrapped(&mut told, &deeper, "no packet passes: ", &plain(fault));
            // Writing to a String cannot fail, here and below.
            let _ = write!(text, "{}", colour.bad_lines(&told));
        }
        None if is_in_order(explanation) => {
            let _ = writeln!(text, "{deeper}no recent failure");
        }
        None => {}
    }
    let (earlier, current): (Vec<&ExplainedFailure>, Vec<&ExplainedFailure>) =
        failures.iter().partition(|failure| failure.overcome || failure.reloaded_at.is_some());
    if let Some(unanswered) = unanswered {
        let mut told = String::new();
        wrapped(&mut told, &deeper, "now: ", &plain(&unanswered.message));
        let _ = write!(text, "{}", colour.bad_lines(&told));
        // The last failure is often the same.
        if current.first().is_none_or(|failure| failure.cure != unanswered.cure) {
            to_do(text, &unanswered.cure, &format!("{deeper}  "), colour);
        }
    }
    for (n, failure) in current.into_iter().enumerate() {
        let head = match n {
            0 => format!("last failure: {}", when(failure)),
            _ => format!("before that: {}", when(failure)),
        };
        tell(text, failure, &head, &deeper, colour);
    }
    history(text, name, &earlier, &deeper, all, colour);
    if let Some(renewal) = &explanation.renewal {
        wrapped(text, &deeper, "renewal: ", &plain(&renewal.message));
    }
    for finding in &explanation.findings {
        found(text, finding, &deeper, colour);
    }
    if let Some(waits) = waits {
        wrapped(text, &deeper, "waits for ", &plain(&waits.message));
    }
    for child in &explanation.children {
        subject(text, child, "  ", all, colour);
    }
}

/// Returns `true` if a tunnel is up, and no fault of it is known.
fn is_in_order(explanation: &Explanation) -> bool {
    let Explanation { failures, findings, unanswered, up_seconds, .. } = explanation;
    failures.is_empty() && findings.is_empty() && unanswered.is_none() && up_seconds.is_some()
}

/// Returns `true` if the end of a tunnel is all that is known of it.
fn is_all(explanation: &Explanation) -> bool {
    let Explanation { phase, state, failures, turned_away, children, .. } = explanation;
    let failed = !failures.is_empty() || !turned_away.is_empty();
    *phase == 1
        && state == "down"
        && !failed
        && children.iter().all(|child| child.failures.is_empty())
}

fn to_do(text: &mut String, cures: &[String], indent: &str, colour: Colour) {
    if cures.is_empty() {
        return;
    }
    let _ = writeln!(text, "{indent}{}", colour.heading("to do"));
    for cure in cures {
        wrapped(text, indent, "- ", &plain(cure));
    }
}

/// How long a tunnel has been in its state, and why it is down.
fn since(explanation: &Explanation) -> String {
    let Explanation { state, up_seconds, up_since, down, .. } = explanation;
    let up = up_seconds.map(|up| (up, duration(Duration::from_secs(up))));
    match (up, up_since) {
        (Some((up, span)), Some(at)) => format!(" for {span}, since {}", clock(at, up)),
        (Some((_, span)), None) => format!(" for {span}"),
        (None, _) => since::behind(state, down.as_ref()),
    }
}

/// Failures from before the tunnel came up, or from before the last reload.
fn history(
    text: &mut String,
    name: &str,
    earlier: &[&ExplainedFailure],
    indent: &str,
    all: bool,
    colour: Colour,
) {
    let Some(latest) = earlier.first() else { return };
    if !all {
        let words = format!(
            "{}, {}; vpnctl why {name} --all shows {}",
            if earlier.len() == 1 {
                "1 earlier failure".to_owned()
            } else {
                format!("{} earlier failures", earlier.len())
            },
            mended(latest),
            if earlier.len() == 1 { "it" } else { "them" }
        );
        return wrapped(text, indent, "", &plain(&words));
    }
    for failure in earlier {
        let head = format!("{}: {}", mended(failure), when(failure));
        tell(text, failure, &head, indent, colour);
    }
}

/// The event that has made a failure history.
fn mended(failure: &ExplainedFailure) -> String {
    let (end, stamp) = match failure.overcome {
        true => ("the tunnel came up", &failure.overcome_at),
        false => ("the reload", &failure.reloaded_at),
    };
    match stamp {
        Some(at) => format!("before {end} at {}", clock(at, failure.seconds_ago)),
        None => format!("before {end}"),
    }
}

/// A reason why packets do not pass.
pub fn found(text: &mut String, finding: &FindingInfo, indent: &str, colour: Colour) {
    let mark = if finding.certain { "packets do not pass: " } else { "packets may not pass: " };
    let mut told = String::new();
    wrapped(&mut told, indent, mark, &plain(&finding.message));
    let _ = match finding.certain {
        true => write!(text, "{}", colour.bad_lines(&told)),
        false => write!(text, "{told}"),
    };
    to_do(text, &finding.cure, &format!("{indent}  "), colour);
}

fn when(failure: &ExplainedFailure) -> String {
    let ago = duration(Duration::from_secs(failure.seconds_ago));
    let at = match failure.at.as_str() {
        "" => String::new(),
        at => format!(", at {}", clock(at, failure.seconds_ago)),
    };
    match failure.times {
        1 => format!("{ago} ago{at}"),
        n => format!("{ago} ago{at}, {}", times(n)),
    }
}

fn tell(text: &mut String, failure: &ExplainedFailure, head: &str, indent: &str, colour: Colour) {
    let _ = writeln!(text, "{indent}{}", colour.faint(&plain(head)));
    let indent = &format!("{indent}  ");
    let message = plain(&failure.message);
    let mut told = String::new();
    wrapped(&mut told, indent, "", &message);
    let _ = write!(text, "{}", if failure.overcome { told } else { colour.bad_lines(&told) });
    compared(text, &failure.comparison, indent, colour);
    if !failure.authenticated && failure.peer.is_none() {
        let doubt = "the answer was not protected: anybody on the way could have sent it";
        wrapped(text, indent, "", doubt);
    }
    if !failure.overcome {
        to_do(text, &failure.cure, indent, colour);
    }
}

fn compared(text: &mut String, rows: &[Row], indent: &str, colour: Colour) {
    if rows.is_empty() {
        return;
    }
    let rows = rows.iter().map(|row| {
        let there = row.there.as_deref().map_or(Cow::Borrowed("not said"), plain);
        let cells = [plain(&row.item), plain(&row.here), there].map(Cow::into_owned);
        (cells, row.differs)
    });
    let rows: Vec<([String; 3], bool)> = rows.collect();
    let [first, second] = [0, 1].map(|column| {
        rows.iter().map(|(cells, _)| cells[column].chars().count()).max().unwrap_or(0)
    });
    let second = second.max("here".len());
    let head = format!("{indent}  {:first$}  {:second$}  there", "", "here");
    let _ = writeln!(text, "{}", colour.faint(&head));
    for ([item, here, there], differs) in &rows {
        let line = format!("{item:first$}  {here:second$}  {there}");
        let _ = match differs {
            true => writeln!(text, "{indent}{} {line}", colour.bad("≠")),
            false => writeln!(text, "{indent}  {line}"),
        };
    }
}

/// Appends words as lines of a readable width, behind a mark that may be coloured. The lines after the first are
/// indented by two columns more if there is a mark.
pub(super) fn wrapped(text: &mut String, indent: &str, mark: &str, words: &str) {
    let hanging = indent.len() + mark.len().min(2);
    terminal::wrapped(text, &format!("{indent}{mark}"), hanging, words, width());
}

/// One line of `vpnctl events`.
pub fn happening(happening: &Happening, colour: Colour) -> String {
    let Happening { time, event, tunnel, child, peer, message, .. } = happening;
    let name = match child {
        Some(child) => format!("{}/{}", plain(tunnel), plain(child)),
        None => plain(tunnel).into_owned(),
    };
    let message = plain(message);
    let message = match event.as_str() {
        "established" | "rekeyed" => colour.good(&message),
        "failed" | "closed" => colour.bad(&message),
        "warning" | "turned_away" | "missed" | "moved" => colour.notice(&message),
        _ => message.into_owned(),
    };
    let at =
        peer.map_or_else(String::new, |peer| format!(" {}", colour.faint(&format!("({peer})"))));
    let separator = if name.is_empty() { "" } else { ": " };
    format!("{}  {}{separator}{message}{at}", colour.faint(time), colour.heading(&name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use console::measure_text_width;
    use control::protocol::Down;

    fn explanation() -> Explanation {
        Explanation {
            name: "site".into(),
            phase: 1,
            state: "down".into(),
            up_seconds: None,
            up_since: None,
            down: Some(Down {
                reason: "deleted by the peer".into(),
                seconds_ago: 182,
                since: "2026-11-23T14:18:21Z".into(),
                cure: Vec::new(),
            }),
            fault: None,
            waits: None,
            unanswered: None,
            renewal: None,
            failures: Vec::new(),
            turned_away: Vec::new(),
            defined: Vec::new(),
            children: Vec::new(),
            findings: Vec::new(),
        }
    }

    fn failure(overcome_at: Option<&str>, reloaded_at: Option<&str>) -> ExplainedFailure {
        ExplainedFailure {
            kind: "refused".into(),
            message: "refused by the peer".into(),
            seconds_ago: 200,
            at: "2026-11-23T14:18:03Z".into(),
            overcome_at: overcome_at.map(str::to_owned),
            reloaded_at: reloaded_at.map(str::to_owned),
            times: 2,
            authenticated: true,
            overcome: overcome_at.is_some(),
            peer: None,
            comparison: Vec::new(),
            cure: Vec::new(),
        }
    }

    #[test]
    fn a_tunnel_that_went_down_says_why_and_since_when() {
        let mut down = explanation();
        let said = |e: &Explanation| why(e, false, Colour(false));
        assert_eq!(
            said(&down),
            "site  phase 1, down since 14:18:21 UTC (3m 2s): deleted by the peer\n"
        );
        down.state = "negotiating".into();
        assert!(said(&down).contains("negotiating; down since 14:18:21 UTC (3m 2s): deleted"));
        down.down.as_mut().expect("it is down").seconds_ago = 100_000;
        assert!(said(&down).contains("since 2026-11-23 14:18:21 UTC (1d 3h)"), "{}", said(&down));
    }

    #[test]
    fn a_long_reason_goes_on_below_the_head_line() {
        let mut down = explanation();
        down.name = "a-tunnel-with-a-longer-name".into();
        let ended = down.down.as_mut().expect("it is down");
        ended.reason = "taken down with vpnctl deactivate".into();
        ended.seconds_ago = 100_000;
        for colour in [false, true] {
            let said = why(&down, false, Colour(colour));
            let lines: Vec<_> = said.lines().collect();
            assert!(lines.iter().all(|line| measure_text_width(line) <= 100), "{said}");
            assert_eq!(lines.len(), 2, "{said}");
            assert_eq!(lines[1], "  vpnctl deactivate");
        }
    }

    #[test]
    fn the_way_to_renew_a_child_sa_is_told_behind_the_refusal() {
        let renewal = control::protocol::Renewal {
            attempt: "new_ike_sa".into(),
            message: "a new IKE SA is being set up".into(),
        };
        let failures = vec![failure(None, None)];
        let text = why(
            &Explanation { renewal: Some(renewal), failures, ..explanation() },
            false,
            Colour(false),
        );
        assert!(text.ends_with("\n  renewal: a new IKE SA is being set up\n"), "{text}");
    }

    #[test]
    fn failures_that_are_history_take_one_line_unless_all_are_wanted() {
        let came_up = Some("2026-11-23T14:18:10Z");
        let failures = vec![failure(None, None), failure(came_up, None), failure(came_up, None)];
        let down = Explanation { failures, ..explanation() };
        let short = why(&down, false, Colour(false));
        assert!(short.contains("  last failure: 3m 20s ago, at 14:18:03 UTC, twice\n"), "{short}");
        let line = "  2 earlier failures, before the tunnel came up at 14:18:10 UTC; vpnctl why site --all shows them\n";
        assert!(short.replace("\n  them", " them").contains(line), "{short}");
        assert_eq!(short.matches("refused by the peer").count(), 1);
        let all = why(&down, true, Colour(false));
        assert_eq!(all.matches("refused by the peer").count(), 3, "{all}");

        let failures = vec![failure(None, Some("2026-11-23T14:18:10Z"))];
        let reloaded = why(&Explanation { failures, ..explanation() }, false, Colour(false));
        let words = "1 earlier failure, before the reload at 14:18:10 UTC";
        assert!(reloaded.contains(words), "{reloaded}");
    }
}
