//! Fragments of the peer's message in a frozen engine.

use super::{MOST_FRAGMENTS, MOST_OF_PEER, Partial, Reassembly};
use crate::frozen::values::{content, write_content};
use crate::wire::registry::ExchangeType;
use ::frozen::{Clock, Field, Reader, Unthawable, Writer};

/// Octets of the longest message; 0 is that of a peer.
const MOST: Field = Field::new(1);
const PARTIAL: Field = Field::new(2);

const MESSAGE_ID: Field = Field::new(1);
const EXCHANGE: Field = Field::new(2);
const TOTAL: Field = Field::new(3);
const SINCE: Field = Field::new(4);
const CONTENTS: Field = Field::new(5);
const FIRST: Field = Field::new(6);
const LARGEST: Field = Field::new(7);

const NUMBER: Field = Field::new(1);
const CONTENT: Field = Field::new(2);

impl Reassembly {
    pub fn freeze(&self, to: &mut Writer<'_>, clock: &Clock) {
        let Self { most, partial } = self;
        if *most != MOST_OF_PEER {
            to.number(MOST, number(*most));
        }
        let partial = partial.as_deref();
        to.record_if_any(PARTIAL, partial, |to, p| p.freeze(to, clock));
    }

    pub fn thaw(mut from: Reader<'_>, clock: &Clock) -> Result<Self, Unthawable> {
        let most = match from.number(MOST)? {
            0 => MOST_OF_PEER,
            most if most <= MOST_OF_PEER => most,
            _ => return Err(from.invalid(MOST)),
        };
        let partial = from.record_if_any(PARTIAL, "fragments of a message")?;
        let partial = partial.map(|from| Partial::thaw(from, most, clock)).transpose()?;
        from.end()?;
        Ok(Self { most, partial: partial.map(Box::new) })
    }
}

impl Partial {
    fn freeze(&self, to: &mut Writer<'_>, clock: &Clock) {
        // The sum follows from the contents.
        let Self { message_id, exchange, total, since, octets: _, contents, first, largest } = self;
        to.number(MESSAGE_ID, *message_id);
        to.number(EXCHANGE, exchange.0);
        to.number(TOTAL, *total);
        to.moment(SINCE, clock, *since);
        to.list(CONTENTS, contents, |to, (number, content)| {
            to.number(NUMBER, *number);
            to.record(CONTENT, |to| write_content(to, content));
        });
        to.octets(FIRST, first);
        to.number(LARGEST, number(*largest));
    }

    fn thaw(mut from: Reader<'_>, most: usize, clock: &Clock) -> Result<Self, Unthawable> {
        let message_id = from.number(MESSAGE_ID)?;
        let exchange = ExchangeType(from.number(EXCHANGE)?);
        let total = from.number(TOTAL)?;
        let since = from.moment(SINCE, clock)?;
        let contents = from.list(CONTENTS, "a fragment")?.map(|mut from| {
            let number: u16 = from.number(NUMBER)?;
            let inside = content(from.record(CONTENT, "a fragment's content")?)?;
            from.end()?;
            Ok((number, inside))
        });
        let contents: std::collections::BTreeMap<_, _> =
            contents.collect::<Result<_, Unthawable>>()?;
        let octets = contents.values().map(|content| content.octets.len()).sum();
        // As many as there are, each with a number, and one at least missing.
        let numbered = contents.keys().all(|number| (1..=total).contains(number));
        let some_missing = contents.len() < usize::from(total);
        if total > MOST_FRAGMENTS || !numbered || !some_missing || octets > most {
            return Err(from.invalid(CONTENTS));
        }
        let (first, largest) = (from.octets(FIRST)?.to_vec(), from.number(LARGEST)?);
        from.end()?;
        Ok(Self { message_id, exchange, total, since, octets, contents, first, largest })
    }
}

fn number(octets: usize) -> u64 {
    octets.try_into().unwrap_or(u64::MAX)
}
