//! Tunnels: how an IKE SA is made (AIX: phase 1), and the Child SAs that it carries (AIX: phase 2).

use crate::{
    AdditionalKe, AddressRange, ChildProposal, Credential, Group, Identity, IkeProposal, Lifetime,
    Ppk, RangeKind, Selector,
};
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// Everything a gateway is told to do: all tunnels, every reference resolved.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// In the order of the document.
    pub tunnels: Vec<Arc<IkeTunnel>>,
}

impl Policy {
    /// The phase 1 tunnel of that name.
    pub fn tunnel(&self, name: &str) -> Option<&Arc<IkeTunnel>> {
        self.tunnels.iter().find(|t| t.name == name)
    }

    /// The phase 2 tunnel of that name, with the phase 1 tunnel that carries it.
    pub fn child(&self, name: &str) -> Option<(&Arc<IkeTunnel>, &Arc<ChildTunnel>)> {
        self.tunnels.iter().find_map(|t| t.children.iter().find(|c| c.name == name).map(|c| (t, c)))
    }
}

/// The side that may start a negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Starts and answers.
    Both,
    /// Starts only.
    Initiator,
    /// Answers only.
    Responder,
}

impl Role {
    /// Returns `true` if this side may start.
    pub fn may_initiate(self) -> bool {
        self != Self::Responder
    }

    /// Returns `true` if this side may answer.
    pub fn may_respond(self) -> bool {
        self != Self::Initiator
    }
}

/// Transport or tunnel mode (RFC 4301 §4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Protects the payload of packets between the two gateways themselves.
    Transport,
    /// Protects whole packets.
    Tunnel,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Both => "both",
            Self::Initiator => "initiator",
            Self::Responder => "responder",
        })
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Transport => "transport",
            Self::Tunnel => "tunnel",
        })
    }
}

/// One side of a phase 1 tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The address of the side; `None` means any address, which only a responder can serve.
    pub address: Option<IpAddr>,
    /// The identity of the side.
    pub identity: Identity,
}

impl Endpoint {
    /// A side at no certain address, which only a responder can serve.
    pub fn anywhere(identity: Identity) -> Self {
        Self { address: None, identity }
    }

    /// A side at an address.
    pub fn at(address: IpAddr, identity: Identity) -> Self {
        Self { address: Some(address), identity }
    }
}

impl From<IpAddr> for Endpoint {
    /// A side whose identity is its address.
    fn from(address: IpAddr) -> Self {
        Self::at(address, address.into())
    }
}

/// The definition of an IKE SA (AIX: a phase 1 tunnel).
#[derive(Clone, Debug, PartialEq)]
pub struct IkeTunnel {
    /// Unique among phase 1 tunnels.
    pub name: String,
    /// The side that may start it.
    pub role: Role,
    /// This side.
    pub local: Endpoint,
    /// The peer.
    pub remote: Endpoint,
    /// The authentication of both sides.
    pub credential: Credential,
    /// Postquantum preshared keys (RFC 8784).
    pub ppk: Option<Ppk>,
    /// The initiator may resume a session that it has lost with a ticket of the responder (RFC 5723).
    pub resumption: bool,
    /// Offers in order of preference, at least one.
    pub proposals: Vec<IkeProposal>,
    /// Lifetime of the IKE SA.
    pub lifetime: Lifetime,
    /// Started when the daemon starts.
    pub auto_start: bool,
    /// The phase 2 tunnels it carries.
    pub children: Vec<Arc<ChildTunnel>>,
    /// The answer to a peer that asks for traffic of none of these phase 2 tunnels; `None` refuses it.
    pub generic: Option<Arc<GenericChild>>,
}

impl IkeTunnel {
    /// A tunnel that either side may start, with AES-GCM and Curve25519 or P-256, rekeyed within eight hours. It
    /// carries nothing yet: add to `children`.
    pub fn new(
        name: impl Into<String>,
        local: Endpoint,
        remote: Endpoint,
        credential: Credential,
    ) -> Self {
        Self {
            name: name.into(),
            role: Role::Both,
            local,
            remote,
            credential,
            ppk: None,
            resumption: false,
            proposals: vec![IkeProposal::default()],
            lifetime: Lifetime::default(),
            auto_start: false,
            children: Vec::new(),
            generic: None,
        }
    }

    /// Adds a phase 2 tunnel.
    #[must_use]
    pub fn with_child(mut self, child: ChildTunnel) -> Self {
        self.children.push(Arc::new(child));
        self
    }

    /// Sets the role.
    #[must_use]
    pub fn with_role(self, role: Role) -> Self {
        Self { role, ..self }
    }

    /// Sets the proposals, in order of preference.
    #[must_use]
    pub fn with_proposals(self, proposals: Vec<IkeProposal>) -> Self {
        Self { proposals, ..self }
    }

    /// Sets the postquantum preshared keys.
    #[must_use]
    pub fn with_ppk(self, ppk: Ppk) -> Self {
        Self { ppk: Some(ppk), ..self }
    }

    /// Allows session resumption.
    #[must_use]
    pub fn with_resumption(self) -> Self {
        Self { resumption: true, ..self }
    }

    /// Sets the lifetime of the IKE SA.
    #[must_use]
    pub fn with_lifetime(self, lifetime: Lifetime) -> Self {
        Self { lifetime, ..self }
    }

    /// Starts the tunnel together with the gateway.
    #[must_use]
    pub fn with_auto_start(self) -> Self {
        Self { auto_start: true, ..self }
    }

