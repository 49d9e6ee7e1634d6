//! Where the peer is, and whether a NAT is in between (RFC 7296 §2.23).

use crate::crypto::tally;
use crate::wire::header::IkeSpi;
use crate::wire::payload::{Notify, Payload};
use crate::wire::registry::{NotifyType, ProtocolId};
use ::crypto::Suite;
use crypto::asymmetric::Hash;
use esp::plane::{self, Encapsulation};
use policy::ChildProposal;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// IKE's port (RFC 7296 §2).
pub const IKE_PORT: u16 = 500;
/// The registered port of IKE and of ESP in UDP where NATs are traversed (RFC 3948).
pub const NAT_T_PORT: u16 = 4500;

/// Octets of the smallest IP datagram that a fragment can be made for: any less would be headers only.
pub const SMALLEST_FRAGMENT: u16 = 160;

/// Sizes of IP datagrams that are tried one after the other when nothing comes back: what every IPv6 link carries, and
/// what every IPv4 host takes (RFC 7383 §2.5.1).
pub(crate) const FRAGMENT_SIZES: [u16; 2] = [1280, 576];

/// Addresses of both sides and what is known of NATs between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    /// This side is behind a NAT.
    pub nat_local: bool,
    /// The peer is behind a NAT.
    pub nat_remote: bool,
    /// Both sides tell of NATs, and so can traverse them.
    pub traverses: bool,
    /// One side has announced a NAT where there is none, to have ESP in UDP.
    pub pretended: bool,
    /// Octets of the largest IP datagram in which a protected message goes; `None`: the two sides do not both take
    /// fragments.
    pub fragment_size: Option<u16>,
}

impl Path {
    pub fn new(local: SocketAddr, remote: SocketAddr) -> Self {
        Self {
            local,
            remote,
            nat_local: false,
            nat_remote: false,
            traverses: false,
            pretended: false,
            fragment_size: None,
        }
    }

    /// The path of another IKE_SA_INIT to the same peer. A NAT in front of the peer lets it in by the mapping in use
    /// only (RFC 7296 §2.23: IKE_SA_INIT may go to the port of NAT traversal, too).
    pub fn for_another(&self, first_port: u16) -> Self {
        if self.nat_remote {
            return Self::new(self.local, self.remote);
        }
        let [local, remote] =
            [self.local, self.remote].map(|address| SocketAddr::new(address.ip(), first_port));
        Self::new(local, remote)
    }

    /// Returns `true` if ESP travels in UDP.
    pub fn in_udp(&self) -> bool {
        self.nat_local || self.nat_remote || self.pretended
    }

    /// Moves to the port of NAT traversal (RFC 7296 §2.23: after IKE_SA_INIT, when a NAT was seen).
    pub fn float(&mut self, natt_port: u16) {
        self.local.set_port(natt_port);
        if self.remote.port() == IKE_PORT {
            self.remote.set_port(natt_port);
        }
    }

    /// Octets of the longest IKE message in an IP datagram of `size` octets (RFC 7383 Appendix B).
    pub fn room(&self, size: u16) -> usize {
        const UDP_HEADER: usize = 8;
        const NON_ESP_MARKER: usize = 4;
        let ip_header = if self.remote.is_ipv4() { 20 } else { 40 };
        let outside = ip_header + UDP_HEADER + NON_ESP_MARKER;
        usize::from(size.max(SMALLEST_FRAGMENT)) - outside
    }

    /// Makes fragments no larger than the peer's, of which the largest had so many octets: it may know why (RFC 7383
    /// §2.5.1).
    pub fn follow_fragments(&mut self, largest: usize) {
        let fitting = FRAGMENT_SIZES.into_iter().filter(|s| largest <= self.room(*s)).min();
        if let (Some(ours), Some(theirs)) = (&mut self.fragment_size, fitting) {
            *ours = theirs.min(*ours);
        }
    }

    /// Those of a tunnel's proposals whose packets get to the peer: AH covers the addresses, which a NAT changes.
    pub fn carries(&self, proposals: &[ChildProposal]) -> Vec<ChildProposal> {
        let natted = self.nat_local || self.nat_remote;
        proposals.iter().filter(|p| !(natted && p.protection.is_ah())).cloned().collect()
    }

    /// The data plane's view, for packets of that suite.
    pub fn of_plane(&self, suite: Suite) -> plane::Path {
        let encapsulation = match (suite, self.in_udp()) {
            (Suite::Ah(_), _) => Encapsulation::Ah,
            (_, true) => Encapsulation::Udp,
            (_, false) => Encapsulation::Native,
        };
        plane::Path { local: self.local, remote: self.remote, encapsulation }
    }
}

fn hash(spis: (IkeSpi, IkeSpi), address: SocketAddr) -> Vec<u8> {
    let mut octets = [spis.0.0.to_be_bytes(), spis.1.0.to_be_bytes()].concat();
    match address.ip() {
        IpAddr::V4(a) => octets.extend(a.octets()),
        IpAddr::V6(a) => octets.extend(a.octets()),
    }
    octets.extend(address.port().to_be_bytes());
    tally::digest(Hash::Sha1, &octets)
}

/// An address that no datagram comes from.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// The two NAT_DETECTION notifications; with `pretend` the source is one that cannot be seen.
pub(crate) fn announce(spis: (IkeSpi, IkeSpi), path: &Path, pretend: bool) -> [Payload; 2] {
    let source = hash(spis, if pretend { NOWHERE } else { path.local });
    [
        (NotifyType::NAT_DETECTION_SOURCE_IP, source),
        (NotifyType::NAT_DETECTION_DESTINATION_IP, hash(spis, path.remote)),
    ]
    .map(|(kind, data)| {
        Payload::Notify(Notify { protocol: ProtocolId::NONE, spi: vec![], kind, data })
    })
}

/// Reads the peer's NAT_DETECTION notifications into `path`; `false` if it sent none and so cannot traverse NATs.
pub(crate) fn detect(spis: (IkeSpi, IkeSpi), path: &mut Path, payloads: &[Payload]) -> bool {
    let [mut sources, mut destinations] =
        [NotifyType::NAT_DETECTION_SOURCE_IP, NotifyType::NAT_DETECTION_DESTINATION_IP].map(
            |kind| {
                let hashes = payloads.iter().filter_map(move |p| match p {
                    Payload::Notify(n) if n.kind == kind => Some(&n.data),
                    _ => None,
                });
                hashes.peekable()
            },
        );
    if sources.peek().is_none() || destinations.peek().is_none() {
        return false;
    }
    let (seen_source, seen_destination) = (hash(spis, path.remote), hash(spis, path.local));
    path.nat_remote = !sources.any(|s| *s == seen_source);
    path.nat_local = !destinations.any(|d| *d == seen_destination);
    true
}
