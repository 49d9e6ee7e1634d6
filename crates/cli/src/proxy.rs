//! A proxy into the tunnels, for programs of this host: SOCKS5, HTTP CONNECT and forwarded ports.

mod forward;
mod http;
mod socks;

pub use forward::Forward;

use crate::certificates::Keeper;
use crate::config::{Config, ConfigError, LogFormat};
use crate::daemon::{Signals, StartupError, logging, memory};
use crate::policy_file::{self, PolicyFileError};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, copy_bidirectional_with_sizes};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{debug, warn};
use vpn::net::{ConnectError, Network, TcpStream as Tunnelled};

/// Connections at the same time. Further ones wait until one ends.
const CONNECTIONS: usize = 4096;
/// The time that a client has to say where it wants to.
const PATIENCE: Duration = Duration::from_secs(30);
/// Octets that are copied at once.
const COPIED: usize = 64 << 10;
/// A listener that fails is asked again after this time.
const PAUSE: Duration = Duration::from_millis(100);
/// The port of DNS.
const DNS: u16 = 53;

/// The options of `vpnd proxy`.
#[derive(Clone, Debug)]
pub struct Options {
    /// The policy file.
    pub policy: PathBuf,
    /// Unknown names in it cause a warning, not an error.
    pub lenient: bool,
    /// The configuration file that was named.
    pub config: Option<PathBuf>,
    /// Where the proxy listens.
    pub listen: SocketAddr,
    /// Ports of this host that lead into the tunnels.
    pub local: Vec<Forward>,
    /// Ports in the tunnels that lead to this host's network.
    pub remote: Vec<Forward>,
    /// Addresses of this end in the tunnels.
    pub addresses: Vec<IpAddr>,
    /// Servers behind the tunnels that resolve names.
    pub name_servers: Vec<SocketAddr>,
    /// The form of the log; `None`: the configuration's.
    pub log_format: Option<LogFormat>,
    /// Stop when the parent process ends.
    pub exit_with_parent: bool,
}

