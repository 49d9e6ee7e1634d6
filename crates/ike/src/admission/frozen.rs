//! The limits on strangers in a frozen engine: cookies of the predecessor stay good.

use super::{Admissions, Origin};
use crate::frozen::values::secret;
use ::frozen::{Clock, Field, Reader, Unthawable, Writer};
use std::net::IpAddr;

const PRESENT: Field = Field::new(1);
const FORMER: Field = Field::new(2);
const VERSION: Field = Field::new(3);
const RENEW_AT: Field = Field::new(4);
const WASTED: Field = Field::new(5);

const UNTIL: Field = Field::new(1);
const ORIGIN: Field = Field::new(2);

const KIND: Field = Field::new(1);
const ADDRESS: Field = Field::new(2);
const PREFIX: Field = Field::new(3);

impl Admissions {
    pub fn freeze(&self, to: &mut Writer<'_>, clock: &Clock) {
        // Half-open IKE SAs are counted as they are thawed.
        let Self { secrets, version, renew_at, half_open: _, unnamed: _, origins: _, wasted } =
            self;
        to.octets(PRESENT, secrets[0].expose());
        to.octets(FORMER, secrets[1].expose());
        to.number(VERSION, *version);
        to.moment_if_any(RENEW_AT, clock, *renew_at);
        to.list(WASTED, wasted, |to, (until, origin)| {
            to.moment(UNTIL, clock, *until);
            to.record(ORIGIN, |to| origin.freeze(to));
        });
    }

    pub fn thaw(mut from: Reader<'_>, clock: &Clock) -> Result<Self, Unthawable> {
        let secrets = [secret(&mut from, PRESENT)?, secret(&mut from, FORMER)?];
        if secrets.iter().any(|secret| secret.len() != SECRET_LEN) {
            return Err(from.invalid(PRESENT));
        }
        let mut admissions = Self {
            secrets,
            version: from.number(VERSION)?,
            renew_at: from.moment_if_any(RENEW_AT, clock)?,
            half_open: 0,
            unnamed: 0,
            origins: Default::default(),
            wasted: Default::default(),
        };
        for mut from in from.list(WASTED, "work for a stranger")? {
            let until = from.moment(UNTIL, clock)?;
            let origin = Origin::thaw(from.record(ORIGIN, "an origin")?)?;
            from.end()?;
            admissions.enter(origin);
            admissions.wasted.push_back((until, origin));
        }
        from.end()?;
        Ok(admissions)
    }
}

impl Origin {
    pub fn freeze(self, to: &mut Writer<'_>) {
        match self {
            Self::Named(address) => to.address(ADDRESS, address),
            Self::V4(address) => {
                to.number(KIND, 1_u8);
                to.address(ADDRESS, address.into());
            }
            Self::V6(prefix) => {
                to.number(KIND, 2_u8);
                to.number(PREFIX, prefix);
            }
        }
    }

    pub fn thaw(mut from: Reader<'_>) -> Result<Self, Unthawable> {
        let kind: u8 = from.number(KIND)?;
        let address = from.address_if_any(ADDRESS)?;
        let prefix = from.number(PREFIX)?;
        let origin = match (kind, address) {
            (0, Some(address)) => Self::Named(address),
            (1, Some(IpAddr::V4(address))) => Self::V4(address),
            (2, None) => Self::V6(prefix),
            _ => return Err(from.invalid(KIND)),
        };
        from.end()?;
        Ok(origin)
    }
}

/// Octets of a cookie secret.
const SECRET_LEN: usize = 32;
