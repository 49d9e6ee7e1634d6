//! One file per exchange, both roles side by side: `ask`, `answer`, `conclude`.

pub(crate) mod address_update;
pub(crate) mod auth;
pub(crate) mod child_sa;
pub(crate) mod childless;
pub(crate) mod create_child;
pub(crate) mod delete;
pub(crate) mod follow_up;
pub(crate) mod follow_up_answer;
pub(crate) mod half_open;
pub(crate) mod informational;
pub(crate) mod intermediate;
pub(crate) mod ppk;
pub(crate) mod rekey_ike;
pub(crate) mod resume;
pub(crate) mod sa_init;
pub(crate) mod ticket;

use crate::effect::Effects;
use crate::rejection::Rejection;
use crate::wire::payload::Payload;

/// The answer to a request of the peer, and what it causes.
pub(crate) struct Answer {
    pub payloads: Vec<Payload>,
    /// The IKE SA ends with it.
    pub fatal: bool,
    pub effects: Effects,
}

/// A request is granted: the payloads of the answer, and what they cause.
pub(crate) struct Granted {
    pub payloads: Vec<Payload>,
    pub effects: Effects,
}

impl From<&Rejection> for Answer {
    fn from(rejection: &Rejection) -> Self {
        let (payloads, fatal) = (vec![rejection.payload()], rejection.is_fatal());
        Self { payloads, fatal, effects: Effects::none() }
    }
}

impl From<Granted> for Answer {
    fn from(Granted { payloads, effects }: Granted) -> Self {
        Self { payloads, fatal: false, effects }
    }
}