/// The proxy could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// The configuration file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The policy file.
    #[error(transparent)]
    Policy(#[from] PolicyFileError),
    /// The process itself.
    #[error(transparent)]
    Startup(#[from] StartupError),
    /// The gateway.
    #[error("cannot start the gateway: {0}")]
    Gateway(#[from] vpn::StartError),
    /// The address is not one of this host alone.
    #[error(
        "{0} is not a loopback address: everybody who reaches it could use the tunnels; listen on 127.0.0.1 or [::1]"
    )]
    NotLoopback(SocketAddr),
    /// A port is taken, or is no port that this user may have.
    #[error("cannot listen on {what}: {source}")]
    Listen {
        /// The address and port.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The gateway has ended by itself.
    #[error("{0}")]
    Ended(vpn::Closed),
}

/// Reads `ADDRESS` or `ADDRESS:PORT`.
///
/// # Errors
/// If it is neither.
pub fn name_server(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse().map(|address: IpAddr| SocketAddr::new(address, DNS));
    address.or_else(|_| text.parse()).map_err(|_| "it has to be ADDRESS or ADDRESS:PORT".to_owned())
}

/// Runs the proxy until a signal ends it.
///
/// # Errors
/// As [`ProxyError`].
pub fn run(options: &Options) -> Result<(), ProxyError> {
    memory::protect(options.exit_with_parent).map_err(StartupError::from)?;
    check(options)?;
    let (mut config, remark) = Config::find_unprivileged(options.config.as_deref())?;
    config.log.format = options.log_format.unwrap_or(config.log.format);
    logging::start(&config.log);
    let file = policy_file::read_with(&options.policy, options.lenient)?;
    for warning in remark.iter().chain(&file.warnings) {
        warn!("{warning}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|source| StartupError::System { what: "start the runtime", source })?;
    let keeper = Keeper::new(config.certificates.clone());
    let certificates = keeper.read();
    for error in &certificates.errors {
        warn!("{error}");
    }
    for warning in certificates.remarks(&file.policy) {
        warn!("{warning}");
    }
    let policy = Arc::new(file.policy);
    let builder = vpn::Gateway::builder(Arc::clone(&policy))
        .ike(config.ike())
        .trust(Arc::clone(&certificates.trust))
        .revocation_lists(Arc::clone(keeper.lists()))
        .in_process()
        .crypto(config.crypto.choice())
        .addresses(options.addresses.clone())
        .name_servers(options.name_servers.clone());
    runtime.block_on(async {
        let signals = Signals::new()
            .map_err(|source| StartupError::System { what: "listen for signals", source })?;
        let listeners = Listeners::bind(options).await?;
        keeper.keep(policy, Arc::clone(&certificates.trust));
        let log = tokio::spawn(logging::follow(builder.subscribe(), config.log.format.into()));
        let (gateway, network) = builder.start().await?;
        let (serving, line) = listeners.serve(options, &network)?;
        println!("{line}");
        let outcome = tokio::select! {
            () = signals.end() => Ok(()),
            closed = gateway.closed() => Err(ProxyError::Ended(closed)),
        };
        drop(serving);
        gateway.stop().await;
        let _ = log.await;
        outcome
    })
}

fn check(options: &Options) -> Result<(), ProxyError> {
    let address = |f: &Forward| f.address.map(|address| SocketAddr::new(address, f.port));
    let addresses = options.local.iter().filter_map(address);
    match addresses.chain([options.listen]).find(|address| !address.ip().is_loopback()) {
        Some(address) => Err(ProxyError::NotLoopback(address)),
        None => Ok(()),
    }
}

/// The listeners on this host.
struct Listeners {
    proxy: TcpListener,
    local: Vec<(TcpListener, Forward)>,
}

impl Listeners {
    async fn bind(options: &Options) -> Result<Self, ProxyError> {
        let bind = |address: SocketAddr| async move {
            let failed = |source| ProxyError::Listen { what: address.to_string(), source };
            TcpListener::bind(address).await.map_err(failed)
        };
        let proxy = bind(options.listen).await?;
        let mut local = Vec::new();
        for forward in &options.local {
            let address = forward.address.unwrap_or(std::net::Ipv4Addr::LOCALHOST.into());
            local.push((bind(SocketAddr::new(address, forward.port)).await?, forward.clone()));
        }
        Ok(Self { proxy, local })
    }

    /// Serves until the tasks are dropped. The line tells that it is ready.
    fn serve(
        self,
        options: &Options,
        network: &Network,
    ) -> Result<(JoinSet<()>, String), ProxyError> {
        let mut tasks = JoinSet::new();
        let address = self.proxy.local_addr().unwrap_or(options.listen);
        let mut line = format!("ready: SOCKS5 and HTTP CONNECT on {address}");
        let slots = Arc::new(Semaphore::new(CONNECTIONS));
        let into = network.clone();
        tasks.spawn(accept(self.proxy, Arc::clone(&slots), move |client, _| {
            serve(client, into.clone())
        }));
        for (listener, forward) in self.local {
            line.push_str(&format!(", -L {forward}"));
            let (network, target) = (network.clone(), forward.target());
            tasks.spawn(accept(listener, Arc::clone(&slots), move |client, _| {
                forward_in(client, network.clone(), target.clone())
            }));
        }
        for forward in &options.remote {
            line.push_str(&format!(", -R {forward}"));
            let any = std::net::Ipv4Addr::UNSPECIFIED.into();
            let local = SocketAddr::new(forward.address.unwrap_or(any), forward.port);
            let failed = |source| ProxyError::Listen { what: format!("-R {forward}"), source };
            let listener = network.listen(local).map_err(failed)?;
            tasks.spawn(forward_out(listener, Arc::clone(&slots), forward.target()));
        }
        Ok((tasks, line))
    }
}

/// Serves the clients of a listener, each in a task of its own.
async fn accept<F: Future<Output = ()> + Send + 'static>(
    listener: TcpListener,
    slots: Arc<Semaphore>,
    serve: impl Fn(TcpStream, SocketAddr) -> F,
) {
    let mut clients = JoinSet::new();
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, from)) => {
                    let served = serve(client, from);
                    clients.spawn(async move {
                        served.await;
                        drop(slot);
                    });
                }
                Err(error) => {
                    warn!(%error, "accepting a connection");
                    tokio::time::sleep(PAUSE).await;
                }
            },
            Some(_) = clients.join_next() => {}
        }
    }
}

