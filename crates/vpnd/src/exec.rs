//! A command whose only network are the tunnels: in namespaces of its own, with a TUN device that this process reads.
//!
//! ```text
//!  vpnd exec (host's network: IKE, ESP in UDP) ── socket: plan, device, start ──► vpnd exec --inside
//!      │  ▲                                                                          │ becomes the command
//!      └──┴──────────────── packets of the TUN device ◄────────────────────────────► command (own namespaces)
//! ```

mod inside;
mod names;
mod plan;
mod signals;

pub use inside::run as run_inside;

use self::plan::Plan;
use self::signals::{Forwarding, Signalled};
use crate::channel::{receive, send};
use crate::in_process::{self, OpenError};
use esp::queue::Coalesce;
use ike::CommandError;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::Arc;
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinHandle;
use tracing::warn;
use vpn::net::device::Tun;
use vpn::{Gateway, GatewayError, Selection};

/// The status if the command could not be started for a reason of this program.
pub const OWN_FAILURE: u8 = 125;

/// The options of `vpnd exec`.
#[derive(Clone, Debug)]
pub struct Options {
    /// The gateway.
    pub gateway: in_process::Options,
    /// Servers behind the tunnels that resolve names.
    pub name_servers: Vec<IpAddr>,
    /// The program and its arguments.
    pub command: Vec<OsString>,
}

