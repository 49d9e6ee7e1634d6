//! The log: what is written of the engine's events, and how the level is changed while the daemon runs.

mod lines;

use super::journald::{self, Journal};
use crate::config::{BadLevel, Log, LogFormat, LogLevel, Targeted};
use crate::view::event_name;
use diagnosis::line;
use ike::event::{Event, EventKind, Negotiated};
use lines::Lines;
use nix::sys::stat::fstat;
use std::io::{self, IsTerminal};
use std::sync::{Arc, Mutex, PoisonError};
use tracing::{Subscriber, info, warn};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layered, SubscriberExt};
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

/// The form in which an event of the engine goes to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Its sentence.
    Sentence,
    /// Its sentence, and fields for systemd's journal.
    Journal,
    /// Fields for JSON.
    Json,
}

impl From<LogFormat> for Form {
    fn from(format: LogFormat) -> Self {
        match format {
            LogFormat::Human => Self::Sentence,
            LogFormat::Json => Self::Json,
        }
    }
}

/// The log of a daemon.
pub(super) struct Logging {
    /// Changes its level.
    pub levels: LevelControl,
    /// The form of the engine's events.
    pub form: Form,
    /// systemd's journal, where the log goes there with fields.
    pub journal: Option<Journal>,
}

/// Starts to log to standard error for the whole process. Where a log is running already (an embedder's, a test's),
/// that one stays.
pub fn start(log: &Log) -> LevelControl {
    let colour = io::stderr().is_terminal() && console::colors_enabled_stderr();
    let style = Style { colour, time: !journald::is_standard_error() };
    let (subscriber, levels) = subscriber(log, lines(log.format, style, io::stderr));
    let _ = subscriber.try_init();
    levels
}

/// The same for a daemon, which logs to systemd's journal with fields if standard error is the journal. Objects of JSON
/// have the fields in themselves: they go to standard error.
pub(super) fn start_daemon(log: &Log) -> Logging {
    let form = Form::from(log.format);
    // Without a journal at its place, standard error is what there is.
    let socket = journald::connect().ok().flatten().filter(|_| form == Form::Sentence);
    let Some(socket) = socket else {
        return Logging { levels: start(log), form, journal: None };
    };
    let journal = Journal::new(socket);
    let (subscriber, levels) = subscriber(log, journal.clone().boxed());
    let _ = subscriber.try_init();
    Logging { levels, form: Form::Journal, journal: Some(journal) }
}

/// How a log for people looks.
#[derive(Clone, Copy)]
struct Style {
    colour: bool,
    time: bool,
}

/// Returns `true` if the log goes to the file, terminal or journal that is standard output as well.
pub(super) fn shares_standard_output() -> bool {
    let both = fstat(io::stdout()).ok().zip(fstat(io::stderr()).ok());
    both.is_some_and(|(out, err)| (out.st_dev, out.st_ino) == (err.st_dev, err.st_ino))
}

/// The layers that an event of the log passes before the lines.
type Filtered = Layered<reload::Layer<Targets, Registry>, Registry>;

/// Builds the log with its lever.
fn subscriber(
    log: &Log,
    lines: Box<dyn Layer<Filtered> + Send + Sync>,
) -> (impl Subscriber + Send + Sync + use<>, LevelControl) {
    let (filter, handle) = reload::Layer::new(log.level.targets());
    let current = Arc::new(Mutex::new(log.level.to_string()));
    let levels = LevelControl {
        set: Arc::new(move |targets| {
            // It fails only once the log itself is gone.
            let _ = handle.reload(targets);
        }),
        current,
    };
    (Registry::default().with(filter).with(lines), levels)
}

fn lines<S, W>(format: LogFormat, style: Style, writer: W) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let layer = tracing_subscriber::fmt::layer().with_ansi(style.colour);
    match format {
        LogFormat::Human if style.time => {
            layer.with_writer(Lines(writer)).with_target(false).boxed()
        }
        LogFormat::Human => {
            layer.with_writer(Lines(writer)).with_target(false).without_time().boxed()
        }
        LogFormat::Json => layer.with_writer(writer).json().flatten_event(true).boxed(),
    }
}

