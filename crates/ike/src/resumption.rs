//! Session resumption (RFC 5723) as seen from the engine: the tickets that this side may present, the tickets of peers
//! that count no more, and the clock by which tickets expire.

mod frozen;
mod spent;

use crate::crypto::rng::Rng;
use crate::negotiation::proposal::{choose_ike, proposal_of};
use crate::negotiation::suite::IkeSuite;
use crate::proof::trust::Trust;
use crate::sa::keys::{Resumable, UsedPpk};
use crate::ticket::{Fingerprint, Sealer, TicketId, fingerprint};
use crate::wire::payload::Proposal;
use crate::wire::registry::{AuthMethod, GroupId};
use policy::{Credential, Effect, IkeTunnel};
use spent::Spent;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest life of a ticket. A responder that accepts one that lives longer has a clock that was set back.
pub(crate) const LONGEST_LIFE: u64 = 8 * 3600;

/// Resumptions in a row, before both sides prove again by their credentials who they are.
pub(crate) const MOST_RESUMPTIONS: u8 = 8;

/// The state of session resumption of an engine.
pub(crate) struct Resumption {
    /// A moment, and how long after 1970 it was. Without it, this side neither gives nor takes tickets.
    clock: Option<(Instant, Duration)>,
    pub sealer: Sealer,
    pub spent: Spent,
    /// Tickets of sessions that are gone, by their tunnel's name.
    kept: BTreeMap<String, Kept>,
}

/// The proofs by credentials on which a session rests, and the tickets of its IKE SA.
pub(crate) struct Authentication {
    /// When they were given, in seconds since 1970.
    pub proved: u64,
    /// Until when they may be relied on, in seconds since 1970.
    pub until: u64,
    /// The resumptions since then.
    pub resumptions: u8,
    /// The method by which the initiator gave its proof.
    pub method: AuthMethod,
    /// The fingerprint of the initiator's ID payload.
    pub initiator: Fingerprint,
    /// The fingerprint of what the peer's proof was checked with.
    pub credential: Fingerprint,
    /// The ticket that this side has given, and when it expires, in seconds since 1970.
    pub given: Option<(TicketId, u64)>,
    /// The ticket that this side has been given.
    pub kept: Option<Box<Kept>>,
}

/// A ticket that this side has been given, and the state that belongs to it.
pub(crate) struct Kept {
    pub ticket: Vec<u8>,
    pub expires: Instant,
    pub old: Resumable,
    /// The phase 1 tunnel, as it was then.
    pub tunnel: Arc<IkeTunnel>,
    pub proved: u64,
    pub until: u64,
    pub resumptions: u8,
    pub method: AuthMethod,
    pub initiator: Fingerprint,
    pub credential: Fingerprint,
    /// Nothing came back when it was presented: a full handshake is tried before it is presented again.
    pub unanswered: bool,
}

impl Kept {
    /// The proofs on which the resumed session rests.
    pub fn authentication(&self) -> Authentication {
        Authentication {
            proved: self.proved,
            until: self.until,
            resumptions: self.resumptions.saturating_add(1),
            method: self.method,
            initiator: self.initiator,
            credential: self.credential,
            given: None,
            kept: None,
        }
    }
}

impl Resumption {
    pub fn new(mut rng: Rng) -> Self {
        let sealer = Sealer::new(&mut rng);
        Self { clock: None, sealer, spent: Spent::default(), kept: BTreeMap::new() }
    }

    /// Sets the clock by which tickets expire.
    pub fn set_clock(&mut self, now: Instant, unix_time: Duration) {
        self.clock = Some((now, unix_time));
    }

    /// The time in seconds since 1970; `None`: unknown.
    pub fn unix(&self, now: Instant) -> Option<u64> {
        let (at, unix_time) = self.clock?;
        Some(unix_time.saturating_add(now.saturating_duration_since(at)).as_secs())
    }

    /// Keeps the ticket of a session that is gone.
    pub fn keep(&mut self, kept: Kept) {
        self.kept.insert(kept.tunnel.name.clone(), kept);
    }

    /// Forgets the ticket of a tunnel: another session is up.
    pub fn forget(&mut self, tunnel: &str) {
        self.kept.remove(tunnel);
    }

    /// Forgets everything about tunnels that are not in the policy.
    pub fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        self.kept.retain(|tunnel, _| is_there(tunnel));
        self.spent.retain(is_there);
    }

    /// Takes out the ticket of a tunnel, if it may be presented now.
    pub fn take(&mut self, now: Instant, tunnel: &IkeTunnel, trust: &Trust) -> Option<Kept> {
        let unix = self.unix(now)?;
        let kept = self.kept.get_mut(&tunnel.name)?;
        if std::mem::take(&mut kept.unanswered) {
            return None;
        }
        let kept = self.kept.remove(&tunnel.name)?;
        let same = kept.tunnel.difference(tunnel).0 < Effect::Reestablished;
        let ppk = kept.old.ppk.as_ref().map(|ppk| *ppk.hash());
        let suite = proposal_of(&kept.old.suite);
        let allowed = allowed(tunnel, trust, &kept.credential, &suite, ppk.as_ref()).is_some();
        let in_time = now < kept.expires && unix < kept.until;
        (same && allowed && in_time).then_some(kept)
    }
}

/// The fingerprint of everything that a peer's proof is checked with, given that of the trust store. A ticket counts as
/// long as that is the same.
pub(crate) fn credential(tunnel: &IkeTunnel, trust: &Fingerprint) -> Fingerprint {
    match &tunnel.credential {
        Credential::PresharedKey(key) => {
            // A digest of the key alone would be the same for every tunnel with this key.
            fingerprint(&[b"key", tunnel.name.as_bytes(), &[0], key.expose()])
        }
        Credential::Signature(rules) => {
            let rules = format!("{rules:?}");
            fingerprint(&[b"signature", trust, rules.as_bytes()])
        }
    }
}

/// The policy allows that an IKE SA of this suite and with this PPK is resumed after a proof with that credential:
/// returns the suite, and the PPK.
pub(crate) fn allowed(
    tunnel: &IkeTunnel,
    trust: &Trust,
    proved_with: &Fingerprint,
    suite: &Proposal,
    ppk: Option<&Fingerprint>,
) -> Option<(IkeSuite, Option<Arc<UsedPpk>>)> {
    if !tunnel.resumption || credential(tunnel, trust.digest()) != *proved_with {
        return None;
    }
    let offered = std::slice::from_ref(suite);
    let (suite, _) = choose_ike(&tunnel.proposals, offered, GroupId::NONE, &[])?;
    let known = tunnel.ppk.iter().flat_map(|ppk| &ppk.ids);
    match (ppk, &tunnel.ppk) {
        (None, None) => Some((suite, None)),
        (Some(hash), Some(_)) => {
            let mut known = known.filter_map(|id| Some(UsedPpk::of(id, trust.ppk(id)?)));
            let used = known.find(|used| used.hash() == hash)?;
            Some((suite, Some(Arc::new(used))))
        }
        // With another PPK, or without one that the policy names by now, both sides prove who they are again.
        _ => None,
    }
}
