//! Session resumption in a frozen engine: tickets of both directions, and those that count no more.

use super::spent::{Of, Spent};
use super::{Authentication, Kept, Resumption};
use crate::crypto::rng::Rng;
use crate::exchange::half_open::Resumed;
use crate::frozen::values::{
    header_spis, ike_suite, proposal, secret, write_header_spis, write_ike_suite, write_proposal,
};
use crate::policy_index::PolicyIndex;
use crate::proof::Checked;
use crate::sa::keys::{Resumable, UsedPpk};
use crate::thawing::{Thawing, write_tunnel};
use crate::ticket::{Sealer, TicketId, TicketKey};
use crate::wire::registry::AuthMethod;
use ::frozen::{Clock, Field, Reader, Unthawable, Writer};
use std::collections::BTreeMap;
use std::sync::Arc;

const SET_AT: Field = Field::new(1);
const UNIX_TIME: Field = Field::new(2);
const OWN_KEY: Field = Field::new(3);
const SPENT: Field = Field::new(4);
const KEPT: Field = Field::new(5);

const TUNNEL: Field = Field::new(1);
const TICKETS: Field = Field::new(2);
const CLOSED_UNTIL: Field = Field::new(3);

impl Resumption {
    pub fn freeze(&self, to: &mut Writer<'_>, clock: &Clock, policy: &PolicyIndex) {
        let Self { clock: set, sealer, spent, kept } = self;
        if let Some((at, unix_time)) = set {
            to.moment(SET_AT, clock, *at);
            to.time(UNIX_TIME, *unix_time);
        }
        to.octets(OWN_KEY, sealer.own().expose());
        let Spent(spent) = spent;
        to.list(SPENT, spent, |to, (tunnel, of)| {
            let Of { tickets, closed_until } = of;
            to.text(TUNNEL, tunnel);
            to.list(TICKETS, tickets, |to, ticket| write_ticket(to, *ticket));
            to.number(CLOSED_UNTIL, *closed_until);
        });
        to.list(KEPT, kept.values(), |to, kept| kept.freeze(to, clock, policy));
    }

    /// The successor seals tickets with a start of its own.
    pub fn thaw(mut from: Reader<'_>, cx: Thawing<'_>, mut rng: Rng) -> Result<Self, Unthawable> {
        let set = from.moment_if_any(SET_AT, &cx.clock)?;
        let unix_time = from.time(UNIX_TIME)?;
        let own = TicketKey::new(secret(&mut from, OWN_KEY)?);
        let own = own.ok_or_else(|| from.invalid(OWN_KEY))?;
        let mut spent = BTreeMap::new();
        for mut from in from.list(SPENT, "tickets that count no more")? {
            let tunnel = from.text(TUNNEL)?.to_owned();
            let tickets = from.list(TICKETS, "a ticket")?.map(ticket);
            let tickets = tickets.collect::<Result<_, Unthawable>>()?;
            let closed_until = from.number(CLOSED_UNTIL)?;
            from.end()?;
            spent.insert(tunnel, Of { tickets, closed_until });
        }
        let mut kept = BTreeMap::new();
        for from in from.list(KEPT, "a ticket of a peer")? {
            let ticket = Kept::thaw(from, cx)?;
            kept.insert(ticket.tunnel.name.clone(), ticket);
        }
        from.end()?;
        Ok(Self {
            clock: set.map(|at| (at, unix_time)),
            sealer: Sealer::with_key(&mut rng, own),
            spent: Spent(spent),
            kept,
        })
    }
}

const START: Field = Field::new(1);
const COUNTER: Field = Field::new(2);
const EXPIRES: Field = Field::new(3);

fn write_ticket(to: &mut Writer<'_>, (TicketId(start, counter), expires): (TicketId, u64)) {
    to.octets(START, &start.to_be_bytes());
    to.number(COUNTER, counter);
    to.number(EXPIRES, expires);
}

