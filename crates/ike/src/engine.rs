//! All IKE SAs of a gateway, without sockets, clocks or threads.

use crate::event::Event;
use crate::failure::Failure;
use crate::status::IkeStatus;
use esp::plane::{DataPlane, Notice};
use policy::Policy;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// When ESP is put into UDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encap {
    /// Where a NAT is seen, and between two of this implementation where both ends have UDP segmentation offload.
    #[default]
    Auto,
    /// Always (by announcing a NAT to the peer).
    Always,
    /// Only where a NAT is seen.
    Never,
}

/// What the policy does not say.
#[derive(Clone, Debug)]
pub struct Config {
    /// First retransmission (RFC 7296 §2.4); each further one waits 1.8 times as long.
    pub retransmit_after: Duration,
    /// Retransmissions before the peer is given up.
    pub retransmissions: u32,
    /// Silence after which an empty INFORMATIONAL asks whether the peer lives; `None`: never.
    pub liveness_interval: Option<Duration>,
    /// Interval of NAT keepalives (RFC 3948 §4) while this side is behind a NAT.
    pub nat_keepalive: Duration,
    /// Half-open IKE SAs above which IKE_SA_INIT must come with a cookie (RFC 7296 §2.6).
    pub cookie_threshold: usize,
    /// Half-open IKE SAs above which IKE_SA_INIT is dropped.
    pub half_open_limit: usize,
    /// How long a replaced inbound SA still receives.
    pub linger: Duration,
    /// Anti-replay window in packets.
    pub replay_window: u32,
    /// When ESP is put into UDP.
    pub encap: Encap,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            retransmit_after: Duration::from_secs(1),
            retransmissions: 6,
            liveness_interval: Some(Duration::from_secs(30)),
            nat_keepalive: Duration::from_secs(20),
            cookie_threshold: 32,
            half_open_limit: 1024,
            linger: Duration::from_secs(5),
            replay_window: 4096,
            encap: Encap::Auto,
        }
    }
}

/// A received UDP datagram without the non-ESP marker.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Where it arrived; port 500 or 4500 (or what stands for them).
    pub local: SocketAddr,
    /// Where it came from.
    pub remote: SocketAddr,
    /// The IKE message.
    pub octets: &'a [u8],
}

/// A datagram to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// From where.
    pub local: SocketAddr,
    /// To where.
    pub remote: SocketAddr,
    /// The IKE message without non-ESP marker; the sender adds it on port 4500.
    pub octets: Vec<u8>,
    /// A NAT keepalive: the one octet 0xff, sent without marker.
    pub keepalive: bool,
}

/// When the engine next wants [`Engine::handle_timeout`], and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// When.
    pub at: Instant,
    /// Why, for logs.
    pub reason: &'static str,
}

/// A command cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// No tunnel of that name.
    #[error("no tunnel {0:?} in the policy{hint}", hint = .1.as_ref().map(|n| format!("; did you mean {n:?}?")).unwrap_or_default())]
    NoSuchTunnel(String, Option<String>),
    /// The tunnel's role is responder.
    #[error("{0:?} has the role responder: only the peer may start it")]
    ResponderOnly(String),
    /// The tunnel's peer has no address in the policy.
    #[error("{0:?} names no address of the peer: only the peer may start it")]
    NoPeerAddress(String),
    /// Nothing is up under that name.
    #[error("{0:?} is not up")]
    NotUp(String),
}

/// All IKE SAs of one gateway.
pub struct Engine<P: DataPlane> {
    _plane: PhantomData<P>,
}

impl<P: DataPlane> Engine<P> {
    /// Installs the policy's rules in the plane and starts the AutoStart tunnels. `seed` feeds every random choice;
    /// the port numbers of IKE (500 and 4500) are those of the addresses in [`Datagram`] and [`Transmit`].
    pub fn new(
        policy: Arc<Policy>,
        config: Config,
        plane: P,
        seed: [u8; 32],
        now: Instant,
    ) -> Self {
        let _ = (policy, config, plane, seed, now);
        unimplemented!()
    }

    // ---- inputs

    /// Takes a datagram from the network.
    pub fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>) {
        let _ = (now, datagram);
        unimplemented!()
    }

    /// Takes a notice from the data plane.
    pub fn handle_notice(&mut self, now: Instant, notice: Notice) {
        let _ = (now, notice);
        unimplemented!()
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        let _ = now;
        unimplemented!()
    }

    // ---- commands

    /// Starts a phase 1 or phase 2 tunnel by name. A phase 2 tunnel brings up its phase 1; a phase 1 tunnel brings up
    /// all of its phase 2 tunnels that this side may start. `Ok(true)`: it is up already.
    pub fn connect(&mut self, now: Instant, name: &str) -> Result<bool, CommandError> {
        let _ = (now, name);
        unimplemented!()
    }

    /// Deletes a phase 1 tunnel with all it carries, or one phase 2 tunnel.
    pub fn disconnect(&mut self, now: Instant, name: &str) -> Result<(), CommandError> {
        let _ = (now, name);
        unimplemented!()
    }

    /// Replaces the SA of a phase 1 or phase 2 tunnel by a new one without interruption.
    pub fn rekey(&mut self, now: Instant, name: &str) -> Result<(), CommandError> {
        let _ = (now, name);
        unimplemented!()
    }

    /// Replaces the policy: tunnels that did not change are untouched, changed and removed ones are deleted, new ones
    /// that say so are started.
    pub fn replace_policy(&mut self, now: Instant, policy: Arc<Policy>) {
        let _ = (now, policy);
        unimplemented!()
    }

    /// Deletes everything and refuses all that is new; [`Engine::is_idle`] tells when the peers have answered.
    pub fn stop(&mut self, now: Instant) {
        let _ = now;
        unimplemented!()
    }

    // ---- outputs: drain after every input and command

    /// The next datagram to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        unimplemented!()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        unimplemented!()
    }

    /// When [`Engine::handle_timeout`] is wanted.
    pub fn poll_timeout(&self) -> Option<Deadline> {
        unimplemented!()
    }

    // ---- looking

    /// Whether no IKE SA is left.
    pub fn is_idle(&self) -> bool {
        unimplemented!()
    }

    /// Every tunnel of the policy, and every SA.
    pub fn status(&mut self, now: Instant) -> Vec<IkeStatus> {
        let _ = now;
        unimplemented!()
    }

    /// Discarded datagrams by reason.
    pub fn discards(&self) -> &BTreeMap<&'static str, u64> {
        unimplemented!()
    }

    /// The last failure of a phase 1 or phase 2 tunnel.
    pub fn last_failure(&self, name: &str) -> Option<&Failure> {
        let _ = name;
        unimplemented!()
    }

    /// The data plane.
    pub fn plane(&mut self) -> &mut P {
        unimplemented!()
    }
}
