//! A Child SA in a frozen engine. Its keys, sequence numbers and replay window are the plane's.

use super::{AskedFor, ChildSa, ChildState, History, RekeyForm};
use crate::frozen::values::{
    child_choice, meaning, mode, number_of_mode, number_of_originator, originator, traffic, usage,
    write_child_choice, write_traffic, write_usage,
};
use crate::sa::lowest_nonce::LowestNonce;
use crate::thawing::Thawing;
use ::frozen::{Clock, Field, Reader, Unthawable, Writer};
use esp::plane::{SaId, Spi};
use std::sync::Arc;

const TUNNEL: Field = Field::new(1);
const CHOICE: Field = Field::new(2);
const MODE: Field = Field::new(3);
const SELECTORS: Field = Field::new(4);
const ASKED: Field = Field::new(5);
const ADDITIONAL: Field = Field::new(6);
const INBOUND: Field = Field::new(7);
const OUTBOUND: Field = Field::new(8);
const SPI_IN: Field = Field::new(9);
const SPI_OUT: Field = Field::new(10);
const QUANTUM_SAFE: Field = Field::new(11);
const STATE: Field = Field::new(12);
const SUCCESSOR: Field = Field::new(13);
const STANDBY: Field = Field::new(14);
const ORIGINATOR: Field = Field::new(15);
const LOWEST_NONCE: Field = Field::new(16);
const REKEY_AT: Field = Field::new(17);
const EXPIRE_AT: Field = Field::new(18);
const REKEY_FAILED: Field = Field::new(19);
const HISTORY: Field = Field::new(20);

const ESTABLISHED_AT: Field = Field::new(1);
const REKEYS: Field = Field::new(2);
const RECEIVED: Field = Field::new(3);
const SENT: Field = Field::new(4);
const FORM: Field = Field::new(5);

impl ChildSa {
    pub fn freeze(&self, to: &mut Writer<'_>, clock: &Clock) {
        let Self {
            tunnel,
            choice,
            mode,
            selectors,
            asked,
            inbound,
            outbound,
            spi_in,
            spi_out,
            is_quantum_safe,
            state,
            standby,
            originator,
            lowest_nonce,
            rekey_at,
            expire_at,
            rekey_failed,
            history,
        } = self;
        to.text(TUNNEL, &tunnel.name);
        to.record(CHOICE, |to| write_child_choice(to, *choice));
        to.number(MODE, number_of_mode(*mode));
        to.record(SELECTORS, |to| write_traffic(to, selectors));
        if let Some(asked) = asked {
            let AskedFor { traffic, additional } = &**asked;
            to.record_if_any(ASKED, Some(()), |to, ()| write_traffic(to, traffic));
            to.flag(ADDITIONAL, *additional);
        }
        to.number(INBOUND, inbound.0);
        to.number(OUTBOUND, outbound.0);
        to.number(SPI_IN, spi_in.0);
        to.number(SPI_OUT, spi_out.0);
        to.flag(QUANTUM_SAFE, *is_quantum_safe);
        match state {
            ChildState::Established => {}
            ChildState::Unwanted => to.number(STATE, 1_u8),
            ChildState::Replaced(successor) => {
                to.number(STATE, 2_u8);
                to.number(SUCCESSOR, successor.0);
            }
        }
        to.flag(STANDBY, *standby);
        to.number(ORIGINATOR, number_of_originator(*originator));
        to.octets(LOWEST_NONCE, &lowest_nonce.0);
        to.moment(REKEY_AT, clock, *rekey_at);
        to.moment(EXPIRE_AT, clock, *expire_at);
        to.flag(REKEY_FAILED, *rekey_failed);
        to.record(HISTORY, |to| history.freeze(to, clock));
    }

    pub fn thaw(mut from: Reader<'_>, cx: Thawing<'_>) -> Result<Self, Unthawable> {
        let tunnel = cx.child(&mut from, TUNNEL)?;
        let choice = child_choice(from.record(CHOICE, "a Child SA's suite")?)?;
        let mode = mode(&mut from, MODE)?;
        let selectors = Arc::new(traffic(from.record(SELECTORS, "traffic selectors")?)?);
        let asked = from.record_if_any(ASKED, "traffic that was asked for")?;
        let additional = from.flag(ADDITIONAL)?;
        let asked = asked.map(traffic).transpose()?;
        let asked = asked.map(|traffic| Arc::new(AskedFor { traffic, additional }));
        let (inbound, outbound) =
            (SaId(from.some_number(INBOUND)?), SaId(from.some_number(OUTBOUND)?));
        let (spi_in, spi_out) = (Spi(from.some_number(SPI_IN)?), Spi(from.some_number(SPI_OUT)?));
        let is_quantum_safe = from.flag(QUANTUM_SAFE)?;
        let kind: u8 = meaning(&mut from, STATE, |kind| u8::try_from(kind).ok())?;
        let state = match kind {
            0 => ChildState::Established,
            1 => ChildState::Unwanted,
            2 => ChildState::Replaced(Spi(from.some_number(SUCCESSOR)?)),
            _ => return Err(from.invalid(STATE)),
        };
        let thawed = Self {
            tunnel,
            choice,
            mode,
            selectors,
            asked,
            inbound,
            outbound,
            spi_in,
            spi_out,
            is_quantum_safe,
            state,
            standby: from.flag(STANDBY)?,
            originator: originator(&mut from, ORIGINATOR)?,
            lowest_nonce: LowestNonce(from.array(LOWEST_NONCE)?),
            rekey_at: from.moment(REKEY_AT, &cx.clock)?,
            expire_at: from.moment(EXPIRE_AT, &cx.clock)?,
            rekey_failed: from.flag(REKEY_FAILED)?,
            history: History::thaw(from.record(HISTORY, "a Child SA's history")?, &cx.clock)?,
        };
        from.end()?;
        Ok(thawed)
    }
}

impl History {
    fn freeze(&self, to: &mut Writer<'_>, clock: &Clock) {
        let Self { established_at, rekeys, inbound, outbound, form } = *self;
        to.moment(ESTABLISHED_AT, clock, established_at);
        to.number(REKEYS, rekeys);
        to.record(RECEIVED, |to| write_usage(to, clock, inbound));
        to.record(SENT, |to| write_usage(to, clock, outbound));
        to.number(FORM, form.number());
    }

    fn thaw(mut from: Reader<'_>, clock: &Clock) -> Result<Self, Unthawable> {
        let thawed = Self {
            established_at: from.moment(ESTABLISHED_AT, clock)?,
            rekeys: from.number(REKEYS)?,
            inbound: usage(from.record(RECEIVED, "counters")?, clock)?,
            outbound: usage(from.record(SENT, "counters")?, clock)?,
            form: meaning(&mut from, FORM, RekeyForm::of_number)?,
        };
        from.end()?;
        Ok(thawed)
    }
}

impl RekeyForm {
    /// Its number in a frozen engine.
    pub fn number(self) -> u8 {
        match self {
            Self::Rekey => 0,
            Self::Widened => 1,
            Self::NewChildSa => 2,
        }
    }

    pub fn of_number(number: u64) -> Option<Self> {
        [Self::Rekey, Self::Widened, Self::NewChildSa]
            .into_iter()
            .find(|form| u64::from(form.number()) == number)
    }
}