fn ticket(mut from: Reader<'_>) -> Result<(TicketId, u64), Unthawable> {
    let id = TicketId(u128::from_be_bytes(from.array(START)?), from.number(COUNTER)?);
    let expires = from.number(EXPIRES)?;
    from.end()?;
    Ok((id, expires))
}

const PROVED: Field = Field::new(1);
const UNTIL: Field = Field::new(2);
const RESUMPTIONS: Field = Field::new(3);
const METHOD: Field = Field::new(4);
const INITIATOR: Field = Field::new(5);
const CREDENTIAL: Field = Field::new(6);
const GIVEN: Field = Field::new(7);
const KEPT_TICKET: Field = Field::new(8);
/// Of a ticket that this side has been given.
const TICKET: Field = Field::new(7);
const EXPIRES_AT: Field = Field::new(8);
const OLD: Field = Field::new(9);
const OF_TUNNEL: Field = Field::new(10);
const UNANSWERED: Field = Field::new(11);

impl Authentication {
    pub fn freeze(&self, to: &mut Writer<'_>, clock: &Clock, policy: &PolicyIndex) {
        let Self { proved, until, resumptions, method, initiator, credential, given, kept } = self;
        to.number(PROVED, *proved);
        to.number(UNTIL, *until);
        to.number(RESUMPTIONS, *resumptions);
        to.number(METHOD, method.0);
        to.octets(INITIATOR, initiator);
        to.octets(CREDENTIAL, credential);
        to.record_if_any(GIVEN, *given, write_ticket);
        to.record_if_any(KEPT_TICKET, kept.as_ref(), |to, kept| kept.freeze(to, clock, policy));
    }

    pub fn thaw(mut from: Reader<'_>, cx: Thawing<'_>) -> Result<Self, Unthawable> {
        let thawed = Self {
            proved: from.number(PROVED)?,
            until: from.number(UNTIL)?,
            resumptions: from.number(RESUMPTIONS)?,
            method: AuthMethod(from.number(METHOD)?),
            initiator: from.array(INITIATOR)?,
            credential: from.array(CREDENTIAL)?,
            given: from.record_if_any(GIVEN, "a ticket")?.map(ticket).transpose()?,
            kept: match from.record_if_any(KEPT_TICKET, "a ticket of a peer")? {
                None => None,
                Some(kept) => Some(Box::new(Kept::thaw(kept, cx)?)),
            },
        };
        from.end()?;
        Ok(thawed)
    }
}

impl Kept {
    pub fn freeze(&self, to: &mut Writer<'_>, clock: &Clock, policy: &PolicyIndex) {
        let Self {
            ticket,
            expires,
            old,
            tunnel,
            proved,
            until,
            resumptions,
            method,
            initiator,
            credential,
            unanswered,
        } = self;
        to.number(PROVED, *proved);
        to.number(UNTIL, *until);
        to.number(RESUMPTIONS, *resumptions);
        to.number(METHOD, method.0);
        to.octets(INITIATOR, initiator);
        to.octets(CREDENTIAL, credential);
        to.octets(TICKET, ticket);
        to.moment(EXPIRES_AT, clock, *expires);
        to.record(OLD, |to| old.freeze(to));
        to.record(OF_TUNNEL, |to| write_tunnel(to, tunnel, policy));
        to.flag(UNANSWERED, *unanswered);
    }

    pub fn thaw(mut from: Reader<'_>, cx: Thawing<'_>) -> Result<Self, Unthawable> {
        let thawed = Self {
            proved: from.number(PROVED)?,
            until: from.number(UNTIL)?,
            resumptions: from.number(RESUMPTIONS)?,
            method: AuthMethod(from.number(METHOD)?),
            initiator: from.array(INITIATOR)?,
            credential: from.array(CREDENTIAL)?,
            ticket: from.octets(TICKET)?.to_vec(),
            expires: from.moment(EXPIRES_AT, &cx.clock)?,
            old: Resumable::thaw(from.record(OLD, "an IKE SA that is gone")?)?,
            tunnel: cx.tunnel(from.record(OF_TUNNEL, "a tunnel")?)?,
            unanswered: from.flag(UNANSWERED)?,
        };
        from.end()?;
        Ok(thawed)
    }
}

