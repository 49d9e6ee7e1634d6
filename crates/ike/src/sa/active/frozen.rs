//! An exchange of ours in flight, in a frozen engine.

use super::{Active, ChildRival, IkeRival, PendingAddresses, PendingChild, PendingRekey, Purpose};
use crate::crypto::key_exchange::PrivateKey;
use crate::frozen::values::{meaning, spis, write_spis};
use crate::sa::child::RekeyForm;
use crate::sa::follow_up::FollowUp;
use crate::sa::keys::Base;
use crate::sa::lowest_nonce::LowestNonce;
use crate::thawing::Thawing;
use crate::wire::header::IkeSpi;
use ::frozen::{Field, Reader, Unthawable, Writer};
use esp::plane::Spi;
use policy::{ChildProposal, ChildTunnel};

/// Each kind of exchange has a field of its own; an exchange has one of them.
const CHILD: Field = Field::new(1);
const REKEY: Field = Field::new(2);
const DELETE_CHILDREN: Field = Field::new(3);
const DELETE_IKE: Field = Field::new(4);
const ADDRESSES: Field = Field::new(5);
const LIVENESS: Field = Field::new(6);
const TICKET: Field = Field::new(7);

const TUNNEL: Field = Field::new(1);
const PROPOSALS: Field = Field::new(2);
const REKEYS: Field = Field::new(3);
const FORM: Field = Field::new(4);
const SPI: Field = Field::new(5);
const NONCE: Field = Field::new(6);
const KEY_EXCHANGE: Field = Field::new(7);
const BASE: Field = Field::new(8);
const RESTARTS: Field = Field::new(9);
const UNWANTED: Field = Field::new(10);
const RIVAL: Field = Field::new(11);
const RIVAL_NONCE: Field = Field::new(12);
const DELETED: Field = Field::new(13);
/// Of a request that is answered, whose additional key exchanges are under way.
const FOLLOW_UP: Field = Field::new(14);

const PURPOSE: Field = Field::new(1);
const MOVES: Field = Field::new(2);
const COOKIE: Field = Field::new(3);

impl Active {
    pub fn freeze(&self, to: &mut Writer<'_>) {
        match self {
            Self::Child(pending) => to.record(CHILD, |to| pending.freeze(to)),
            Self::Rekey(pending) => to.record(REKEY, |to| pending.freeze(to)),
            Self::DeleteChildren(spis) => write_spi_record(to, DELETE_CHILDREN, spis),
            Self::DeleteIke => to.flag(DELETE_IKE, true),
            Self::Addresses(pending) => {
                to.record_if_any(ADDRESSES, Some(()), |to, ()| pending.freeze(to))
            }
            Self::Liveness(spis) => write_spi_record(to, LIVENESS, spis),
            Self::Ticket => to.flag(TICKET, true),
        }
    }

    pub fn thaw(mut from: Reader<'_>, cx: Thawing<'_>) -> Result<Self, Unthawable> {
        let mut found = Vec::new();
        if let Some(from) = from.record_if_any(CHILD, "a request for a Child SA")? {
            found.push(Self::Child(Box::new(PendingChild::thaw(from, cx)?)));
        }
        if let Some(from) = from.record_if_any(REKEY, "a rekey of an IKE SA")? {
            found.push(Self::Rekey(Box::new(PendingRekey::thaw(from)?)));
        }
        if let Some(from) = from.record_if_any(DELETE_CHILDREN, "a Delete")? {
            found.push(Self::DeleteChildren(spi_record(from)?));
        }
        if from.flag(DELETE_IKE)? {
            found.push(Self::DeleteIke);
        }
        if let Some(from) = from.record_if_any(ADDRESSES, "an exchange about addresses")? {
            found.push(Self::Addresses(PendingAddresses::thaw(from)?));
        }
        if let Some(from) = from.record_if_any(LIVENESS, "a liveness check")? {
            found.push(Self::Liveness(spi_record(from)?));
        }
        if from.flag(TICKET)? {
            found.push(Self::Ticket);
        }
        match (found.pop(), found.pop()) {
            (Some(active), None) => from.end().map(|()| active),
            _ => Err(from.invalid(CHILD)),
        }
    }
}

fn write_spi_record(to: &mut Writer<'_>, at: Field, spis: &[Spi]) {
    let spis = spis.iter().copied();
    to.record_if_any(at, Some(()), |to, ()| write_spis(to, Field::new(1), spis));
}

fn spi_record(mut from: Reader<'_>) -> Result<Vec<Spi>, Unthawable> {
    let spis = spis(&mut from, Field::new(1))?;
    from.end()?;
    Ok(spis)
}

impl PendingChild {
    fn freeze(&self, to: &mut Writer<'_>) {
        let Self {
            tunnel,
            proposals,
            rekeys,
            form,
            spi_in,
            nonce,
            key_exchange,
            base,
            follow_up,
            restarts,
            unwanted,
            rival,
            deleted,
        } = self;
        to.text(TUNNEL, &tunnel.name);
        to.octets(PROPOSALS, &places(tunnel, proposals));
        to.number_if_any(REKEYS, rekeys.map(|spi| spi.0));
        to.number(FORM, form.number());
        to.number(SPI, spi_in.0);
        to.octets(NONCE, nonce);
        let key_exchange = key_exchange.as_ref();
        to.record_if_any(KEY_EXCHANGE, key_exchange, |to, key| key.freeze(to));
        to.record_if_any(BASE, base.as_ref(), |to, base| base.freeze(to));
        to.number(RESTARTS, *restarts);
        to.flag(UNWANTED, *unwanted);
        if let Some(ChildRival { child, lowest_nonce }) = rival {
            to.number_if_any(RIVAL, Some(child.0));
            to.octets(RIVAL_NONCE, &lowest_nonce.0);
        }
        write_spis(to, DELETED, deleted.iter().copied());
        to.record_if_any(FOLLOW_UP, follow_up.as_deref(), |to, next| next.freeze(to));
    }

