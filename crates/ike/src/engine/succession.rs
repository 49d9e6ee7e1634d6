//! One session per tunnel: new ones are taken in, redundant ones are closed, and others take over their SAs.

use super::Engine;
use crate::close_reason::CloseReason;
use crate::deadlines::{Deadline, Waiter, after};
use crate::effect::{Effect, Effects, Lingering};
use crate::originator::Originator;
use crate::session::Session;
use crate::session_id::SessionId;
use crate::wire::header::IkeSpi;
use esp::plane::{DataPlane, SaId};
use std::sync::Arc;
use std::time::Instant;

/// Sessions of a tunnel that are left to the peer to delete, and as many that wait for the answer to their Delete:
/// honest peers have one of a kind. A peer that begins sessions as fast as it can has no more than these; the oldest go
/// first.
const SPARE_SESSIONS: usize = 8;

impl<P: DataPlane> Engine<P> {
    pub(super) fn sessions_of(
        &self,
        tunnel: &str,
    ) -> impl DoubleEndedIterator<Item = (SessionId, &Session)> {
        self.sessions.of_tunnel(tunnel).filter(|(_, s)| !s.is_closing())
    }

    /// The session that serves a phase 1 tunnel, or will.
    pub(super) fn session_of(&self, tunnel: &str) -> Option<SessionId> {
        self.sessions_of(tunnel)
            .rfind(|(_, s)| s.is_established())
            .or_else(|| self.sessions_of(tunnel).next_back())
            .map(|(id, _)| id)
    }

    /// Gives a new session its place. `effects` are those of its making.
    pub(super) fn take_in(
        &mut self,
        now: Instant,
        session: Session,
        effects: Effects,
    ) -> SessionId {
        self.next_session += 1;
        let id = SessionId(self.next_session);
        self.out.name_peer(&session.tunnel().name, session.path().remote);
        let taken: Effects = session.each_sa().map(|sa| Effect::SpiTaken(sa.local_spi)).collect();
        self.sessions.enter(id, &session);
        self.store(now, id, Box::new(session), taken.and(effects));
        id
    }

    /// Takes in a session that a peer has begun.
    pub(super) fn adopt(
        &mut self,
        now: Instant,
        session: Session,
        initial_contact: bool,
        resumes: Option<(IkeSpi, IkeSpi)>,
        effects: Effects,
    ) {
        let tunnel = Arc::clone(session.tunnel());
        let begun_at = session.begun_at();
        let id = self.take_in(now, session, effects);
        if let Some(spis) = resumes {
            self.end_resumed(now, id, &tunnel.name, spis);
        }
        if initial_contact {
            // RFC 7296 §2.4: the peer knows of no other between these two identities, so whatever was up before it
            // began is dead.
            let dead: Vec<SessionId> = (self.sessions.of_peer(&tunnel))
                .filter(|(other, _)| *other != id)
                .filter(|(_, s)| s.established_at().is_some_and(|at| at < begun_at))
                .map(|(other, _)| other)
                .collect();
            for other in dead {
                self.with_session(now, other, |session, cx| {
                    session.end_unknown(cx, CloseReason::PeerRestarted)
                });
            }
        }
        self.close_duplicate_sessions(now, id);
    }

    /// Ends the session that the peer has resumed in another one, without a Delete (RFC 5723 §4.3.4).
    fn end_resumed(&mut self, now: Instant, heir: SessionId, tunnel: &str, spis: (IkeSpi, IkeSpi)) {
        let old = [spis.0, spis.1].into_iter().find_map(|spi| self.sessions.of_spi(spi));
        let of_tunnel = |id: &SessionId| {
            self.sessions.get(*id).is_some_and(|session| session.tunnel().name == tunnel)
        };
        if let Some(old) = old.filter(|old| *old != heir).filter(of_tunnel) {
            self.with_session(now, old, |session, cx| {
                session.end_unknown(cx, CloseReason::Resumed)
            });
        }
    }

