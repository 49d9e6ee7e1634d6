//! A proxy into the tunnels, for programs of this host: SOCKS5, HTTP CONNECT and forwarded ports.

mod forward;
mod http;
mod serving;
mod slots;
mod socks;
mod warnings;

pub use forward::Forward;

use crate::daemon::{Signals, StartupError};
use crate::in_process::{self, OpenError};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serving::Serving;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tracing::debug;
use vpn::net::relay::Limits;
use vpn::net::{ConnectError, Network, TcpStream as Tunnelled};

/// The port of DNS.
const DNS: u16 = 53;

/// The options of `vpnd proxy`.
#[derive(Clone, Debug)]
pub struct Options {
    /// The gateway.
    pub gateway: in_process::Options,
    /// Where the proxy listens.
    pub listen: SocketAddr,
    /// Ports of this host that lead into the tunnels.
    pub local: Vec<Forward>,
    /// Ports in the tunnels that lead to this host's network.
    pub remote: Vec<Forward>,
    /// Servers behind the tunnels that resolve names.
    pub name_servers: Vec<SocketAddr>,
    /// A connection on which nobody says anything for this time is ended.
    pub idle_limit: Duration,
}

/// The proxy could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// The files, or the process itself.
    #[error(transparent)]
    Open(#[from] OpenError),
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
    check(options)?;
    let opened = options.gateway.open()?;
    allow_descriptors();
    let runtime = in_process::runtime()?;
    let builder = opened.builder(&options.gateway).name_servers(options.name_servers.clone());
    runtime.block_on(async {
        let signals = Signals::new()
            .map_err(|source| StartupError::System { what: "listen for signals", source })
            .map_err(OpenError::from)?;
        let listeners = Listeners::bind(options).await?;
        let log = opened.log(&builder);
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
    let local = options.local.iter();
    let addresses =
        local.filter_map(|forward| Some(SocketAddr::new(forward.address?, forward.port)));
    match addresses.chain([options.listen]).find(|address| !address.ip().is_loopback()) {
        Some(address) => Err(ProxyError::NotLoopback(address)),
        None => Ok(()),
    }
}

/// Each connection needs a descriptor, and the usual limit is far below the highest one that the system allows.
fn allow_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let all = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, all) {
        debug!(%error, "the limit of descriptors stays as it is");
    }
}

/// The listeners on this host.
struct Listeners {
    proxy: TcpListener,
    local: Vec<(TcpListener, Forward)>,
}

impl Listeners {
    async fn bind(options: &Options) -> Result<Self, ProxyError> {
        let proxy = listener(options.listen).await?;
        let mut local = Vec::new();
        for forward in &options.local {
            let address = forward.address.unwrap_or(std::net::Ipv4Addr::LOCALHOST.into());
            local.push((listener(SocketAddr::new(address, forward.port)).await?, forward.clone()));
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
        let limits = Limits { idle: options.idle_limit, ..Limits::default() };
        let serving = Serving::new(network.clone(), limits, options.remote.len());
        tasks.spawn(serving.clone().proxy(self.proxy));
        for (listener, forward) in self.local {
            line.push_str(&format!(", -L {forward}"));
            tasks.spawn(serving.clone().into_tunnels(listener, forward.target()));
        }
        for forward in &options.remote {
            line.push_str(&format!(", -R {forward}"));
            let any = std::net::Ipv4Addr::UNSPECIFIED.into();
            let local = SocketAddr::new(forward.address.unwrap_or(any), forward.port);
            let listener = network
                .listen(local)
                .map_err(|source| ProxyError::Listen { what: format!("-R {forward}"), source })?;
            tasks.spawn(serving.clone().out_of_tunnels(listener, forward.clone()));
        }
        Ok((tasks, line))
    }
}

async fn listener(address: SocketAddr) -> Result<TcpListener, ProxyError> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|source| ProxyError::Listen { what: address.to_string(), source })
}

/// Where a client wants to, by the protocol in which it said so.
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
