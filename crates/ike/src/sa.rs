//! One IKE SA: its states, and the data that belongs to it alone. Data that survives its rekeys is in
//! [`crate::session`].

pub(crate) mod active;
pub(crate) mod answered;
pub(crate) mod attempt;
pub(crate) mod child;
pub(crate) mod follow_up;
mod frozen;
pub(crate) mod int_auth;
pub(crate) mod keys;
pub(crate) mod lowest_nonce;
pub(crate) mod message;
pub(crate) mod mobility;
pub(crate) mod path;
pub(crate) mod reassembly;
pub(crate) mod window;

use crate::context::Context;
use crate::event::{ExchangeStep, Step};
use crate::failure::facts::Heard;
use crate::originator::Originator;
use crate::wire::header::{Header, IkeSpi};
use crate::wire::payload::Payload;
use crate::wire::registry::{ExchangeType, PayloadType};
use active::Active;
use follow_up::Awaited;
use keys::Keys;
use message::Message;
use path::Path;
use policy::IkeTunnel;
use std::time::Instant;
use window::Window;

/// An IKE SA. Its state owns what is true in it: at first one of those of an [`Attempt`](attempt::Attempt), then
/// [`Established`]. A transition takes the IKE SA in one state and makes it in another.
pub(crate) struct IkeSa<S: ?Sized = Established> {
    pub local_spi: IkeSpi,
    /// Zero until the peer has answered IKE_SA_INIT.
    pub remote_spi: IkeSpi,
    /// Its original initiator: the side that asked for it.
    pub originator: Originator,
    pub window: Window,
    pub state: S,
}

/// A state of an IKE SA, as far as all of them are alike.
pub(crate) trait State {
    /// The exchange of ours whose answer is awaited, if there is one; an idle IKE SA names the exchange of its next
    /// sign of life.
    fn exchange(&self) -> ExchangeType;

    /// The exchange of ours in flight on an established IKE SA.
    fn active(&self) -> Option<&Active> {
        None
    }

    /// The last answer that led nowhere.
    fn heard(&self) -> Option<&Heard> {
        None
    }

    /// The keys, once there are any.
    fn keys_if_any(&mut self) -> Option<&mut Keys>;
}

/// A state in which both sides have keys.
pub(crate) trait Keyed: State {
    fn keys(&self) -> &Keys;
    fn keys_mut(&mut self) -> &mut Keys;
}

/// Both have proved who they are: the IKE SA is in use.
pub(crate) struct Established {
    pub keys: Keys,
    /// The exchange of ours in flight.
    pub active: Option<Active>,
    /// Requests of the peer whose additional key exchanges have not all come.
    pub awaited: Vec<Awaited>,
    pub phase: Phase,
    /// The peer asked for it, and has not shown yet that it has our answer: a request of ours might meet nobody.
    pub unproven: bool,
    pub rekey_at: Instant,
    pub expire_at: Instant,
}

/// Where an established IKE SA stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Carries new exchanges.
    Serving,
    /// Replaced by a newer IKE SA; only its deletion is left.
    Superseded,
}

impl State for Established {
    fn exchange(&self) -> ExchangeType {
        self.active.as_ref().map_or(ExchangeType::INFORMATIONAL, Active::exchange)
    }

    fn active(&self) -> Option<&Active> {
        self.active.as_ref()
    }

    fn keys_if_any(&mut self) -> Option<&mut Keys> {
        Some(&mut self.keys)
    }
}

impl Keyed for Established {
    fn keys(&self) -> &Keys {
        &self.keys
    }

    fn keys_mut(&mut self) -> &mut Keys {
        &mut self.keys
    }
}

impl<S: ?Sized> IkeSa<S> {
    /// The header of a request of ours.
    pub fn request_header(&self, exchange: ExchangeType, message_id: u32) -> Header {
        self.header(exchange, message_id, false)
    }

    fn header(&self, exchange: ExchangeType, message_id: u32, response: bool) -> Header {
        let (initiator_spi, responder_spi) = self.spis();
        Header {
            initiator_spi,
            responder_spi,
            next_payload: PayloadType::NONE,
            exchange,
            from_initiator: self.originator.is_here(),
            response,
            higher_version: false,
            minor_version: 0,
            message_id,
        }
    }

    /// SPIs in the order of the header: original initiator's, original responder's.
    pub fn spis(&self) -> (IkeSpi, IkeSpi) {
        self.originator.in_order(self.local_spi, self.remote_spi)
    }
}

impl<S> IkeSa<S> {
    /// Parts the IKE SA from its state, which another one is made of.
    pub fn part(self) -> (IkeSa<()>, S) {
        let Self { local_spi, remote_spi, originator, window, state } = self;
        (IkeSa { local_spi, remote_spi, originator, window, state: () }, state)
    }
}

impl IkeSa<()> {
    /// The IKE SA in its next state.
    pub fn with<S>(self, state: S) -> IkeSa<S> {
        let Self { local_spi, remote_spi, originator, window, state: () } = self;
        IkeSa { local_spi, remote_spi, originator, window, state }
    }
}

impl<S: State + ?Sized> IkeSa<S> {
    /// A step of the exchange of ours that is in flight, with the phase 2 tunnel that it sets up or rekeys, if the IKE
    /// SA was up before.
    pub fn told(&self, step: Step) -> Option<(Option<&str>, ExchangeStep)> {
        let active = self.state.active();
        let told = ExchangeStep {
            step,
            exchange: self.state.exchange(),
            purpose: active.map(Active::measured_as),
            message_id: self.window.outstanding_id()?,
            local_spi: self.local_spi,
            remote_spi: self.remote_spi,
        };
        Some((active.and_then(Active::child), told))
    }
}

impl<S: Keyed> IkeSa<S> {
    /// Sends a protected request.
    pub fn request(
        &mut self,
        cx: &mut Context<'_>,
        tunnel: &IkeTunnel,
        path: &Path,
        exchange: ExchangeType,
        payloads: &[Payload],
    ) {
        let header = self.request_header(exchange, self.window.next_id());
        let message = Message::seal(header, payloads, self.state.keys_mut(), path, cx.rng);
        cx.out.transmit_all(path.local, path.remote, message.datagrams());
        self.window.sent(cx.now, cx.config, message);
        cx.out.exchange(&tunnel.name, || self.told(Step::Sent));
    }
}

impl IkeSa {
    /// Returns `true` if an exchange of ours can begin.
    pub fn may_ask(&self) -> bool {
        !self.state.unproven && self.window.is_free()
    }

    /// Makes the answer to a request, and keeps it. Returns the datagrams, which are not sent yet.
    pub fn answer(
        &mut self,
        cx: &mut Context<'_>,
        path: &Path,
        request: &Header,
        payloads: &[Payload],
    ) -> &[Vec<u8>] {
        let header = self.header(request.exchange, request.message_id, true);
        let message = Message::seal(header, payloads, &mut self.state.keys, path, cx.rng);
        self.window.answered(message)
    }
}
