//! The knowledge of two sides of each other's addresses, if these may change (MOBIKE, RFC 4555).

use super::path::Path;
use crate::wire::header::IkeSpi;
use std::net::{IpAddr, SocketAddr};

/// Addresses of a peer that are kept; further ones are not used.
pub(crate) const PEER_ADDRESSES: usize = 8;

/// Paths on which an unanswered check of an address is tried, too.
const ALTERNATIVES: usize = 4;

/// The state of MOBIKE in a session.
#[derive(Debug, Default)]
pub(crate) struct Mobility {
    /// Both sides have said in IKE_AUTH that their addresses may change.
    pub supported: bool,
    /// The peer's other addresses, as it told last.
    pub peer: Box<[IpAddr]>,
    /// Our other addresses, as told last.
    pub told: Box<[IpAddr]>,
    /// Counts changes of the path: an answer that belongs to an earlier one says nothing of the present.
    pub moves: u64,
    /// Updates in a row that the peer has not carried out.
    pub refusals: u32,
    /// Our address as the peer last saw it.
    pub seen_as: Option<SeenAs>,
    /// The last choice of addresses by routes: a path found by trying is not given up before this changes.
    pub chosen: Option<(IpAddr, IpAddr)>,
    /// Until the peer has shown that it receives at its new address. In a place of its own: there seldom is one.
    pub doubt: Option<Box<Doubt>>,
}

/// The state until the peer has shown that it receives at its new address.
#[derive(Debug)]
pub(crate) struct Doubt {
    /// The path that Child SAs keep to.
    pub verified: Path,
    /// Where the peer was before, and where else the request came from that moved it: one of them may have been a copy.
    pub alternatives: Vec<Path>,
}

/// The peer's NAT_DETECTION_DESTINATION_IP: a hash of our address as it sees it, and of these SPIs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenAs {
    pub spis: (IkeSpi, IkeSpi),
    pub hash: [u8; 20],
}

impl Mobility {
    /// The peer is to show that it receives on a new path; until then Child SAs keep to `before`.
    pub fn doubt(&mut self, before: Path) {
        self.doubt = Some(Box::new(Doubt { verified: before, alternatives: vec![before] }));
    }

    /// The path that Child SAs keep to where the peer has not shown yet that it receives on the present one.
    pub fn verified(&self) -> Option<&Path> {
        self.doubt.as_ref().map(|d| &d.verified)
    }

    /// Notes that the request which moved the peer has also come by another path.
    pub fn also_from(&mut self, local: SocketAddr, remote: SocketAddr, present: &Path) {
        let Some(Doubt { alternatives, .. }) = self.doubt.as_deref_mut() else { return };
        let is_known = [present]
            .into_iter()
            .chain(alternatives.iter())
            .any(|path| (path.local, path.remote) == (local, remote));
        if is_known {
            return;
        }
        if alternatives.len() < ALTERNATIVES {
            alternatives.push(Path { local, remote, ..*present });
        }
    }

    /// Where the peer may be if not on the present path.
    pub fn alternatives(&self) -> &[Path] {
        self.doubt.as_ref().map_or(&[], |d| &d.alternatives)
    }

    /// Takes the alternative between these addresses in place of the present path.
    pub fn exchange(&mut self, local: SocketAddr, remote: SocketAddr, present: &mut Path) {
        let alternatives = self.doubt.iter_mut().flat_map(|d| &mut d.alternatives);
        if let Some(path) = { alternatives }.find(|p| (p.local, p.remote) == (local, remote)) {
            std::mem::swap(path, present);
        }
    }

    /// The present path leads to the peer.
    pub fn confirm_path(&mut self) {
        self.doubt = None;
    }
}