/// Serves one client of the proxy.
async fn serve(mut client: TcpStream, network: Network) {
    let mut first = [0];
    let wanted = timeout(PATIENCE, async {
        match client.peek(&mut first).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ if first[0] == socks::VERSION => {
                socks::wanted(&mut client).await.map(Protocol::Socks)
            }
            _ => http::wanted(&mut client).await.map(Protocol::Http),
        }
    });
    let wanted = match wanted.await {
        Ok(Ok(wanted)) => wanted,
        Ok(Err(error)) => return debug!(%error, "a client of the proxy"),
        Err(_) => return debug!("a client of the proxy did not say where it wants to"),
    };
    let outcome = network.connect(wanted.target()).await;
    if let Err(error) = &outcome {
        warn!("{}: {error}", wanted.target());
    }
    let told = match &wanted {
        Protocol::Socks(_) => socks::tell(&mut client, &outcome).await,
        Protocol::Http(_) => http::tell(&mut client, &outcome).await,
    };
    if let (Ok(()), Ok(mut stream)) = (told, outcome) {
        if let Protocol::Http(wanted) = wanted
            && stream.write_all(&wanted.early).await.is_err()
        {
            return;
        }
        relay(client, stream).await;
    }
}

enum Protocol {
    /// `HOST:PORT`.
    Socks(String),
    Http(http::Wanted),
}

impl Protocol {
    fn target(&self) -> &str {
        match self {
            Self::Socks(target) => target,
            Self::Http(wanted) => &wanted.target,
        }
    }
}

/// Leads one connection of this host into a tunnel.
async fn forward_in(client: TcpStream, network: Network, target: String) {
    match network.connect(&target).await {
        Ok(stream) => relay(client, stream).await,
        Err(error) => warn!("{target}: {error}"),
    }
}

/// Leads connections out of the tunnels to a target of this host's network.
async fn forward_out(listener: vpn::net::TcpListener, slots: Arc<Semaphore>, target: String) {
    let mut clients = JoinSet::new();
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { return };
                let target = target.clone();
                clients.spawn(async move {
                    match TcpStream::connect(&target).await {
                        Ok(client) => relay(client, stream).await,
                        Err(error) => warn!("{target}: {error}"),
                    }
                    drop(slot);
                });
            }
            Some(_) = clients.join_next() => {}
        }
    }
}

/// Copies both ways until both ends have said all.
async fn relay(mut client: TcpStream, mut stream: Tunnelled) {
    // Octets that one end sends at once are to reach the other one at once.
    let _ = client.set_nodelay(true);
    stream.set_nodelay(true);
    let copied = copy_bidirectional_with_sizes(&mut client, &mut stream, COPIED, COPIED).await;
    if let Err(error) = copied {
        debug!(%error, remote = %stream.peer_addr(), "a connection through the proxy");
    }
}

/// A stream of a client.
trait Client: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Client for T {}

/// The outcome of a connection, as clients are told of it.
type Outcome = Result<Tunnelled, ConnectError>;

impl fmt::Display for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(address) = self.address {
            write!(f, "{}", SocketAddr::new(address, self.port))?;
        } else {
            write!(f, "{}", self.port)?;
        }
        write!(f, ":{}", self.target())
    }
}
