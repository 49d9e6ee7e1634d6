//! The outputs of a frozen engine: nothing that is still to be handed out, and what limits and repeats.

use super::{FinalAnswer, Outputs};
use crate::close_reason::CloseReason;
use crate::frozen::values::{each, meaning, write_each};
use crate::product::Products;
use crate::wire::header::IkeSpi;
use ::frozen::{Clock, Field, Reader, Unthawable, Writer};
use std::collections::{BTreeMap, VecDeque};

const SA_IDS: Field = Field::new(1);
const FINAL_ANSWERS: Field = Field::new(2);
const PRODUCTS: Field = Field::new(3);
const ENDS: Field = Field::ignorable(4);

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

impl Outputs {
    /// Returns `true` if something is still to be handed out.
    pub fn are_waiting(&self) -> bool {
        !(self.transmits.is_empty() && self.events.is_empty() && self.jobs.is_empty())
    }

    pub fn freeze(&self, to: &mut Writer<'_>, clock: &Clock) {
        to.number(SA_IDS, self.sa_ids);
        to.list(FINAL_ANSWERS, &self.final_answers, |to, answer| answer.freeze(to, clock));
        to.record(PRODUCTS, |to| self.products.freeze(to));
        to.list(ENDS, &self.ends, |to, (name, (reason, at))| {
            to.text(NAME, name);
            to.number(REASON, reason.number());
            to.moment(AT, clock, *at);
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
        from.end()?;
        Ok(Self { sa_ids, final_answers, products, ends, ..Self::default() })
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
