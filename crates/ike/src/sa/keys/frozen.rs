//! Keys of an IKE SA in a frozen engine.

use super::{Base, Keys, Shield, UsedPpk, output_len};
use crate::frozen::values::{ike_suite, secret, write_ike_suite};
use crate::thawing::Thawing;
use ::frozen::{Field, Reader, Unthawable, Writer};
use std::sync::Arc;

const SUITE: Field = Field::new(1);
const SECRETS: Field = Field::new(2);
const PPK: Field = Field::new(3);
const MESSAGES: Field = Field::new(4);
const DERIVED: Field = Field::new(5);
const SEALED: Field = Field::new(6);

const ID: Field = Field::new(1);
const HASH: Field = Field::new(2);
const SK_D: Field = Field::new(3);

/// IVs that one process may use before its successor's begin. A successor skips the rest of them: should both ever
/// protect messages with the same key, which nothing lets them, they still would not use an IV twice.
const IVS_OF_A_PROCESS: u32 = 32;

impl Keys {
    pub fn freeze(&self, to: &mut Writer<'_>) {
        // The protection follows from the suite, and the providers are those of the process.
        let Self { suite, protection: _, secrets, ppk, shield, sealed, crypto: _ } = self;
        to.record(SUITE, |to| write_ike_suite(to, *suite));
        to.octets(SECRETS, secrets.expose());
        to.record_if_any(PPK, ppk.as_ref(), |to, ppk| ppk.freeze(to));
        let Shield { messages, derived } = *shield;
        to.flag(MESSAGES, messages);
        to.flag(DERIVED, derived);
        to.number(SEALED, *sealed);
    }

    pub fn thaw(mut from: Reader<'_>, cx: Thawing<'_>) -> Result<Self, Unthawable> {
        let suite = ike_suite(from.record(SUITE, "an IKE suite")?)?;
        let protection = suite.protection().ok_or_else(|| from.invalid(SUITE))?;
        let secrets = secret(&mut from, SECRETS)?;
        if secrets.len() != output_len(suite.prf) + 2 * protection.key_material_len() {
            return Err(from.invalid(SECRETS));
        }
        let ppk = from.record_if_any(PPK, "a PPK")?;
        let ppk = ppk.map(|from| UsedPpk::thaw(from).map(Arc::new)).transpose()?;
        let shield = Shield { messages: from.flag(MESSAGES)?, derived: from.flag(DERIVED)? };
        let sealed: u64 = from.number(SEALED)?;
        let next = (sealed >> IVS_OF_A_PROCESS).checked_add(1);
        let sealed = next.filter(|next| *next < 1 << (64 - IVS_OF_A_PROCESS));
        let sealed = sealed.ok_or_else(|| from.invalid(SEALED))? << IVS_OF_A_PROCESS;
        from.end()?;
        let crypto = Arc::clone(cx.crypto);
        Ok(Self { suite, protection, secrets, ppk, shield, sealed, crypto })
    }
}

impl UsedPpk {
    pub fn freeze(&self, to: &mut Writer<'_>) {
        let Self { id, hash } = self;
        to.text(ID, id);
        to.octets(HASH, hash);
    }

    pub fn thaw(mut from: Reader<'_>) -> Result<Self, Unthawable> {
        let (id, hash) = (from.text(ID)?.to_owned(), from.array(HASH)?);
        from.end()?;
        Ok(Self { id, hash })
    }
}

impl Base {
    pub fn freeze(&self, to: &mut Writer<'_>) {
        let Self { ppk, sk_d } = self;
        let UsedPpk { id, hash } = &**ppk;
        to.text(ID, id);
        to.octets(HASH, hash);
        to.octets(SK_D, sk_d.expose());
    }

    pub fn thaw(mut from: Reader<'_>) -> Result<Self, Unthawable> {
        let ppk = UsedPpk { id: from.text(ID)?.to_owned(), hash: from.array(HASH)? };
        let sk_d = secret(&mut from, SK_D)?;
        from.end()?;
        Ok(Self { ppk: Arc::new(ppk), sk_d })
    }
}
