//! Values that the proofs of both sides are made with, and the proofs themselves.

use super::values::{each, meaning, secret, write_each};
use crate::failure::facts::Heard;
use crate::failure::{Failure, FailureKind};
use crate::proof::Evidence;
use crate::proof::wishes::Wishes;
use crate::sa::int_auth::IntAuth;
use crate::sa::keys::{Base, Mixed, PpkUse, ProofKeys};
use crate::wire::registry::{AuthMethod, HashId};
use ::frozen::{Field, Reader, Unthawable, Writer};

const INITIATOR: Field = Field::new(1);
const RESPONDER: Field = Field::new(2);

impl ProofKeys {
    pub(crate) fn freeze(&self, to: &mut Writer<'_>) {
        let Self { initiator, responder } = self;
        to.octets(INITIATOR, initiator.expose());
        to.octets(RESPONDER, responder.expose());
    }

    pub(crate) fn thaw(mut from: Reader<'_>) -> Result<Self, Unthawable> {
        let keys = Self {
            initiator: secret(&mut from, INITIATOR)?,
            responder: secret(&mut from, RESPONDER)?,
        };
        from.end()?;
        Ok(keys)
    }
}

impl IntAuth {
    pub(crate) fn freeze(&self, to: &mut Writer<'_>) {
        let Self { sums } = self;
        if let Some((initiator, responder)) = sums {
            to.octets_if_any(INITIATOR, Some(initiator.expose()));
            to.octets(RESPONDER, responder.expose());
        }
    }

    pub(crate) fn thaw(mut from: Reader<'_>) -> Result<Self, Unthawable> {
        let initiator = super::values::secret_if_any(&mut from, INITIATOR)?;
        let responder = secret(&mut from, RESPONDER)?;
        from.end()?;
        Ok(Self { sums: initiator.map(|initiator| (initiator, responder)) })
    }
}

const BASE: Field = Field::new(1);
const PROOF_KEYS: Field = Field::new(2);

impl Mixed {
    pub(crate) fn freeze(&self, to: &mut Writer<'_>) {
        let Self { base, proof_keys } = self;
        to.record(BASE, |to| base.freeze(to));
        to.record(PROOF_KEYS, |to| proof_keys.freeze(to));
    }

    pub(crate) fn thaw(mut from: Reader<'_>) -> Result<Self, Unthawable> {
        let base = Base::thaw(from.record(BASE, "a PPK's keys")?)?;
        let proof_keys = ProofKeys::thaw(from.record(PROOF_KEYS, "the keys of proofs")?)?;
        from.end()?;
        Ok(Self { base, proof_keys })
    }
}

impl PpkUse {
    /// Its number in a frozen engine.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::None => 0,
            Self::InProofs => 1,
            Self::BeforeProofs => 2,
        }
    }

    pub(crate) fn of_number(number: u64) -> Option<Self> {
        [Self::None, Self::InProofs, Self::BeforeProofs]
            .into_iter()
            .find(|ppk| u64::from(ppk.number()) == number)
    }
}

const HASHES: Field = Field::new(1);
const AUTHORITIES: Field = Field::new(2);
const OCSP: Field = Field::new(3);

impl Wishes {
    pub(crate) fn freeze(&self, to: &mut Writer<'_>) {
        let Self { hashes, authorities, ocsp } = self;
        let hashes = hashes.as_ref().map(|hashes| {
            let octets = hashes.iter().flat_map(|hash| hash.0.to_be_bytes());
            octets.collect::<Vec<u8>>()
        });
        to.octets_if_any(HASHES, hashes.as_deref());
        to.octets(AUTHORITIES, authorities.as_flattened());
        to.flag(OCSP, *ocsp);
    }

    pub(crate) fn thaw(mut from: Reader<'_>) -> Result<Self, Unthawable> {
        let hashes = match from.octets_if_any(HASHES)?.map(<[u8]>::as_chunks::<2>) {
            None => None,
            Some((hashes, [])) => {
                Some(hashes.iter().map(|hash| HashId(u16::from_be_bytes(*hash))).collect())
            }
            Some(_) => return Err(from.invalid(HASHES)),
        };
        let (authorities, rest) = from.octets(AUTHORITIES)?.as_chunks();
        if !rest.is_empty() {
            return Err(from.invalid(AUTHORITIES));
        }
        let wishes = Self { hashes, authorities: authorities.to_vec(), ocsp: from.flag(OCSP)? };
        from.end()?;
        Ok(wishes)
    }
}

const METHOD: Field = Field::new(1);
const DATA: Field = Field::new(2);
const CERTIFICATES: Field = Field::new(3);
const ANSWERS: Field = Field::new(4);

impl Evidence {
    pub(crate) fn freeze(&self, to: &mut Writer<'_>) {
        let Self { method, data, certificates, ocsp } = self;
        to.number(METHOD, method.0);
        to.octets(DATA, data);
        write_each(to, CERTIFICATES, certificates);
        write_each(to, ANSWERS, ocsp);
    }

    pub(crate) fn thaw(mut from: Reader<'_>) -> Result<Self, Unthawable> {
        let proof = Self {
            method: AuthMethod(from.number(METHOD)?),
            data: from.octets(DATA)?.to_vec(),
            certificates: each(&mut from, CERTIFICATES)?,
            ocsp: each(&mut from, ANSWERS)?,
        };
        from.end()?;
        Ok(proof)
    }
}

const ANSWER: Field = Field::new(1);
const TIMES: Field = Field::new(2);

impl Heard {
    pub(crate) fn freeze(&self, to: &mut Writer<'_>) {
        let Self { answer, times } = self;
        to.text(ANSWER, answer);
        to.number(TIMES, *times);
    }

    pub(crate) fn thaw(mut from: Reader<'_>) -> Result<Self, Unthawable> {
        let heard = Self { answer: from.text(ANSWER)?.to_owned(), times: from.number(TIMES)? };
        from.end()?;
        Ok(heard)
    }
}

const KIND: Field = Field::new(1);
const WORDS: Field = Field::new(2);
const UNAUTHENTICATED: Field = Field::new(3);

impl Failure {
    /// Writes the kind, and the facts in words: what is known of a failure is no format.
    pub(crate) fn freeze(&self, to: &mut Writer<'_>) {
        let Self { kind, facts, unauthenticated } = self;
        to.number(KIND, kind.number());
        to.text(WORDS, &facts.to_string());
        to.flag(UNAUTHENTICATED, *unauthenticated);
    }

    pub(crate) fn thaw(mut from: Reader<'_>) -> Result<Self, Unthawable> {
        let kind = meaning(&mut from, KIND, FailureKind::of_number)?;
        let failure = Self::new(kind, from.text(WORDS)?.to_owned());
        let unauthenticated = from.flag(UNAUTHENTICATED)?;
        from.end()?;
        Ok(Self { unauthenticated, ..failure })
    }
}

impl FailureKind {
    /// Its number in a frozen engine: its place among all, from 1. A new kind gets the last place.
    pub(crate) fn number(self) -> u64 {
        let place = Self::ALL.iter().position(|kind| *kind == self);
        place.map_or(0, |place| place as u64 + 1)
    }

    pub(crate) fn of_number(number: u64) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?.checked_sub(1)?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_failures_keep_their_numbers() {
        for kind in FailureKind::ALL {
            assert_eq!(FailureKind::of_number(kind.number()), Some(*kind));
        }
        let found = [FailureKind::NoAnswer, FailureKind::Cancelled].map(FailureKind::number);
        assert_eq!(found, [1, 16]);
        assert_eq!(FailureKind::of_number(0), None);
    }
}
