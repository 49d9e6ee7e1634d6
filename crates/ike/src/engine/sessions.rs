//! The sessions of an engine, found by what names them: an SPI, a tunnel, a pair of identities, an SA of the plane.

use crate::policy_index::peer_number;
use crate::session::Session;
use crate::session_id::SessionId;
use crate::wire::header::IkeSpi;
use esp::plane::{SaId, Spi};
use policy::IkeTunnel;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Every session. One that is at work is out of here, but still found by its names.
#[derive(Default)]
pub(crate) struct Sessions {
    all: BTreeMap<SessionId, Box<Session>>,
    /// By a number made of their tunnel's name.
    by_tunnel: BTreeSet<(u64, SessionId)>,
    /// By a number made of their tunnel's identities.
    by_peer: BTreeSet<(u64, SessionId)>,
    by_spi: HashMap<IkeSpi, SessionId>,
    /// With the Child SA, by its inbound SPI.
    by_sa: HashMap<SaId, (SessionId, Spi)>,
}

impl Sessions {
    /// Gives a new session its names. It is stored by [`Sessions::store`].
    pub fn enter(&mut self, id: SessionId, session: &Session) {
        self.by_tunnel.insert((number_of(&session.tunnel().name), id));
        self.by_peer.insert((peer_number(session.tunnel()), id));
    }

    /// Forgets the names of a session that is over.
    pub fn leave(&mut self, id: SessionId, session: &Session) {
        self.by_tunnel.remove(&(number_of(&session.tunnel().name), id));
        self.by_peer.remove(&(peer_number(session.tunnel()), id));
    }

    /// Takes a session out to work.
    pub fn take(&mut self, id: SessionId) -> Option<Box<Session>> {
        self.all.remove(&id)
    }

    /// Stores it again.
    pub fn store(&mut self, id: SessionId, session: Box<Session>) {
        self.all.insert(id, session);
    }

    /// Has messages for an SPI lead to a session.
    pub fn enter_spi(&mut self, id: SessionId, spi: IkeSpi) {
        self.by_spi.insert(spi, id);
    }

    pub fn leave_spi(&mut self, spi: IkeSpi) {
        self.by_spi.remove(&spi);
    }

    /// Has notices about an SA lead to a session and its Child SA with this inbound SPI.
    pub fn enter_sa(&mut self, id: SessionId, sa: SaId, child: Spi) {
        self.by_sa.insert(sa, (id, child));
    }

    pub fn leave_sa(&mut self, sa: SaId) {
        self.by_sa.remove(&sa);
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn get(&self, id: SessionId) -> Option<&Session> {
        self.all.get(&id).map(Box::as_ref)
    }

    pub fn get_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.all.get_mut(&id).map(Box::as_mut)
    }

    /// In the order in which they began.
    pub fn iter(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        self.all.iter().map(|(id, session)| (*id, session.as_ref()))
    }

    pub fn ids(&self) -> Vec<SessionId> {
        self.all.keys().copied().collect()
    }

    pub fn of_spi(&self, spi: IkeSpi) -> Option<SessionId> {
        self.by_spi.get(&spi).copied()
    }

    /// The number of SPIs that lead to sessions.
    pub fn spis(&self) -> usize {
        self.by_spi.len()
    }

    /// The session that an SA in the plane belongs to, and the Child SA by its inbound SPI.
    pub fn of_sa(&self, sa: SaId) -> Option<(SessionId, Spi)> {
        self.by_sa.get(&sa).copied()
    }

    /// The number of SAs in the plane that belong to sessions.
    pub fn sas(&self) -> usize {
        self.by_sa.len()
    }

    /// The sessions of a phase 1 tunnel, in the order in which they began.
    pub fn of_tunnel(&self, name: &str) -> impl DoubleEndedIterator<Item = (SessionId, &Session)> {
        let found = under(&self.by_tunnel, number_of(name));
        let found = found.filter_map(|id| Some((id, self.get(id)?)));
        found.filter(move |(_, s)| s.tunnel().name == name)
    }

    /// The sessions between the same two identities, in the order in which they began.
    pub fn of_peer(&self, tunnel: &IkeTunnel) -> impl Iterator<Item = (SessionId, &Session)> {
        let found = under(&self.by_peer, peer_number(tunnel));
        let found = found.filter_map(|id| Some((id, self.get(id)?)));
        found.filter(move |(_, s)| {
            s.tunnel().local.identity.matches(&tunnel.local.identity)
                && s.tunnel().remote.identity.matches(&tunnel.remote.identity)
        })
    }
}

fn under(
    index: &BTreeSet<(u64, SessionId)>,
    number: u64,
) -> impl DoubleEndedIterator<Item = SessionId> {
    let range = (number, SessionId(0))..=(number, SessionId(u64::MAX));
    index.range(range).map(|(_, id)| *id)
}

fn number_of(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}
