//! A picture of what is defined and what is up, for people and programs.

use crate::failure::Failure;
use crate::wire::header::IkeSpi;
use esp::path_mtu::Fit;
use esp::plane::{Encapsulation, Spi};
use policy::{Lifetime, Mode, Selector};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// State of an IKE SA or Child SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Defined, not up.
    Down,
    /// Negotiating for the first time.
    Negotiating,
    /// Up.
    Established,
    /// Up, and its successor is being negotiated.
    Rekeying,
    /// Being deleted.
    Closing,
}

impl State {
    /// Stable lower-case name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Negotiating => "negotiating",
            Self::Established => "established",
            Self::Rekeying => "rekeying",
            Self::Closing => "closing",
        }
    }
}

/// One IKE tunnel of the policy and its IKE SA, if it has one.
#[derive(Clone, Debug)]
pub struct IkeStatus {
    /// Name in the policy.
    pub name: String,
    /// State.
    pub state: State,
    /// Identities and addresses of the policy.
    pub local_id: String,
    /// The peer's.
    pub remote_id: String,
    /// The policy's address of this side.
    pub local_address: Option<IpAddr>,
    /// The policy's address of the peer.
    pub remote_address: Option<IpAddr>,
    /// The IKE SA; `None` while down.
    pub sa: Option<IkeSaStatus>,
    /// Child SAs to be and in being.
    pub children: Vec<ChildStatus>,
    /// The last failure, with how long ago.
    pub last_failure: Option<(Failure, Duration)>,
    /// Recent failures, the last one first.
    pub failures: Vec<PastFailure>,
    /// Refusals of late of those who have not proved who they are, and may have meant this tunnel.
    pub turned_away: Vec<PastFailure>,
}

/// A failure, some time later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastFailure {
    /// The failure.
    pub failure: Failure,
    /// How long ago, the last time.
    pub ago: Duration,
    /// How many times in a row.
    pub times: u32,
    /// At whom, where that was not the tunnel's peer for certain.
    pub peer: Option<SocketAddr>,
    /// Whether the tunnel has been up since.
    pub overcome: bool,
}

/// The event that a tunnel which is not up waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Next {
    /// An answer of the peer.
    Answer {
        /// To what.
        request: String,
        /// How many times it was sent.
        sent: u32,
        /// When it is sent again, or given up.
        again_in: Option<Duration>,
    },
    /// The next attempt of this side.
    Attempt {
        /// When.
        after: Duration,
        /// How many have failed in a row.
        failed: u32,
    },
    /// The first packet for it, or a command.
    Packet,
    /// A command.
    Command {
        /// Whether a command took it down.
        deactivated: bool,
    },
    /// The peer: this side may not start it, or does not know where the peer is.
    Peer,
}

/// An IKE SA.
#[derive(Clone, Debug)]
pub struct IkeSaStatus {
    /// Whether this side is its original initiator.
    pub initiator: bool,
    /// SPI of the original initiator.
    pub initiator_spi: IkeSpi,
    /// SPI of the original responder.
    pub responder_spi: IkeSpi,
    /// This side's address and port now.
    pub local: SocketAddr,
    /// The peer's address and port now.
    pub remote: SocketAddr,
    /// Whether this side is behind a NAT.
    pub nat_local: bool,
    /// Whether the peer is behind a NAT.
    pub nat_remote: bool,
    /// Algorithms, empty while unknown.
    pub suite: String,
    /// How long it has been up (since the first IKE SA of the tunnel's present life).
    pub established_for: Option<Duration>,
    /// Time to the next rekey.
    pub rekey_in: Option<Duration>,
    /// Time to its hard end.
    pub expires_in: Option<Duration>,
    /// How many times it was rekeyed.
    pub rekeys: u64,
}

/// One child tunnel of the policy and its Child SA, if it has one.
#[derive(Clone, Debug)]
pub struct ChildStatus {
    /// Name in the policy.
    pub name: String,
    /// State.
    pub state: State,
    /// Mode of the policy.
    pub mode: Mode,
    /// Selectors: agreed ones while up, else the policy's.
    pub local: Vec<Selector>,
    /// The peer's.
    pub remote: Vec<Selector>,
    /// The Child SA; `None` while down.
    pub sa: Option<ChildSaStatus>,
    /// The last failure, with how long ago.
    pub last_failure: Option<(Failure, Duration)>,
    /// Recent failures, the last one first.
    pub failures: Vec<PastFailure>,
    /// The event that it waits for; `None` while up.
    pub next: Option<Next>,
}

/// A Child SA: a pair of ESP SAs.
#[derive(Clone, Debug)]
pub struct ChildSaStatus {
    /// Algorithms.
    pub suite: String,
    /// Extended sequence numbers.
    pub esn: bool,
    /// How ESP travels.
    pub encapsulation: Encapsulation,
    /// SPI of what is received.
    pub inbound_spi: Spi,
    /// SPI of what is sent.
    pub outbound_spi: Spi,
    /// Packets and octets since the tunnel came up, over all rekeys.
    pub packets_in: u64,
    /// Packets sent.
    pub packets_out: u64,
    /// Octets of inner packets received.
    pub bytes_in: u64,
    /// Octets of inner packets sent.
    pub bytes_out: u64,
    /// Packets refused on these SAs.
    pub refused: u64,
    /// How long packets may be; `None` where the plane does not tell.
    pub fit: Option<Fit>,
    /// How long the tunnel has been up.
    pub established_for: Duration,
    /// Time to the next rekey.
    pub rekey_in: Option<Duration>,
    /// Lifetime of the present SA.
    pub lifetime: Lifetime,
    /// Octets until its hard end, of the direction that has fewer left; `None`: no limit.
    pub bytes_left: Option<u64>,
    /// Time to its hard end.
    pub expires_in: Option<Duration>,
    /// How many times it was rekeyed.
    pub rekeys: u64,
}
