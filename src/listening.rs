//! Where the peers of a gateway inside of this process can begin, and why they cannot.
//!
//! A port belongs to the program that has it first: another gateway, such as `vpnd`, keeps its ports, and this side then
//! begins from a port of the kernel's choice.

use host::{Process, udp_holder_at};
use ike::{Event, EventKind, IKE_PORT};
use net::datagrams::Udp;
use policy::{IkeTunnel, Policy};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A UDP port at which peers could begin cannot be had.
#[derive(Clone, thiserror::Error)]
#[error("UDP {address}: {source}{}", hint(.source, *.address, .holder.as_ref()))]
#[non_exhaustive]
pub struct ListenError {
    /// The address and port. The unspecified address stands for every address of this host.
    pub address: SocketAddr,
    /// The system's answer.
    pub source: Arc<io::Error>,
    /// The process that has the port, if another one has it and may be looked at.
    pub holder: Option<Process>,
}

policy::readable_debug!(ListenError);

impl ListenError {
    fn new(address: SocketAddr, source: io::Error) -> Self {
        let taken = source.kind() == io::ErrorKind::AddrInUse;
        let holder = taken.then(|| udp_holder_at(address)).flatten();
        Self { address, source: Arc::new(source), holder }
    }
}

fn hint(error: &io::Error, address: SocketAddr, holder: Option<&Process>) -> String {
    match (error.kind(), holder) {
        (io::ErrorKind::AddrInUse, Some(holder)) if holder.id == std::process::id() => {
            "; this process has it already".to_owned()
        }
        (io::ErrorKind::AddrInUse, Some(Process { id, name })) => {
            format!("; {name} (process {id}) has it")
        }
        (io::ErrorKind::AddrInUse, None) => {
            format!(
                "; as root, ss -ulpn 'sport = {}' names the program that has it",
                address.port()
            )
        }
        (io::ErrorKind::PermissionDenied, _) => {
            "; the sysctl net.ipv4.ip_unprivileged_port_start says which ports every user may have"
                .to_owned()
        }
        (io::ErrorKind::AddrNotAvailable, _) => "; it is not an address of this host".to_owned(),
        _ => String::new(),
    }
}

/// Where the peers of a gateway inside of this process can begin.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Listening {
    /// The addresses and UDP ports at which this side listens. An unspecified address stands for every address of this
    /// host.
    pub at: Vec<SocketAddr>,
    /// The addresses and ports that this side wanted and has not got.
    pub refused: Vec<ListenError>,
    /// The phase 1 tunnels that the policy lets the peer begin, although it cannot; each with the reason.
    pub unreachable: BTreeMap<String, String>,
}

impl fmt::Display for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at.as_slice() {
            [] => f.write_str("peers cannot begin")?,
            at => write!(f, "peers can begin at UDP {}", list(at))?,
        }
        self.refused.iter().try_for_each(|error| write!(f, "\n  not at {error}"))
    }
}

fn list(addresses: &[SocketAddr]) -> String {
    let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    texts.join(", ")
}

/// Listens for the peers of the policies of one gateway.
#[derive(Debug)]
pub(crate) struct Listener {
    /// Gone with the plane, whoever still asks where peers could begin.
    udp: Weak<Udp>,
    natt_port: u16,
    /// `None`: the addresses that the policy gives to this side.
    chosen: Option<Vec<IpAddr>>,
    state: Mutex<Listening>,
}

impl Listener {
    /// Listens at the chosen addresses.
    ///
    /// # Errors
    /// If this side cannot listen there on the port of NAT traversal.
    pub fn new(
        udp: &Arc<Udp>,
        natt_port: u16,
        chosen: Option<Vec<IpAddr>>,
    ) -> Result<Self, ListenError> {
        let mut listening = Listening::default();
        let addresses: BTreeSet<IpAddr> = chosen.iter().flatten().copied().collect();
        for address in addresses.into_iter().map(|ip| SocketAddr::new(ip, natt_port)) {
            // A listener for the policy may wait for its address, but this one is meant to be here.
            UdpSocket::bind((address.ip(), 0))
                .map_err(|source| ListenError::new(address, source))?;
            udp.listen(address).map_err(|source| ListenError::new(address, source))?;
            listening.at.push(address);
        }
        Ok(Self { udp: Arc::downgrade(udp), natt_port, chosen, state: Mutex::new(listening) })
    }