/// Writes every event of the engine to the log until the engine is gone.
pub async fn follow(mut events: Events, form: Form) {
    let mut before = None;
    while let Some(event) = events.recv().await {
        let count = events.missed();
        if count > 0 {
            warn!(count, "events came faster than the log took them");
        }
        match before.filter(|before| form != Form::Json && repeats(before, &event)) {
            Some(_) => write_repetition(&event, form),
            None => write(&event, form),
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

/// Writes that a tunnel has failed as its phase 2 tunnel has.
fn write_repetition(event: &Event, form: Form) {
    let tunnel = event.tunnel.as_str();
    match form {
        Form::Journal => {
            let peer = event.peer.map(|peer| peer.to_string());
            let (peer, kind) = (peer.as_deref(), event_name(event));
            warn!(tunnel, peer, event = kind, "{tunnel}: failed for the same reason");
        }
        Form::Sentence | Form::Json => warn!("{tunnel}: failed for the same reason"),
    }
}

/// Writes an event. For people its sentence says everything, also at the level `debug`; in JSON the fields follow.
fn write(event: &Event, form: Form) {
    match form {
        Form::Sentence => write_sentence(event),
        Form::Journal => write_for_journal(event),
        Form::Json => write_fields(event),
    }
}

/// Returns `true` if an event is a warning.
fn is_warning(event: &Event) -> bool {
    matches!(
        event.kind,
        EventKind::Failed(_)
            | EventKind::TurnedAway(_)
            | EventKind::Restored(_)
            | EventKind::Warning(_)
            | EventKind::Unprotected(_)
    )
}

fn write_sentence(event: &Event) {
    let sentence = sentence(event);
    match is_warning(event) {
        true => warn!("{sentence}"),
        false => info!("{sentence}"),
    }
}

fn write_for_journal(event: &Event) {
    let (tunnel, child) = (event.tunnel.as_str(), event.child.as_deref());
    let peer = event.peer.map(|peer| peer.to_string());
    let (peer, kind) = (peer.as_deref(), event_name(event));
    let spis = match &event.kind {
        EventKind::Established { suite } | EventKind::Rekeyed { suite } => match suite {
            Negotiated::Child { inbound_spi, outbound_spi, .. } => {
                Some((inbound_spi.to_string(), outbound_spi.to_string()))
            }
            _ => None,
        },
        _ => None,
    };
    let (spi_in, spi_out) = spis.unzip();
    let (spi_in, spi_out) = (spi_in.as_deref(), spi_out.as_deref());
    let sentence = sentence(event);
    match is_warning(event) {
        true => warn!(tunnel, child, peer, event = kind, spi_in, spi_out, "{sentence}"),
        false => info!(tunnel, child, peer, event = kind, spi_in, spi_out, "{sentence}"),
    }
}

fn write_fields(event: &Event) {
    let (tunnel, child) = (event.tunnel.as_str(), event.child.as_deref());
    let peer = event.peer.map(|peer| peer.to_string());
    let (peer, kind) = (peer.as_deref(), event_name(event));
    let told = line::event(event);
    match &event.kind {
        EventKind::Failed(failure) | EventKind::TurnedAway(failure) => {
            warn!(tunnel, child, peer, event = kind, failure = failure.kind.name(), "{told}");
        }
        EventKind::Restored(_) | EventKind::Warning(_) | EventKind::Unprotected(_) => {
            warn!(tunnel, child, peer, event = kind, "{told}");
        }
        EventKind::Established { suite } | EventKind::Rekeyed { suite } => {
            info!(tunnel, child, peer, event = kind, suite = suite.to_string(), "{told}");
        }
        EventKind::Closed { reason } => {
            info!(tunnel, child, peer, event = kind, reason = reason.to_string(), "{told}")
        }
        _ => info!(tunnel, child, peer, event = kind, "{told}"),
    }
}

/// The event in words, with the peer's address, unless that is among them.
fn sentence(event: &Event) -> String {
    let text = line::event(event);
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
        let lines = lines(log.format, style, move || writer.clone());
        let (subscriber, levels) = subscriber(&log, lines);
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
            write(&event(None, EventKind::Failed(failure)), Form::Json);
            write(&event(Some("lan"), EventKind::Rekeyed { suite: suite() }), Form::Json);
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
    fn human_lines_carry_no_escape_sequences_of_a_peer() {
        let text = logged(LogFormat::Human, |_| {
            let warning = EventKind::Warning("\u{1b}]0;owned\u{7}".to_owned());
            write(&event(None, warning), Form::Sentence);
        });
        assert!(text.contains("WARN"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }

    #[test]
    fn human_lines_begin_with_no_text_of_a_client() {
        let text = logged(LogFormat::Human, |_| {
            warn!("db\n2031-01-01T00:00:00.000000Z  INFO site: up: not covered");
        });
        assert_eq!(text.lines().filter(|line| !line.starts_with("    | ")).count(), 1, "{text}");
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
            write(&rekeyed, Form::Sentence);
            write(&moved, Form::Sentence);
            levels.set("debug").expect("a level");
            write(&rekeyed, Form::Sentence);
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
