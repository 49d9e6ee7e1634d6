//! Requests of strangers: from IKE_SA_INIT, by way of a half-open IKE SA, to the proof that makes a session.

use super::Engine;
use crate::admission::{Admission, Origin, Request};
use crate::datagram::Datagram;
use crate::deadlines::Waiter;
use crate::discard::Discard;
use crate::exchange::auth::responder;
use crate::exchange::half_open::{HalfOpen, Init, Stage};
use crate::exchange::{resume, sa_init};
use crate::failure::facts::{Addresses, KEPT};
use crate::impossible::impossible;
use crate::rejection::Rejection;
use crate::wire::header::{Header, IkeSpi};
use crate::wire::message;
use crate::wire::parts::{Parts, status};
use crate::wire::payload::Payload;
use crate::wire::reader::WireError;
use crate::wire::registry::{ExchangeType, NotifyType, PayloadType};
use esp::plane::DataPlane;
use std::net::SocketAddr;
use std::time::Instant;

/// Octets of the longest IKE_SA_INIT of a stranger that is read; RFC 7296 §2 asks for 3,000.
const LONGEST_INIT: usize = 10_000;

/// Returns `true` for the first message of IKEv1: Main or Aggressive Mode without a responder cookie (RFC 2408 §3.1).
fn begins_ikev1(octets: &[u8]) -> bool {
    let Some((header, _)) = octets.split_first_chunk::<{ Header::LEN }>() else { return false };
    let [_, _, _, _, _, _, _, _, cookie @ .., next, version, exchange, _, _, _, _, _, a, b, c, d] =
        header;
    let whole = usize::try_from(u32::from_be_bytes([*a, *b, *c, *d])) == Ok(octets.len());
    const SA_PAYLOAD: u8 = 1;
    const MAIN_OR_AGGRESSIVE: [u8; 2] = [2, 4];
    version >> 4 == 1
        && *next == SA_PAYLOAD
        && MAIN_OR_AGGRESSIVE.contains(exchange)
        && cookie.iter().all(|octet| *octet == 0)
        && whole
}

impl<P: DataPlane> Engine<P> {
    /// Answers a higher major version with an unprotected INVALID_MAJOR_VERSION (RFC 7296 §2.5).
    pub(super) fn refuse_version(&mut self, now: Instant, datagram: Datagram<'_>) {
        self.out.discard(Discard::UnsupportedVersion);
        let octets = datagram.octets;
        let [initiator_spi, responder_spi] = [0..8, 8..16]
            .map(|range| Some(IkeSpi(u64::from_be_bytes(octets.get(range)?.try_into().ok()?))));
        let (Some(initiator_spi), Some(responder_spi), Some(exchange), Some(flags), Some(id)) =
            (initiator_spi, responder_spi, octets.get(18), octets.get(19), octets.get(20..24))
        else {
            return;
        };
        // Neither datagrams that are no IKE at all nor responses are answered.
        let length = octets.get(24..28).and_then(|o| o.try_into().ok()).map(u32::from_be_bytes);
        let whole = length.and_then(|l| usize::try_from(l).ok()) == Some(octets.len());
        if flags & 0x20 != 0 || !whole || !self.out.may_refuse(now) {
            return;
        }
        let header = Header {
            initiator_spi,
            responder_spi,
            next_payload: PayloadType::NONE,
            exchange: ExchangeType(*exchange),
            from_initiator: false,
            response: true,
            higher_version: false,
            minor_version: 0,
            message_id: id.try_into().map(u32::from_be_bytes).unwrap_or(0),
        };
        let answer = message::encode(&header, &[status(NotifyType::INVALID_MAJOR_VERSION, vec![])]);
        self.out.transmit(datagram.local, datagram.remote, answer);
    }