const SUITE: Field = Field::new(1);
const SK_D: Field = Field::new(2);
const PPK: Field = Field::new(3);
const QUANTUM_SAFE: Field = Field::new(4);

impl Resumable {
    fn freeze(&self, to: &mut Writer<'_>) {
        let Self { suite, sk_d, ppk, quantum_safe } = self;
        to.record(SUITE, |to| write_ike_suite(to, *suite));
        to.octets(SK_D, sk_d.expose());
        to.record_if_any(PPK, ppk.as_ref(), |to, ppk| ppk.freeze(to));
        to.flag(QUANTUM_SAFE, *quantum_safe);
    }

    fn thaw(mut from: Reader<'_>) -> Result<Self, Unthawable> {
        let thawed = Self {
            suite: ike_suite(from.record(SUITE, "an IKE suite")?)?,
            sk_d: secret(&mut from, SK_D)?,
            ppk: match from.record_if_any(PPK, "a PPK")? {
                None => None,
                Some(ppk) => Some(Arc::new(UsedPpk::thaw(ppk)?)),
            },
            quantum_safe: from.flag(QUANTUM_SAFE)?,
        };
        from.end()?;
        Ok(thawed)
    }
}

const TICKET_OF: Field = Field::new(1);
const NAME: Field = Field::new(2);
const RESPONDER: Field = Field::new(3);
const RESUMED_PPK: Field = Field::new(4);
const PROPOSAL: Field = Field::new(5);
const SPIS: Field = Field::new(6);
const AUTHENTICATION: Field = Field::new(7);

impl Resumed {
    pub fn freeze(&self, to: &mut Writer<'_>, clock: &Clock, policy: &PolicyIndex) {
        let Self { id, expires, tunnel, responder, ppk, suite, spis, authentication } = self;
        to.record(TICKET_OF, |to| write_ticket(to, (*id, *expires)));
        to.octets(NAME, tunnel);
        to.octets(RESPONDER, responder);
        to.octets_if_any(RESUMED_PPK, ppk.as_ref().map(<[u8; 32]>::as_slice));
        to.record(PROPOSAL, |to| write_proposal(to, suite));
        to.record(SPIS, |to| write_header_spis(to, *spis));
        to.record(AUTHENTICATION, |to| authentication.freeze(to, clock, policy));
    }

    pub fn thaw(mut from: Reader<'_>, cx: Thawing<'_>) -> Result<Self, Unthawable> {
        let (id, expires) = ticket(from.record(TICKET_OF, "a ticket")?)?;
        let (tunnel, responder) = (from.array(NAME)?, from.array(RESPONDER)?);
        let ppk = match from.octets_if_any(RESUMED_PPK)?.map(<[u8; 32]>::try_from) {
            None => None,
            Some(Ok(ppk)) => Some(ppk),
            Some(Err(_)) => return Err(from.invalid(RESUMED_PPK)),
        };
        let suite = proposal(&mut from, PROPOSAL)?;
        let spis = header_spis(from.record(SPIS, "SPIs")?)?;
        let authentication = from.record(AUTHENTICATION, "the proofs of a session")?;
        let authentication = Authentication::thaw(authentication, cx)?;
        from.end()?;
        Ok(Self { id, expires, tunnel, responder, ppk, suite, spis, authentication })
    }
}

const CHECKED_UNTIL: Field = Field::new(1);
const TRUST: Field = Field::new(2);

impl Checked {
    pub fn freeze(&self, to: &mut Writer<'_>) {
        let Self { until, trust } = self;
        to.time(CHECKED_UNTIL, *until);
        to.octets(TRUST, trust);
    }

    pub fn thaw(mut from: Reader<'_>) -> Result<Self, Unthawable> {
        let checked = Self { until: from.time(CHECKED_UNTIL)?, trust: from.array(TRUST)? };
        from.end()?;
        Ok(checked)
    }
}
