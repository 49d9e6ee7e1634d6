//! The log: what is written of the engine's events, and how the level is changed while the daemon runs.

use crate::config::{BadLevel, Log, LogFormat, LogLevel};
use crate::view::event_name;
use ike::event::{Event, EventKind};
use nix::sys::stat::{FileStat as Stat, fstat};
use std::io::{self, IsTerminal};
use std::sync::{Arc, Mutex, PoisonError};
use tracing::{Subscriber, info, warn};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::{LookupSpan, Registry};
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;
use vpn::Events;

/// Changes the log level of a running daemon; clones change the same one.
#[derive(Clone)]
pub struct LevelControl {
    set: Arc<dyn Fn(Targets) + Send + Sync>,
    current: Arc<Mutex<String>>,
}

impl LevelControl {
    /// Changes the level.
    ///
    /// # Errors
    /// Where the text is no level; the old one stays.
    pub fn set(&self, level: &str) -> Result<(), BadLevel> {
        let level: LogLevel = level.parse()?;
        (self.set)(level.targets());
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = level.to_string();
        info!(%level, "log level changed");
        Ok(())
    }

    /// The level in force.
    pub fn current(&self) -> String {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Starts to log to standard error for the whole process. Where a log is running already (an embedder's, a test's),
/// that one stays.
pub fn start(log: &Log) -> LevelControl {
    let colour = io::stderr().is_terminal() && console::colors_enabled_stderr();
    let style = Style { colour, time: !is_journal() };
    let (subscriber, levels) = subscriber(log, style, io::stderr);
    let _ = subscriber.try_init();
    levels
}

/// How a log for people looks.
#[derive(Clone, Copy)]
struct Style {
    colour: bool,
    time: bool,
}

/// Returns `true` if standard error is the journal of systemd, which notes the time of each line itself.
fn is_journal() -> bool {
    let named = std::env::var("JOURNAL_STREAM").ok();
    named.zip(fstat(io::stderr()).ok()).is_some_and(|(named, stat)| is_stream(&named, &stat))
}

/// Returns `true` if the text, a device and an inode, names the file of this status (systemd.exec(5)).
fn is_stream(named: &str, stat: &Stat) -> bool {
    named == format!("{}:{}", stat.st_dev, stat.st_ino)
}

/// Returns `true` if the log goes to the file, terminal or journal that is standard output as well.
pub(super) fn shares_standard_output() -> bool {
    let same = |a: Stat, b: Stat| (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino);
    fstat(io::stdout()).ok().zip(fstat(io::stderr()).ok()).is_some_and(|(a, b)| same(a, b))
}

/// Builds the log with its lever.
fn subscriber<W>(
    log: &Log,
    style: Style,
    writer: W,
) -> (impl Subscriber + Send + Sync + use<W>, LevelControl)
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let (filter, handle) = reload::Layer::new(log.level.targets());
    let lines = lines(log.format, style, writer);
    let set = move |targets| {
        // It fails only once the log itself is gone.
        let _ = handle.reload(targets);
    };
    let current = Arc::new(Mutex::new(log.level.to_string()));
    let levels = LevelControl { set: Arc::new(set), current };
    (Registry::default().with(filter).with(lines), levels)
}

fn lines<S, W>(format: LogFormat, style: Style, writer: W) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let layer = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(style.colour);
    match format {
        LogFormat::Human if style.time => layer.with_target(false).boxed(),
        LogFormat::Human => layer.with_target(false).without_time().boxed(),
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    }
}

/// Writes every event of the engine to the log until the engine is gone.
pub async fn follow(mut events: Events, format: LogFormat) {
    let mut before = None;
    while let Some(event) = events.recv().await {
        let count = events.missed();
        if count > 0 {
            warn!(count, "events came faster than the log took them");
        }
        match before.filter(|before| format == LogFormat::Human && repeats(before, &event)) {
            Some(_) => warn!("{}: failed for the same reason", event.tunnel),
            None => write(&event, format),
        }
        before = Some(event);
    }
}

