//! The output of `vpnctl why` and `vpnctl events`.

use super::{Colour, duration, plain};
use crate::why::times;
use control::protocol::{Explanation, FindingInfo, Happening, Row, Story};
use std::fmt::Write;
use std::time::Duration;

/// Columns of what is wrapped.
const WIDTH: usize = 100;

/// An explanation of a tunnel's state, in words.
pub fn why(explanation: &Explanation, colour: Colour) -> String {
    let mut text = String::new();
    subject(&mut text, explanation, "", colour);
    for story in &explanation.turned_away {
        let who = story.peer.map_or_else(|| "somebody".to_owned(), |peer| peer.ip().to_string());
        let head =
            format!("turned away: {who}, who has not proved to be the peer; {}", when(story));
        tell(&mut text, story, &head, "  ", colour);
    }
    text
}

fn subject(text: &mut String, explanation: &Explanation, indent: &str, colour: Colour) {
    let Explanation { name, phase, state, up_seconds, fault, waits, failures, .. } = explanation;
    let up = up_seconds
        .map(|s| format!(" for {}", duration(Duration::from_secs(s))))
        .unwrap_or_default();
    // Writing to a String cannot fail, here and below.
    let _ = writeln!(
        text,
        "{indent}{}  phase {phase}, {}{up}",
        colour.heading(&plain(name)),
        colour.state(state)
    );
    let deeper = format!("{indent}  ");
    match fault {
        Some(fault) => {
            let mut told = String::new();
            wrapped(&mut told, &deeper, "no packet passes: ", &plain(fault));
            let _ = write!(text, "{}", colour.bad_lines(&told));
        }
        None if failures.is_empty() && up_seconds.is_some() && explanation.findings.is_empty() => {
            let _ = writeln!(text, "{deeper}no recent failure");
        }
        None => {}
    }
    for (n, story) in failures.iter().enumerate() {
        let head = match (story.overcome, n) {
            (true, _) => format!("overcome, it has been up since: {}", when(story)),
            (false, 0) => format!("last failure: {}", when(story)),
            (false, _) => format!("before that: {}", when(story)),
        };
        tell(text, story, &head, &deeper, colour);
    }
    for finding in &explanation.findings {
        found(text, finding, &deeper, colour);
    }
    if let Some(waits) = waits {
        wrapped(text, &deeper, "waits for ", &plain(&waits.message));
    }
    for child in &explanation.children {
        subject(text, child, "  ", colour);
    }
}

/// A reason why packets do not pass.
pub(super) fn found(text: &mut String, finding: &FindingInfo, indent: &str, colour: Colour) {
    let mark = if finding.certain { "packets do not pass: " } else { "packets may not pass: " };
    let mut told = String::new();
    wrapped(&mut told, indent, mark, &plain(&finding.message));
    let _ = match finding.certain {
        true => write!(text, "{}", colour.bad_lines(&told)),
        false => write!(text, "{told}"),
    };
    if !finding.cure.is_empty() {
        let _ = writeln!(text, "{indent}  {}", colour.heading("to do"));
        for cure in &finding.cure {
            wrapped(text, &format!("{indent}  "), "- ", &plain(cure));
        }
    }
}

fn when(story: &Story) -> String {
    let ago = duration(Duration::from_secs(story.seconds_ago));
    match story.times {
        1 => format!("{ago} ago"),
        n => format!("{ago} ago, {}", times(n)),
    }
}

fn tell(text: &mut String, story: &Story, head: &str, indent: &str, colour: Colour) {
    let _ = writeln!(text, "{indent}{}", colour.faint(&plain(head)));
    let indent = &format!("{indent}  ");
    let message = plain(&story.message);
    let mut told = String::new();
    wrapped(&mut told, indent, "", &message);
    let _ = write!(text, "{}", if story.overcome { told } else { colour.bad_lines(&told) });
    compared(text, &story.comparison, indent, colour);
    if !story.authenticated && story.peer.is_none() {
        let doubt = "the answer was not protected: anybody on the way could have sent it";
        wrapped(text, indent, "", doubt);
    }
    if !story.overcome && !story.cure.is_empty() {
        let _ = writeln!(text, "{indent}{}", colour.heading("to do"));
        for cure in &story.cure {
            wrapped(text, indent, "- ", &plain(cure));
        }
    }
}

fn compared(text: &mut String, rows: &[Row], indent: &str, colour: Colour) {
    if rows.is_empty() {
        return;
    }
    let unknown = || "not said".to_owned();
    let cells = |row: &Row| {
        let there = row.there.as_ref().map_or_else(unknown, |t| plain(t).into_owned());
        [plain(&row.item).into_owned(), plain(&row.here).into_owned(), there]
    };
    let rows: Vec<([String; 3], bool)> = rows.iter().map(|r| (cells(r), r.differs)).collect();
    let width = |column: usize| {
        rows.iter().map(|(cells, _)| cells[column].chars().count()).max().unwrap_or(0)
    };
    let (first, second) = (width(0), width(1).max(4));
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

/// Appends words as lines of a readable width; those after the first are indented as far as `mark` reaches.
fn wrapped(text: &mut String, indent: &str, mark: &str, words: &str) {
    let hanging = " ".repeat(mark.len().min(2));
    let mut line = format!("{indent}{mark}");
    let mut empty = true;
    for word in words.split(' ') {
        if !empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            let _ = writeln!(text, "{}", line.trim_end());
            line = format!("{indent}{hanging}");
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    let _ = writeln!(text, "{}", line.trim_end());
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
