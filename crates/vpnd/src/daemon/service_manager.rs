//! Messages of the daemon to the service manager that has started it, if there is one: sd_notify(3).
//!
//! The helper has the socket. By a socket for datagrams, a process can reach every other one that it may write to, so
//! that the daemon has none. systemd listens to the main process of a service only (`NotifyAccess=main`): the daemon, which
//! systemd has started, names the helper as that before it is confined.

use super::helper;
use sd_notify::NotifyState;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use terminal::report::duration;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{error, info, warn};
use vpn::Gateway;

/// The variable that names the socket.
const NAME: &str = "NOTIFY_SOCKET";

/// The words that a service may say of itself: none that reaches other processes, as `MAINPID=` would.
const WORDS: [&str; 6] = ["READY", "RELOADING", "STOPPING", "STATUS", "MONOTONIC_USEC", "WATCHDOG"];

static MANAGER: OnceLock<UnixDatagram> = OnceLock::new();
static STOPPING: AtomicBool = AtomicBool::new(false);

/// Returns `true` if systemd has started this process, and wants to be told about it.
pub(super) fn has_started_this() -> bool {
    let started = std::env::var("SYSTEMD_EXEC_PID").ok();
    std::env::var_os(NAME).is_some() && started == Some(std::process::id().to_string())
}

/// Names another process as the main one of this service, which speaks for it from now on. The service ends with it.
pub(super) fn hand_over(process: u32) -> io::Result<()> {
    let Some(name) = std::env::var_os(NAME) else { return Ok(()) };
    socket(&name)?.send(format!("MAINPID={process}\n").as_bytes()).map(drop)
}

/// Returns `true` once the daemon has said that it stops: its end is none of a crash.
pub(super) fn is_stopping() -> bool {
    STOPPING.load(Ordering::Relaxed)
}

/// Connects this process to the service manager, if the environment names one. It is the one that tells it then.
pub(super) fn connect() -> io::Result<()> {
    if let Some(name) = std::env::var_os(NAME) {
        // Nobody connects twice.
        let _ = MANAGER.set(socket(&name)?);
    }
    Ok(())
}

fn socket(name: &OsStr) -> io::Result<UnixDatagram> {
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        path => SocketAddr::from_pathname(OsStr::from_bytes(path)),
    }?;
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    Ok(socket)
}

/// Tells the service manager.
pub(super) fn tell(state: &[NotifyState<'_>]) {
    if std::env::var_os(NAME).is_none() {
        return;
    }
    let mut text = String::new();
    for state in state {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{state}");
    }
    if let Err(error) = helper::tell(&text).unwrap_or_else(|| send(&text)) {
        warn!(%error, "cannot notify the service manager");
    }
}

/// Tells the service manager why the daemon ends, in one line.
pub(super) fn tell_failure(text: &str) {
    if std::env::var_os(NAME).is_none() {
        return;
    }
    let line = text.lines().next().unwrap_or_default();
    let state = format!("STATUS={line}\n");
    // Before there is a helper, this process speaks for itself. The text is in the log in any case.
    let _ = helper::tell(&state).unwrap_or_else(|| connect().and_then(|()| send(&state)));
}

/// Sends what this process or, if this is the helper, the daemon has to say.
pub(super) fn send(text: &str) -> io::Result<()> {
    let is_known = text
        .lines()
        .all(|line| line.split_once('=').is_some_and(|(word, _)| WORDS.contains(&word)));
    if !is_known {
        return Err(io::Error::other("no daemon says that"));
    }
    if text.lines().any(|line| line == "STOPPING=1") {
        STOPPING.store(true, Ordering::Relaxed);
    }
    MANAGER.get().map_or(Ok(()), |socket| socket.send(text.as_bytes()).map(drop))
}

/// Where the service manager watches the service (`WatchdogSec=`), tells it three times within its limit that the
/// engine and all workers answer. If one of them no longer does, the service manager ends the daemon and starts another
/// one.
pub(super) async fn be_watched(gateway: Gateway) {
    let Some(limit) = sd_notify::watchdog_enabled() else { return };
    let mut beats = interval((limit / 3).max(Duration::from_millis(1)));
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut were_silent = Vec::new();
    loop {
        beats.tick().await;
        if gateway.tunnels().families().await.is_err() {
            return;
        }
        let workers = gateway.workers().clone();
        // It waits for whoever changes the workers, and that for all of them.
        let silent = tokio::task::spawn_blocking(move || workers.roll_call()).await;
        let silent = silent.unwrap_or_default();
        if silent.is_empty() {
            tell(&[NotifyState::Watchdog]);
        }
        if silent != were_silent {
            match silent.as_slice() {
                [] => info!("all threads that carry packets answer again"),
                names => error!(
                    "the thread {} is stuck: it carries no packets and has not answered for {}; unless it goes on, the \
                     service manager (WatchdogSec=) ends vpnd and starts it again",
                    names.join(", "),
                    duration(limit / 3)
                ),
            }
            were_silent = silent;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_few_words_are_said() {
        for text in ["READY=1\nSTATUS=ready: 1 tunnel\n", "WATCHDOG=1\n"] {
            send(text).expect("nobody listens here");
        }
        for text in ["MAINPID=1\n", "READY=1\nFDSTORE=1\n", "READY\n"] {
            send(text).expect_err("it is not said");
        }
    }

    #[test]
    fn the_manager_listens_at_a_path_or_an_abstract_name() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("notify");
        let name = format!("vpnd-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("short");
        let managers = [UnixDatagram::bind(&path), UnixDatagram::bind_addr(&address)];
        let names = [path.into_os_string(), format!("@{name}").into()];
        for (manager, name) in managers.into_iter().zip(names) {
            socket(&name).expect("it listens").send(b"READY=1\n").expect("it listens");
            let mut text = [0; 16];
            let length = manager.expect("a free name").recv(&mut text).expect("it was told");
            assert_eq!(&text[..length], b"READY=1\n");
        }
    }
}