/// Returns `true` if a tunnel has failed together with the phase 2 tunnel of the event before, which told the reason.
fn repeats(before: &Event, event: &Event) -> bool {
    let (EventKind::Failed(told), EventKind::Failed(failure)) = (&before.kind, &event.kind) else {
        return false;
    };
    told == failure
        && before.tunnel == event.tunnel
        && before.child.is_some()
        && event.child.is_none()
}

/// Writes an event. For people its sentence says everything, also at the level `debug`; in JSON the fields follow.
fn write(event: &Event, format: LogFormat) {
    if format == LogFormat::Human {
        let sentence = sentence(event);
        return match &event.kind {
            EventKind::Failed(_)
            | EventKind::TurnedAway(_)
            | EventKind::Restored(_)
            | EventKind::Warning(_) => warn!("{sentence}"),
            _ => info!("{sentence}"),
        };
    }
    let (tunnel, child) = (event.tunnel.as_str(), event.child.as_deref());
    let peer = event.peer.map(|peer| peer.to_string());
    let (peer, kind) = (peer.as_deref(), event_name(event));
    match &event.kind {
        EventKind::Failed(failure) | EventKind::TurnedAway(failure) => {
            warn!(tunnel, child, peer, event = kind, failure = failure.kind.name(), "{event}");
        }
        EventKind::Restored(_) | EventKind::Warning(_) => {
            warn!(tunnel, child, peer, event = kind, "{event}");
        }
        EventKind::Established { suite } | EventKind::Rekeyed { suite } => {
            info!(tunnel, child, peer, event = kind, suite = suite.to_string(), "{event}");
        }
        EventKind::Closed { reason } => {
            info!(tunnel, child, peer, event = kind, reason = reason.to_string(), "{event}")
        }
        _ => info!(tunnel, child, peer, event = kind, "{event}"),
    }
}

