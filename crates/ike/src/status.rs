//! A picture of what is defined and what is up, for people and programs.

use crate::close_reason::CloseReason;
use crate::failure::Failure;
use crate::failure::facts::Silence;
use crate::negotiation::suite::{ChildSuite, IkeSuite};
use crate::product::Product;
use crate::quantum::QuantumSafety;
use crate::wire::header::IkeSpi;
use esp::families::Family;
use esp::path_mtu::Fit;
use esp::plane::{Encapsulation, PacketSummary, Spi};
use policy::{Lifetime, Mode, Selector};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

mod page;

pub use page::{PageStart, StatusPage};

/// State of an IKE SA or Child SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
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
    /// Up, but a part of the data plane is missing on the host: its packets may not pass, or may leave in the clear
    /// when it is down ([`ChildStatus::fault`]).
    Blocked,
}

impl State {
    /// All states. The place of each is the number by which metrics tell it.
    pub const ALL: [Self; 6] = [
        Self::Down,
        Self::Negotiating,
        Self::Established,
        Self::Rekeying,
        Self::Closing,
        Self::Blocked,
    ];

    /// The state with this name; `None` if there is none.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Its place in [`State::ALL`].
    pub fn number(self) -> usize {
        self as usize
    }

    /// Returns `true` if packets pass, as far as the two gateways are concerned.
    pub fn is_up(self) -> bool {
        matches!(self, Self::Established | Self::Rekeying)
    }

    /// Returns `true` if both gateways have the SA, whether or not its packets pass.
    pub fn has_sa(self) -> bool {
        self.is_up() || self == Self::Blocked
    }

    /// Stable lower-case name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Negotiating => "negotiating",
            Self::Established => "established",
            Self::Rekeying => "rekeying",
            Self::Closing => "closing",
            Self::Blocked => "blocked",
        }
    }
}

/// One phase 1 tunnel of the policy and its IKE SA, if it has one.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct IkeStatus {
    /// Name in the policy.
    pub name: String,
    /// State.
    pub state: State,
    /// This side's identity in the policy.
    pub local_id: String,
    /// The peer's identity in the policy.
    pub remote_id: String,
    /// The policy's address of this side.
    pub local_address: Option<IpAddr>,
    /// The policy's address of the peer.
    pub remote_address: Option<IpAddr>,
    /// The peer's IKE daemon as it introduced itself last; `None` if it did not, or was not met.
    pub product: Option<Product>,
    /// The IKE SA; `None` while down.
    pub sa: Option<IkeSaStatus>,
    /// Its end, if it was up before and is down.
    pub ended: Option<Ended>,
    /// The event that the IKE SA waits for while it is being deleted.
    pub next: Option<Next>,
    /// The request of its IKE SA that the peer has not answered yet: it was sent again, or it is known that it may not
    /// have reached the peer.
    pub unanswered: Option<Unanswered>,
    /// The phase 2 tunnels, with their Child SAs.
    pub children: Vec<ChildStatus>,
    /// The last failure, with how long ago.
    pub last_failure: Option<(Failure, Duration)>,
    /// Recent failures, the last one first.
    pub failures: Vec<PastFailure>,
    /// Recent refusals of peers that have not proved their identity and may have meant this tunnel.
    pub turned_away: Vec<PastFailure>,
}

/// A request that the peer has not answered yet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Unanswered {
    /// The request, and the number of times that it was sent.
    pub silence: Silence,
    /// The number of times after which the peer is given up; more if it is tried in smaller fragments (RFC 7383).
    pub most: u32,
    /// The time since it was sent first.
    pub silent_for: Duration,
    /// The time until the peer is given up.
    pub given_up_in: Duration,
}

/// A failure, some time later.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct PastFailure {
    /// The failure.
    pub failure: Failure,
    /// The time since then; since the last time, if it happened several times.
    pub ago: Duration,
    /// The number of times in a row.
    pub times: u32,
    /// The address of the other side, if it may not have been the tunnel's peer.
    pub peer: Option<SocketAddr>,
    /// The tunnel has come up since; after a refused renewal, one has succeeded since.
    pub overcome: bool,
    /// The time since it came up first after the failure.
    pub overcome_ago: Option<Duration>,
    /// The time since the policy or the certificates were first loaded again after the failure.
    pub outdated_ago: Option<Duration>,
}

/// The end of a tunnel that was up.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Ended {
    /// The reason.
    pub reason: CloseReason,
    /// The time since then.
    pub ago: Duration,
}

impl Ended {
    /// An end.
    pub fn new(reason: CloseReason, ago: Duration) -> Self {
        Self { reason, ago }
    }
}

