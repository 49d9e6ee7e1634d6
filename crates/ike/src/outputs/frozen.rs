//! The outputs of a frozen engine: nothing that is still to be handed out, and what limits and repeats.

use super::{BUG, Dropped, FinalAnswer, Outputs};
use crate::close_reason::CloseReason;
use crate::discard::Discard;
use crate::durations::ExchangeDurations;
use crate::failure::FailureKind;
use crate::frozen::values::{each, meaning, packet, write_each, write_packet};
use crate::past_failures::Failures;
use crate::product::Products;
use crate::wire::header::IkeSpi;
use ::frozen::{Clock, Field, Reader, Unthawable, Writer};
use std::collections::{BTreeMap, VecDeque};

const SA_IDS: Field = Field::new(1);
const FINAL_ANSWERS: Field = Field::new(2);
const PRODUCTS: Field = Field::new(3);
const ENDS: Field = Field::ignorable(4);
const DISCARDS: Field = Field::ignorable(5);
const DURATIONS: Field = Field::ignorable(6);
const FAILURES: Field = Field::ignorable(7);
const UNPROTECTED: Field = Field::ignorable(8);
const REFUSED: Field = Field::ignorable(9);
const STRANGERS: Field = Field::ignorable(10);

const UNTIL: Field = Field::new(1);
const SPI: Field = Field::new(2);
const REQUEST: Field = Field::new(3);
const ANSWER: Field = Field::new(4);
const WAITS_UNTIL: Field = Field::new(5);
const LOCAL: Field = Field::new(6);
const REMOTE: Field = Field::new(7);

const NAME: Field = Field::new(1);
const REASON: Field = Field::new(2);
const AT: Field = Field::new(3);
const COUNT: Field = Field::new(4);
const PACKET: Field = Field::new(5);
const TOLD: Field = Field::new(6);
const ADDRESS: Field = Field::new(7);

impl Outputs {
    /// Returns `true` if something is still to be handed out.
    pub fn are_waiting(&self) -> bool {
        !(self.transmits.is_empty() && self.events.is_empty() && self.jobs.is_empty())
    }

    pub fn freeze(&self, to: &mut Writer<'_>, clock: &Clock) {
        let Self {
            transmits: _,
            events: _,
            jobs: _,
            discards,
            durations,
            failures,
            products,
            ends,
            unprotected,
            final_answers,
            refused,
            strangers,
            sa_ids,
            key_sink: _,
            tells_exchanges: _,
        } = self;
        to.number(SA_IDS, *sa_ids);
        to.list(FINAL_ANSWERS, final_answers, |to, answer| answer.freeze(to, clock));
        to.record(PRODUCTS, |to| products.freeze(to));
        to.list(ENDS, ends, |to, (name, (reason, at))| {
            to.text(NAME, name);
            to.number(REASON, reason.number());
            to.moment(AT, clock, *at);
        });
        to.list(DISCARDS, discards, |to, (name, count)| {
            to.text(NAME, name);
            to.number(COUNT, *count);
        });
        to.record(DURATIONS, |to| durations.freeze(to));
        to.record(FAILURES, |to| failures.freeze(to, clock));
        to.list(UNPROTECTED, unprotected, |to, (name, dropped)| {
            let Dropped { packet, at, told } = dropped;
            to.text(NAME, name);
            to.moment(AT, clock, *at);
            to.record(PACKET, |to| write_packet(to, packet));
            to.moment(TOLD, clock, *told);
        });
        to.record_if_any(REFUSED, *refused, |to, (since, count)| {
            to.moment(AT, clock, since);
            to.number(COUNT, count);
        });
        to.list(STRANGERS, strangers, |to, (address, kind, at)| {
            to.number(REASON, kind.number());
            to.moment(AT, clock, *at);
            to.address(ADDRESS, *address);
        });
    }

