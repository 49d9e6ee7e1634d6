//! The window of an IKE SA in a frozen engine. Message IDs never go back, and each keeps its octets.

use super::{Kept, Outstanding, Postponed, Until, Window};
use crate::frozen::values::{
    content, each, header, meaning, payloads, write_content, write_each, write_header,
    write_payloads,
};
use crate::sa::message::Message;
use crate::sa::reassembly::Reassembly;
use crate::thawing::Thawing;
use ::frozen::{Clock, Field, Reader, Unthawable, Writer};

const NEXT: Field = Field::new(1);
const OUTSTANDING: Field = Field::new(2);
const EXPECTED: Field = Field::new(3);
const KEPT: Field = Field::new(4);
const REQUESTS: Field = Field::new(5);
const POSTPONED: Field = Field::new(6);
const ANSWERS: Field = Field::new(7);

const MESSAGE: Field = Field::new(1);
const ID: Field = Field::new(2);
const SINCE: Field = Field::new(3);
const RETRANSMISSIONS: Field = Field::new(4);
const ALIKE: Field = Field::new(5);
const DUE: Field = Field::new(6);

const REPETITIONS: Field = Field::new(2);

const HEADER: Field = Field::new(1);
const PAYLOADS: Field = Field::new(2);
const LOCAL: Field = Field::new(3);
const REMOTE: Field = Field::new(4);
const OCTETS: Field = Field::new(5);
const UNTIL: Field = Field::new(6);
const TIME: Field = Field::new(7);
const CHILD: Field = Field::new(8);

impl Window {
    pub fn freeze(&self, to: &mut Writer<'_>, clock: &Clock) {
        let Self { next, outstanding, expected, kept, requests, postponed, answers } = self;
        to.number(NEXT, *next);
        let outstanding = outstanding.as_deref();
        to.record_if_any(OUTSTANDING, outstanding, |to, o| o.freeze(to, clock));
        to.number(EXPECTED, *expected);
        to.record_if_any(KEPT, kept.as_ref(), |to, kept| kept.freeze(to));
        to.record(REQUESTS, |to| requests.freeze(to, clock));
        let postponed = postponed.as_deref();
        to.record_if_any(POSTPONED, postponed, |to, p| p.freeze(to, clock));
        to.record(ANSWERS, |to| answers.freeze(to, clock));
    }

    pub fn thaw(mut from: Reader<'_>, cx: Thawing<'_>) -> Result<Self, Unthawable> {
        let next = from.number(NEXT)?;
        let outstanding = from.record_if_any(OUTSTANDING, "a request")?;
        let outstanding = outstanding.map(|from| Outstanding::thaw(from, &cx.clock)).transpose()?;
        // A request takes the number before the next one.
        if outstanding.as_ref().is_some_and(|o| o.id.checked_add(1) != Some(next)) {
            return Err(from.invalid(NEXT));
        }
        let expected = from.number(EXPECTED)?;
        let kept = from.record_if_any(KEPT, "an answer")?.map(Kept::thaw).transpose()?;
        // An answer is one to the number before the one that is expected.
        if kept.is_some() && expected == 0 {
            return Err(from.invalid(EXPECTED));
        }
        let requests = Reassembly::thaw(from.record(REQUESTS, "fragments")?, &cx.clock)?;
        let postponed = from.record_if_any(POSTPONED, "a postponed request")?;
        let postponed = postponed.map(|from| Postponed::thaw(from, cx)).transpose()?;
        let answers = Reassembly::thaw(from.record(ANSWERS, "fragments")?, &cx.clock)?;
        from.end()?;
        let (outstanding, postponed) = (outstanding.map(Box::new), postponed.map(Box::new));
        Ok(Self { next, outstanding, expected, kept, requests, postponed, answers })
    }
}

