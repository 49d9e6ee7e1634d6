//! A half-open IKE SA in a frozen engine. A job is not part of it: the successor makes it once more.

use super::{Begun, Checking, HalfOpen, Preparing, Proven, Request, Resumed, Stage, Unproven};
use crate::frozen::values::{
    each, header, meaning, path, payloads, proposal, write_each, write_header, write_path,
    write_payloads, write_proposal,
};
use crate::policy_index::{Candidates, PolicyIndex};
use crate::product::Product;
use crate::proof::wishes::Wishes;
use crate::proof::{Checked, Evidence};
use crate::sa::int_auth::IntAuth;
use crate::sa::keys::{Keys, PpkUse, ProofKeys};
use crate::sa::window::Window;
use crate::thawing::{Thawing, write_tunnel};
use crate::wire::header::IkeSpi;
use ::frozen::{Clock, Field, Reader, Unthawable, Writer};

const LOCAL_SPI: Field = Field::new(1);
const REMOTE_SPI: Field = Field::new(2);
const PATH: Field = Field::new(3);
const KEYS: Field = Field::new(4);
const REQUEST: Field = Field::new(5);
const RESPONSE: Field = Field::new(6);
const BEGUN_AT: Field = Field::new(7);
const EXPIRES_AT: Field = Field::new(8);
/// In all stages but the last.
const UNPROVEN: Field = Field::new(9);
const CHECKING: Field = Field::new(10);
const PREPARING: Field = Field::new(11);
const REFUSED: Field = Field::new(12);

const REFUSED_REQUEST: Field = Field::new(1);
const REFUSED_ANSWER: Field = Field::new(2);

impl HalfOpen {
    pub fn freeze(&self, to: &mut Writer<'_>, clock: &Clock, policy: &PolicyIndex) {
        let Self { begun, stage } = self;
        let Begun { local_spi, remote_spi, path, keys, request, response, begun_at, expires_at } =
            begun;
        to.number(LOCAL_SPI, local_spi.0);
        to.number(REMOTE_SPI, remote_spi.0);
        to.record(PATH, |to| write_path(to, path));
        to.record(KEYS, |to| keys.freeze(to));
        to.octets(REQUEST, request);
        to.octets(RESPONSE, response);
        to.moment(BEGUN_AT, clock, *begun_at);
        to.moment(EXPIRES_AT, clock, *expires_at);
        match stage {
            Stage::Waiting(unproven) => {
                to.record(UNPROVEN, |to| unproven.freeze(to, clock, policy))
            }
            Stage::Checking(unproven, checking) => {
                to.record(UNPROVEN, |to| unproven.freeze(to, clock, policy));
                to.record(CHECKING, |to| checking.freeze(to, policy));
            }
            Stage::Preparing(unproven, preparing) => {
                to.record(UNPROVEN, |to| unproven.freeze(to, clock, policy));
                to.record(PREPARING, |to| preparing.freeze(to, policy));
            }
            Stage::Refused { request, answer } => to.record(REFUSED, |to| {
                to.octets(REFUSED_REQUEST, request);
                write_each(to, REFUSED_ANSWER, answer);
            }),
        }
    }