/// The event in words, with the peer's address, unless that is among them.
fn sentence(event: &Event) -> String {
    let text = event.to_string();
    match event.peer {
        Some(peer) if !text.contains(&peer.ip().to_string()) => {
            let at = if peer.port() == 500 { peer.ip().to_string() } else { peer.to_string() };
            format!("{text} (peer {at})")
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ike::event::Negotiated;
    use ike::failure::{Failure, FailureKind};
    use ike::negotiation::suite::IkeSuite;
    use policy::{Group, IkeEncryption, KeyBits, Prf};
    use serde_json::Value;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Buffer {
        fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no test panics while writing").extend_from_slice(octets);
            Ok(octets.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    const TIMED: Style = Style { colour: false, time: true };

    fn logged(format: LogFormat, f: impl FnOnce(&LevelControl)) -> String {
        styled(format, TIMED, f)
    }

    fn styled(format: LogFormat, style: Style, f: impl FnOnce(&LevelControl)) -> String {
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let log = Log { format, ..Log::default() };
        let (subscriber, levels) = subscriber(&log, style, move || writer.clone());
        tracing::subscriber::with_default(subscriber, || f(&levels));
        let octets = buffer.0.lock().expect("no test panics while writing").clone();
        String::from_utf8(octets).expect("the log is text")
    }

    const SUITE: &str = "AES-GCM-16-256/PRF-HMAC-SHA2-256/CURVE25519";

    fn suite() -> Negotiated {
        let cipher = IkeEncryption::AesGcm16(KeyBits::B256);
        Negotiated::Ike(IkeSuite::new(cipher, None, Prf::HmacSha2_256, Group::Curve25519))
    }

    fn event(child: Option<&str>, kind: EventKind) -> Event {
        let mut event = Event::new("gw \"quoted\"\n\u{1b}[31m", kind);
        event.child = child.map(str::to_owned);
        event
    }

    #[test]
    fn json_lines_are_valid_and_hold_tunnel_and_child() {
        let detail = "the peer's \"key\"\nor identity differs".to_owned();
        let failure = Failure::new(FailureKind::AuthenticationFailed, detail);
        let text = logged(LogFormat::Json, |_| {
            write(&event(None, EventKind::Failed(failure)), LogFormat::Json);
            write(&event(Some("lan"), EventKind::Rekeyed { suite: suite() }), LogFormat::Json);
        });
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("every line is one object"))
            .collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0]["level"], "WARN");
        assert_eq!(lines[0]["tunnel"], "gw \"quoted\"\n\u{1b}[31m");
        assert_eq!(lines[0]["failure"], "authentication_failed");
        assert!(lines[0].get("child").is_none());
        assert_eq!(lines[1]["level"], "INFO");
        assert_eq!(lines[1]["child"], "lan");
        assert_eq!(lines[1]["event"], "rekeyed");
        assert_eq!(lines[1]["suite"], SUITE);
    }

    #[test]
    fn the_journal_notes_the_time_itself() {
        let journal = Style { time: false, ..TIMED };
        let warn = |format, style| styled(format, style, |_| warn!("something"));
        assert_eq!(warn(LogFormat::Human, journal).trim(), "WARN something");
        assert!(warn(LogFormat::Human, TIMED).ends_with("Z  WARN something\n"));
        assert!(warn(LogFormat::Json, journal).contains("timestamp"), "fields are for programs");
    }

    #[test]
    fn the_journal_is_known_by_its_file() {
        let file = std::fs::File::open("/dev/null").expect("there");
        let stat = fstat(&file).expect("open");
        assert!(is_stream(&format!("{}:{}", stat.st_dev, stat.st_ino), &stat));
        assert!(!is_stream(&format!("{}:{}", stat.st_dev, stat.st_ino + 1), &stat));
        assert!(!is_stream("", &stat));
    }

    #[test]
    fn human_lines_carry_no_escape_sequences_of_a_peer() {
        let text = logged(LogFormat::Human, |_| {
            let warning = EventKind::Warning("\u{1b}]0;owned\u{7}".to_owned());
            write(&event(None, warning), LogFormat::Human);
        });
        assert!(text.contains("WARN"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }

    #[test]
    fn human_lines_say_everything_once_with_the_peers_address() {
        let mut rekeyed = event(Some("lan"), EventKind::Rekeyed { suite: suite() });
        rekeyed.peer = Some(([192, 0, 2, 2], 4500).into());
        let from = ([192, 0, 2, 2], 500).into();
        let to = ([192, 0, 2, 3], 500).into();
        let mut moved = event(None, EventKind::Moved { from, to });
        moved.peer = Some(to);
        let text = logged(LogFormat::Human, |levels| {
            write(&rekeyed, LogFormat::Human);
            write(&moved, LogFormat::Human);
            levels.set("debug").expect("a level");
            write(&rekeyed, LogFormat::Human);
        });
        let lines: Vec<&str> = text.lines().filter(|line| line.contains("lan")).collect();
        assert_eq!(lines.len(), 2, "{text}");
        for line in lines {
            assert_eq!(line.matches(SUITE).count(), 1, "{text}");
            assert!(line.ends_with(" (peer 192.0.2.2:4500)") && !line.contains('='), "{text}");
        }
        assert_eq!(text.matches("192.0.2.3").count(), 1, "{text}");
    }

    #[test]
    fn a_reason_is_told_once_for_both_phases() {
        let failed = |detail: &str| {
            EventKind::Failed(Failure::new(FailureKind::NoAnswer, detail.to_owned()))
        };
        let (child, both) = (event(Some("lan"), failed("7 sent")), event(None, failed("7 sent")));
        assert!(repeats(&child, &both));
        assert!(!repeats(&both, &child) && !repeats(&both, &both));
        assert!(!repeats(&child, &event(None, failed("3 sent"))));
        assert!(!repeats(&event(Some("lan"), EventKind::Warning("w".to_owned())), &both));
    }

    #[test]
    fn the_level_changes_while_running_and_a_bad_one_changes_nothing() {
        let text = logged(LogFormat::Human, |levels| {
            tracing::debug!("one");
            levels.set("debug").expect("a level");
            tracing::debug!("two");
            levels.set("loud").expect_err("no level");
            assert_eq!(levels.current(), "debug");
            tracing::debug!("three");
            levels.set("error").expect("a level");
            tracing::warn!("four");
        });
        let seen = ["one", "two", "three", "four"].map(|word| text.contains(word));
        assert_eq!(seen, [false, true, true, false], "{text}");
    }
}
