//! An engine as a value: it is frozen in one process, and thawed in another one that takes its place.
//!
//! Freezing changes nothing. A predecessor whose successor does not confirm goes on as it was. Thawing is all or nothing,
//! and asks nothing of the data plane but to forget SPIs on offer: the plane that is passed in has the rules and the SAs
//! already, under the same names.
//!
//! The key log and the time between two looks at the host are not part of it: the successor sets them as at any start.
//! The seed of random numbers is a fresh one. Work with certificates that the predecessor has handed out is handed out
//! once more.

use super::Engine;
use crate::config::{Config, InvalidConfig};
use crate::contacts::Contacts;
use crate::context::Spis;
use crate::crypto::rng::Rng;
use crate::deadlines::{Deadline, Deadlines, Waiter};
use crate::exchange::auth::{self, responder};
use crate::frozen::values::{addresses, spis, write_addresses, write_spis};
use crate::outputs::Outputs;
use crate::policy_index::PolicyIndex;
use crate::proof::trust::Trust;
use crate::reconnection::Reconnection;
use crate::resumption::Resumption;
use crate::rules::Rules;
use crate::session::Session;
use crate::session_id::SessionId;
use crate::strangers::Strangers;
use crate::thawing::Thawing;
use crate::ticket::fingerprint;
use crate::upkeep::Upkeep;
use crate::wire::header::IkeSpi;
use ::frozen::{Clock, Field, Reader, Unthawable, Writer};
use esp::families::Families;
use esp::plane::{DataPlane, EarlyPackets, Spi};
use policy::{InvalidPolicy, Policy};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

const RULES: Field = Field::new(1);
const SESSIONS: Field = Field::new(2);
const NEXT_SESSION: Field = Field::new(3);
const SPIS: Field = Field::new(4);
const POSTPONED: Field = Field::new(5);
const RECONNECTION: Field = Field::new(6);
const RETRIES: Field = Field::new(7);
const REDUNDANT: Field = Field::new(8);
const STOPPING: Field = Field::new(9);
const ADDRESSES: Field = Field::new(10);
const OUTPUTS: Field = Field::new(11);
const STRANGERS: Field = Field::new(12);
const IPV4_OFF: Field = Field::new(13);
const IPV6_OFF: Field = Field::new(14);
const RESUMPTION: Field = Field::new(15);

const ID: Field = Field::new(1);
const SESSION: Field = Field::new(2);

const NAME: Field = Field::new(1);
const AT: Field = Field::new(2);

/// An engine cannot be frozen while outputs wait: [`Engine::poll`] hands them out.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("outputs of the engine wait to be handed out")]
pub struct NotDrained;

policy::readable_debug!(NotDrained);

