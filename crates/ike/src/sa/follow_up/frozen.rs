//! Additional key exchanges under way in a frozen engine.

use super::{Agreed, Awaited, AwaitedChild, AwaitedIke, FollowUp, OwnNonces, Purpose};
use crate::crypto::key_exchange::PrivateKey;
use crate::frozen::values::{
    additional, child_choice, ike_suite, payloads, secrets, traffic, write_additional,
    write_child_choice, write_ike_suite, write_payloads, write_secrets, write_traffic,
};
use crate::sa::child::AskedFor;
use crate::sa::keys::Base;
use crate::thawing::Thawing;
use crate::wire::header::IkeSpi;
use ::frozen::{Clock, Field, Reader, Unthawable, Writer};
use esp::plane::Spi;
use std::sync::Arc;

const ANSWER: Field = Field::new(1);
const ADDITIONAL: Field = Field::new(2);
const SHARED: Field = Field::new(3);
const KEY_EXCHANGE: Field = Field::new(4);

impl FollowUp {
    pub fn freeze(&self, to: &mut Writer<'_>) {
        let Self { answer, additional, shared, key_exchange } = self;
        to.record(ANSWER, |to| write_payloads(to, answer));
        write_additional(to, ADDITIONAL, *additional);
        write_secrets(to, SHARED, shared);
        to.record(KEY_EXCHANGE, |to| key_exchange.freeze(to));
    }

    pub fn thaw(mut from: Reader<'_>) -> Result<Self, Unthawable> {
        let answer = payloads(&mut from, ANSWER)?;
        let additional = additional(&mut from, ADDITIONAL)?;
        let shared = secrets(&mut from, SHARED)?;
        let key_exchange = PrivateKey::thaw(from.record(KEY_EXCHANGE, "a key exchange")?)?;
        // The private key is that of the next method.
        if additional.methods().nth(shared.len()) != Some(key_exchange.group()) {
            return Err(from.invalid(ADDITIONAL));
        }
        from.end()?;
        Ok(Self { answer, additional, shared, key_exchange })
    }
}

const LINK: Field = Field::new(1);
const UNTIL: Field = Field::new(4);
/// An awaited SA is one of these two.
const CHILD: Field = Field::new(5);
const REKEY: Field = Field::new(6);

impl Awaited {
    pub fn freeze(&self, to: &mut Writer<'_>, clock: &Clock) {
        let Self { link, additional, shared, until, purpose } = self;
        to.octets(LINK, link);
        write_additional(to, ADDITIONAL, *additional);
        write_secrets(to, SHARED, shared);
        to.moment(UNTIL, clock, *until);
        match purpose {
            Purpose::Child(child) => to.record(CHILD, |to| child.freeze(to)),
            Purpose::Rekey(rekey) => to.record(REKEY, |to| rekey.freeze(to)),
        }
    }

    pub fn thaw(mut from: Reader<'_>, cx: Thawing<'_>) -> Result<Self, Unthawable> {
        let link = from.octets(LINK)?.to_vec();
        let additional = additional(&mut from, ADDITIONAL)?;
        let shared = secrets(&mut from, SHARED)?;
        // The secret of the first request is there, and that of one method at least is not.
        if !(1..=additional.methods().count()).contains(&shared.len()) {
            return Err(from.invalid(SHARED));
        }
        let until = from.moment(UNTIL, &cx.clock)?;
        let child = from.record_if_any(CHILD, "a Child SA that is asked for")?;
        let rekey = from.record_if_any(REKEY, "an IKE SA in place of one")?;
        let purpose = match (child, rekey) {
            (Some(child), None) => Purpose::Child(Box::new(AwaitedChild::thaw(child, cx)?)),
            (None, Some(rekey)) => Purpose::Rekey(Box::new(AwaitedIke::thaw(rekey)?)),
            _ => return Err(from.invalid(CHILD)),
        };
        from.end()?;
        Ok(Self { link, additional, shared, until, purpose })
    }
}

