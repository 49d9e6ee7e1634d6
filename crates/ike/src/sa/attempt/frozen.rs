//! An IKE SA that this side sets up, in a frozen engine. A job is not part of it: the successor makes it once more.

use super::{Attempt, AuthSent, Handshake, InitSent, IntermediateSent, ResumeSent, Stage};
use crate::crypto::key_exchange::PrivateKey;
use crate::failure::Failure;
use crate::failure::facts::Heard;
use crate::frozen::values::{
    content, meaning, payloads_if_any, secret, write_content, write_payloads,
};
use crate::originator::Originator;
use crate::policy_index::PolicyIndex;
use crate::proof::Evidence;
use crate::proof::wishes::Wishes;
use crate::resumption::{Authentication, Kept};
use crate::sa::IkeSa;
use crate::sa::int_auth::IntAuth;
use crate::sa::keys::{Keys, Mixed, PpkUse, ProofKeys};
use crate::sa::window::Window;
use crate::thawing::Thawing;
use crate::wire::header::IkeSpi;
use ::frozen::{Clock, Field, Reader, Unthawable, Writer};
use esp::plane::Spi;

/// An attempt is one of these.
const INIT: Field = Field::new(1);
const INTERMEDIATE: Field = Field::new(2);
const AUTH: Field = Field::new(3);
const RESUME: Field = Field::new(4);

const LOCAL_SPI: Field = Field::new(1);
const REMOTE_SPI: Field = Field::new(2);
const WINDOW: Field = Field::new(3);
const STATE: Field = Field::new(4);

impl Attempt {
    pub fn freeze(&self, to: &mut Writer<'_>, clock: &Clock, policy: &PolicyIndex) {
        match self {
            Self::Init(sa) => to.record(INIT, |to| sa.freeze_with(to, clock, InitSent::freeze)),
            Self::Intermediate(sa) => {
                to.record(INTERMEDIATE, |to| {
                    sa.freeze_with(to, clock, |state, to, _| state.freeze(to, clock, policy));
                });
            }
            Self::Auth(sa) => to.record(AUTH, |to| {
                sa.freeze_with(to, clock, |state, to, _| state.freeze(to, clock, policy));
            }),
            Self::Resume(sa) => to.record(RESUME, |to| {
                sa.freeze_with(to, clock, |state, to, _| state.freeze(to, clock, policy));
            }),
        }
    }

    pub fn thaw(mut from: Reader<'_>, cx: Thawing<'_>) -> Result<Self, Unthawable> {
        let init = from.record_if_any(INIT, "an attempt")?;
        let intermediate = from.record_if_any(INTERMEDIATE, "an attempt")?;
        let auth = from.record_if_any(AUTH, "an attempt")?;
        let resume = from.record_if_any(RESUME, "an attempt")?;
        let attempt = match (init, intermediate, auth, resume) {
            (Some(init), None, None, None) => {
                Self::Init(Box::new(IkeSa::thaw_with(init, cx, InitSent::thaw)?))
            }
            (None, Some(intermediate), None, None) => {
                let sa = IkeSa::thaw_with(intermediate, cx, IntermediateSent::thaw)?;
                Self::Intermediate(Box::new(sa))
            }
            (None, None, None, Some(resume)) => {
                Self::Resume(Box::new(IkeSa::thaw_with(resume, cx, ResumeSent::thaw)?))
            }
            (None, None, Some(auth), None) => {
                Self::Auth(Box::new(IkeSa::thaw_with(auth, cx, AuthSent::thaw)?))
            }
            _ => return Err(from.invalid(INIT)),
        };
        // Each of them waits for an answer, or for a job.
        let works = matches!(&attempt, Self::Auth(sa) if sa.state.working_until().is_some());
        if attempt.sa().window.outstanding_id().is_none() != works {
            return Err(from.invalid(AUTH));
        }
        from.end()?;
        Ok(attempt)
    }
}