    /// The highest number of an SA comes with them, so that no SA of the plane gets the number of another one.
    pub fn thaw(mut from: Reader<'_>, clock: &Clock) -> Result<Self, Unthawable> {
        let sa_ids = from.number(SA_IDS)?;
        let final_answers = from.list(FINAL_ANSWERS, "a final answer")?;
        let final_answers = final_answers.map(|from| FinalAnswer::thaw(from, clock));
        let final_answers: VecDeque<_> = final_answers.collect::<Result<_, Unthawable>>()?;
        let products = Products::thaw(from.record(PRODUCTS, "the peers' products")?)?;
        let ends = from.list(ENDS, "the end of a tunnel")?.map(|mut from| {
            let name = from.text(NAME)?.to_owned();
            let reason = meaning(&mut from, REASON, CloseReason::of_number)?;
            let at = from.moment(AT, clock)?;
            from.end()?;
            Ok((name, (reason, at)))
        });
        let ends: BTreeMap<_, _> = ends.collect::<Result<_, Unthawable>>()?;
        let mut discards = BTreeMap::new();
        for mut from in from.list(DISCARDS, "a counter")? {
            let name = from.text(NAME)?;
            let known = Discard::ALL.iter().map(|reason| reason.name()).chain([BUG]);
            // Another version may have other reasons.
            if let Some(name) = { known }.find(|known| *known == name) {
                discards.insert(name, from.number(COUNT)?);
            }
        }
        let durations = ExchangeDurations::thaw(from.record(DURATIONS, "durations")?)?;
        let failures = Failures::thaw(from.record(FAILURES, "failures")?, clock)?;
        let unprotected = from.list(UNPROTECTED, "a packet in the clear")?.map(|mut from| {
            let name = from.text(NAME)?.to_owned();
            let at = from.moment(AT, clock)?;
            let packet = packet(from.record(PACKET, "a packet")?)?;
            let told = from.moment(TOLD, clock)?;
            from.end()?;
            Ok((name, Dropped { packet, at, told }))
        });
        let unprotected = unprotected.collect::<Result<_, Unthawable>>()?;
        let refused = match from.record_if_any(REFUSED, "strangers refused")? {
            None => None,
            Some(mut from) => {
                let refused = (from.moment(AT, clock)?, from.number(COUNT)?);
                from.end()?;
                Some(refused)
            }
        };
        let strangers = from.list(STRANGERS, "a stranger")?.map(|mut from| {
            let kind = meaning(&mut from, REASON, FailureKind::of_number)?;
            let at = from.moment(AT, clock)?;
            let address = from.address(ADDRESS)?;
            from.end()?;
            Ok((address, kind, at))
        });
        let strangers = strangers.collect::<Result<_, Unthawable>>()?;
        from.end()?;
        Ok(Self {
            discards,
            durations,
            failures,
            products,
            ends,
            unprotected,
            final_answers,
            refused,
            strangers,
            sa_ids,
            ..Self::default()
        })
    }
}

impl FinalAnswer {
    fn freeze(&self, to: &mut Writer<'_>, clock: &Clock) {
        let Self { until, spi, request, answer, waits } = self;
        to.moment(UNTIL, clock, *until);
        to.number(SPI, spi.0);
        to.octets(REQUEST, request);
        write_each(to, ANSWER, answer);
        if let Some((at, local, remote)) = waits {
            to.moment(WAITS_UNTIL, clock, *at);
            to.endpoint(LOCAL, *local);
            to.endpoint(REMOTE, *remote);
        }
    }

    fn thaw(mut from: Reader<'_>, clock: &Clock) -> Result<Self, Unthawable> {
        let until = from.moment(UNTIL, clock)?;
        let spi = IkeSpi(from.some_number(SPI)?);
        let request = from.octets(REQUEST)?.to_vec();
        let answer = each(&mut from, ANSWER)?;
        let waits = match from.moment_if_any(WAITS_UNTIL, clock)? {
            None => None,
            Some(at) => Some((at, from.endpoint(LOCAL)?, from.endpoint(REMOTE)?)),
        };
        from.end()?;
        Ok(Self { until, spi, request, answer, waits })
    }
}
