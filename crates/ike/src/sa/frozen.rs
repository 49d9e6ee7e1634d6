//! An IKE SA in use in a frozen engine.

use super::active::Active;
use super::follow_up::Awaited;
use super::keys::Keys;
use super::window::Window;
use super::{Established, IkeSa, Phase};
use crate::frozen::values::{number_of_originator, originator};
use crate::thawing::Thawing;
use crate::wire::header::IkeSpi;
use ::frozen::{Clock, Field, Reader, Unthawable, Writer};

const LOCAL_SPI: Field = Field::new(1);
const REMOTE_SPI: Field = Field::new(2);
const ORIGINATOR: Field = Field::new(3);
const WINDOW: Field = Field::new(4);
const KEYS: Field = Field::new(5);
const ACTIVE: Field = Field::new(6);
const SUPERSEDED: Field = Field::new(7);
const UNPROVEN: Field = Field::new(8);
const REKEY_AT: Field = Field::new(9);
const EXPIRE_AT: Field = Field::new(10);
const AWAITED: Field = Field::new(11);

impl IkeSa {
    pub fn freeze(&self, to: &mut Writer<'_>, clock: &Clock) {
        let Self { local_spi, remote_spi, originator, window, state } = self;
        let Established { keys, active, awaited, phase, unproven, rekey_at, expire_at } = state;
        to.number(LOCAL_SPI, local_spi.0);
        to.number(REMOTE_SPI, remote_spi.0);
        to.number(ORIGINATOR, number_of_originator(*originator));
        to.record(WINDOW, |to| window.freeze(to, clock));
        to.record(KEYS, |to| keys.freeze(to));
        let active = active.as_ref();
        to.record_if_any(ACTIVE, active, |to, active| active.freeze(to));
        to.flag(SUPERSEDED, *phase == Phase::Superseded);
        to.flag(UNPROVEN, *unproven);
        to.moment(REKEY_AT, clock, *rekey_at);
        to.moment(EXPIRE_AT, clock, *expire_at);
        to.list(AWAITED, awaited, |to, awaited| awaited.freeze(to, clock));
    }

    pub fn thaw(mut from: Reader<'_>, cx: Thawing<'_>) -> Result<Self, Unthawable> {
        let (local_spi, remote_spi) =
            (IkeSpi(from.some_number(LOCAL_SPI)?), IkeSpi(from.number(REMOTE_SPI)?));
        let originator = originator(&mut from, ORIGINATOR)?;
        let window = Window::thaw(from.record(WINDOW, "a window")?, cx)?;
        let keys = Keys::thaw(from.record(KEYS, "an IKE SA's keys")?, cx)?;
        let active = from.record_if_any(ACTIVE, "an exchange")?;
        let active = active.map(|from| Active::thaw(from, cx)).transpose()?;
        // A request in flight and the knowledge of its purpose go together.
        if active.is_some() != window.outstanding_id().is_some() {
            return Err(from.invalid(ACTIVE));
        }
        let phase = if from.flag(SUPERSEDED)? { Phase::Superseded } else { Phase::Serving };
        let unproven = from.flag(UNPROVEN)?;
        let rekey_at = from.moment(REKEY_AT, &cx.clock)?;
        let expire_at = from.moment(EXPIRE_AT, &cx.clock)?;
        let awaited = from.list(AWAITED, "an awaited key exchange")?;
        let awaited =
            awaited.map(|from| Awaited::thaw(from, cx)).collect::<Result<_, Unthawable>>()?;
        from.end()?;
        let state = Established { keys, active, awaited, phase, unproven, rekey_at, expire_at };
        Ok(Self { local_spi, remote_spi, originator, window, state })
    }
}