impl<S> IkeSa<S> {
    fn freeze_with(
        &self,
        to: &mut Writer<'_>,
        clock: &Clock,
        freeze: impl FnOnce(&S, &mut Writer<'_>, &Clock),
    ) {
        // This side has begun it.
        let Self { local_spi, remote_spi, originator: _, window, state } = self;
        to.number(LOCAL_SPI, local_spi.0);
        to.number(REMOTE_SPI, remote_spi.0);
        to.record(WINDOW, |to| window.freeze(to, clock));
        to.record(STATE, |to| freeze(state, to, clock));
    }

    fn thaw_with(
        mut from: Reader<'_>,
        cx: Thawing<'_>,
        thaw: impl FnOnce(Reader<'_>, Thawing<'_>) -> Result<S, Unthawable>,
    ) -> Result<Self, Unthawable> {
        let local_spi = IkeSpi(from.some_number(LOCAL_SPI)?);
        let remote_spi = IkeSpi(from.number(REMOTE_SPI)?);
        let window = Window::thaw(from.record(WINDOW, "a window")?, cx)?;
        let state = thaw(from.record(STATE, "an attempt's state")?, cx)?;
        from.end()?;
        Ok(Self { local_spi, remote_spi, originator: Originator::ThisSide, window, state })
    }
}

const CHILD: Field = Field::new(1);
const CHILDLESS: Field = Field::new(2);
const NONCE: Field = Field::new(3);
const KEY_EXCHANGE: Field = Field::new(4);
const REQUEST: Field = Field::new(5);
const COOKIE: Field = Field::new(6);
const RESTARTS: Field = Field::new(7);
const HEARD: Field = Field::new(8);
const REFUSAL: Field = Field::new(9);
const REFUSED_AT: Field = Field::new(10);
const KEYS: Field = Field::new(11);
const HANDSHAKE: Field = Field::new(12);
const PPKS: Field = Field::new(13);
const DONE: Field = Field::new(14);
const CONTENT: Field = Field::new(15);
const SPI_IN: Field = Field::new(16);
const UNWANTED: Field = Field::new(17);
const MIXED: Field = Field::new(18);
const WORKING_UNTIL: Field = Field::new(19);
const PROOF: Field = Field::new(20);
/// The responder's answer, whose proof is being checked.
const ANSWER: Field = Field::new(21);
const TICKET: Field = Field::new(22);

const ID: Field = Field::new(1);
const PPK: Field = Field::new(2);

impl InitSent {
    fn freeze(&self, to: &mut Writer<'_>, clock: &Clock) {
        let Self {
            child,
            childless,
            nonce,
            key_exchange,
            request,
            cookie,
            restarts,
            heard,
            refusal,
        } = self;
        to.text(CHILD, &child.name);
        to.flag(CHILDLESS, *childless);
        to.octets(NONCE, nonce);
        to.record(KEY_EXCHANGE, |to| key_exchange.freeze(to));
        to.octets(REQUEST, request);
        to.octets_if_any(COOKIE, cookie.as_deref());
        to.number(RESTARTS, *restarts);
        to.record_if_any(HEARD, heard.as_ref(), |to, heard| heard.freeze(to));
        if let Some((failure, at)) = refusal {
            to.record(REFUSAL, |to| failure.freeze(to));
            to.moment(REFUSED_AT, clock, *at);
        }
    }

    fn thaw(mut from: Reader<'_>, cx: Thawing<'_>) -> Result<Self, Unthawable> {
        let child = cx.child(&mut from, CHILD)?;
        let childless = from.flag(CHILDLESS)?;
        let nonce = from.octets(NONCE)?.to_vec();
        let key_exchange = PrivateKey::thaw(from.record(KEY_EXCHANGE, "a key exchange")?)?;
        let request = from.octets(REQUEST)?.to_vec();
        let cookie = from.octets_if_any(COOKIE)?.map(<[u8]>::to_vec);
        let restarts = from.number(RESTARTS)?;
        let heard = from.record_if_any(HEARD, "an answer")?.map(Heard::thaw).transpose()?;
        let refusal = from.record_if_any(REFUSAL, "a refusal")?.map(Failure::thaw).transpose()?;
        let refusal = match refusal {
            None => None,
            Some(refusal) => Some((refusal, from.moment(REFUSED_AT, &cx.clock)?)),
        };
        from.end()?;
        Ok(Self {
            child,
            childless,
            nonce,
            key_exchange,
            request,
            cookie,
            restarts,
            heard,
            refusal,
        })
    }
}

impl ResumeSent {
    fn freeze(&self, to: &mut Writer<'_>, clock: &Clock, policy: &PolicyIndex) {
        let Self { child, nonce, request, cookie, restarts, kept } = self;
        to.text(CHILD, &child.name);
        to.octets(NONCE, nonce);
        to.octets(REQUEST, request);
        to.octets_if_any(COOKIE, cookie.as_deref());
        to.number(RESTARTS, *restarts);
        to.record_if_any(TICKET, kept.as_ref(), |to, kept| kept.freeze(to, clock, policy));
    }