    /// Tells the operator of a peer that begins with IKEv1. It gets no answer: IKEv2 has none that it would understand.
    pub(super) fn note_ikev1(&mut self, now: Instant, datagram: Datagram<'_>) {
        if !begins_ikev1(datagram.octets) {
            return self.out.discard(Discard::MalformedHeader);
        }
        self.out.discard(Discard::UnsupportedVersion);
        let (local, remote) = (datagram.local.ip(), datagram.remote.ip());
        let candidates = self.policy.candidates(local, remote);
        if !candidates.is_empty() {
            self.out.turn_away(now, datagram, &candidates, &Rejection::other_version(remote));
        }
    }

    pub(super) fn handle_init(&mut self, now: Instant, header: &Header, datagram: Datagram<'_>) {
        if self.stopping {
            return self.out.discard(Discard::Stopping);
        }
        if !self.config.families.has_address(datagram.remote.ip()) {
            return self.out.discard(Discard::FamilyOff);
        }
        if self.sessions.of_spi(header.initiator_spi).is_some() {
            return self.out.discard(Discard::Reflected);
        }
        if datagram.octets.len() > LONGEST_INIT {
            return self.out.discard(Discard::TooLong);
        }
        let init = Init::of(datagram.remote, datagram.octets);
        if let Some(answer) = self.strangers.response_to(&init) {
            let answer = answer.to_vec();
            return self.out.transmit(datagram.local, datagram.remote, answer);
        }
        let payloads = match message::decode(header, datagram.octets) {
            Ok(payloads) => payloads,
            Err(error) => {
                self.out.discard(Discard::Malformed);
                // RFC 7296 §2.5: an unsupported critical payload is reported, and nothing else. Malformed messages get
                // no answer.
                if matches!(error, WireError::UnsupportedCritical(_)) && self.out.may_refuse(now) {
                    let refusal = Rejection::unreadable(&error).payload();
                    self.answer_stateless(header, datagram, refusal);
                }
                return;
            }
        };
        let parts = Parts::of(&payloads);
        let Some(nonce) = parts.nonce else { return self.out.discard(Discard::Malformed) };
        let cookie = parts.notify(NotifyType::COOKIE).map(|n| n.data.as_slice());
        let (local, remote) = (datagram.local.ip(), datagram.remote.ip());
        let origin = Origin::of(remote, self.policy.names(local, remote));
        let initiator_spi = header.initiator_spi;
        let request = Request { datagram, origin, initiator_spi, nonce, cookie };
        let admission = self.strangers.judge(now, &self.config, &mut self.rng, request);
        match admission {
            Admission::Welcome => {}
            Admission::Full => return self.out.discard(Discard::TooManyHalfOpen),
            Admission::Cookie(cookie) => {
                self.out.discard(Discard::WithoutCookie);
                return self.answer_stateless(header, datagram, status(NotifyType::COOKIE, cookie));
            }
        }
        let candidates = self.policy.candidates(local, remote);
        if candidates.is_empty() {
            self.out.discard(Discard::NoMatchingTunnel);
            let rejection = Rejection::no_tunnel(self.unknown_addresses(datagram));
            self.out.turn_away(now, datagram, &candidates, &rejection);
            if self.out.may_refuse(now) {
                self.answer_stateless(header, datagram, rejection.payload());
            }
            return;
        }
        let answer = {
            let mut cx = self.cx(now);
            match header.exchange {
                ExchangeType::IKE_SESSION_RESUME => {
                    resume::answer(&mut cx, header, datagram, &payloads, candidates)
                }
                _ => sa_init::answer(&mut cx, header, datagram, &payloads, candidates),
            }
        };
        match answer {
            None => {}
            Some(sa_init::Answer::Stateless(payload)) => {
                self.answer_stateless(header, datagram, payload)
            }
            Some(sa_init::Answer::Wasted) => self.strangers.note_waste(now, origin),
            Some(sa_init::Answer::HalfOpen(half)) => {
                let answer = half.begun.response.clone();
                self.out.transmit(datagram.local, datagram.remote, answer);
                self.strangers.enter(init, half.begun.local_spi, origin);
                self.keep_half_open(half);
            }
        }
    }

