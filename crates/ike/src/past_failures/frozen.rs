//! Recent failures in a frozen engine, with their facts in words.

use super::{CHILDREN, Failures, KEPT, Past, STRANGERS};
use crate::failure::Failure;
use crate::frozen::values::{texts, write_texts};
use ::frozen::{Clock, Field, Reader, Unthawable, Writer};
use std::collections::{BTreeMap, VecDeque};

const BY_NAME: Field = Field::new(1);
const CHILDREN_OF: Field = Field::new(2);
const OF_STRANGERS: Field = Field::new(3);

const NAME: Field = Field::new(1);
const PAST: Field = Field::new(2);
const NAMES: Field = Field::new(2);
const REMOTE: Field = Field::new(1);

impl Failures {
    pub fn freeze(&self, to: &mut Writer<'_>, clock: &Clock) {
        let Self { by_name, children, strangers } = self;
        to.list(BY_NAME, by_name, |to, (name, past)| {
            to.text(NAME, name);
            to.list(PAST, past, |to, past| past.freeze(to, clock));
        });
        to.list(CHILDREN_OF, children, |to, (tunnel, names)| {
            to.text(NAME, tunnel);
            write_texts(to, NAMES, names);
        });
        to.list(OF_STRANGERS, strangers, |to, (remote, past)| {
            to.endpoint(REMOTE, *remote);
            to.record(PAST, |to| past.freeze(to, clock));
        });
    }

    pub fn thaw(mut from: Reader<'_>, clock: &Clock) -> Result<Self, Unthawable> {
        let mut by_name = BTreeMap::new();
        for mut from in from.list(BY_NAME, "failures of a tunnel")? {
            let name = from.text(NAME)?.to_owned();
            let past = from.list(PAST, "a failure")?.map(|from| Past::thaw(from, clock));
            let past: VecDeque<Past> = past.collect::<Result<_, Unthawable>>()?;
            if past.len() > KEPT {
                return Err(from.invalid(PAST));
            }
            from.end()?;
            by_name.insert(name, past);
        }
        let mut children = BTreeMap::new();
        for mut from in from.list(CHILDREN_OF, "tunnels that have failed")? {
            let tunnel = from.text(NAME)?.to_owned();
            let names: VecDeque<String> = texts(&mut from, NAMES)?;
            if names.len() > CHILDREN {
                return Err(from.invalid(NAMES));
            }
            from.end()?;
            children.insert(tunnel, names);
        }
        let mut strangers = VecDeque::new();
        for mut from in from.list(OF_STRANGERS, "a failure of a stranger")? {
            let remote = from.endpoint(REMOTE)?;
            let past = Past::thaw(from.record(PAST, "a failure")?, clock)?;
            from.end()?;
            strangers.push_back((remote, past));
        }
        if strangers.len() > STRANGERS {
            return Err(from.invalid(OF_STRANGERS));
        }
        from.end()?;
        Ok(Self { by_name, children, strangers })
    }
}

const FAILURE: Field = Field::new(1);
const OF_RENEWAL: Field = Field::new(2);
const AT: Field = Field::new(3);
const TIMES: Field = Field::new(4);
const MET: Field = Field::new(5);
const OVERCOME: Field = Field::new(6);
const OUTDATED: Field = Field::new(7);
const OF_NO_TUNNEL: Field = Field::new(8);

const HERE: Field = Field::new(1);
const THERE: Field = Field::new(2);

impl Past {
    fn freeze(&self, to: &mut Writer<'_>, clock: &Clock) {
        let Self { failure, of_renewal, of_no_tunnel, at, times, met, overcome, outdated } = self;
        to.record(FAILURE, |to| failure.freeze(to));
        to.flag(OF_RENEWAL, *of_renewal);
        to.moment(AT, clock, *at);
        to.number(TIMES, *times);
        to.record_if_any(MET, *met, |to, (local, remote)| {
            to.endpoint(HERE, local);
            to.endpoint(THERE, remote);
        });
        to.moment_if_any(OVERCOME, clock, *overcome);
        to.moment_if_any(OUTDATED, clock, *outdated);
        to.flag(OF_NO_TUNNEL, *of_no_tunnel);
    }

    fn thaw(mut from: Reader<'_>, clock: &Clock) -> Result<Self, Unthawable> {
        let past = Self {
            failure: Failure::thaw(from.record(FAILURE, "a failure")?)?,
            of_renewal: from.flag(OF_RENEWAL)?,
            at: from.moment(AT, clock)?,
            times: from.number(TIMES)?,
            met: match from.record_if_any(MET, "two addresses")? {
                None => None,
                Some(mut from) => {
                    let ends = (from.endpoint(HERE)?, from.endpoint(THERE)?);
                    from.end()?;
                    Some(ends)
                }
            },
            overcome: from.moment_if_any(OVERCOME, clock)?,
            outdated: from.moment_if_any(OUTDATED, clock)?,
            of_no_tunnel: from.flag(OF_NO_TUNNEL)?,
        };
        from.end()?;
        Ok(past)
    }
}