/// The event that a tunnel which is not up waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Next {
    /// An answer of the peer.
    Answer {
        /// The request that was sent.
        request: String,
        /// The number of times that it was sent.
        sent: u32,
        /// The number of times that it is sent before the peer is given up.
        most: u32,
        /// The reason why it may not have reached the peer, for people.
        obstacle: Option<String>,
        /// The time until it is sent again or given up.
        again_in: Option<Duration>,
    },
    /// The next attempt of this side.
    Attempt {
        /// The time until then.
        after: Duration,
        /// The number of attempts in a row that have failed.
        failed: u32,
    },
    /// The first packet for it, or a command.
    Packet,
    /// A command.
    Command {
        /// A command took it down.
        deactivated: bool,
    },
    /// A command that switches on IPsec of this address family.
    Family(Family),
    /// The peer: this side may not start it, or does not know where the peer is.
    Peer,
}

/// An IKE SA.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct IkeSaStatus {
    /// This side is its original initiator.
    pub initiator: bool,
    /// SPI of the original initiator.
    pub initiator_spi: IkeSpi,
    /// SPI of the original responder.
    pub responder_spi: IkeSpi,
    /// This side's address and port now.
    pub local: SocketAddr,
    /// The peer's address and port now.
    pub remote: SocketAddr,
    /// This side is behind a NAT.
    pub nat_local: bool,
    /// The peer is behind a NAT.
    pub nat_remote: bool,
    /// Algorithms; `None` while they are not agreed.
    pub suite: Option<IkeSuite>,
    /// A postquantum preshared key is in the keys of its Child SAs, and of the IKE SAs that replace it (RFC 8784).
    pub ppk: bool,
    /// Whether its keys withstand a quantum computer; `None` while it is not up.
    pub quantum_safety: Option<QuantumSafety>,
    /// The time since the tunnel came up, over all rekeys.
    pub established_for: Option<Duration>,
    /// Time to the next rekey.
    pub rekey_in: Option<Duration>,
    /// Time to its hard end.
    pub expires_in: Option<Duration>,
    /// The number of times that it was rekeyed.
    pub rekeys: u64,
    /// The resumptions (RFC 5723) since both sides last proved by their credentials who they are; `None`: it is none.
    pub resumptions: Option<u8>,
}

/// One phase 2 tunnel of the policy and its Child SA, if it has one.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ChildStatus {
    /// Name in the policy.
    pub name: String,
    /// The peer has asked for it under a generic policy: the policy does not name it, and the peer's traffic is a part of
    /// its name.
    pub is_asked_for: bool,
    /// State.
    pub state: State,
    /// Mode of the policy.
    pub mode: Mode,
    /// This side's selectors: the agreed ones while the tunnel is up, otherwise the policy's.
    pub local: Vec<Selector>,
    /// The peer's selectors, likewise.
    pub remote: Vec<Selector>,
    /// The traffic that one side wants, where both have agreed on less of it; `None` while down.
    pub narrowed: Option<Narrowed>,
    /// The Child SA; `None` while down.
    pub sa: Option<ChildSaStatus>,
    /// Its end, if it was up before and is down.
    pub ended: Option<Ended>,
    /// The reason why no packet passes although it is up; `None` if packets pass.
    pub fault: Option<String>,
    /// The last failure, with how long ago.
    pub last_failure: Option<(Failure, Duration)>,
    /// Recent failures, the last one first.
    pub failures: Vec<PastFailure>,
    /// The last packet of its traffic, or of this host to the peer's network, that was about to leave in the clear, and
    /// how long ago the guard dropped it. The guard tells of a packet a second at most.
    pub unprotected: Option<(PacketSummary, Duration)>,
    /// The event that it waits for; `None` while up.
    pub next: Option<Next>,
    /// The state of its renewal, where it takes more than a rekey.
    pub renewal: Option<Renewal>,
}

/// The renewal of a Child SA whose rekey was refused, or that is replaced with its whole IKE SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Renewal {
    /// The peer has refused a rekey, and is asked for one with any traffic.
    Widened,
    /// The peer has refused a rekey, and is asked for a new Child SA.
    NewChildSa,
    /// A new IKE SA is being set up, which takes over.
    NewIkeSa,
    /// The last attempt has failed.
    Again {
        /// The time until the next one.
        after: Duration,
        /// The time until the Child SA ends.
        ends_in: Duration,
    },
}

/// Traffic of which a part is agreed on (RFC 7296 §2.9).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Narrowed {
    /// This side's traffic: that of the policy; with [`NarrowedBy::Grant`], that of the peer's request.
    pub local: Vec<Selector>,
    /// The peer's traffic, likewise.
    pub remote: Vec<Selector>,
    /// The message that narrowed the traffic.
    pub by: NarrowedBy,
}