    fn thaw(mut from: Reader<'_>, cx: Thawing<'_>) -> Result<Self, Unthawable> {
        let thawed = Self {
            child: cx.child(&mut from, CHILD)?,
            nonce: from.octets(NONCE)?.to_vec(),
            request: from.octets(REQUEST)?.to_vec(),
            cookie: from.octets_if_any(COOKIE)?.map(<[u8]>::to_vec),
            restarts: from.number(RESTARTS)?,
            kept: match from.record_if_any(TICKET, "a ticket of a peer")? {
                None => None,
                Some(kept) => Some(Box::new(Kept::thaw(kept, cx)?)),
            },
        };
        from.end()?;
        Ok(thawed)
    }
}

impl IntermediateSent {
    fn freeze(&self, to: &mut Writer<'_>, clock: &Clock, policy: &PolicyIndex) {
        let Self { keys, child, childless, handshake, key_exchange, ppks, done, request } = self;
        let (octets, content) = request;
        to.text(CHILD, &child.name);
        to.flag(CHILDLESS, *childless);
        to.record_if_any(KEY_EXCHANGE, key_exchange.as_ref(), |to, key| key.freeze(to));
        to.octets(REQUEST, octets);
        to.record(KEYS, |to| keys.freeze(to));
        to.record(HANDSHAKE, |to| handshake.freeze(to, clock, policy));
        to.list(PPKS, ppks, |to, (id, ppk)| {
            to.text(ID, id);
            to.octets(PPK, ppk.expose());
        });
        to.number(DONE, u64::try_from(*done).unwrap_or(u64::MAX));
        to.record(CONTENT, |to| write_content(to, content));
    }

    fn thaw(mut from: Reader<'_>, cx: Thawing<'_>) -> Result<Self, Unthawable> {
        let child = cx.child(&mut from, CHILD)?;
        let childless = from.flag(CHILDLESS)?;
        let key_exchange = from.record_if_any(KEY_EXCHANGE, "a key exchange")?;
        let key_exchange = key_exchange.map(PrivateKey::thaw).transpose()?;
        let octets = from.octets(REQUEST)?.to_vec();
        let keys = Keys::thaw(from.record(KEYS, "an IKE SA's keys")?, cx)?;
        let handshake = Handshake::thaw(from.record(HANDSHAKE, "a handshake")?, cx)?;
        let ppks = from.list(PPKS, "a PPK")?.map(|mut from| {
            let ppk = (from.text(ID)?.to_owned(), secret(&mut from, PPK)?);
            from.end()?;
            Ok(ppk)
        });
        let ppks = ppks.collect::<Result<_, Unthawable>>()?;
        let done = from.number(DONE)?;
        let content = content(from.record(CONTENT, "a message's content")?)?;
        from.end()?;
        let request = (octets, content);
        Ok(Self { keys, child, childless, handshake, key_exchange, ppks, done, request })
    }
}

impl AuthSent {
    fn freeze(&self, to: &mut Writer<'_>, clock: &Clock, policy: &PolicyIndex) {
        let Self { keys, child, spi_in, unwanted, handshake, mixed, stage } = self;
        to.text(CHILD, &child.name);
        to.record(KEYS, |to| keys.freeze(to));
        to.record(HANDSHAKE, |to| handshake.freeze(to, clock, policy));
        to.number_if_any(SPI_IN, spi_in.map(|spi| spi.0));
        to.flag(UNWANTED, *unwanted);
        to.record_if_any(MIXED, mixed.as_ref(), |to, mixed| mixed.freeze(to));
        match stage {
            Stage::Asked => {}
            Stage::Proving { until, mixed } => {
                to.moment(WORKING_UNTIL, clock, *until);
                to.record_if_any(PROOF, mixed.as_ref(), |to, proof| proof.freeze(to));
            }
            Stage::Checking { until, payloads } => {
                to.moment(WORKING_UNTIL, clock, *until);
                to.record_if_any(ANSWER, Some(payloads), |to, all| write_payloads(to, all));
            }
        }
    }