    pub fn thaw(mut from: Reader<'_>, cx: Thawing<'_>) -> Result<Self, Unthawable> {
        let begun = Begun {
            local_spi: IkeSpi(from.some_number(LOCAL_SPI)?),
            remote_spi: IkeSpi(from.some_number(REMOTE_SPI)?),
            path: path(from.record(PATH, "a path")?)?,
            keys: Keys::thaw(from.record(KEYS, "an IKE SA's keys")?, cx)?,
            request: from.octets(REQUEST)?.to_vec(),
            response: from.octets(RESPONSE)?.to_vec(),
            begun_at: from.moment(BEGUN_AT, &cx.clock)?,
            expires_at: from.moment(EXPIRES_AT, &cx.clock)?,
        };
        let unproven = from.record_if_any(UNPROVEN, "an initiator without proof")?;
        let unproven = unproven.map(|from| Unproven::thaw(from, cx)).transpose()?;
        let checking = from.record_if_any(CHECKING, "a proof that is checked")?;
        let preparing = from.record_if_any(PREPARING, "a proof that is good")?;
        let refused = from.record_if_any(REFUSED, "a refusal")?;
        let stage = match (unproven.map(Box::new), checking, preparing, refused) {
            (Some(unproven), None, None, None) => Stage::Waiting(unproven),
            (Some(unproven), Some(checking), None, None) => {
                Stage::Checking(unproven, Box::new(Checking::thaw(checking, cx)?))
            }
            (Some(unproven), None, Some(preparing), None) => {
                Stage::Preparing(unproven, Box::new(Preparing::thaw(preparing, cx)?))
            }
            (None, None, None, Some(mut refused)) => {
                let request = refused.octets(REFUSED_REQUEST)?.to_vec();
                let answer = each(&mut refused, REFUSED_ANSWER)?;
                refused.end()?;
                Stage::Refused { request, answer }
            }
            _ => return Err(from.invalid(UNPROVEN)),
        };
        from.end()?;
        let mut half = Self { begun, stage };
        half.reconsider(cx.policy);
        Ok(half)
    }
}

const PROPOSAL: Field = Field::new(1);
const WINDOW: Field = Field::new(2);
const PROOF_KEYS: Field = Field::new(3);
const DONE: Field = Field::new(4);
const BEFORE: Field = Field::new(5);
const INT_AUTH: Field = Field::new(6);
const INITIATOR_NONCE: Field = Field::new(7);
const RESPONDER_NONCE: Field = Field::new(8);
const WISHES: Field = Field::new(9);
const PPK: Field = Field::new(10);
const PPK_SETTLED: Field = Field::new(11);
const PRODUCT: Field = Field::new(12);
const RESUMED: Field = Field::new(13);

impl Unproven {
    fn freeze(&self, to: &mut Writer<'_>, clock: &Clock, policy: &PolicyIndex) {
        // The candidates follow from the addresses, the proposal and the policy.
        let Self {
            candidates: _,
            proposal,
            window,
            proof_keys,
            done,
            before,
            int_auth,
            initiator_nonce,
            responder_nonce,
            wishes,
            ppk,
            ppk_settled,
            resumed,
            product,
        } = self;
        to.record(PROPOSAL, |to| write_proposal(to, proposal));
        to.record(WINDOW, |to| window.freeze(to, clock));
        to.record(PROOF_KEYS, |to| proof_keys.freeze(to));
        to.number(DONE, u64::try_from(*done).unwrap_or(u64::MAX));
        to.record_if_any(BEFORE, before.as_ref(), |to, keys| keys.freeze(to));
        to.record(INT_AUTH, |to| int_auth.freeze(to));
        to.octets(INITIATOR_NONCE, initiator_nonce);
        to.octets(RESPONDER_NONCE, responder_nonce);
        to.record(WISHES, |to| wishes.freeze(to));
        to.number(PPK, ppk.number());
        to.flag(PPK_SETTLED, *ppk_settled);
        to.record_if_any(PRODUCT, product.as_ref(), |to, product| product.freeze(to));
        to.record_if_any(RESUMED, resumed.as_ref(), |to, ticket| ticket.freeze(to, clock, policy));
    }

