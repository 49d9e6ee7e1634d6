//! A data plane inside of this process, for an ordinary user: sockets over tunnels.

use super::{Builder, EngineSettings, StartError, seed};
use crate::driver::{
    self, GatewayError, Handle, NatT, PlaneHooks, PolicyFollower, Sockets, Surroundings,
};
use crate::gateway::{Gateway, Handles, Tunnels};
use crate::listening::Listener;
use crypto::{Choice as CryptoChoice, CryptoProviders};
use ike::{CommandError, Encap};
use net::datagrams::{Datagrams, Udp};
use net::device::PacketDevice;
use net::{Hooks, Network, Parts, Settings};
use policy::{IkeTunnel, Policy};
use std::error::Error;
use std::fmt;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use tokio::task::JoinSet;

/// A change of the network's settings.
type Adaptation = Box<dyn FnOnce(&mut Settings) + Send>;

/// Settings of the data plane inside of this process.
#[derive(Default)]
pub struct InProcess {
    adapt: Vec<Adaptation>,
    crypto: CryptoChoice,
    transport: Option<Arc<dyn Datagrams>>,
    listen: Option<Vec<IpAddr>>,
}

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcess").field("crypto", &self.crypto).finish_non_exhaustive()
    }
}

impl Builder<InProcess> {
    /// The addresses of this end in the tunnels. Default: of each tunnel's local selector the only address, or the
    /// first of a network (10.1.0.1 of 10.1.0.0/24).
    pub fn addresses(self, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        let addresses = addresses.into_iter().collect();
        self.network(|settings| settings.addresses = addresses)
    }

    /// Servers of DNS behind the tunnels, by which [`Network::connect`] resolves names. Default: none.
    pub fn name_servers(self, servers: impl IntoIterator<Item = SocketAddr>) -> Self {
        let servers = servers.into_iter().collect();
        self.network(|settings| settings.name_servers = servers)
    }

    /// Has packets of a device take the tunnels, in place of those of the network's sockets, which then get none. The
    /// first packet of a tunnel starts it.
    pub fn packets_of(self, device: Arc<dyn PacketDevice>) -> Self {
        self.network(|settings| settings.device = Some(device))
    }

    /// Changes settings of the network, such as its buffers.
    pub fn network(mut self, adapt: impl FnOnce(&mut Settings) + Send + 'static) -> Self {
        self.plane.adapt.push(Box::new(adapt));
        self
    }

    /// Chooses the crypto provider of each cipher.
    pub fn crypto(mut self, choice: CryptoChoice) -> Self {
        self.plane.crypto = choice;
        self
    }

    /// Has peers begin at these addresses of this host: on UDP port [`natt_port`](Self::natt_port), 4500 by default, and
    /// on port 500 beside it if this user may have it. The unspecified addresses stand for all. With no address at all,
    /// only this side begins.
    ///
    /// Default: at the addresses that the policy gives to this side in tunnels which the peer may begin, as far as the
    /// ports are free. If they are not, this side can begin nevertheless, and [`Gateway::listening`] tells the reason,
    /// as does an [`EventKind::Warning`](ike::EventKind::Warning) for each of those tunnels.
    pub fn listen(mut self, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        self.plane.listen = Some(addresses.into_iter().collect());
        self
    }

    /// Carries IKE and ESP by a transport of the caller's, which then decides where peers can begin. Default: UDP
    /// sockets of this host.
    pub fn transport(mut self, datagrams: Arc<dyn Datagrams>) -> Self {
        self.plane.transport = Some(datagrams);
        self
    }

    /// Starts the gateway inside the current tokio runtime. It needs no capability, and changes nothing on the host.
    ///
    /// IKE begins on the peer's [`natt_port`](Self::natt_port): from the same port where this side
    /// [listens](Self::listen), otherwise from one of the kernel's choice, as if a NAT were in between. A tunnel of the
    /// policy that names no address of this side gets the one from which its peer is reached.
    ///
    /// # Errors
    /// If the runtime lacks a driver, the policy is invalid, no UDP socket can be opened, or one of
    /// [`listen`](Self::listen) cannot.
    ///
    /// # Cancellation
    /// The future completes the first time it is polled: it starts nothing, or all.
    pub async fn start(self) -> Result<(Gateway, Network), StartError> {
        let Self { mut engine, plane } = self;
        if plane.transport.is_some()
            && let Some(addresses) = &plane.listen
        {
            let value = format!("{addresses:?}");
            let why = "transport() decides where peers can begin; leave one of the two out";
            return Err(StartError::Setting { setting: "listen", value, why });
        }
        engine.ike.begin_on_natt_port = true;
        engine.ike.encap = Encap::Always;
        engine.check()?;
        start(engine, plane)
    }
}

