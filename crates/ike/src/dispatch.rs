//! Takes whatever reaches a session (messages, finished jobs, the time, tasks that wait) or a half-open IKE SA
//! (messages) to the exchange that it belongs to.
//!
//! This is the one place that knows every exchange, but for the IKE_SA_INIT of a stranger. A session knows none of them:
//! it queues tasks, and [`Session::pump`] starts those that can be started.

use crate::close_reason::CloseReason;
use crate::context::Context;
use crate::datagram::Datagram;
use crate::deadlines::after;
use crate::discard::Discard;
use crate::effect::{Effect, Effects};
use crate::exchange::Answer;
use crate::exchange::auth::responder;
use crate::exchange::half_open::HalfOpen;
use crate::exchange::{
    address_update, auth, childless, create_child, delete, follow_up, follow_up_answer,
    informational, intermediate, rekey_ike, resume, sa_init, ticket,
};
use crate::failure::{Failure, FailureKind};
use crate::impossible::impossible;
use crate::proof::Proved;
use crate::rejection::{Rejection, malformed, unasked};
use crate::sa::active::{Active, Purpose};
use crate::sa::answered::Answered;
use crate::sa::attempt::{Attempt, AuthSent};
use crate::sa::reassembly::Received;
use crate::sa::window::{Postponed, Request, Until};
use crate::sa::{Established, IkeSa, Phase};
use crate::session::{Carrier, Session};
use crate::task::Task;
use crate::wire::fragment;
use crate::wire::header::{Header, IkeSpi};
use crate::wire::parts::Parts;
use crate::wire::payload::Payload;
use crate::wire::reader::WireError;
use crate::wire::registry::{ExchangeType, NotifyType};

impl HalfOpen {
    /// Takes a message of an initiator that has not proved yet who it is.
    pub fn handle(
        self,
        cx: &mut Context<'_>,
        header: &Header,
        datagram: Datagram<'_>,
    ) -> responder::Answer {
        match header.exchange {
            ExchangeType::IKE_INTERMEDIATE => intermediate::answer(cx, self, header, datagram),
            _ => responder::answer(cx, self, header, datagram),
        }
    }
}

impl Session {
    /// Takes a message for the IKE SA with this local SPI.
    pub fn handle(
        &mut self,
        cx: &mut Context<'_>,
        spi: IkeSpi,
        header: &Header,
        datagram: Datagram<'_>,
    ) -> Effects {
        if let Some(attempt) = self.take_attempt() {
            return self.handle_attempt(cx, attempt, header, datagram);
        }
        let Some(ike) = self.carrier(spi) else {
            impossible!(cx.out, "the engine has found the session by this SPI");
        };
        if header.from_initiator == ike.originator.is_here() {
            return cx.discard(Discard::WrongInitiatorFlag);
        }
        if (header.initiator_spi, header.responder_spi) != ike.spis() {
            return cx.discard(Discard::UnknownSpi);
        }
        if header.response {
            ike.handle_response(cx, header, datagram)
        } else {
            ike.handle_request(cx, header, datagram)
        }
    }

    /// Takes a message for the IKE SA that is being set up.
    fn handle_attempt(
        &mut self,
        cx: &mut Context<'_>,
        attempt: Attempt,
        header: &Header,
        datagram: Datagram<'_>,
    ) -> Effects {
        let spis = (header.initiator_spi, header.responder_spi);
        let reason = match attempt {
            _ if header.from_initiator => Discard::WrongInitiatorFlag,
            Attempt::Init(sa) => return sa_init::conclude(self, cx, sa, header, datagram),
            Attempt::Resume(sa) => return resume::conclude(self, cx, sa, header, datagram),
            _ if spis != attempt.sa().spis() => Discard::UnknownSpi,
            Attempt::Intermediate(sa) if header.response => {
                return intermediate::conclude(self, cx, sa, header, datagram);
            }
            Attempt::Auth(sa) if header.response => {
                return self.handle_auth_answer(cx, sa, header, datagram);
            }
            _ => match attempt.sa().window.classify(header.message_id) {
                Request::Foreign => Discard::MessageId,
                Request::New | Request::Repeated => Discard::TooEarly,
            },
        };
        self.keep_attempt(attempt);
        cx.discard(reason)
    }