    fn state(&self) -> MutexGuard<'_, Listening> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn listening(&self) -> Listening {
        self.state().clone()
    }

    /// The reason why the peer of this tunnel cannot begin, although the policy lets it.
    pub fn obstacle(&self, tunnel: &str) -> Option<String> {
        self.state().unreachable.get(tunnel).cloned()
    }

    /// Listens where the peers of this policy may begin, and keeps the ports of earlier policies. Returns warnings about
    /// tunnels for which that is not possible.
    pub fn follow(&self, policy: &Policy) -> Vec<Event> {
        let Some(udp) = self.udp.upgrade() else { return Vec::new() };
        let mut state = self.state();
        let before = std::mem::take(&mut state.refused);
        if self.chosen.is_none() {
            self.open_all(&udp, &mut state, wanted(policy));
        }
        open_beside(&udp, &mut state);
        let has_news = state.refused.iter().any(|e| !before.iter().any(|b| b.address == e.address));
        if !state.at.is_empty() || has_news {
            tracing::info!("{state}");
        }
        let tunnels = policy.tunnels.iter();
        let unreachable = tunnels.filter_map(|t| Some((t.name.clone(), self.judge(&state, t)?)));
        let unreachable: BTreeMap<String, String> = unreachable.collect();
        let news =
            unreachable.iter().filter(|(name, why)| state.unreachable.get(*name) != Some(why));
        let events =
            news.map(|(name, why)| Event::new(name, EventKind::Warning(why.clone()))).collect();
        state.unreachable = unreachable;
        events
    }

    fn open_all(&self, udp: &Udp, state: &mut Listening, wanted: BTreeSet<IpAddr>) {
        // The unspecified addresses are the first of their families, and stand for all others.
        for ip in wanted {
            let address = SocketAddr::new(ip, self.natt_port);
            let mut of_family = state.at.iter().filter(|at| at.is_ipv4() == ip.is_ipv4());
            let is_covered = of_family
                .any(|at| at.ip() == ip || at.ip().is_unspecified() || ip.is_unspecified());
            if is_covered {
                continue;
            }
            match udp.listen(address) {
                Ok(()) => state.at.push(address),
                Err(error) if ip == Ipv6Addr::UNSPECIFIED && is_absent(&error) => {}
                Err(error) => state.refused.push(ListenError::new(address, error)),
            }
        }
    }

    fn judge(&self, state: &Listening, tunnel: &IkeTunnel) -> Option<String> {
        let left_out = self.chosen.as_ref().is_some_and(Vec::is_empty);
        if left_out || !may_be_begun(tunnel) {
            return None;
        }
        let own = tunnel.local.address;
        let is_served = state.at.iter().any(|at| {
            own.is_none_or(|own| {
                at.ip() == own || at.ip().is_unspecified() && at.is_ipv4() == own.is_ipv4()
            })
        });
        if is_served {
            return None;
        }
        let refused = state.refused.iter().rfind(|e| {
            own.is_none_or(|own| e.address.ip() == own || e.address.ip().is_unspecified())
        });
        let reason = match refused {
            Some(error) => format!("this side cannot listen on {error}"),
            None => format!("this side listens at UDP {} only", list(&state.at)),
        };
        let consequence = match tunnel.role.may_initiate() && tunnel.remote.address.is_some() {
            true => "only this side can begin",
            false => "this side may not, so the tunnel cannot come up",
        };
        Some(format!("the peer cannot begin, {consequence}: {reason}"))
    }
}

/// Listens on IKE's own port as well, from which peers move to the port of NAT traversal.
fn open_beside(udp: &Udp, state: &mut Listening) {
    let begun: Vec<IpAddr> =
        state.at.iter().filter(|a| a.port() != IKE_PORT).map(SocketAddr::ip).collect();
    for address in begun.into_iter().map(|ip| SocketAddr::new(ip, IKE_PORT)) {
        if state.at.contains(&address) {
            continue;
        }
        match udp.listen(address) {
            Ok(()) => state.at.push(address),
            Err(error) => state.refused.push(ListenError::new(address, error)),
        }
    }
}

/// The addresses at which peers begin the tunnels of a policy.
fn wanted(policy: &Policy) -> BTreeSet<IpAddr> {
    let tunnels = policy.tunnels.iter().filter(|tunnel| may_be_begun(tunnel));
    let any = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    tunnels.flat_map(|t| t.local.address.map_or(any.to_vec(), |own| vec![own])).collect()
}

/// Returns `true` if the policy lets the peer begin a tunnel.
fn may_be_begun(tunnel: &IkeTunnel) -> bool {
    tunnel.role.may_respond() && tunnel.children.iter().any(|child| child.role.may_respond())
}

/// Returns `true` if the host has no IPv6.
fn is_absent(error: &io::Error) -> bool {
    let no_family = Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error());
    error.kind() == io::ErrorKind::AddrNotAvailable || error.raw_os_error() == no_family
}