    fn thaw(mut from: Reader<'_>, cx: Thawing<'_>) -> Result<Self, Unthawable> {
        let child = cx.child(&mut from, CHILD)?;
        let keys = Keys::thaw(from.record(KEYS, "an IKE SA's keys")?, cx)?;
        let handshake = Handshake::thaw(from.record(HANDSHAKE, "a handshake")?, cx)?;
        let spi_in = from.number_if_any(SPI_IN)?.map(Spi);
        let unwanted = from.flag(UNWANTED)?;
        let mixed = from.record_if_any(MIXED, "a PPK's keys")?.map(Mixed::thaw).transpose()?;
        let until = from.moment_if_any(WORKING_UNTIL, &cx.clock)?;
        let proof = from.record_if_any(PROOF, "a proof")?.map(Evidence::thaw).transpose()?;
        let answer = payloads_if_any(&mut from, ANSWER)?;
        let stage = match (until, answer) {
            (None, None) => Stage::Asked,
            (Some(until), None) => Stage::Proving { until, mixed: proof },
            (Some(until), Some(payloads)) => Stage::Checking { until, payloads },
            (None, Some(_)) => return Err(from.missing(WORKING_UNTIL)),
        };
        from.end()?;
        Ok(Self { keys, child, spi_in, unwanted, handshake, mixed, stage })
    }
}

const INITIATOR_NONCE: Field = Field::new(1);
const RESPONDER_NONCE: Field = Field::new(2);
const INIT_REQUEST: Field = Field::new(3);
const INIT_RESPONSE: Field = Field::new(4);
const PROOF_KEYS: Field = Field::new(5);
const INT_AUTH: Field = Field::new(6);
const WISHES: Field = Field::new(7);
const TAKES_CHILDLESS: Field = Field::new(8);
const PPK_USE: Field = Field::new(9);
const RESUMED: Field = Field::new(10);

impl Handshake {
    fn freeze(&self, to: &mut Writer<'_>, clock: &Clock, policy: &PolicyIndex) {
        let Self {
            initiator_nonce,
            responder_nonce,
            request,
            response,
            proof_keys,
            int_auth,
            wishes,
            childless,
            ppk,
            resumed,
        } = self;
        to.octets(INITIATOR_NONCE, initiator_nonce);
        to.octets(RESPONDER_NONCE, responder_nonce);
        to.octets(INIT_REQUEST, request);
        to.octets(INIT_RESPONSE, response);
        to.record(PROOF_KEYS, |to| proof_keys.freeze(to));
        to.record(INT_AUTH, |to| int_auth.freeze(to));
        to.record(WISHES, |to| wishes.freeze(to));
        to.flag(TAKES_CHILDLESS, *childless);
        to.number(PPK_USE, ppk.number());
        to.record_if_any(RESUMED, resumed.as_ref(), |to, a| a.freeze(to, clock, policy));
    }

    fn thaw(mut from: Reader<'_>, cx: Thawing<'_>) -> Result<Self, Unthawable> {
        let handshake = Self {
            initiator_nonce: from.octets(INITIATOR_NONCE)?.to_vec(),
            responder_nonce: from.octets(RESPONDER_NONCE)?.to_vec(),
            request: from.octets(INIT_REQUEST)?.to_vec(),
            response: from.octets(INIT_RESPONSE)?.to_vec(),
            proof_keys: ProofKeys::thaw(from.record(PROOF_KEYS, "the keys of proofs")?)?,
            int_auth: IntAuth::thaw(from.record(INT_AUTH, "IntAuth")?)?,
            wishes: Wishes::thaw(from.record(WISHES, "the peer's wishes")?)?,
            childless: from.flag(TAKES_CHILDLESS)?,
            ppk: meaning(&mut from, PPK_USE, PpkUse::of_number)?,
            resumed: match from.record_if_any(RESUMED, "a session's proofs")? {
                None => None,
                Some(from) => Some(Box::new(Authentication::thaw(from, cx)?)),
            },
        };
        from.end()?;
        Ok(handshake)
    }
}