    /// Takes the answer of IKE_AUTH.
    fn handle_auth_answer(
        &mut self,
        cx: &mut Context<'_>,
        mut sa: Box<IkeSa<AuthSent>>,
        header: &Header,
        datagram: Datagram<'_>,
    ) -> Effects {
        let Some(answer) = sa.read_answer(cx, self.tunnel(), self.path(), header, datagram) else {
            self.keep_attempt(Attempt::Auth(sa));
            return Effects::none();
        };
        let payloads = match answer.body {
            Ok(body) => body.payloads,
            Err(error) => {
                let (attempt, reason) = (Attempt::Auth(sa), CloseReason::MalformedAnswer);
                return self.fail(cx, attempt, reason, malformed(&error));
            }
        };
        self.heard(cx, datagram);
        if childless::is_wanted(&sa.state, &payloads) && !self.is_closing() {
            return childless::begin(self, cx, *sa);
        }
        if resume::is_refused(&sa.state, &payloads) && !self.is_closing() {
            return resume::begin_in_full(self, cx, *sa);
        }
        auth::conclude(self, cx, sa, payloads)
    }

    /// Answers requests that wait no longer: their time has come, or the peer has answered the Delete.
    fn respond_to_ready(&mut self, cx: &mut Context<'_>) -> Effects {
        let ready = self.sas().iter().filter(|sa| {
            sa.window.postponed.as_ref().is_some_and(|request| match request.until {
                Until::Prepared(_) => false,
                Until::Deleted => !create_child::waits_for_delete(self, sa, &request.payloads),
                Until::Time(due) => due <= cx.now,
            })
        });
        let ready: Vec<IkeSpi> = ready.map(|sa| sa.local_spi).collect();
        let mut effects = Effects::none();
        for spi in ready {
            // One may end the session.
            if self.sa(spi).is_some() {
                effects += self.respond_to_postponed(cx, spi);
            }
        }
        effects
    }

    /// Answers a request on the IKE SA with this local SPI that has been waiting.
    pub fn respond_to_postponed(&mut self, cx: &mut Context<'_>, spi: IkeSpi) -> Effects {
        let Some(mut ike) = self.carrier(spi) else {
            impossible!(cx.out, "the engine has found the session by this SPI");
        };
        let Some(postponed) = ike.window.postponed.take() else { return Effects::none() };
        let Postponed { header, payloads, ends: (local, remote), octets, until: _until } =
            *postponed;
        let datagram = Datagram { local, remote, octets: &octets };
        ike.respond(cx, &header, datagram, Ok(payloads))
    }

    /// Ends the session if the peer's answer says that it could not read the request: then the peer has ended the IKE
    /// SA already (RFC 7296 §2.21.3).
    fn end_if_disowned(&mut self, cx: &mut Context<'_>, payloads: &[Payload]) -> Option<Effects> {
        let error = Parts::of(payloads).notify(NotifyType::INVALID_SYNTAX)?;
        let failure = unasked(error);
        Some(self.end_by_peer(cx, CloseReason::RequestUnread, Some(failure)))
    }

    /// Takes what came of a job for the IKE SA that is being set up.
    pub fn resume(&mut self, cx: &mut Context<'_>, outcome: Result<Proved, Failure>) -> Effects {
        auth::resume(self, cx, outcome)
    }

    /// Starts what can be started.
    pub fn pump(&mut self, cx: &mut Context<'_>) -> Effects {
        // A handshake has to end before anything else is asked.
        if self.attempt().is_some() {
            return Effects::none();
        }
        self.renew_numbers();
        let mut effects = self.respond_to_ready(cx);
        while let Some((spi, task)) = self.take_startable() {
            if let Some(mut ike) = self.carrier(spi) {
                effects += ike.start(cx, task);
            }
        }
        effects
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, cx: &mut Context<'_>) -> Effects {
        for sa in self.sas_mut() {
            sa.window.requests.forget(cx.now, cx.config.patience());
        }
        let mut effects = self.retransmit(cx);
        if self.is_over() {
            return effects;
        }
        effects += sa_init::handle_timeout(self, cx);
        effects += auth::handle_timeout(self, cx);
        effects += self.respond_to_ready(cx);
        if self.is_over() {
            return effects;
        }
        self.release_lingering(cx);
        self.queue_due(cx.now);
        effects += self.age_children(cx);
        effects += self.age_ike(cx);
        follow_up::handle_timeout(self, cx);
        if self.is_over() {
            return effects;
        }
        effects += self.age_authentication(cx);
        if self.is_over() {
            return effects;
        }
        self.keep_alive(cx);
        effects
    }

    fn retransmit(&mut self, cx: &mut Context<'_>) -> Effects {
        let given_up = self.send_again(cx);
        let mut effects = Effects::none();
        for spi in given_up {
            let is_current = spi == self.current_spi();
            if let Some(ike) = self.carrier(spi)
                && ike.state.phase == Phase::Superseded
                && !is_current
            {
                effects += delete::drop_ike(ike, cx);
                continue;
            }
            let Some(sa) = self.each_sa().find(|sa| sa.local_spi == spi) else { continue };
            if self.is_closing() {
                return effects.and(self.end(cx, CloseReason::NoAnswer, None));
            }
            let failure = Some(self.silence(sa).into());
            self.forget_obstacles();
            return effects.and(self.end(cx, CloseReason::NoAnswer, failure));
        }
        effects
    }
}

