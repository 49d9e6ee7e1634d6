//! The times that exchanges took, in a frozen engine.

use super::{Durations, Exchange, ExchangeDurations};
use ::frozen::{Field, Reader, Unthawable, Writer};

const KINDS: Field = Field::new(1);

const NAME: Field = Field::new(1);
const SUM: Field = Field::new(2);
const COUNTS: Field = Field::new(3);

const COUNT: Field = Field::new(1);

impl ExchangeDurations {
    pub(crate) fn freeze(&self, to: &mut Writer<'_>) {
        let counted = Exchange::ALL.into_iter().filter(|kind| self.of(*kind).count() > 0);
        to.list(KINDS, counted, |to, kind| {
            let Durations { counts, sum } = self.of(kind);
            to.text(NAME, kind.name());
            to.time(SUM, *sum);
            to.list(COUNTS, counts, |to, count| to.number(COUNT, *count));
        });
    }

    pub(crate) fn thaw(mut from: Reader<'_>) -> Result<Self, Unthawable> {
        let mut thawed = Self::default();
        for mut from in from.list(KINDS, "durations")? {
            let name = from.text(NAME)?;
            // Another version may have other kinds.
            let Some(kind) = Exchange::ALL.into_iter().find(|kind| kind.name() == name) else {
                continue;
            };
            let mut durations = Durations { sum: from.time(SUM)?, ..Durations::default() };
            let counts = from.list(COUNTS, "a bucket")?.map(|mut from| {
                let count = from.number(COUNT)?;
                from.end().map(|()| count)
            });
            let counts: Vec<u64> = counts.collect::<Result<_, Unthawable>>()?;
            from.end()?;
            // Where the bounds of buckets are others, counting begins again.
            if let Ok(counts) = counts.try_into() {
                durations.counts = counts;
                thawed.0[kind as usize] = durations;
            }
        }
        from.end()?;
        Ok(thawed)
    }
}
