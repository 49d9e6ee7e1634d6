//! What two sides know of each other's addresses where these may change (MOBIKE, RFC 4555).

use super::path::Path;
use crate::wire::header::IkeSpi;
use std::net::{IpAddr, SocketAddr};

/// Addresses of a peer that are kept; what it tells beyond them is not used.
pub(crate) const PEER_ADDRESSES: usize = 8;

/// Paths on which an unanswered check of an address is tried, too.
const ALTERNATIVES: usize = 4;

/// The state of MOBIKE in a session.
#[derive(Debug, Default)]
pub(crate) struct Mobility {
    /// Both sides have said in IKE_AUTH that their addresses may change.
    pub supported: bool,
    /// The peer's addresses besides the one it uses, as it told last.
    pub peer: Vec<IpAddr>,
    /// Our addresses besides the one in use, as told last.
    pub told: Vec<IpAddr>,
    /// Counts changes of the path: an answer that belongs to an earlier one says nothing of the present.
    pub moves: u64,
    /// Updates in a row that the peer has not carried out.
    pub refusals: u32,
    /// How the peer last saw our address.
    pub seen_as: Option<SeenAs>,
    /// The last choice of addresses by routes: a path found by trying is not given up before this changes.
    pub chosen: Option<(IpAddr, IpAddr)>,
    /// The path that Child SAs keep to until the peer has shown that it receives at its new address.
    pub verified: Option<Path>,
    /// Where the peer was before, and where else the request came from that moved it: one of them may have been a copy.
    alternatives: Vec<Path>,
}

/// The peer's NAT_DETECTION_DESTINATION_IP: a hash of our address as it sees it, and of these SPIs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenAs {
    pub spis: (IkeSpi, IkeSpi),
    pub hash: Vec<u8>,
}

impl Mobility {
    /// The peer is to show that it receives on a new path; until then Child SAs keep to `before`.
    pub fn doubt(&mut self, before: Path) {
        self.verified = Some(before);
        self.alternatives = vec![before];
    }

    /// Notes that the request which moved the peer has also come by another path.
    pub fn also_from(&mut self, local: SocketAddr, remote: SocketAddr, present: &Path) {
        let known = |p: &Path| (p.local, p.remote) == (local, remote);
        if self.verified.is_none() || known(present) || self.alternatives.iter().any(known) {
            return;
        }
        if self.alternatives.len() < ALTERNATIVES {
            self.alternatives.push(Path { local, remote, ..*present });
        }
    }

    /// Where the peer may be if not on the present path.
    pub fn alternatives(&self) -> &[Path] {
        &self.alternatives
    }

    /// Takes the alternative between these addresses in place of the present path.
    pub fn exchange(&mut self, local: SocketAddr, remote: SocketAddr, present: &mut Path) {
        let wanted = |p: &&mut Path| (p.local, p.remote) == (local, remote);
        if let Some(path) = self.alternatives.iter_mut().find(wanted) {
            std::mem::swap(path, present);
        }
    }

    /// The present path leads to the peer.
    pub fn settle(&mut self) {
        self.verified = None;
        self.alternatives.clear();
    }
}
