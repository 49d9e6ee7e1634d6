//! Sockets behind tunnels, for the rest of a program.

use crate::clock::now;
use crate::connection::Flow;
use crate::datagrams::{Datagrams, IKE_PORT, KEEPALIVE, NON_ESP_MARKER, Outgoing};
use crate::device;
use crate::driver::{Driver, IkeSink, Inbox};
use crate::end::End;
use crate::error::ConnectError;
use crate::listener::TcpListener;
use crate::mailbox::Mailbox;
use crate::outlet::Outlet;
use crate::packet;
use crate::plane::InProcess;
use crate::routes::{RouteLookup, Routes, TCP};
use crate::settings::Settings;
use crate::shared::Shared;
use crate::stack::Stack;
use crate::tcp::TcpStream;
use crate::udp::UdpSocket;
use esp::datapath::{self, Datapath};
use esp::path_mtu::Outer;
use esp::plane::Notice;
use policy::PortRange;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Octets of an echo request's payload.
const ECHO: usize = 56;

/// The start of a tunnel: ready once it is up, or has failed.
pub type Starting = Pin<Box<dyn Future<Output = Result<(), Arc<dyn Error + Send + Sync>>> + Send>>;

/// Starts the phase 2 tunnel of this name.
pub type StartTunnel = Box<dyn Fn(String) -> Starting + Send + Sync>;

/// The functions that a network calls.
#[derive(Clone)]
pub struct Hooks {
    /// Takes the plane's notices for key management.
    pub notice: Arc<dyn Fn(Notice) + Send + Sync>,
    /// Takes IKE messages. It must not block.
    pub ike: IkeSink,
}

/// Sockets behind the tunnels of one gateway. Clones are the same network.
///
/// Its sockets stay when it is dropped. They fail when the plane is dropped, or the runtime in which the network was
/// started.
#[derive(Clone)]
pub struct Network {
    shared: Arc<Shared>,
    start_tunnel: Arc<OnceLock<StartTunnel>>,
}

/// The parts of a network in this process.
pub struct Parts {
    /// For key management, which adds rules and SAs. When it is dropped, all sockets fail.
    pub plane: InProcess,
    /// For the rest of the program.
    pub network: Network,
    /// For key management, which sends IKE messages.
    pub ike: IkeSender,
    /// The task of the stack, which ends when the plane is dropped. The transport is free then.
    pub task: JoinHandle<()>,
}

/// Sends IKE messages and keepalives, beside ESP.
#[derive(Clone)]
pub struct IkeSender(Arc<dyn Datagrams>);

impl IkeSender {
    /// Sends a message of IKE, or a NAT keepalive if `message` is `None`.
    ///
    /// # Errors
    /// If the transport refuses it. It is not sent later.
    pub fn send(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
        message: Option<&[u8]>,
    ) -> io::Result<()> {
        let octets = match message {
            None => KEEPALIVE.to_vec(),
            Some(message) if local.port() == IKE_PORT => message.to_vec(),
            Some(message) => [&NON_ESP_MARKER, message].concat(),
        };
        let segment_len = octets.len();
        self.0.try_send(&Outgoing { local, remote, octets: &octets, segment_len, tos: 0 })
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network")
            .field("addresses", &self.shared.routes.own())
            .finish_non_exhaustive()
    }
}

impl Network {
    /// Starts the task of the stack in the current tokio runtime.
    pub fn start(settings: Settings, datagrams: Arc<dyn Datagrams>, hooks: Hooks) -> Parts {
        let now = now();
        let mailbox = Arc::new(Mailbox::new());
        let released = Arc::clone(&mailbox);
        let datapath = Datapath::new(
            datapath::Settings {
                crypto: Arc::clone(&settings.crypto),
                outer: Outer { mtu: Some(settings.outer_mtu), ..Outer::default() },
                on_notice: Some(hooks.notice),
                on_release: Some(Arc::new(move || released.release())),
                ..datapath::Settings::default()
            },
            now,
        );
        let device = settings.device.clone();
        let traps = device.is_some();
        let routes = Arc::new(Routes::new(settings.addresses.clone()));
        let outlet = Outlet::new(&datapath, now);
        let shared = Arc::new(Shared::new(settings, Arc::clone(&routes), Arc::clone(&mailbox)));
        let driver = Driver {
            stack: Stack::new(Arc::clone(&shared), outlet),
            inbox: Inbox::new(datapath.clone(), hooks.ike, device),
            datagrams: Arc::clone(&datagrams),
            mailbox: Arc::clone(&mailbox),
            packet: vec![0; if traps { device::LONGEST } else { 0 }],
        };
        Parts {
            task: tokio::spawn(driver.run()),
            plane: InProcess::new(datapath, routes, mailbox, traps),
            network: Self { shared, start_tunnel: Arc::default() },
            ike: IkeSender(datagrams),
        }
    }

