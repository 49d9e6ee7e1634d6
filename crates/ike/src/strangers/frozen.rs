//! Half-open IKE SAs, and the limits on them, in a frozen engine.

use super::Strangers;
use crate::admission::{Admissions, Origin};
use crate::exchange::half_open::HalfOpen;
use crate::policy_index::PolicyIndex;
use crate::thawing::Thawing;
use ::frozen::{Clock, Field, Reader, Unthawable, Writer};
use std::collections::{BTreeMap, HashMap};

const ADMISSIONS: Field = Field::new(1);
const HALF_OPEN: Field = Field::new(2);

const ORIGIN: Field = Field::new(1);
const STATE: Field = Field::new(2);

impl Strangers {
    pub fn freeze(&self, to: &mut Writer<'_>, clock: &Clock, policy: &PolicyIndex) {
        let Self { half_open, by_init, admissions } = self;
        to.record(ADMISSIONS, |to| admissions.freeze(to, clock));
        to.list(HALF_OPEN, half_open.values(), |to, half| {
            if let Some((_, origin)) = by_init.get(&half.begun.init()) {
                to.record(ORIGIN, |to| origin.freeze(to));
            }
            to.record(STATE, |to| half.freeze(to, clock, policy));
        });
    }

    pub fn thaw(mut from: Reader<'_>, cx: Thawing<'_>) -> Result<Self, Unthawable> {
        let admissions = from.record(ADMISSIONS, "the limits on strangers")?;
        let admissions = Admissions::thaw(admissions, &cx.clock)?;
        let (half_open, by_init) = (BTreeMap::new(), HashMap::new());
        let mut strangers = Self { half_open, by_init, admissions };
        for mut from in from.list(HALF_OPEN, "a half-open IKE SA")? {
            let origin = from.record_if_any(ORIGIN, "an origin")?;
            let origin = origin.map(Origin::thaw).transpose()?;
            let half = HalfOpen::thaw(from.record(STATE, "a half-open IKE SA")?, cx)?;
            if strangers.contains(half.begun.local_spi) {
                return Err(from.invalid(STATE));
            }
            from.end()?;
            if let Some(origin) = origin {
                strangers.enter(half.begun.init(), half.begun.local_spi, origin);
            }
            strangers.keep(Box::new(half));
        }
        from.end()?;
        Ok(strangers)
    }
}
