//! Waiting for tunnels: the progress on standard error, the patience of the operator, and Ctrl-C.

use super::session::{Failure, Session};
use crate::report::{duration, plain};
use clap::Args;
use console::Term;
use control::client::{Client, ClientError};
use control::protocol::{Command as Ask, Explanation, Reply, Tunnel};
use nix::sys::signal::{SigSet, Signal};
use std::io;
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Exit status of a command that gave up waiting.
const GAVE_UP: u8 = 4;
/// Exit status of a command that Ctrl-C ended, as shells have it.
const INTERRUPTED: u8 = 130;
/// Pause between two looks at the progress.
const LOOK: Duration = Duration::from_secs(1);

/// How long a command waits.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Patience {
    /// Returns once vpnd has begun
    #[arg(long)]
    pub no_wait: bool,
    /// Waits no longer than this; vpnd goes on. The exit status is 4 then
    #[arg(long, value_name = "SECONDS", conflicts_with = "no_wait")]
    pub timeout: Option<u64>,
}

/// The end of a wait.
#[allow(clippy::large_enum_variant, reason = "there is one at a time")]
pub enum Waited {
    /// The daemon has answered.
    Answered(Reply),
    /// The operator did not wait for the answer. The words say why; the status is to exit with.
    Left(String, ExitCode),
}

#[allow(clippy::large_enum_variant, reason = "there is one at a time")]
enum Heard {
    Answer(Result<Reply, ClientError>),
    Interrupt,
}

impl Patience {
    /// Asks the daemon on a connection of its own, and shows meanwhile how these tunnels are; none: all.
    ///
    /// # Errors
    /// As [`ClientError`].
    pub fn wait(
        self,
        session: &mut Session,
        ask: Ask,
        names: &[String],
    ) -> Result<Waited, Failure> {
        let began = Instant::now();
        let mut asking = Client::connect(&session.control)?;
        let (tell, told) = mpsc::channel();
        hear_interrupts(tell.clone());
        std::thread::spawn(move || {
            // Nobody hears it once the wait is over.
            let _ = tell.send(Heard::Answer(asking.ask(ask)));
        });
        let patience = self.timeout.map(Duration::from_secs);
        let mut shown = Shown::default();
        loop {
            let left = patience.map(|patience| patience.saturating_sub(began.elapsed()));
            match told.recv_timeout(left.map_or(LOOK, |left| left.min(LOOK))) {
                Ok(Heard::Answer(answer)) => {
                    shown.clear();
                    return Ok(Waited::Answered(answer?));
                }
                Ok(Heard::Interrupt) => {
                    shown.clear();
                    return Ok(Waited::Left("interrupted".into(), ExitCode::from(INTERRUPTED)));
                }
                Err(RecvTimeoutError::Timeout) if left.is_some_and(|left| left <= LOOK) => {
                    if patience.is_some_and(|patience| began.elapsed() >= patience) {
                        shown.clear();
                        let words = format!("not done after {}", duration(began.elapsed()));
                        return Ok(Waited::Left(words, ExitCode::from(GAVE_UP)));
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    let waited = Duration::from_secs(began.elapsed().as_secs());
                    shown.show(look(session, names).as_deref(), waited);
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let lost = io::Error::other("the thread that asks vpnd has ended");
                    return Err(Failure::Other(lost.into()));
                }
            }
        }
    }
}

/// Has Ctrl-C heard in place of ending the process. Threads that start later inherit that.
fn hear_interrupts(tell: mpsc::Sender<Heard>) {
    let mut interrupt = SigSet::empty();
    interrupt.add(Signal::SIGINT);
    // Where that is refused, Ctrl-C ends the process as before.
    if interrupt.thread_block().is_ok() {
        std::thread::spawn(move || {
            if interrupt.wait().is_ok() {
                let _ = tell.send(Heard::Interrupt);
            }
        });
    }
}

/// The advice with which a command that did not wait to the end leaves.
pub fn goes_on(names: &[String]) -> String {
    let (look, name) = match names {
        [name] => (format!("vpnctl why {}", plain(name)), plain(name).into_owned()),
        _ => ("vpnctl list, vpnctl why NAME".to_owned(), "NAME".to_owned()),
    };
    format!(
        "vpnd goes on trying\n  to see how far it is: {look}\n  to end it: vpnctl deactivate {name}"
    )
}

/// The state of the tunnel that is waited for, in one line; nothing if the daemon does not tell.
fn look(session: &mut Session, names: &[String]) -> Option<String> {
    let name = match names {
        [name] => name.clone(),
        _ => match session.ask(Ask::List { all: false }) {
            Ok(Reply::Tunnels(tunnels)) => first_under_way(&tunnels)?,
            _ => return None,
        },
    };
    match session.ask(Ask::Why { name }) {
        Ok(Reply::Why(explanation)) => Some(progress(&explanation)),
        _ => None,
    }
}

fn first_under_way(tunnels: &[Tunnel]) -> Option<String> {
    let under_way = |state: &str| matches!(state, "negotiating" | "closing");
    let found = tunnels
        .iter()
        .find(|t| under_way(&t.state) || t.children.iter().any(|c| under_way(&c.state)));
    found.map(|tunnel| tunnel.name.clone())
}

/// The progress of a tunnel, in a few words.
fn progress(explanation: &Explanation) -> String {
    let all = || std::iter::once(explanation).chain(&explanation.children);
    let sent = all().find_map(|e| Some((e, e.waits.as_ref()?.sent.as_ref()?)));
    match sent {
        Some((_, sent)) => {
            let (name, request) = (plain(&explanation.name), plain(&sent.request));
            format!("{name}: {request} sent {} of {} times", sent.times, sent.most)
        }
        None => format!("{}: {}", plain(&explanation.name), plain(&explanation.state)),
    }
}

/// The progress on standard error: one line that changes on a terminal, otherwise a line for each change.
#[derive(Default)]
struct Shown {
    last: Option<String>,
}

impl Shown {
    fn show(&mut self, text: Option<&str>, waited: Duration) {
        let Some(text) = text else { return };
        let terminal = Term::stderr();
        if terminal.is_term() {
            // Progress that cannot be shown is no failure.
            let _ = terminal.clear_line();
            let width = usize::from(terminal.size().1).saturating_sub(1);
            let line: String =
                format!("{text}, {}", duration(waited)).chars().take(width).collect();
            let _ = terminal.write_str(&line);
        } else if self.last.as_deref() != Some(text) {
            eprintln!("{text}");
        }
        self.last = Some(text.to_owned());
    }

    fn clear(&self) {
        let terminal = Term::stderr();
        if self.last.is_some() && terminal.is_term() {
            let _ = terminal.clear_line();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::protocol::{Sent, Waits};

    #[test]
    fn progress_names_the_request_and_how_often_it_was_sent() {
        let explanation: Explanation = serde_json::from_value(serde_json::json!({
            "name": "site", "phase": 1, "state": "negotiating", "up_seconds": null, "waits": null,
            "failures": [], "turned_away": [], "defined": [], "children": [],
        }))
        .expect("fields of an older vpnd");
        assert_eq!(progress(&explanation), "site: negotiating");
        let sent = Sent { request: "IKE_SA_INIT".into(), times: 3, most: 6 };
        let waits = Waits {
            what: "answer".into(),
            message: String::new(),
            seconds: None,
            sent: Some(sent),
        };
        let child = Explanation { name: "lan".into(), waits: Some(waits), ..explanation.clone() };
        let explanation = Explanation { children: vec![child], ..explanation };
        assert_eq!(progress(&explanation), "site: IKE_SA_INIT sent 3 of 6 times");
    }
}
