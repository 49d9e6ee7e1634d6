//! A gateway in this process, from its start to its end.

use crate::calls::{Call, Life, STOPPED};
use crate::streams::Stream;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::{Handle, Runtime};
use vpn::net::{Network, TcpListener};
use vpn::policy::xml;

/// The time that tasks have to end, once the gateway has.
const PATIENCE: Duration = Duration::from_secs(1);

/// A gateway in this process, with its tunnels.
pub struct Tunnel {
    handle: Handle,
    network: Network,
    life: Arc<Life>,
    /// Until it is closed.
    owned: Mutex<Option<(Runtime, vpn::Gateway)>>,
}

/// Takes TCP connections of peers.
pub struct Listener {
    handle: Handle,
    listener: Arc<TcpListener>,
    life: Life,
    of_tunnel: Arc<Life>,
}

impl Tunnel {
    /// Starts a gateway with the text of a policy, and the addresses of DNS servers, separated by commas. `listen`: the
    /// addresses at which peers can begin, likewise, or `None` for those of the policy.
    ///
    /// # Errors
    /// If one of them is wrong, or the gateway cannot start.
    pub fn open(policy: &str, servers: &str, listen: Option<&str>) -> Result<Self, String> {
        let loaded = xml::read("policy", policy).map_err(|errors| errors.to_string())?;
        let servers = name_servers(servers)?;
        let listen = listen.map(own_addresses).transpose()?;
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.map_err(|error| format!("cannot start threads: {error}"))?;
        let builder = vpn::Gateway::builder(loaded.policy).in_process().name_servers(servers);
        let builder = match listen {
            Some(addresses) => builder.listen(addresses),
            None => builder,
        };
        let (gateway, network) =
            runtime.block_on(builder.start()).map_err(|error| error.to_string())?;
        let handle = runtime.handle().clone();
        let owned = Mutex::new(Some((runtime, gateway)));
        Ok(Self { handle, network, life: Arc::new(Life::new(STOPPED)), owned })
    }

    /// Why peers cannot begin tunnels that the policy lets them begin, one tunnel a line.
    pub fn unreachable(&self) -> Option<String> {
        let owned = self.owned.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, gateway) = owned.as_ref()?;
        let unreachable = gateway.listening()?.unreachable;
        let lines = unreachable.iter().map(|(name, why)| format!("tunnel {name}: {why}"));
        let lines: Vec<String> = lines.collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    /// Begins to connect.
    pub fn connect(&self, target: &str) -> Result<Call, String> {
        let (network, target) = (self.network.clone(), target.to_owned());
        let what = format!("connecting to {target}");
        Call::begin(&self.handle, what, self.life.ended(), async move {
            Stream::new(network.connect(&target).await.map_err(|error| error.to_string())?)
        })
    }

    /// Takes connections of peers at an address and port of this end.
    pub fn listen(&self, local: &str) -> Result<Listener, String> {
        let local = local.parse().map_err(|_| format!("{local:?} is not ADDRESS:PORT"))?;
        let listener = self.network.listen(local).map_err(|error| error.to_string())?;
        Ok(Listener {
            handle: self.handle.clone(),
            listener: Arc::new(listener),
            life: Life::new("the listener was freed"),
            of_tunnel: Arc::clone(&self.life),
        })
    }

    /// Ends the gateway: first the calls, then the tunnels, whose peers have three seconds to answer, and with them the
    /// connections. A second call returns at once.
    pub fn close(&self) {
        self.life.end();
        let owned = self.owned.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((runtime, gateway)) = owned {
            runtime.block_on(gateway.stop());
            drop(gateway);
            runtime.shutdown_timeout(PATIENCE);
        }
    }
}

impl Listener {
    /// Ends the accepts that are under way.
    pub fn close(&self) {
        self.life.end();
    }

    /// Begins to wait for a connection.
    pub fn accept(&self) -> Result<Call, String> {
        let listener = Arc::clone(&self.listener);
        let (of_this, of_tunnel) = (self.life.ended(), self.of_tunnel.ended());
        let ended = async move {
            tokio::select! {
                reason = of_this => reason,
                reason = of_tunnel => reason,
            }
        };
        let what = format!("accepting at {}", listener.local_addr());
        Call::begin(&self.handle, what, ended, async move {
            let (stream, _) = listener.accept().await.map_err(|error| error.to_string())?;
            Stream::new(stream)
        })
    }
}

fn parts(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|part| !part.is_empty())
}

fn own_addresses(text: &str) -> Result<Vec<IpAddr>, String> {
    let parsed = |part: &str| {
        let has_port = part.parse::<SocketAddr>().is_ok();
        part.parse().map_err(|_| match has_port {
            true => format!(
                "listen: {part:?}: peers begin on UDP port 4500, and on port 500; leave the port out"
            ),
            false => format!("listen: {part:?}: it has to be an address of this host"),
        })
    };
    parts(text).map(parsed).collect()
}

fn name_servers(text: &str) -> Result<Vec<SocketAddr>, String> {
    parts(text)
        .map(|server| {
            let address = server.parse().map(|address: IpAddr| SocketAddr::new(address, 53));
            let address = address.or_else(|_| server.parse());
            address.map_err(|_| format!("{server:?} is not ADDRESS or ADDRESS:PORT"))
        })
        .collect()
}
