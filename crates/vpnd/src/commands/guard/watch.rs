//! `vpnd guard --watch`: puts the guard back that other programs remove, for as long as it is held.

use crate::commands::Failure;
use crate::config::Log;
use crate::daemon::start_log;
use sd_notify::NotifyState;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{error, info, warn};
use vpn::guard::{Definition, Watch, Watched};

/// The pause after which a guard that could not be put back is tried again, and a release is noticed that changes no
/// table.
const PAUSE: Duration = Duration::from_secs(1);

/// Puts a guard in force and keeps it so until it is released, or a signal ends this process and leaves the guard.
/// `status` says what is guarded.
pub(super) fn watch(definition: Definition, log: &Log, status: &str) -> Result<ExitCode, Failure> {
    start_log(log);
    // A service manager shows one line.
    let status = status.lines().next().unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(Failure::other)?.block_on(run(definition, status))
}

/// Tells the service manager that has started this process, if there is one.
fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        warn!(%error, "cannot notify the service manager");
    }
}

async fn run(definition: Definition, status: &str) -> Result<ExitCode, Failure> {
    let [terminate, interrupt] = [SignalKind::terminate(), SignalKind::interrupt()]
        .map(|kind| signal(kind).map_err(Failure::other));
    let (mut terminate, mut interrupt) = (terminate?, interrupt?);
    let (told, mut notices) = mpsc::unbounded_channel();
    // Nobody listens any more when this process ends.
    let notice = Arc::new(move || _ = told.send(()));
    let mut watch = Watch::start(definition, notice).map_err(Failure::other)?;
    info!("{status}");
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
    let mut ticks = interval(PAUSE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut fault = None;
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = notices.recv() => {}
            _ = ticks.tick() => {}
        }
        let looked = watch.look();
        let now = looked.as_ref().err().map(ToString::to_string);
        if now != fault {
            match &now {
                Some(why) => {
                    error!("NOTHING GUARDS THE TUNNELS: the guard cannot be put back: {why}")
                }
                None => info!("the guard is in force again"),
            }
            let shown = now.as_ref().map_or_else(
                || status.to_owned(),
                |why| format!("the guard cannot be put back: {why}"),
            );
            tell(&[NotifyState::Status(&shown)]);
            fault = now;
        }
        match looked {
            Ok(Watched::PutBack) => {
                warn!("another program had removed or changed the guard; it is put back");
            }
            Ok(Watched::Released) => {
                info!("the guard is released");
                return Ok(ExitCode::SUCCESS);
            }
            Ok(Watched::Ended) => {
                return Err(Failure::Other("changes of nftables are no longer told".into()));
            }
            _ => {}
        }
    }
    info!("stopped; the guard stays in force; to release it: vpnd release");
    Ok(ExitCode::SUCCESS)
}
