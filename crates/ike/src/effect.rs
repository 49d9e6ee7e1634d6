//! Everything that a session can ask of the engine.
//!
//! A method of a session that can cause one of these returns [`Effects`], so that its signature says so. The engine
//! applies them in one place, `Engine::store`, once the session has done its work.

use crate::wire::header::IkeSpi;
use esp::plane::{SaId, Spi, Usage};
use std::time::{Duration, Instant};

/// One request of a session to the engine.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Messages for this SPI go to the session from now on.
    SpiTaken(IkeSpi),
    /// The session no longer knows this SPI.
    SpiGivenUp(IkeSpi),
    /// A request on the IKE SA with this SPI waits until the plane is prepared for it.
    Postponed(IkeSpi),
    /// An SA is in the plane; notices about it go to the session, for the Child SA with this inbound SPI.
    SaInstalled(SaId, Spi),
    /// The session no longer cares for this SA.
    SaForgotten(SaId),
    /// Both sides have proved who they are.
    SessionUp,
    /// A session that was up is over.
    SessionDown,
    /// An inbound SA of a session that is over or closing. Packets of the peer may be on their way to it.
    InboundOrphaned(Lingering),
    /// An outbound SA of a session that is over or closing. It goes when another session's SAs have taken over.
    OutboundRetired(SaId),
    /// The session wants a successor (RFC 7296 §2.8.3).
    SuccessorDue,
    /// A phase 2 tunnel, by name, that was up is to be set up again.
    Reconnect(String),
    /// The peer has deleted a phase 2 tunnel of a session that goes on.
    Lost(Lost),
    /// A phase 2 tunnel, by name, could not be set up although its IKE SA is there.
    Unserved(String),
}

/// A phase 2 tunnel that went without this side's will.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    pub name: String,
    /// The time for which it was up.
    pub after: Duration,
}

/// An inbound SA that is replaced, or gone for its peer, and still receives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lingering {
    /// Until when.
    pub until: Instant,
    pub sa: SaId,
    pub spi: Spi,
    /// The Child SA, by its inbound SPI, that has inherited the count of its packets, and the count at that time.
    pub heir: Option<(Spi, Usage)>,
}

/// Requests of a session to the engine, in their order.
#[derive(Debug, Default)]
#[must_use = "effects do nothing until the engine applies them"]
pub(crate) struct Effects(Vec<Effect>);

impl Effects {
    pub fn none() -> Self {
        Self::default()
    }

    pub fn push(&mut self, effect: Effect) {
        self.0.push(effect);
    }

    /// These, and then the others.
    pub fn and(mut self, others: impl Into<Self>) -> Self {
        self += others.into();
        self
    }
}

impl From<Effect> for Effects {
    fn from(effect: Effect) -> Self {
        Self(vec![effect])
    }
}

impl FromIterator<Effect> for Effects {
    fn from_iter<I: IntoIterator<Item = Effect>>(effects: I) -> Self {
        Self(effects.into_iter().collect())
    }
}

impl Extend<Effect> for Effects {
    fn extend<I: IntoIterator<Item = Effect>>(&mut self, effects: I) {
        self.0.extend(effects);
    }
}

impl std::ops::AddAssign for Effects {
    fn add_assign(&mut self, others: Self) {
        self.0.extend(others.0);
    }
}

impl IntoIterator for Effects {
    type Item = Effect;
    type IntoIter = std::vec::IntoIter<Effect>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
