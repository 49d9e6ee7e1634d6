//! The connections of the proxy, from a client to its target.

use super::forward::Forward;
use super::slots::Slots;
use super::warnings::Warnings;
use super::{Outcome, Protocol, http, socks};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::debug;
use vpn::net::relay::{self, Limits};
use vpn::net::{Network, TcpListener as Listener, TcpStream as Tunnelled};

/// Connections of a listener on this host at the same time. Further ones wait until one ends.
const CONNECTIONS: usize = 4096;
/// Connections of all listeners in the tunnels at the same time, of which each has its part. Further ones are refused.
const FROM_TUNNELS: usize = 2048;
const OF_ONE_LISTENER: usize = 512;
/// The time that a client has to say where it wants to, and a target on this host's network to answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// A listener that fails is asked again after this time.
const PAUSE: Duration = Duration::from_millis(100);

/// Everything that a connection needs; clones are the same.
#[derive(Clone)]
pub struct Serving {
    network: Network,
    limits: Limits,
    warnings: Arc<Warnings>,
    /// Places of each listener in the tunnels.
    places: usize,
}

impl Serving {
    /// `listeners`: listeners in the tunnels.
    pub fn new(network: Network, limits: Limits, listeners: usize) -> Self {
        let places = (FROM_TUNNELS / listeners.max(1)).min(OF_ONE_LISTENER);
        Self { network, limits, warnings: Arc::new(Warnings::new()), places }
    }

    /// Serves clients of SOCKS and HTTP.
    pub async fn proxy(self, listener: TcpListener) {
        let serving = self.clone();
        self.accept(listener, move |client| serving.clone().serve(client)).await;
    }

    /// Leads the connections of a port of this host to a target in the tunnels.
    pub async fn into_tunnels(self, listener: TcpListener, target: String) {
        let serving = self.clone();
        let clients =
            self.accept(listener, move |client| serving.clone().forward(client, target.clone()));
        clients.await;
    }

    /// Serves the clients of a listener on this host, each in a task of its own.
    async fn accept<F: Future<Output = ()> + Send + 'static>(
        &self,
        listener: TcpListener,
        serve: impl Fn(TcpStream) -> F,
    ) {
        let slots = Arc::new(Semaphore::new(CONNECTIONS));
        let mut clients = JoinSet::new();
        loop {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((client, _)) => {
                        let served = serve(client);
                        clients.spawn(async move {
                            served.await;
                            drop(slot);
                        });
                    }
                    Err(error) => {
                        self.warnings.write(format_args!("accepting a connection: {error}"));
                        tokio::time::sleep(PAUSE).await;
                    }
                },
                Some(_) = clients.join_next() => {}
            }
        }
    }

    /// Serves one client of the proxy.
    async fn serve(self, mut client: TcpStream) {
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
        let Some(outcome) = self.connected(&client, wanted.target()).await else { return };
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
            self.relay(client, stream).await;
        }
    }

    /// Leads one connection of this host into a tunnel.
    async fn forward(self, client: TcpStream, target: String) {
        if let Some(Ok(stream)) = self.connected(&client, &target).await {
            self.relay(client, stream).await;
        }
    }

    /// Connects to a target in the tunnels. `None`: the client has gone meanwhile.
    async fn connected(&self, client: &TcpStream, target: &str) -> Option<Outcome> {
        let outcome = tokio::select! {
            outcome = self.network.connect(target) => outcome,
            () = relay::closed(client) => return None,
        };
        if let Err(error) = &outcome {
            self.warnings.write(format_args!("{target}: {}", diagnosis::line::error(error)));
        }
        Some(outcome)
    }

    /// Leads connections out of the tunnels to a target of this host's network.
    pub async fn out_of_tunnels(self, listener: Listener, forward: Forward) {
        let slots = Slots::new(self.places);
        let target = forward.target();
        let mut clients = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    let Ok((stream, from)) = accepted else { return };
                    let Some(slot) = slots.take(from.ip()) else {
                        stream.reset();
                        self.warnings.write(format_args!(
                            "-R {forward}: a connection of {} is refused: it has as many as it may have",
                            from.ip()
                        ));
                        continue;
                    };
                    let (serving, target) = (self.clone(), target.clone());
                    clients.spawn(async move {
                        serving.lead_out(stream, &target).await;
                        drop(slot);
                    });
                }
                Some(_) = clients.join_next() => {}
            }
        }
    }

    async fn lead_out(&self, stream: Tunnelled, target: &str) {
        let connected = timeout(PATIENCE, TcpStream::connect(target)).await;
        match connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(client) => self.relay(client, stream).await,
            Err(error) => {
                stream.reset();
                self.warnings.write(format_args!("{target}: {error}"));
            }
        }
    }

    /// Copies both ways until both ends have said all, or one is gone.
    async fn relay(&self, client: TcpStream, stream: Tunnelled) {
        let remote = stream.peer_addr();
        if let Err(error) = relay::relay(client, stream, self.limits).await {
            debug!(%error, %remote, "a connection through the proxy");
        }
    }
}
