//! The phase 2 tunnels of a frozen engine that are to come back, and those that are not to.

use super::{Reconnection, Retry};
use crate::frozen::values::{texts, write_texts};
use ::frozen::{Clock, Field, Reader, Unthawable, Writer};

const RETRIES: Field = Field::new(1);
const DEACTIVATED: Field = Field::new(2);
const INTERRUPTED: Field = Field::new(3);

const NAME: Field = Field::new(1);
const ATTEMPTS: Field = Field::new(2);
const AT: Field = Field::new(3);
const PERSISTENT: Field = Field::new(4);

impl Reconnection {
    pub fn freeze(&self, to: &mut Writer<'_>, clock: &Clock) {
        let Self { retries, deactivated, interrupted } = self;
        to.list(RETRIES, retries, |to, (name, retry)| {
            let Retry { attempts, at, persistent } = *retry;
            to.text(NAME, name);
            to.number(ATTEMPTS, attempts);
            to.moment(AT, clock, at);
            to.flag(PERSISTENT, persistent);
        });
        write_texts(to, DEACTIVATED, deactivated);
        write_texts(to, INTERRUPTED, interrupted);
    }

    pub fn thaw(mut from: Reader<'_>, clock: &Clock) -> Result<Self, Unthawable> {
        let retries = from.list(RETRIES, "a tunnel to try again")?.map(|mut from| {
            let name = from.text(NAME)?.to_owned();
            let attempts = from.number(ATTEMPTS)?;
            let at = from.moment(AT, clock)?;
            let persistent = from.flag(PERSISTENT)?;
            from.end()?;
            Ok((name, Retry { attempts, at, persistent }))
        });
        let retries = retries.collect::<Result<_, Unthawable>>()?;
        let deactivated = texts(&mut from, DEACTIVATED)?;
        let interrupted = texts(&mut from, INTERRUPTED)?;
        from.end()?;
        Ok(Self { retries, deactivated, interrupted })
    }
}