    fn thaw(mut from: Reader<'_>, cx: Thawing<'_>) -> Result<Self, Unthawable> {
        let tunnel = cx.child(&mut from, TUNNEL)?;
        let proposals = at_places(&tunnel, from.octets(PROPOSALS)?);
        let rekeys = from.number_if_any(REKEYS)?.map(Spi);
        let form = meaning(&mut from, FORM, RekeyForm::of_number)?;
        let spi_in = Spi(from.some_number(SPI)?);
        let nonce = from.octets(NONCE)?.to_vec();
        let key_exchange = from.record_if_any(KEY_EXCHANGE, "a key exchange")?;
        let base = from.record_if_any(BASE, "a PPK's keys")?;
        let (restarts, unwanted) = (from.number(RESTARTS)?, from.flag(UNWANTED)?);
        let rival = match from.number_if_any(RIVAL)? {
            None => None,
            Some(child) => {
                let lowest_nonce = LowestNonce(from.array(RIVAL_NONCE)?);
                Some(ChildRival { child: Spi(child), lowest_nonce })
            }
        };
        let deleted = spis(&mut from, DELETED)?;
        let follow_up = follow_up(&mut from)?;
        from.end()?;
        Ok(Self {
            tunnel,
            proposals,
            rekeys,
            form,
            spi_in,
            nonce,
            key_exchange: key_exchange.map(PrivateKey::thaw).transpose()?,
            base: base.map(Base::thaw).transpose()?,
            follow_up,
            restarts,
            unwanted,
            rival,
            deleted,
        })
    }
}

/// The places of proposals among those of their tunnel, of which they are a part.
fn places(tunnel: &ChildTunnel, proposals: &[ChildProposal]) -> Vec<u8> {
    let places = proposals.iter().filter_map(|p| tunnel.proposals.iter().position(|q| p == q));
    places.filter_map(|place| u16::try_from(place).ok()).flat_map(u16::to_be_bytes).collect()
}

/// A tunnel that was taken down meanwhile has none left.
fn at_places(tunnel: &ChildTunnel, places: &[u8]) -> Vec<ChildProposal> {
    let places = places.as_chunks().0.iter().map(|place| usize::from(u16::from_be_bytes(*place)));
    places.filter_map(|place| tunnel.proposals.get(place).cloned()).collect()
}

impl PendingRekey {
    fn freeze(&self, to: &mut Writer<'_>) {
        let Self { spi, nonce, key_exchange, base, follow_up, restarts, rival } = self;
        to.number(SPI, spi.0);
        to.octets(NONCE, nonce);
        to.record(KEY_EXCHANGE, |to| key_exchange.freeze(to));
        to.record_if_any(BASE, base.as_ref(), |to, base| base.freeze(to));
        to.number(RESTARTS, *restarts);
        if let Some(IkeRival { sa, lowest_nonce }) = rival {
            to.number_if_any(RIVAL, Some(sa.0));
            to.octets(RIVAL_NONCE, &lowest_nonce.0);
        }
        to.record_if_any(FOLLOW_UP, follow_up.as_deref(), |to, next| next.freeze(to));
    }

    fn thaw(mut from: Reader<'_>) -> Result<Self, Unthawable> {
        let spi = IkeSpi(from.some_number(SPI)?);
        let nonce = from.octets(NONCE)?.to_vec();
        let key_exchange = PrivateKey::thaw(from.record(KEY_EXCHANGE, "a key exchange")?)?;
        let base = from.record_if_any(BASE, "a PPK's keys")?.map(Base::thaw).transpose()?;
        let restarts = from.number(RESTARTS)?;
        let rival = match from.number_if_any(RIVAL)? {
            None => None,
            Some(sa) => {
                let lowest_nonce = LowestNonce(from.array(RIVAL_NONCE)?);
                Some(IkeRival { sa: IkeSpi(sa), lowest_nonce })
            }
        };
        let follow_up = follow_up(&mut from)?;
        from.end()?;
        Ok(Self { spi, nonce, key_exchange, base, follow_up, restarts, rival })
    }
}

fn follow_up(from: &mut Reader<'_>) -> Result<Option<Box<FollowUp>>, Unthawable> {
    let follow_up = from.record_if_any(FOLLOW_UP, "an additional key exchange")?;
    Ok(follow_up.map(FollowUp::thaw).transpose()?.map(Box::new))
}

impl PendingAddresses {
    fn freeze(&self, to: &mut Writer<'_>) {
        let Self { purpose, moves, cookie } = self;
        to.number(PURPOSE, purpose.number());
        to.number(MOVES, *moves);
        to.octets_if_any(COOKIE, cookie.as_deref());
    }

    fn thaw(mut from: Reader<'_>) -> Result<Self, Unthawable> {
        let purpose = meaning(&mut from, PURPOSE, Purpose::of_number)?;
        let moves = from.number(MOVES)?;
        let cookie = from.octets_if_any(COOKIE)?.map(<[u8]>::to_vec);
        from.end()?;
        Ok(Self { purpose, moves, cookie })
    }
}

impl Purpose {
    fn number(self) -> u8 {
        match self {
            Self::Update => 0,
            Self::Verify => 1,
            Self::Tell => 2,
            Self::Liveness => 3,
        }
    }

    fn of_number(number: u64) -> Option<Self> {
        [Self::Update, Self::Verify, Self::Tell, Self::Liveness]
            .into_iter()
            .find(|purpose| u64::from(purpose.number()) == number)
    }
}
