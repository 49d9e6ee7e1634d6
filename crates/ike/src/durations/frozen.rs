//! The times that exchanges took, in a frozen engine.

use super::{BOUNDS, Durations, Exchange, ExchangeDurations};
use ::frozen::{Field, Reader, Unthawable, Writer};

const KINDS: Field = Field::new(1);

const SUM: Field = Field::new(1);
const COUNTS: Field = Field::new(2);

const COUNT: Field = Field::new(1);

impl ExchangeDurations {
    /// Each kind in its place; a new kind gets the last one.
    pub(crate) fn freeze(&self, to: &mut Writer<'_>) {
        let Self(kinds) = self;
        to.list(KINDS, kinds, |to, durations| durations.freeze(to));
    }

    pub(crate) fn thaw(mut from: Reader<'_>) -> Result<Self, Unthawable> {
        let mut thawed = Self::default();
        // A newer version may have more of them.
        for (from, kind) in from.list(KINDS, "durations")?.zip(Exchange::ALL) {
            thawed.0[kind as usize] = Durations::thaw(from)?;
        }
        from.end()?;
        Ok(thawed)
    }
}

impl Durations {
    fn freeze(&self, to: &mut Writer<'_>) {
        let Self { counts, sum } = self;
        to.time(SUM, *sum);
        if self.count() > 0 {
            to.list(COUNTS, counts, |to, count| to.number(COUNT, *count));
        }
    }

    fn thaw(mut from: Reader<'_>) -> Result<Self, Unthawable> {
        let mut thawed = Self { sum: from.time(SUM)?, ..Self::default() };
        let mut places = thawed.counts.iter_mut();
        for mut from in from.list(COUNTS, "a bucket")? {
            // Other bounds have other counts; they begin again.
            let Some(place) = places.next() else { return Ok(Self::default()) };
            *place = from.number(COUNT)?;
            from.end()?;
        }
        from.end()?;
        Ok(thawed)
    }
}

/// The bounds are part of the format: a reader with others would count in other buckets.
const _: () = assert!(BOUNDS.len() == 14);