    pub(super) fn keep_half_open(&mut self, half: Box<HalfOpen>) {
        let spi = half.begun.local_spi;
        self.deadlines.set(Waiter::HalfOpen(spi), Some(half.deadline()));
        self.strangers.keep(half);
    }

    fn unknown_addresses(&self, datagram: Datagram<'_>) -> Addresses {
        Addresses {
            local: datagram.local.ip(),
            remote: datagram.remote.ip(),
            known: (self.policy.tunnels.iter().take(KEPT))
                .map(|t| (t.name.clone(), t.local.address, t.remote.address))
                .collect(),
        }
    }

    fn answer_stateless(&mut self, request: &Header, datagram: Datagram<'_>, payload: Payload) {
        let header = Header { response: true, from_initiator: false, ..*request };
        let octets = message::encode(&header, &[payload]);
        self.out.transmit(datagram.local, datagram.remote, octets);
    }

    /// Takes a message for a half-open IKE SA, which the caller has taken out.
    pub(super) fn handle_half_open(
        &mut self,
        now: Instant,
        half: Box<HalfOpen>,
        header: &Header,
        datagram: Datagram<'_>,
    ) {
        let spi = half.begun.local_spi;
        if let Stage::Refused { request, answer } = &half.stage
            && request == datagram.octets
        {
            self.out.transmit_all(datagram.local, datagram.remote, answer);
            self.strangers.keep(half);
            return;
        }
        let answer = half.handle(&mut self.cx(now), header, datagram);
        self.take_answer(now, spi, (datagram.local, datagram.remote), answer);
    }

    /// Sends the answer of a half-open IKE SA to IKE_AUTH, if there is one. A half-open IKE SA that goes on is kept.
    pub(super) fn take_answer(
        &mut self,
        now: Instant,
        spi: IkeSpi,
        (local, remote): (SocketAddr, SocketAddr),
        answer: responder::Answer,
    ) {
        match answer {
            responder::Answer::Waits(half) => self.keep_preparing(half),
            responder::Answer::Answered(half, answer)
            | responder::Answer::Refused(half, answer) => {
                self.out.transmit_all(local, remote, &answer);
                self.keep_half_open(half);
            }
            responder::Answer::Established {
                init,
                session,
                answer,
                initial_contact,
                resumes,
                effects,
            } => {
                self.forget_half_open(spi, init);
                self.out.transmit_all(local, remote, &answer);
                self.adopt(now, *session, initial_contact, resumes, effects);
            }
        }
        self.forget_unused_rules();
    }

    pub(super) fn expire_half_open(&mut self, now: Instant, spi: IkeSpi) {
        let Some(half) = self.strangers.take(spi) else {
            impossible!(self.out, "a half-open IKE SA that is forgotten has no deadline");
        };
        match responder::give_up(&mut self.cx(now), *half) {
            Ok((ends, answer)) => self.take_answer(now, spi, ends, answer),
            Err(half) => {
                self.forget_half_open(spi, half.begun.init());
                drop(half);
                self.forget_unused_rules();
            }
        }
    }

    /// Forgets the half-open IKE SAs for which `which` returns `true`.
    pub(super) fn forget_half_open_of(&mut self, which: impl Fn(&HalfOpen) -> bool) {
        let found = self.strangers.iter().filter(|half| which(half));
        let found: Vec<_> = found.map(|half| (half.begun.local_spi, half.begun.init())).collect();
        for (spi, init) in found {
            self.forget_half_open(spi, init);
        }
        self.forget_unused_rules();
    }

    /// Forgets a half-open IKE SA, and the entry by which a repeated IKE_SA_INIT finds it.
    pub(super) fn forget_half_open(&mut self, spi: IkeSpi, init: Init) {
        self.strangers.forget(spi, init);
        self.deadlines.set(Waiter::HalfOpen(spi), None);
    }
}