    /// Leaves one session per tunnel. Of two begun by different sides, the one made with the lowest nonce goes, closed
    /// by the side that began it, as with crossing rekeys; of two begun by the same side the older goes. No RFC says
    /// this of whole IKE SAs: where the peer leaves its own in place, this side closes that after a while.
    pub(super) fn close_duplicate_sessions(&mut self, now: Instant, new: SessionId) {
        let Some(session) = self.sessions.get(new).filter(|s| !s.is_closing()) else { return };
        let (tunnel, originator, nonce) =
            (session.tunnel().name.clone(), session.originator(), session.lowest_nonce());
        let mut redundant = Vec::new();
        let mut left_to_the_peer = Vec::new();
        let mut predecessors = Vec::new();
        for (id, other) in
            self.sessions_of(&tunnel).filter(|(id, s)| *id != new && s.is_established())
        {
            if session.predecessor() == Some(id) {
                continue;
            }
            // The peer knows of that one, or would have said so: it deletes it when this one has taken over.
            if originator == Originator::Peer && other.was_up_before(session) {
                predecessors.push(id);
                continue;
            }
            if other.originator() == originator {
                redundant.push((id, new));
            } else {
                let (loser, heir, begun_by) = match other.lowest_nonce() < nonce {
                    true => (id, new, other.originator()),
                    false => (new, id, originator),
                };
                match begun_by {
                    Originator::ThisSide => redundant.push((loser, heir)),
                    Originator::Peer => left_to_the_peer.push(loser),
                }
            }
        }
        let surplus = predecessors.len().saturating_sub(SPARE_SESSIONS);
        redundant.extend(predecessors.drain(..surplus).map(|id| (id, new)));
        left_to_the_peer.extend(predecessors);
        let at = after(now, self.config.patience());
        for id in left_to_the_peer {
            let deadline = Deadline { at, reason: "redundant IKE SA" };
            self.deadlines.set(Waiter::Redundant(id), Some(deadline));
        }
        for (id, heir) in redundant {
            self.close_in_favour_of(now, id, heir);
        }
        let closing = self.sessions.of_tunnel(&tunnel).filter(|(_, s)| s.is_closing());
        let closing: Vec<SessionId> = closing.map(|(id, _)| id).collect();
        for id in closing.iter().take(closing.len().saturating_sub(SPARE_SESSIONS)) {
            self.with_session(now, *id, |session, cx| {
                session.end(cx, CloseReason::TooManySessions, None)
            });
        }
    }

    /// Closes a session that the peer should have closed, if another still serves the tunnel in its place.
    pub(super) fn close_redundant(&mut self, now: Instant, id: SessionId) {
        let Some(session) = self.sessions.get(id).filter(|s| !s.is_closing()) else { return };
        let heir = self
            .sessions_of(&session.tunnel().name)
            .find(|(other, s)| {
                *other != id
                    && s.is_established()
                    && (session.was_up_before(s) || s.lowest_nonce() > session.lowest_nonce())
            })
            .map(|(other, _)| other);
        if let Some(heir) = heir {
            self.close_in_favour_of(now, id, heir);
        }
    }

    /// Closes a session; another one of the tunnel takes over what it serves.
    pub(super) fn close_in_favour_of(&mut self, now: Instant, id: SessionId, heir: SessionId) {
        let served = self.ask_session(now, id, |session, cx| {
            session.close_as_redundant(cx, CloseReason::Redundant)
        });
        self.with_session(now, heir, |session, _| {
            served.into_iter().for_each(|name| session.want_child(name));
            Effects::none()
        });
    }

    /// Inbound SAs of a session that ends receive for a while if another one serves the same tunnel: packets of the
    /// peer are on their way. Otherwise they go at once.
    pub(super) fn hand_over(
        &mut self,
        now: Instant,
        of: SessionId,
        tunnel: &str,
        orphans: Vec<Lingering>,
        retired: Vec<SaId>,
    ) {
        if orphans.is_empty() && retired.is_empty() {
            return;
        }
        let heir = self
            .sessions_of(tunnel)
            .find(|(id, s)| *id != of && s.is_established())
            .map(|(id, _)| id);
        match heir {
            Some(heir) => self.with_session(now, heir, |session, cx| {
                session.relieve(cx);
                retired.into_iter().for_each(|sa| _ = cx.plane.remove(sa));
                orphans.into_iter().for_each(|orphan| session.linger(cx, orphan));
                Effects::none()
            }),
            None => {
                retired.into_iter().for_each(|sa| _ = self.plane.remove(sa));
                for orphan in orphans {
                    self.plane.remove(orphan.sa);
                    self.spis.release(orphan.spi);
                }
            }
        }
    }
}