/// An engine cannot be thawed.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ThawError {
    /// The frozen engine cannot be read, or does not fit the policy.
    #[error(transparent)]
    Frozen(#[from] Unthawable),
    /// Values of the policy.
    #[error(transparent)]
    Policy(#[from] InvalidPolicy),
    /// Values of the configuration.
    #[error(transparent)]
    Config(#[from] InvalidConfig),
}

policy::readable_debug!(ThawError);

impl<P: DataPlane> Engine<P> {
    /// Writes the engine as a record, which has its keys. It is polled first until it says [`Output::Wait`].
    ///
    /// [`Output::Wait`]: crate::Output::Wait
    ///
    /// # Errors
    /// If outputs wait. Nothing is written then.
    pub fn freeze(&self, now: Instant, to: &mut Writer<'_>) -> Result<(), NotDrained> {
        if self.out.are_waiting() {
            return Err(NotDrained);
        }
        let clock = &Clock::new(now);
        // Every field is named, so that a new one cannot be forgotten here.
        let Self {
            policy,
            trust: _,
            config,
            plane: _,
            rng: _,
            spis,
            contacts: _,
            out,
            rules,
            sessions,
            next_session,
            strangers,
            postponed,
            deadlines,
            reconnection,
            stopping,
            addresses,
            upkeep: _,
            resumption,
        } = self;
        to.record(RULES, |to| rules.freeze(to));
        to.list(SESSIONS, sessions.iter(), |to, (SessionId(id), session)| {
            to.number(ID, id);
            to.record(SESSION, |to| session.freeze(to, clock, policy));
        });
        to.number(NEXT_SESSION, *next_session);
        write_spis(to, SPIS, spis.iter());
        to.list(POSTPONED, postponed, |to, spi| to.number(ID, spi.0));
        to.record(RECONNECTION, |to| reconnection.freeze(to, clock));
        let retries = deadlines.waiters().filter_map(|waiter| match waiter {
            Waiter::Retry(name) => Some((name, deadlines.of(waiter)?)),
            _ => None,
        });
        to.list(RETRIES, retries, |to, (name, at)| {
            to.text(NAME, name);
            to.moment(AT, clock, at);
        });
        let redundant = deadlines.waiters().filter_map(|waiter| match waiter {
            Waiter::Redundant(id) => Some((id, deadlines.of(waiter)?)),
            _ => None,
        });
        to.list(REDUNDANT, redundant, |to, (SessionId(id), at)| {
            to.number(ID, *id);
            to.moment(AT, clock, at);
        });
        to.flag(STOPPING, *stopping);
        write_addresses(to, ADDRESSES, addresses);
        to.record(OUTPUTS, |to| out.freeze(to, clock));
        to.record(STRANGERS, |to| strangers.freeze(to, clock, policy));
        to.flag(IPV4_OFF, !config.families.ipv4);
        to.flag(IPV6_OFF, !config.families.ipv6);
        to.record(RESUMPTION, |to| resumption.freeze(to, clock, policy));
        Ok(())
    }

    /// Makes the engine that a record describes. `plane` has the rules and the SAs of the frozen engine, `policy` is the
    /// one under which it was frozen ([`Engine::replace_policy`] takes another one afterwards), and `frozen_at` the
    /// moment of freezing by the present clock. The families of addresses are those of the frozen engine.
    ///
    /// The caller then goes on as at any start: [`Engine::handle_addresses`], [`Engine::restore`], and
    /// [`Notice::Prepared`](esp::plane::Notice::Prepared), which the predecessor may have taken last.
    ///
    /// # Errors
    /// As [`Engine::new`], and if the record cannot be read or does not fit the policy. The plane is as it was then, but
    /// dropped.
    pub fn thaw(
        mut from: Reader<'_>,
        policy: Arc<Policy>,
        trust: Arc<Trust>,
        config: Config,
        plane: P,
        seed: [u8; 32],
        frozen_at: Instant,
    ) -> Result<Self, ThawError> {
        config.validate()?;
        policy.validate()?;
        let clock = Clock::new(frozen_at);
        let policy = PolicyIndex::new(policy);
        let rules = Rules::thaw(from.record(RULES, "the rules")?, &policy)?;
        let cx = Thawing { clock, policy: &policy, rules: &rules, crypto: &config.crypto };
        let mut sessions = Vec::new();
        for mut from in from.list(SESSIONS, "a session")? {
            let id = SessionId(from.some_number(ID)?);
            let session = Session::thaw(from.record(SESSION, "a session")?, cx)?;
            from.end()?;
            sessions.push((id, Box::new(session)));
        }
        let next_session = from.number(NEXT_SESSION)?;
        let offered: BTreeSet<Spi> = spis(&mut from, SPIS)?.into_iter().collect();
        let postponed = from.list(POSTPONED, "an SPI")?.map(|mut from| {
            let spi = IkeSpi(from.some_number(ID)?);
            from.end().map(|()| spi)
        });
        let postponed = postponed.collect::<Result<_, Unthawable>>()?;
        let reconnection = from.record(RECONNECTION, "tunnels that come back")?;
        let reconnection = Reconnection::thaw(reconnection, &clock)?;
        let mut deadlines = Deadlines::default();
        for mut from in from.list(RETRIES, "the next attempt of a tunnel")? {
            let waiter = Waiter::Retry(from.text(NAME)?.to_owned());
            let at = from.moment(AT, &clock)?;
            from.end()?;
            deadlines.set(waiter, Some(Deadline { at, reason: "next attempt" }));
        }
        for mut from in from.list(REDUNDANT, "a redundant session")? {
            let waiter = Waiter::Redundant(SessionId(from.some_number(ID)?));
            let at = from.moment(AT, &clock)?;
            from.end()?;
            deadlines.set(waiter, Some(Deadline { at, reason: "redundant IKE SA" }));
        }
        let stopping = from.flag(STOPPING)?;
        let addresses = addresses(&mut from, ADDRESSES)?;
        let out = Outputs::thaw(from.record(OUTPUTS, "the outputs")?, &clock)?;
        let strangers = Strangers::thaw(from.record(STRANGERS, "strangers")?, cx)?;
        let families = Families { ipv4: !from.flag(IPV4_OFF)?, ipv6: !from.flag(IPV6_OFF)? };
        let of_tickets = Rng::from_seed(fingerprint(&[b"tickets", &seed]));
        let resumption = match from.record_if_any(RESUMPTION, "session resumption")? {
            None => Resumption::new(of_tickets),
            Some(from) => Resumption::thaw(from, cx, of_tickets)?,
        };
        from.end()?;
        let mut engine = Self {
            policy,
            trust,
            config: Config { families, ..config },
            plane,
            rng: Rng::from_seed(seed),
            spis: Spis::of(offered.clone()),
            contacts: Contacts::default(),
            out,
            rules,
            sessions: super::Sessions::default(),
            next_session,
            strangers,
            postponed,
            deadlines,
            reconnection,
            stopping,
            addresses,
            upkeep: Upkeep::default(),
            resumption,
        };
        sessions.into_iter().for_each(|(id, session)| engine.take_thawed(id, session));
        engine.deadlines.set(Waiter::FinalAnswers, engine.out.next_final_answer());
        for half in engine.strangers.iter() {
            let waiter = Waiter::HalfOpen(half.begun.local_spi);
            engine.deadlines.set(waiter, Some(half.deadline()));
        }
        engine.release_unknown(offered);
        engine.hand_jobs_out_again(frozen_at);
        Ok(engine)
    }

    /// Gives a thawed session its place, and enters what leads to it.
    fn take_thawed(&mut self, id: SessionId, session: Box<Session>) {
        self.sessions.enter(id, &session);
        for sa in session.each_sa() {
            self.sessions.enter_spi(id, sa.local_spi);
        }
        for child in session.children().iter() {
            self.sessions.enter_sa(id, child.inbound, child.spi_in);
            self.sessions.enter_sa(id, child.outbound, child.spi_in);
        }
        if session.is_established() {
            self.contacts.session_up(session.tunnel());
        }
        self.deadlines.set(Waiter::Session(id), session.deadline(&self.config));
        self.sessions.store(id, session);
    }

    /// Has the work with certificates done once more that the predecessor has begun.
    fn hand_jobs_out_again(&mut self, now: Instant) {
        let at_work = self.sessions.iter().filter(|(_, session)| session.waits_for_job());
        let at_work: Vec<_> = at_work.map(|(id, _)| id).collect();
        for id in at_work {
            self.with_session(now, id, auth::work_again);
        }
        let at_work: Vec<_> = self.strangers.iter().map(|half| half.begun.local_spi).collect();
        for spi in at_work {
            let Some(half) = self.strangers.take(spi) else { continue };
            responder::work_again(&mut self.cx(now), &half);
            self.strangers.keep(half);
        }
    }

    /// Forgets SPIs that were offered in exchanges that are not part of a frozen engine.
    fn release_unknown(&mut self, mut offered: BTreeSet<Spi>) {
        for (_, session) in self.sessions.iter() {
            let children = session.children().iter().map(|child| child.spi_in);
            let known = children.chain(session.lingering_spis()).chain(session.spis_on_offer());
            known.for_each(|spi| _ = offered.remove(&spi));
        }
        for spi in offered {
            self.spis.release(spi);
            self.plane.early_packets().expect_no_sa(spi);
        }
    }
}