/// The command could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The files, or the process itself.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The gateway.
    #[error("cannot start the gateway: {0}")]
    Gateway(#[from] vpn::StartError),
    /// An address is missing, or fits no tunnel.
    #[error("{0}")]
    Plan(String),
    /// The namespaces.
    #[error("{0}")]
    Namespaces(String),
    /// Something else of the system.
    #[error("cannot {what}: {source}")]
    System {
        /// The operation that failed.
        what: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// No tunnel is up.
    #[error("no tunnel is up, so that the command would have no network:{0}")]
    Tunnels(String),
    /// The engine.
    #[error(transparent)]
    Engine(#[from] GatewayError),
}

fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> ExecError {
    move |error| ExecError::System { what, source: error.into() }
}

/// Runs the command. Returns its status, or 128 and the number of the signal that ended it.
///
/// # Errors
/// As [`ExecError`]; the command has not run then.
pub fn run(options: &Options) -> Result<ExitCode, ExecError> {
    let umask = plan::umask();
    let opened = options.gateway.open()?;
    let addresses = &options.gateway.addresses;
    let plan = Plan::of(&opened.policy, addresses, &options.name_servers, umask);
    let plan = plan.map_err(ExecError::Plan)?;
    // First, so that the command has the mask of signals that this process was started with.
    let mut inside = Inside::start(&plan, &options.command)?;
    // From here on they wait, also for the threads of the runtime.
    let forwarding = Forwarding::begin().map_err(system("take over signals"))?;
    let runtime = in_process::runtime()?;
    let builder = opened.builder(&options.gateway);
    runtime.block_on(async {
        let (device, offloads) = inside.device()?;
        let device = Tun::new(device, offloads).map_err(system("read the tunnel's device"))?;
        let log = opened.log(&builder);
        let (gateway, network) = builder.packets_of(Arc::new(device)).start().await?;
        let outcome = inside.serve(&gateway, forwarding).await;
        gateway.stop().await;
        drop(network);
        let _ = log.await;
        outcome
    })
}

/// The answer of the process of the command, with the device.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Reply {
    /// The reason why there is no device.
    error: Option<String>,
    /// The protocols whose super-packets the device takes: TCP and UDP. `None`: its packets have no virtio headers.
    offloads: Option<[bool; 2]>,
}

/// The process that makes the namespaces, and then becomes the command.
struct Inside {
    /// Closed if the command is not to run.
    socket: Option<UnixStream>,
    child: Option<Child>,
    device: Option<(OwnedFd, Option<Coalesce>)>,
}

impl Inside {
    /// Has the process make its namespaces and the device.
    fn start(plan: &Plan, command: &[OsString]) -> Result<Self, ExecError> {
        let (socket, theirs) = UnixStream::pair().map_err(system("make a socket"))?;
        let child = Command::new("/proc/self/exe")
            .arg0("vpnd")
            .args(["exec", "--inside", "--"])
            .args(command)
            .stdin(OwnedFd::from(theirs))
            .spawn()
            .map_err(system("start this program again"))?;
        let mut inside = Self { socket: Some(socket), child: Some(child), device: None };
        inside.prepare(plan)?;
        Ok(inside)
    }

    fn prepare(&mut self, plan: &Plan) -> Result<(), ExecError> {
        let what = "talk to the process of the command";
        let Some(socket) = &self.socket else { return Ok(()) };
        send(socket, plan, Some(io::stdin().as_fd())).map_err(system(what))?;
        let (reply, device) = receive::<Reply>(socket).map_err(system(what))?;
        if let Some(error) = reply.error {
            return Err(ExecError::Namespaces(error));
        }
        let offloads = reply.offloads.map(|[tcp, udp]| Coalesce { tcp, udp });
        let device =
            device.ok_or_else(|| system(what)(io::Error::from(io::ErrorKind::InvalidData)))?;
        self.device = Some((device, offloads));
        Ok(())
    }

    fn device(&mut self) -> Result<(OwnedFd, Option<Coalesce>), ExecError> {
        self.device.take().ok_or_else(|| ExecError::Namespaces("there is no device".to_owned()))
    }

    /// Starts the tunnels and then the command, and waits for its end.
    async fn serve(
        &mut self,
        gateway: &Gateway,
        forwarding: Forwarding,
    ) -> Result<ExitCode, ExecError> {
        let process = Pid::from_child(self.child.as_ref().expect("it is taken once"));
        let process = pidfd_open(process, PidfdFlags::empty())
            .map_err(system("watch the process of the command"))?;
        let mut signals = forwarding.listen().map_err(system("listen for signals"))?;
        let mut child = self.child.take().expect("it is taken once");
        let mut ended = tokio::task::spawn_blocking(move || child.wait());
        let started = tokio::select! {
            started = start_tunnels(gateway) => started,
            signal = terminating(&mut signals) => {
                self.socket = None;
                let _ = ended.await;
                return Ok(ExitCode::from(128 + signal.number));
            }
            status = &mut ended => return status_of(status),
        };
        if let Err(error) = started {
            self.socket = None;
            let _ = ended.await;
            return Err(error);
        }
        let socket = self.socket.take().expect("it is taken once");
        send(&socket, &(), None).map_err(system("start the command"))?;
        drop(socket);
        forward(&process, &mut signals, ended).await
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.socket = None;
        if let Some(child) = &mut self.child {
            let _ = child.wait();
        }
    }
}

/// Starts every tunnel that this end may start. One that is up is enough: the first packet starts the others again.
async fn start_tunnels(gateway: &Gateway) -> Result<(), ExecError> {
    let started = match gateway.tunnels().activate(Selection::All).await {
        Err(GatewayError::Command(CommandError::NothingToStart(_))) => Vec::new(),
        outcome => outcome?,
    };
    let mut failures = String::new();
    for tunnel in &started {
        if let Err(failure) = &tunnel.outcome {
            let failure = diagnosis::line::failure(failure);
            failures.push_str(&format!("\n  {}: {failure}", tunnel.name));
        }
    }
    match started.is_empty() || started.iter().any(|tunnel| tunnel.outcome.is_ok()) {
        true if failures.is_empty() => Ok(()),
        true => {
            warn!("some tunnels are not up:{failures}");
            Ok(())
        }
        false => Err(ExecError::Tunnels(failures)),
    }
}

async fn terminating(signals: &mut Receiver<Signalled>) -> Signalled {
    loop {
        match signals.recv().await {
            Some(signal) if signal.terminates() => return signal,
            Some(_) => {}
            None => std::future::pending().await,
        }
    }
}

type Ended = JoinHandle<io::Result<ExitStatus>>;

/// Hands signals on until the command ends.
async fn forward(
    process: &OwnedFd,
    signals: &mut Receiver<Signalled>,
    mut ended: Ended,
) -> Result<ExitCode, ExecError> {
    loop {
        let signal = tokio::select! {
            status = &mut ended => return status_of(status),
            Some(signal) = signals.recv() => signal,
        };
        // The terminal has told the command itself: it is in the same group of processes.
        if !signal.from_terminal
            && let Some(signal) = Signal::from_named_raw(signal.number.into())
        {
            let _ = pidfd_send_signal(process, signal);
        }
    }
}

fn status_of(
    ended: Result<io::Result<ExitStatus>, tokio::task::JoinError>,
) -> Result<ExitCode, ExecError> {
    let ended = ended.map_err(io::Error::other).and_then(|outcome| outcome);
    let status = ended.map_err(system("wait for the command"))?;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    let code = code.and_then(|code| u8::try_from(code).ok()).unwrap_or(OWN_FAILURE);
    Ok(ExitCode::from(code))
}