fn start(mut engine: EngineSettings, plane: InProcess) -> Result<(Gateway, Network), StartError> {
    let InProcess { adapt, crypto, transport, listen } = plane;
    let seed = seed()?;
    let crypto = Arc::new(CryptoProviders::new(crypto));
    // The network has its own seed: peers see ports and sequence numbers made from it, and must not learn the engine's
    // seed from them.
    let mut settings =
        Settings::new(u64::from_ne_bytes(super::seed()?[..8].try_into().expect("8")));
    settings.crypto = Arc::clone(&crypto);
    adapt.into_iter().for_each(|adapt| adapt(&mut settings));
    let natt_port = engine.ike.natt_port;
    let (datagrams, listener): (Arc<dyn Datagrams>, _) = match transport {
        Some(datagrams) => (datagrams, None),
        None => {
            let udp = Arc::new(Udp::bind(natt_port).map_err(StartError::Reactor)?);
            let listener = Listener::new(&udp, natt_port, listen)?;
            (udp, Some(Arc::new(listener)))
        }
    };
    engine.policy = located(engine.policy);
    let (inlet, inputs) = driver::inlet();
    let noticing = inlet.clone();
    let hooks = Hooks {
        notice: Arc::new(move |notice| noticing.notice(notice)),
        ike: Arc::new(move |d| inlet.datagram(d.local, d.remote, d.octets.to_vec())),
    };
    let Parts { plane, network, ike: sender, task } = Network::start(settings, datagrams, hooks);
    let policy = Arc::clone(&engine.policy);
    let (make, fetcher, events) = engine.into_parts(plane, seed);
    let following = listener.clone();
    let follow_policy: PolicyFollower = Box::new(move |policy| match &following {
        Some(listener) => listener.follow(policy),
        None => Vec::new(),
    });
    let nat_t = NatT {
        send: Box::new(move |t| {
            sender.send(t.local, t.remote, (!t.keepalive).then_some(&t.octets))
        }),
        listeners: JoinSet::new(),
        of_plane: Some(task),
    };
    let surroundings = Surroundings {
        sockets: Sockets::without_port(),
        inputs,
        nat_t,
        plane_hooks: PlaneHooks {
            counters: |plane: &mut net::InProcess| {
                let counters = plane.counters();
                Box::new(|| counters)
            },
            expect_policy: |_: &mut net::InProcess, _| Box::new(|| {}),
            retry_preparation: |_: &mut net::InProcess| None,
            forget_former_policy: |_: &mut net::InProcess| Box::new(|| {}),
            complete_policy: located,
            follow_policy,
        },
        on_end: Box::new(|_, _| {}),
        fetcher,
        policy,
        events,
    };
    let handle = driver::start(surroundings, make);
    start_tunnels(&network, &handle, listener.clone());
    let handles = Handles { crypto, listener, ..Handles::default() };
    Ok((Gateway::new(handle, handles), network))
}

/// Has connections start the tunnels that they wait for.
fn start_tunnels(network: &Network, handle: &Handle, listener: Option<Arc<Listener>>) {
    let handle = handle.downgrade();
    network.start_tunnels_with(Box::new(move |child| {
        let (handle, listener) = (handle.clone(), listener.clone());
        Box::pin(async move {
            let handle = handle.upgrade().ok_or_else(|| shared(GatewayError::Stopped))?;
            let tunnels = Tunnels::new(&handle);
            match tunnels.activate([child.as_str()]).await {
                Ok(started) => started.into_iter().try_for_each(|one| one.outcome.map_err(shared)),
                // The peer starts it: the connection waits, unless that is in vain.
                Err(GatewayError::Command(error)) if is_of_the_peer(&error) => {
                    let tunnel = tunnels.get(&child).status().await.map_err(shared)?;
                    let obstacle = tunnel.and_then(|t| listener?.obstacle(&t.name));
                    obstacle.map_or(Ok(()), |why| Err(shared(Unreachable(why))))
                }
                // For those who look for the command among the causes.
                Err(GatewayError::Command(error)) => Err(shared(error)),
                Err(error) => Err(shared(error)),
            }
        })
    }));
}

/// Nobody can begin a tunnel for which a connection waits.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Unreachable(String);

fn is_of_the_peer(error: &CommandError) -> bool {
    use CommandError::{NoPeerAddress, NothingToStart, ResponderOnly};
    matches!(error, ResponderOnly(_) | NoPeerAddress(_) | NothingToStart(_))
}

fn shared(error: impl Error + Send + Sync + 'static) -> Arc<dyn Error + Send + Sync> {
    Arc::new(error)
}

/// Gives tunnels without an address of this side the one from which packets to the peer leave.
fn located(policy: Arc<Policy>) -> Arc<Policy> {
    if !policy.tunnels.iter().any(|tunnel| lacks_address(tunnel)) {
        return policy;
    }
    let mut policy = Policy::clone(&policy);
    for tunnel in policy.tunnels.iter_mut() {
        if lacks_address(tunnel) {
            let address = tunnel.remote.address.and_then(|remote| source(remote).ok());
            Arc::make_mut(tunnel).local.address = address;
        }
    }
    Arc::new(policy)
}

fn lacks_address(tunnel: &IkeTunnel) -> bool {
    tunnel.local.address.is_none() && tunnel.remote.address.is_some()
}

/// The address from which packets to a peer leave. Nothing is sent.
fn source(remote: IpAddr) -> std::io::Result<IpAddr> {
    let any = match remote {
        IpAddr::V4(_) => "0.0.0.0:0",
        IpAddr::V6(_) => "[::]:0",
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect((remote, ike::NAT_T_PORT))?;
    Ok(socket.local_addr()?.ip())
}