impl Outstanding {
    fn freeze(&self, to: &mut Writer<'_>, clock: &Clock) {
        let Self { id, message, since, retransmissions, alike, due } = self;
        to.record(MESSAGE, |to| message.freeze(to));
        to.number(ID, *id);
        to.moment(SINCE, clock, *since);
        to.number(RETRANSMISSIONS, *retransmissions);
        to.number(ALIKE, *alike);
        to.moment(DUE, clock, *due);
    }

    fn thaw(mut from: Reader<'_>, clock: &Clock) -> Result<Self, Unthawable> {
        let thawed = Self {
            message: Message::thaw(from.record(MESSAGE, "a message")?)?,
            id: from.number(ID)?,
            since: from.moment(SINCE, clock)?,
            retransmissions: from.number(RETRANSMISSIONS)?,
            alike: from.number(ALIKE)?,
            due: from.moment(DUE, clock)?,
        };
        from.end()?;
        Ok(thawed)
    }
}

impl Kept {
    fn freeze(&self, to: &mut Writer<'_>) {
        let Self { message, repetitions } = self;
        to.record(MESSAGE, |to| message.freeze(to));
        to.number(REPETITIONS, *repetitions);
    }

    fn thaw(mut from: Reader<'_>) -> Result<Self, Unthawable> {
        let message = Message::thaw(from.record(MESSAGE, "a message")?)?;
        let repetitions = from.number(REPETITIONS)?;
        from.end()?;
        Ok(Self { message, repetitions })
    }
}

impl Postponed {
    fn freeze(&self, to: &mut Writer<'_>, clock: &Clock) {
        let Self { header, payloads, ends, octets, until } = self;
        to.record(HEADER, |to| write_header(to, header));
        to.record(PAYLOADS, |to| write_payloads(to, payloads));
        to.endpoint(LOCAL, ends.0);
        to.endpoint(REMOTE, ends.1);
        to.octets(OCTETS, octets);
        match until {
            Until::Time(at) => to.moment(TIME, clock, *at),
            Until::Deleted => to.number(UNTIL, 1_u8),
            Until::Prepared(child) => {
                to.number(UNTIL, 2_u8);
                to.text(CHILD, &child.name);
            }
        }
    }

    fn thaw(mut from: Reader<'_>, cx: Thawing<'_>) -> Result<Self, Unthawable> {
        let header = header(from.record(HEADER, "a header")?)?;
        let payloads = payloads(&mut from, PAYLOADS)?;
        let ends = (from.endpoint(LOCAL)?, from.endpoint(REMOTE)?);
        let octets = from.octets(OCTETS)?.to_vec();
        let kind: u8 = meaning(&mut from, UNTIL, |kind| u8::try_from(kind).ok())?;
        let until = match kind {
            0 => Until::Time(from.moment(TIME, &cx.clock)?),
            1 => Until::Deleted,
            2 => Until::Prepared(cx.child(&mut from, CHILD)?),
            _ => return Err(from.invalid(UNTIL)),
        };
        from.end()?;
        Ok(Self { header, payloads, ends, octets, until })
    }
}

const DATAGRAMS: Field = Field::new(1);
const SOURCE_HEADER: Field = Field::new(2);
const SOURCE: Field = Field::new(3);

impl Message {
    pub fn freeze(&self, to: &mut Writer<'_>) {
        write_each(to, DATAGRAMS, self.datagrams());
        if let Some((header, content)) = self.source() {
            to.record(SOURCE_HEADER, |to| write_header(to, header));
            to.record_if_any(SOURCE, Some(content), write_content);
        }
    }

    pub fn thaw(mut from: Reader<'_>) -> Result<Self, Unthawable> {
        let datagrams = each(&mut from, DATAGRAMS)?;
        if datagrams.is_empty() {
            return Err(from.missing(DATAGRAMS));
        }
        let head = from.record(SOURCE_HEADER, "a header")?;
        let source = match from.record_if_any(SOURCE, "a message's content")? {
            None => None,
            Some(inside) => Some((header(head)?, content(inside)?)),
        };
        from.end()?;
        Ok(Self::of_parts(datagrams, source))
    }
}