    /// Returns `true` if this side may answer a peer between these addresses for it.
    pub fn may_answer(&self, local: IpAddr, remote: IpAddr) -> bool {
        self.role.may_respond()
            && self.local.address.is_none_or(|a| a == local)
            && self.remote.address.is_none_or(|a| a == remote)
    }
}

/// Perfect forward secrecy of a Child SA's rekeys (RFC 7296 §1.3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pfs {
    /// Groups offered as initiator, in order of preference; empty: no key exchange in CREATE_CHILD_SA.
    pub offer: Vec<Group>,
    /// Groups accepted as responder, whatever is offered as initiator.
    pub accept: Vec<Group>,
    /// True if a request without key exchange is accepted as responder.
    pub accept_none: bool,
    /// Key exchanges in addition to that of a group, offered and accepted (RFC 9370).
    pub additional: Vec<AdditionalKe>,
}

/// The definition of a Child SA (AIX: a phase 2 tunnel).
#[derive(Clone, Debug, PartialEq)]
pub struct ChildTunnel {
    /// Unique among phase 2 tunnels.
    pub name: String,
    /// The side that may start it.
    pub role: Role,
    /// Transport or tunnel mode; the peer must agree.
    pub mode: Mode,
    /// This side's traffic, at least one.
    pub local: Vec<Selector>,
    /// The peer's traffic, at least one.
    pub remote: Vec<Selector>,
    /// Offers in order of preference, at least one.
    pub proposals: Vec<ChildProposal>,
    /// Key exchange at creation outside IKE_AUTH and at rekeys.
    pub pfs: Pfs,
    /// Started when the daemon starts.
    pub auto_start: bool,
    /// Started by the first matching packet.
    pub on_demand: bool,
}

impl ChildTunnel {
    /// A tunnel-mode tunnel for all traffic between two ranges of addresses, which either side may start, with AES-GCM
    /// and a lifetime of an hour. A rekey is made without a key exchange of its own.
    pub fn new(name: impl Into<String>, local: AddressRange, remote: AddressRange) -> Self {
        Self {
            name: name.into(),
            role: Role::Both,
            mode: Mode::Tunnel,
            local: vec![Selector::all_of(local)],
            remote: vec![Selector::all_of(remote)],
            proposals: vec![ChildProposal::default()],
            pfs: Pfs { accept_none: true, ..Pfs::default() },
            auto_start: false,
            on_demand: false,
        }
    }

    /// Sets the role.
    #[must_use]
    pub fn with_role(self, role: Role) -> Self {
        Self { role, ..self }
    }

    /// Sets the mode.
    #[must_use]
    pub fn with_mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }

    /// Sets the proposals, in order of preference.
    #[must_use]
    pub fn with_proposals(self, proposals: Vec<ChildProposal>) -> Self {
        Self { proposals, ..self }
    }

    /// Sets the groups for key exchanges at rekeys: they are offered and accepted, in order of preference.
    #[must_use]
    pub fn with_pfs(self, groups: Vec<Group>) -> Self {
        let pfs = Pfs { offer: groups.clone(), accept: groups, ..Pfs::default() };
        Self { pfs, ..self }
    }

    /// Starts the tunnel together with the gateway.
    #[must_use]
    pub fn with_auto_start(self) -> Self {
        Self { auto_start: true, ..self }
    }

    /// Starts the tunnel with the first packet for it.
    #[must_use]
    pub fn with_on_demand(self) -> Self {
        Self { on_demand: true, ..self }
    }
}

/// The definition of Child SAs for traffic that the peer alone names. This side only answers.
#[derive(Clone, Debug, PartialEq)]
pub struct GenericChild {
    /// Name in the policy, for messages to the operator.
    pub name: String,
    /// Transport or tunnel mode; the peer must agree.
    pub mode: Mode,
    /// The traffic of this side that the peer may ask for.
    pub local: AllowedTraffic,
    /// The traffic of its own that the peer may ask for.
    pub remote: AllowedTraffic,
    /// Offers in order of preference, at least one.
    pub proposals: Vec<ChildProposal>,
    /// Key exchange at creation outside IKE_AUTH and at rekeys.
    pub pfs: Pfs,
}

/// Kinds of ranges that a peer may ask for, by family; `None` is nothing of that family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllowedTraffic {
    /// The widest of IPv4.
    pub ipv4: Option<RangeKind>,
    /// The widest of IPv6.
    pub ipv6: Option<RangeKind>,
}

impl AllowedTraffic {
    /// The most IPv4 addresses that a peer may name: as many as a /8 has.
    pub const MOST_IPV4: u128 = 1 << 24;

    /// The most IPv6 addresses that a peer may name: as many as a /32 has.
    pub const MOST_IPV6: u128 = 1 << 96;

    /// Returns `true` if ranges have no more addresses of either family than a peer may name. A range that stands there
    /// twice counts once. Only the policy itself can have more, in a phase 2 tunnel.
    pub fn is_bounded(ranges: impl IntoIterator<Item = AddressRange>) -> bool {
        let ranges: BTreeSet<AddressRange> = ranges.into_iter().collect();
        [(true, Self::MOST_IPV4), (false, Self::MOST_IPV6)].into_iter().all(|(ipv4, most)| {
            let of_family = ranges.iter().filter(|range| range.start().is_ipv4() == ipv4);
            of_family.map(AddressRange::count).fold(0, u128::saturating_add) <= most
        })
    }

    /// Returns `true` if a range is of a kind that may be asked for.
    pub fn allows(&self, range: &AddressRange) -> bool {
        let widest = if range.start().is_ipv4() { self.ipv4 } else { self.ipv6 };
        widest.is_some_and(|widest| range.kind() <= widest)
    }
}