    fn thaw(mut from: Reader<'_>, cx: Thawing<'_>) -> Result<Self, Unthawable> {
        let thawed = Self {
            candidates: Candidates::default(),
            proposal: proposal(&mut from, PROPOSAL)?,
            window: Window::thaw(from.record(WINDOW, "a window")?, cx)?,
            proof_keys: ProofKeys::thaw(from.record(PROOF_KEYS, "the keys of proofs")?)?,
            done: from.number(DONE)?,
            before: match from.record_if_any(BEFORE, "an IKE SA's keys")? {
                None => None,
                Some(keys) => Some(Keys::thaw(keys, cx)?),
            },
            int_auth: IntAuth::thaw(from.record(INT_AUTH, "IntAuth")?)?,
            initiator_nonce: from.octets(INITIATOR_NONCE)?.to_vec(),
            responder_nonce: from.octets(RESPONDER_NONCE)?.to_vec(),
            wishes: Wishes::thaw(from.record(WISHES, "the peer's wishes")?)?,
            ppk: meaning(&mut from, PPK, PpkUse::of_number)?,
            ppk_settled: from.flag(PPK_SETTLED)?,
            product: match from.record_if_any(PRODUCT, "a peer's product")? {
                None => None,
                Some(product) => Some(Product::thaw(product)?),
            },
            resumed: match from.record_if_any(RESUMED, "a ticket")? {
                None => None,
                Some(ticket) => Some(Box::new(Resumed::thaw(ticket, cx)?)),
            },
        };
        from.end()?;
        Ok(thawed)
    }
}

const TUNNEL: Field = Field::new(1);
const PAYLOADS: Field = Field::new(2);
const REPLY: Field = Field::new(3);
const LOCAL: Field = Field::new(4);
const REMOTE: Field = Field::new(5);
const OCTETS: Field = Field::new(6);
/// Of a request whose proof is good.
const PROOF: Field = Field::new(7);
const CHILD: Field = Field::new(8);
const CHECKED: Field = Field::new(9);

impl Checking {
    fn freeze(&self, to: &mut Writer<'_>, policy: &PolicyIndex) {
        let Self { tunnel, payloads, request } = self;
        to.record(TUNNEL, |to| write_tunnel(to, tunnel, policy));
        to.record(PAYLOADS, |to| write_payloads(to, payloads));
        request.freeze(to);
    }

    fn thaw(mut from: Reader<'_>, cx: Thawing<'_>) -> Result<Self, Unthawable> {
        let tunnel = cx.tunnel(from.record(TUNNEL, "a tunnel")?)?;
        let payloads = payloads(&mut from, PAYLOADS)?;
        let request = Request::thaw(&mut from)?;
        from.end()?;
        Ok(Self { tunnel, payloads, request })
    }
}

impl Preparing {
    fn freeze(&self, to: &mut Writer<'_>, policy: &PolicyIndex) {
        let Self { proven, child } = self;
        let Proven { tunnel, payloads, request, proof, checked } = proven;
        to.record(TUNNEL, |to| write_tunnel(to, tunnel, policy));
        to.record(PAYLOADS, |to| write_payloads(to, payloads));
        request.freeze(to);
        to.record(PROOF, |to| proof.freeze(to));
        to.text(CHILD, &child.name);
        to.record_if_any(CHECKED, checked.as_ref(), |to, checked| checked.freeze(to));
    }

    fn thaw(mut from: Reader<'_>, cx: Thawing<'_>) -> Result<Self, Unthawable> {
        let tunnel = cx.tunnel(from.record(TUNNEL, "a tunnel")?)?;
        let payloads = payloads(&mut from, PAYLOADS)?;
        let request = Request::thaw(&mut from)?;
        let proof = Evidence::thaw(from.record(PROOF, "a proof")?)?;
        let child = cx.child(&mut from, CHILD)?;
        let checked = from.record_if_any(CHECKED, "a signature that is good")?;
        let checked = checked.map(Checked::thaw).transpose()?;
        from.end()?;
        Ok(Self { proven: Proven { tunnel, payloads, request, proof, checked }, child })
    }
}

impl Request {
    fn freeze(&self, to: &mut Writer<'_>) {
        let Self { reply, ends, octets } = self;
        to.record(REPLY, |to| write_header(to, reply));
        to.endpoint(LOCAL, ends.0);
        to.endpoint(REMOTE, ends.1);
        to.octets(OCTETS, octets);
    }

    fn thaw(from: &mut Reader<'_>) -> Result<Self, Unthawable> {
        Ok(Self {
            reply: header(from.record(REPLY, "a header")?)?,
            ends: (from.endpoint(LOCAL)?, from.endpoint(REMOTE)?),
            octets: from.octets(OCTETS)?.to_vec(),
        })
    }
}
