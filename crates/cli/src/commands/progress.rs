//! Waiting for tunnels: the progress on standard error, the patience of the operator, and Ctrl-C.

use super::session::{Failure, Session};
use clap::Args;
use console::Term;
use control::client::Client;
use control::protocol::{Command as Ask, Explanation, Reply, Tunnel};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use terminal::report::{duration, plain};

/// Exit status of a command that gave up waiting.
const GAVE_UP: u8 = 4;
/// Exit status of a command that Ctrl-C ended, as shells have it.
const INTERRUPTED: u8 = 130;
/// Pause between two looks at the progress, and the time that vpnd has to tell it.
const LOOK: Duration = Duration::from_secs(1);
/// The time that vpnd has for an answer that it has begun.
const ANSWER: Duration = Duration::from_secs(10);

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

impl Patience {
    /// Asks the daemon, and shows meanwhile how these tunnels are; none: all.
    ///
    /// # Errors
    /// As [`ClientError`](control::client::ClientError).
    pub fn wait(self, session: &Session, ask: Ask, names: &[String]) -> Result<Waited, Failure> {
        let began = Instant::now();
        let interrupts = hear_interrupts();
        // The daemon answers one command of a connection after the other: the progress is asked for on others.
        let mut asking = Client::connect(&session.control)?;
        let sent = asking.send(ask)?;
        let patience = self.timeout.map(Duration::from_secs);
        let mut shown = Shown::default();
        loop {
            let left = patience.map(|patience| patience.saturating_sub(began.elapsed()));
            let limit = left.map_or(LOOK, |left| left.min(LOOK));
            match first(&asking, interrupts.as_ref(), limit)
                .map_err(|e| Failure::Other(e.into()))?
            {
                Heard::Answer => {
                    shown.clear();
                    asking.set_timeout(ANSWER).map_err(|e| Failure::Other(e.into()))?;
                    return Ok(Waited::Answered(asking.receive(sent)?));
                }
                Heard::Interrupt => {
                    shown.clear();
                    return Ok(Waited::Left("interrupted".into(), ExitCode::from(INTERRUPTED)));
                }
                Heard::Nothing if patience.is_some_and(|patience| began.elapsed() >= patience) => {
                    shown.clear();
                    let words = format!("not done after {}", duration(began.elapsed()));
                    return Ok(Waited::Left(words, ExitCode::from(GAVE_UP)));
                }
                // The rest of the operator's patience is shorter than the pause between two looks.
                Heard::Nothing if left.is_some_and(|left| left <= LOOK) => {}
                Heard::Nothing => {
                    let waited = Duration::from_secs(began.elapsed().as_secs());
                    shown.show(look(&session.control, names).as_deref(), waited);
                }
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Answer,
    Interrupt,
    /// Within the time limit.
    Nothing,
}

/// Waits up to `limit` for the daemon's answer or Ctrl-C. The answer wins.
fn first(asking: &Client, interrupts: Option<&SignalFd>, limit: Duration) -> io::Result<Heard> {
    let fds = std::iter::once(asking.as_fd()).chain(interrupts.map(AsFd::as_fd));
    let mut fds: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    let limit = Timespec::try_from(limit).map_err(io::Error::other)?;
    match poll(&mut fds, Some(&limit)) {
        Ok(_) => {}
        // By a signal that ends nothing, such as SIGWINCH.
        Err(Errno::INTR) => return Ok(Heard::Nothing),
        Err(error) => return Err(error.into()),
    }
    Ok(match fds.iter().position(|fd| !fd.revents().is_empty()) {
        Some(0) => Heard::Answer,
        Some(_) => Heard::Interrupt,
        None => Heard::Nothing,
    })
}

/// From now on Ctrl-C does not end the process, but makes the returned descriptor readable. `None`: the system refuses
/// that, and Ctrl-C ends the process as before.
fn hear_interrupts() -> Option<SignalFd> {
    let interrupt = SigSet::from(Signal::SIGINT);
    let pending = SignalFd::with_flags(&interrupt, SfdFlags::SFD_CLOEXEC).ok()?;
    interrupt.thread_block().is_ok().then_some(pending)
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

/// The state of the tunnel that is waited for, in one line; nothing if the daemon does not tell in time.
fn look(control: &Path, names: &[String]) -> Option<String> {
    let mut client = Client::connect(control).ok()?;
    client.set_timeout(LOOK).ok()?;
    let name = match names {
        [name] => name.clone(),
        _ => first_under_way(&client.tunnels(false).ok()?)?,
    };
    match client.ask(Ask::Why { name }) {
        Ok(Reply::Why(explanation)) => Some(progress(&explanation)),
        _ => None,
    }
}

fn first_under_way(tunnels: &[Tunnel]) -> Option<String> {
    let found = tunnels
        .iter()
        .find(|t| is_under_way(&t.state) || t.children.iter().any(|c| is_under_way(&c.state)));
    found.map(|tunnel| tunnel.name.clone())
}

fn is_under_way(state: &str) -> bool {
    matches!(state, "negotiating" | "closing")
}

/// The progress of a tunnel, in a few words.
fn progress(explanation: &Explanation) -> String {
    let mut all = std::iter::once(explanation).chain(&explanation.children);
    let sent = all.find_map(|e| Some((e, e.waits.as_ref()?.sent.as_ref()?)));
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