/// Exchanges on one IKE SA in use.
impl Carrier<'_> {
    /// Takes an answer of the peer.
    fn handle_response(
        mut self,
        cx: &mut Context<'_>,
        header: &Header,
        datagram: Datagram<'_>,
    ) -> Effects {
        let (sa, path, tunnel) = self.split();
        let Some(answer) = sa.read_answer(cx, tunnel, path, header, datagram) else {
            return Effects::none();
        };
        let Answered { body, retransmissions, .. } = answer;
        let payloads = match body {
            Ok(body) => body.payloads,
            Err(error) => return self.end_on_bad_response(cx, &error),
        };
        sa.state.unproven = false;
        self.session.heard(cx, datagram);
        self.session.take_answering_path(cx, datagram, retransmissions);
        if let Some(effects) = self.session.end_if_disowned(cx, &payloads) {
            return effects;
        }
        match self.state.active.take() {
            Some(Active::Child(pending)) => {
                create_child::conclude(&mut self, cx, *pending, payloads)
            }
            Some(Active::Rekey(pending)) => rekey_ike::conclude(&mut self, cx, *pending, payloads),
            Some(Active::DeleteChildren(spis)) => {
                delete::conclude_children(self.session, cx, &spis)
            }
            Some(Active::DeleteIke) => delete::drop_ike(self, cx),
            Some(Active::Addresses(pending)) => {
                address_update::conclude(&mut self, cx, &pending, &payloads)
            }
            Some(Active::Ticket) => {
                ticket::keep(&mut self, cx, &Parts::of(&payloads));
                Effects::none()
            }
            Some(Active::Liveness(shown)) => {
                shown.into_iter().for_each(|spi| self.session.promote_child(cx, spi));
                create_child::handover::conclude_waiting(self.session, cx);
                Effects::none()
            }
            None => Effects::none(),
        }
    }

    /// Takes a request of the peer.
    fn handle_request(
        mut self,
        cx: &mut Context<'_>,
        header: &Header,
        datagram: Datagram<'_>,
    ) -> Effects {
        let (sa, path, _) = self.split();
        let class = sa.window.classify(header.message_id);
        if class == Request::Foreign {
            return cx.discard(Discard::MessageId);
        }
        if class == Request::Repeated {
            self.repeat_answer(cx, header, datagram);
            return Effects::none();
        }
        if sa.window.postponed.is_some() {
            return cx.discard(Discard::AnswerPending);
        }
        let (keys, requests) = (&sa.state.keys, &mut sa.window.requests);
        requests.forget(cx.now, cx.config.patience());
        let received = requests.receive(cx.now, path, keys, header, datagram.octets);
        let (body, fragments) = match received {
            Err(reason) => return cx.discard(reason),
            Ok(Received::Fragment) => return Effects::none(),
            Ok(Received::Message { body, fragments }) => (body, fragments),
        };
        if let Some(fragments) = &fragments {
            path.follow_fragments(fragments.largest);
        }
        sa.state.unproven = false;
        self.session.heard(cx, datagram);
        let octets = fragments.as_ref().map_or(datagram.octets, |f| &f.first);
        let payloads = body.map(|body| body.payloads);
        self.respond(cx, header, Datagram { octets, ..datagram }, payloads)
    }

    /// Answers a request, of which `datagram` is fragment 1, or all of it. The answer may have to wait.
    fn respond(
        mut self,
        cx: &mut Context<'_>,
        header: &Header,
        datagram: Datagram<'_>,
        payloads: Result<Vec<Payload>, WireError>,
    ) -> Effects {
        let Answer { payloads: answer, fatal, mut effects } = match (payloads, header.exchange) {
            (Err(error), _) => Answer::from(&Rejection::unreadable(&error)),
            (Ok(payloads), ExchangeType::CREATE_CHILD_SA) => {
                if let Some(child) = create_child::unprepared(self.session, cx, &payloads) {
                    self.postpone(header, datagram, payloads, Until::Prepared(child));
                    return Effect::Postponed(self.local_spi).into();
                }
                if create_child::waits_for_delete(self.session, &self, &payloads) {
                    self.postpone(header, datagram, payloads, Until::Deleted);
                    return Effects::none();
                }
                create_child::answer(&mut self, cx, payloads)
            }
            (Ok(payloads), ExchangeType::IKE_FOLLOWUP_KE) => {
                match follow_up_answer::answer(&mut self, cx, &payloads) {
                    Ok(granted) => granted.into(),
                    Err(rejection) => Answer::from(&rejection),
                }
            }
            (Ok(payloads), ExchangeType::INFORMATIONAL) => {
                let pause = cx.config.drain_before_answer;
                if create_child::handover::take_over_deleted(self.session, cx, &payloads)
                    && !pause.is_zero()
                {
                    let due = Until::Time(after(cx.now, pause));
                    self.postpone(header, datagram, payloads, due);
                    return Effects::none();
                }
                informational::answer(&mut self, cx, &payloads, datagram)
            }
            (Ok(_), _) => {
                let rejection = Rejection::invalid_syntax(format!(
                    "{} on an established IKE SA",
                    header.exchange
                ));
                Answer::from(&rejection)
            }
        };
        let ends = fatal || self.session.is_being_deleted();
        let pause = self.session.pause_before_final_answer(cx);
        let (sa, path, _) = self.split();
        let spi = sa.local_spi;
        let answer = sa.answer(cx, path, header, &answer);
        if ends {
            cx.out.keep_final_answer(cx.now, spi, datagram, answer, pause);
        } else {
            // RFC 7296 §2.11: to where the request came from.
            cx.out.transmit_all(datagram.local, datagram.remote, answer);
        }
        if fatal {
            let failure = Failure::new(
                FailureKind::ProtocolError,
                format!("the peer's {} request cannot be read", header.exchange),
            );
            effects += self.session.end(cx, CloseReason::MalformedRequest, Some(failure));
        } else {
            effects += delete::carry_out(self.session, cx);
        }
        effects
    }

    /// Keeps a request that is answered later.
    fn postpone(
        &mut self,
        header: &Header,
        Datagram { local, remote, octets }: Datagram<'_>,
        payloads: Vec<Payload>,
        until: Until,
    ) {
        let (header, ends, octets) = (*header, (local, remote), octets.to_vec());
        let postponed = Postponed { header, payloads, ends, octets, until };
        self.window.postponed = Some(Box::new(postponed));
    }

    /// Answers the last request as before (RFC 7296 §2.1: bit by bit).
    fn repeat_answer(&mut self, cx: &mut Context<'_>, header: &Header, datagram: Datagram<'_>) {
        let (IkeSa { window, state: Established { keys, .. }, .. }, path, _) = self.split();
        // RFC 7383 §2.6.1: once for all fragments of the request.
        if fragment::place(header, datagram.octets)
            .is_ok_and(|place| place.is_some_and(|p| p.number > 1))
        {
            return cx.out.discard(Discard::RepeatedFragment);
        }
        if !keys.proves(header, datagram.octets) {
            return cx.out.discard(Discard::NotAuthentic);
        }
        let rng = &mut *cx.rng;
        let repeated = window.repeat_answer(|message| {
            let (size, message) = message.smaller(keys, path, rng)?;
            path.fragment_size = Some(size);
            Some(message)
        });
        if let Some(datagrams) = repeated {
            cx.out.transmit_all(datagram.local, datagram.remote, datagrams);
        }
        self.session.note_repeated(datagram);
    }

    fn end_on_bad_response(&mut self, cx: &mut Context<'_>, error: &WireError) -> Effects {
        let failure = malformed(error);
        let reason = CloseReason::MalformedAnswer;
        // RFC 7296 §2.21, §2.4: no error is sent, but the peer is not left with an IKE SA that is gone here.
        if let Some(Active::Child(pending)) = self.state.active.take() {
            cx.release_spi(pending.spi_in);
        }
        if self.session.is_closing() {
            return self.session.end(cx, reason, Some(failure));
        }
        self.session.break_off(cx, reason, failure)
    }

    /// Starts an exchange.
    fn start(&mut self, cx: &mut Context<'_>, task: Task) -> Effects {
        if self.session.is_closing() && !matches!(task, Task::DeleteIke(_)) {
            return Effects::none();
        }
        match task {
            Task::CreateChild(name) => return create_child::ask_new(self, cx, &name),
            Task::RekeyChild(spi) => return create_child::ask_rekey(self, cx, spi),
            Task::DeleteChild(spi) => delete::ask_child(self, cx, spi),
            Task::RekeyIke(_) => rekey_ike::ask(self, cx),
            Task::DeleteIke(_) => delete::ask_ike(self, cx),
            Task::Liveness => informational::ask_liveness(self, cx),
            Task::AskTicket => ticket::ask(self, cx),
            Task::UpdateAddresses => address_update::ask(self, cx, Purpose::Update),
            Task::VerifyAddress => address_update::ask(self, cx, Purpose::Verify),
            Task::TellAddresses => address_update::ask(self, cx, Purpose::Tell),
        }
        Effects::none()
    }
}