    /// Sets the function that starts a tunnel for which a connection waits. Without it, connections wait until key
    /// management starts the tunnel by itself. The first call counts.
    pub fn start_tunnels_with(&self, start: StartTunnel) {
        let _ = self.start_tunnel.set(start);
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Opens a TCP connection. If the tunnel is not up, it is started, and the connection waits for it.
    ///
    /// # Errors
    /// If no tunnel covers the traffic, which is known at once; if the tunnel does not come up, with the reason of key
    /// management; or if the peer refuses or does not answer.
    ///
    /// # Cancellation
    /// If the future is dropped, the connection is given up: its port and memory are free again, and a peer that has
    /// answered sees a reset or the end of the stream. A tunnel whose start has begun stays.
    pub async fn connect_to(&self, remote: SocketAddr) -> Result<TcpStream, ConnectError> {
        let (source, ports) = self.await_route(TCP, None, remote).await?;
        let flow = self.shared.take_port(source, ports, remote);
        let flow = flow.ok_or(ConnectError::Exhausted { remote, lacking: "port" })?;
        let stream = self.begin(flow).ok_or_else(|| {
            self.shared.sockets().forget(flow);
            ConnectError::Exhausted { remote, lacking: "memory" }
        })?;
        std::future::poll_fn(|cx| stream.poll_established(cx))
            .await
            .map_err(|end| ConnectError::of(end, remote))?;
        Ok(stream)
    }

    fn begin(&self, flow: Flow) -> Option<TcpStream> {
        let connection = self.shared.connection(flow).ok()?;
        self.shared.mailbox.open(Arc::clone(&connection));
        if self.shared.mailbox.is_closed() {
            connection.lock().end = Some(End::Stopped);
        }
        Some(TcpStream::new(connection))
    }

    /// Takes connections of peers at an address and port. An unspecified address is every address of this end; port 0
    /// is one that is free.
    ///
    /// # Errors
    /// If another listener has the port.
    pub fn listen(&self, local: SocketAddr) -> io::Result<TcpListener> {
        TcpListener::bind(Arc::clone(&self.shared), local)
    }

    /// Opens a UDP socket. An unspecified address is every address of this end; port 0 is one that is free.
    ///
    /// # Errors
    /// If another socket has the port.
    pub fn bind_udp(&self, local: SocketAddr) -> io::Result<UdpSocket> {
        UdpSocket::bind(self.clone(), local)
    }

    /// Sends an echo request and waits for the reply (ICMP or ICMPv6). Returns the round trip, without the start of the
    /// tunnel.
    ///
    /// # Errors
    /// If no tunnel covers the traffic, the tunnel does not come up, or no reply comes in time.
    ///
    /// # Cancellation
    /// The reply is ignored if the future is dropped.
    pub async fn ping(&self, remote: IpAddr, patience: Duration) -> Result<Duration, ConnectError> {
        let protocol = if remote.is_ipv4() { packet::ICMP } else { packet::ICMPV6 };
        let remote = SocketAddr::new(remote, 0);
        let (source, _) = self.await_route(protocol, None, remote).await?;
        let random = self.shared.random();
        let name = (random as u16, (random >> 16) as u16);
        let answer = self.shared.sockets().expect(remote.ip(), name);
        let begun = now();
        let request = packet::echo_request(source, remote.ip(), name, &[0; ECHO]);
        self.send_packet(request).await.map_err(|_| ConnectError::Stopped)?;
        tokio::select! {
            Ok(()) = answer => Ok(now().duration_since(begun)),
            () = tokio::time::sleep(patience) => Err(ConnectError::TimedOut { remote }),
            () = self.shared.mailbox.closed() => Err(ConnectError::Stopped),
        }
    }

    /// The addresses of this end.
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.shared.routes.own()
    }

    /// Packets that came out of a tunnel and were dropped, by reason.
    pub fn counters(&self) -> BTreeMap<&'static str, u64> {
        self.shared.counts.table()
    }

    /// Waits until an SA serves the flow. Returns the address of this end, and the ports that it may use.
    pub(crate) async fn await_route(
        &self,
        protocol: u8,
        local: Option<IpAddr>,
        remote: SocketAddr,
    ) -> Result<(IpAddr, PortRange), ConnectError> {
        let mut changes = self.shared.routes.changes();
        let mut started = false;
        loop {
            if self.shared.mailbox.is_closed() {
                return Err(ConnectError::Stopped);
            }
            changes.mark_unchanged();
            let tunnel = match self.shared.routes.find(protocol, local, remote) {
                RouteLookup::Up { source, ports } => return Ok((source, ports)),
                RouteLookup::Down { tunnel } => tunnel,
                RouteLookup::NoAddress { tunnel } => {
                    return Err(ConnectError::NoAddress { remote, tunnel });
                }
                RouteLookup::None => {
                    let selectors = self.shared.routes.described();
                    return Err(ConnectError::NoTunnel { remote, selectors });
                }
            };
            if let Some(start) = self.start_tunnel.get().filter(|_| !started) {
                started = true;
                tokio::select! {
                    outcome = start(tunnel.clone()) => outcome
                        .map_err(|source| ConnectError::Tunnel { tunnel: tunnel.clone(), source })?,
                    () = self.shared.mailbox.closed() => return Err(ConnectError::Stopped),
                }
                continue;
            }
            tokio::select! {
                changed = changes.changed() => changed.map_err(|_| ConnectError::Stopped)?,
                () = self.shared.mailbox.closed() => return Err(ConnectError::Stopped),
            }
        }
    }

    /// Sends a packet once there is room.
    pub(crate) async fn send_packet(&self, packet: Vec<u8>) -> io::Result<()> {
        Ok(self.shared.mailbox.send(packet).await?)
    }
}