const TUNNEL: Field = Field::new(1);
const CHOICE: Field = Field::new(2);
const SPI_IN: Field = Field::new(3);
const SPI_OUT: Field = Field::new(4);
const SELECTORS: Field = Field::new(5);
const ASKED: Field = Field::new(6);
const ASKED_ADDITIONAL: Field = Field::new(7);
const REKEYS: Field = Field::new(8);
const SUITE: Field = Field::new(9);
const SPI: Field = Field::new(10);
const REMOTE_SPI: Field = Field::new(11);
/// Of both kinds.
const INITIATOR_NONCE: Field = Field::new(12);
const RESPONDER_NONCE: Field = Field::new(13);
const BASE: Field = Field::new(14);

impl AwaitedChild {
    fn freeze(&self, to: &mut Writer<'_>) {
        let Self { tunnel, agreed, rekeys, nonces, base } = self;
        let Agreed { choice, spi_in, spi_out, selectors, asked } = agreed;
        to.text(TUNNEL, &tunnel.name);
        to.record(CHOICE, |to| write_child_choice(to, *choice));
        to.number(SPI_IN, spi_in.0);
        to.number(SPI_OUT, spi_out.0);
        to.record(SELECTORS, |to| write_traffic(to, selectors));
        if let Some(asked) = asked {
            let AskedFor { traffic, additional } = &**asked;
            to.record_if_any(ASKED, Some(()), |to, ()| write_traffic(to, traffic));
            to.flag(ASKED_ADDITIONAL, *additional);
        }
        to.number_if_any(REKEYS, rekeys.map(|spi| spi.0));
        nonces.freeze(to);
        to.record_if_any(BASE, base.as_ref(), |to, base| base.freeze(to));
    }

    fn thaw(mut from: Reader<'_>, cx: Thawing<'_>) -> Result<Self, Unthawable> {
        let tunnel = cx.child(&mut from, TUNNEL)?;
        let choice = child_choice(from.record(CHOICE, "a Child SA's suite")?)?;
        let (spi_in, spi_out) = (Spi(from.some_number(SPI_IN)?), Spi(from.some_number(SPI_OUT)?));
        let selectors = Arc::new(traffic(from.record(SELECTORS, "traffic selectors")?)?);
        let asked = from.record_if_any(ASKED, "traffic that was asked for")?;
        let additional = from.flag(ASKED_ADDITIONAL)?;
        let asked = asked.map(traffic).transpose()?;
        let asked = asked.map(|traffic| Arc::new(AskedFor { traffic, additional }));
        let rekeys = from.number_if_any(REKEYS)?.map(Spi);
        let nonces = OwnNonces::thaw(&mut from)?;
        let base = from.record_if_any(BASE, "a PPK's keys")?.map(Base::thaw).transpose()?;
        from.end()?;
        let agreed = Agreed { choice, spi_in, spi_out, selectors, asked };
        Ok(Self { tunnel, agreed, rekeys, nonces, base })
    }
}

impl AwaitedIke {
    fn freeze(&self, to: &mut Writer<'_>) {
        let Self { suite, spi, remote_spi, nonces, base } = self;
        to.record(SUITE, |to| write_ike_suite(to, *suite));
        to.number(SPI, spi.0);
        to.number(REMOTE_SPI, remote_spi.0);
        nonces.freeze(to);
        to.record_if_any(BASE, base.as_ref(), |to, base| base.freeze(to));
    }

    fn thaw(mut from: Reader<'_>) -> Result<Self, Unthawable> {
        let suite = ike_suite(from.record(SUITE, "an IKE suite")?)?;
        let spi = IkeSpi(from.some_number(SPI)?);
        let remote_spi = IkeSpi(from.some_number(REMOTE_SPI)?);
        let nonces = OwnNonces::thaw(&mut from)?;
        let base = from.record_if_any(BASE, "a PPK's keys")?.map(Base::thaw).transpose()?;
        from.end()?;
        Ok(Self { suite, spi, remote_spi, nonces, base })
    }
}

impl OwnNonces {
    fn freeze(&self, to: &mut Writer<'_>) {
        let Self { initiator, responder } = self;
        to.octets(INITIATOR_NONCE, initiator);
        to.octets(RESPONDER_NONCE, responder);
    }

    fn thaw(from: &mut Reader<'_>) -> Result<Self, Unthawable> {
        let initiator = from.octets(INITIATOR_NONCE)?.to_vec();
        let responder = from.octets(RESPONDER_NONCE)?.to_vec();
        Ok(Self { initiator, responder })
    }
}