/// The message by which a Child SA has less traffic than one side wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum NarrowedBy {
    /// The peer's answer: this side asked for all of its policy's traffic.
    Answer,
    /// The peer's request: it asked for less than the policy has.
    Request,
    /// This side's answer: the peer asked for more than the policy has for this phase 2 tunnel.
    Grant,
}

impl NarrowedBy {
    /// Stable name for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Answer => "answer",
            Self::Request => "request",
            Self::Grant => "grant",
        }
    }
}

/// A Child SA: a pair of ESP SAs.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ChildSaStatus {
    /// Algorithms.
    pub suite: ChildSuite,
    /// Extended sequence numbers.
    pub esn: bool,
    /// Whether its keys withstand a quantum computer.
    pub quantum_safety: QuantumSafety,
    /// The outer protocol of its packets.
    pub encapsulation: Encapsulation,
    /// SPI of the packets that this side receives.
    pub inbound_spi: Spi,
    /// SPI of the packets that this side sends.
    pub outbound_spi: Spi,
    /// Packets received since the tunnel came up, over all rekeys; the three counters that follow count likewise.
    pub packets_in: u64,
    /// Packets sent.
    pub packets_out: u64,
    /// Octets of inner packets received.
    pub bytes_in: u64,
    /// Octets of inner packets sent.
    pub bytes_out: u64,
    /// The time since the last packet was received; `None`: none was.
    pub idle_in: Option<Duration>,
    /// The time since the last packet was sent.
    pub idle_out: Option<Duration>,
    /// Packets refused on these SAs.
    pub refused: u64,
    /// The length that packets may have; `None` if the plane does not tell.
    pub fit: Option<Fit>,
    /// The time since the tunnel came up, over all rekeys.
    pub established_for: Duration,
    /// Time to the next rekey.
    pub rekey_in: Option<Duration>,
    /// Lifetime of the present SA.
    pub lifetime: Lifetime,
    /// Octets until its hard end, of the direction that has fewer left; `None`: no limit.
    pub bytes_left: Option<u64>,
    /// Time to its hard end.
    pub expires_in: Option<Duration>,
    /// The number of times that it was rekeyed.
    pub rekeys: u64,
}

impl IkeStatus {
    /// A tunnel that is down.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            state: State::Down,
            local_id: String::new(),
            remote_id: String::new(),
            local_address: None,
            remote_address: None,
            product: None,
            sa: None,
            ended: None,
            next: None,
            unanswered: None,
            children: Vec::new(),
            last_failure: None,
            failures: Vec::new(),
            turned_away: Vec::new(),
        }
    }
}

impl IkeSaStatus {
    /// An IKE SA that is being set up, with the SPIs of its initiator and its responder.
    pub fn new(spis: (IkeSpi, IkeSpi), local: SocketAddr, remote: SocketAddr) -> Self {
        Self {
            initiator: true,
            initiator_spi: spis.0,
            responder_spi: spis.1,
            local,
            remote,
            nat_local: false,
            nat_remote: false,
            suite: None,
            ppk: false,
            quantum_safety: None,
            established_for: None,
            rekey_in: None,
            expires_in: None,
            rekeys: 0,
            resumptions: None,
        }
    }
}

impl ChildStatus {
    /// A phase 2 tunnel that is down.
    pub fn new(name: impl Into<String>, mode: Mode) -> Self {
        Self {
            name: name.into(),
            is_asked_for: false,
            state: State::Down,
            mode,
            local: Vec::new(),
            remote: Vec::new(),
            narrowed: None,
            sa: None,
            ended: None,
            fault: None,
            last_failure: None,
            failures: Vec::new(),
            unprotected: None,
            next: None,
            renewal: None,
        }
    }
}

impl ChildSaStatus {
    /// A Child SA that has just been set up, with its inbound and its outbound SPI.
    pub fn new(suite: ChildSuite, spis: (Spi, Spi), lifetime: Lifetime) -> Self {
        Self {
            suite,
            esn: suite.esn,
            quantum_safety: QuantumSafety::NotInPolicy,
            encapsulation: Encapsulation::Native,
            inbound_spi: spis.0,
            outbound_spi: spis.1,
            packets_in: 0,
            packets_out: 0,
            bytes_in: 0,
            bytes_out: 0,
            idle_in: None,
            idle_out: None,
            refused: 0,
            fit: None,
            established_for: Duration::ZERO,
            rekey_in: None,
            lifetime,
            bytes_left: lifetime.bytes,
            expires_in: None,
            rekeys: 0,
        }
    }
}

impl PastFailure {
    /// A failure of the tunnel's peer that happened once.
    pub fn new(failure: Failure, ago: Duration) -> Self {
        let (overcome_ago, outdated_ago) = (None, None);
        Self { failure, ago, times: 1, peer: None, overcome: false, overcome_ago, outdated_ago }
    }
}
