//! A Child SA and its two halves in the data plane.

mod frozen;

use crate::context::Context;
use crate::deadlines::Deadline;
use crate::deadlines::after;
use crate::effect::{Effect, Effects, Lost};
use crate::event::Negotiated;
use crate::key_log::{EspKeys, LoggedKeys};
use crate::negotiation::selectors::{covered, describe};
use crate::negotiation::suite::ChildChoice;
use crate::originator::Originator;
use crate::sa::keys::ChildKeys;
use crate::sa::lowest_nonce::LowestNonce;
use crate::sa::path::Path;
use crate::status::{Narrowed, NarrowedBy};
use crate::wire::registry::NotifyType;
use ::crypto::Suite;
use esp::plane::{InboundSa, Limits, OutboundSa, PlaneError, SaId, Spi, TrafficSelectors, Usage};
use policy::{ChildTunnel, Mode};
use std::sync::Arc;
use std::time::Instant;

/// A pair of SAs of ESP or AH.
pub(crate) struct ChildSa {
    pub tunnel: Arc<ChildTunnel>,
    pub choice: ChildChoice,
    pub mode: Mode,
    pub selectors: Arc<TrafficSelectors>,
    /// The request of the peer, where this side has granted less.
    pub asked: Option<Arc<AskedFor>>,
    pub inbound: SaId,
    pub outbound: SaId,
    /// Names the Child SA on this side.
    pub spi_in: Spi,
    pub spi_out: Spi,
    pub is_quantum_safe: bool,
    pub state: ChildState,
    /// The outbound half waits for the peer to have the SA.
    pub standby: bool,
    /// The side that asked for it.
    pub originator: Originator,
    /// Decides between Child SAs of crossing requests. A successor has that of its predecessor.
    pub lowest_nonce: LowestNonce,
    pub rekey_at: Instant,
    pub expire_at: Instant,
    /// The last attempt of this side to renew it has come to nothing.
    pub rekey_failed: bool,
    pub history: History,
}

/// Traffic that the peer has asked for, and of which it gets a part.
pub(crate) struct AskedFor {
    pub traffic: TrafficSelectors,
    /// Other phase 2 tunnels have more of it: the peer can ask for Child SAs of theirs.
    pub additional: bool,
}

/// Where a Child SA stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChildState {
    Established,
    /// Its successor, by inbound SPI, is in place; only its deletion is left.
    Replaced(Spi),
    /// Redundant or unwanted, to be deleted by this side.
    Unwanted,
}

/// The traffic and rekeys of a tunnel since it came up, before the present Child SA.
#[derive(Clone, Copy, Debug)]
pub(crate) struct History {
    pub established_at: Instant,
    pub rekeys: u64,
    pub inbound: Usage,
    pub outbound: Usage,
    /// The form in which the successor is asked for: the first one that the peer has not refused.
    pub form: RekeyForm,
}

/// A form in which the successor of a Child SA is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RekeyForm {
    /// A rekey with the traffic of the policy (RFC 7296 §1.3.3).
    #[default]
    Rekey,
    /// A rekey that asks for any traffic (RFC 7296 §2.9.2: a superset). The answer must not exceed the policy.
    Widened,
    /// A new Child SA, whose request does not name the old one.
    NewChildSa,
}

impl RekeyForm {
    /// The form to try when the peer has refused this one; `None`: there is no other with this IKE SA.
    pub fn after(self, refusal: NotifyType, mode: Mode) -> Option<Self> {
        match self {
            Self::Rekey if refusal == NotifyType::TS_UNACCEPTABLE && mode == Mode::Tunnel => {
                Some(Self::Widened)
            }
            Self::Rekey | Self::Widened => Some(Self::NewChildSa),
            Self::NewChildSa => None,
        }
    }
}

impl History {
    pub fn new(now: Instant) -> Self {
        Self {
            established_at: now,
            rekeys: 0,
            inbound: Usage::default(),
            outbound: Usage::default(),
            form: RekeyForm::Rekey,
        }
    }
}

impl History {
    /// Adds what passed between two states of another history.
    pub fn add_what_passed(&mut self, from: &Self, to: &Self) {
        for (total, from, to) in [
            (&mut self.inbound, from.inbound, to.inbound),
            (&mut self.outbound, from.outbound, to.outbound),
        ] {
            total.packets += to.packets.saturating_sub(from.packets);
            total.bytes += to.bytes.saturating_sub(from.bytes);
            total.refused += to.refused.saturating_sub(from.refused);
            total.last_used = total.last_used.max(to.last_used);
        }
    }
}

impl ChildSa {
    /// The report to the engine when the Child SA goes without this side's will.
    pub fn lost(&self, now: Instant) -> Lost {
        let after = now.saturating_duration_since(self.history.established_at);
        Lost { name: self.tunnel.name.clone(), after }
    }

    /// The traffic of its tunnel, or of the peer's request, if the two sides have agreed on less of it.
    pub fn narrowed(&self) -> Option<Narrowed> {
        let (tunnel, agreed) = (&self.tunnel, &self.selectors);
        let whole =
            covered(&tunnel.local, &agreed.local) && covered(&tunnel.remote, &agreed.remote);
        if !whole {
            let by = match self.originator {
                Originator::ThisSide => NarrowedBy::Answer,
                Originator::Peer => NarrowedBy::Request,
            };
            let (local, remote) = (tunnel.local.clone(), tunnel.remote.clone());
            return Some(Narrowed { local, remote, by });
        }
        let TrafficSelectors { local, remote } = self.asked.as_ref()?.traffic.clone();
        Some(Narrowed { local, remote, by: NarrowedBy::Grant })
    }

    /// The remark of the log about traffic that the two sides have not agreed on.
    pub fn narrowing(&self) -> Option<String> {
        let narrowed = self.narrowed()?;
        let same = "This SA carries no other traffic of the tunnel; write the same traffic in both policies";
        let (cause, word, cure) = match narrowed.by {
            NarrowedBy::Answer => {
                ("the peer has agreed to less traffic than this side asked for", "asked", same)
            }
            NarrowedBy::Request => {
                ("the peer has asked for less traffic than the policy has", "policy", same)
            }
            // A peer that asks for any traffic and gets its own is usual.
            NarrowedBy::Grant if !self.asked.as_ref().is_some_and(|asked| asked.additional) => {
                return None;
            }
            NarrowedBy::Grant => (
                "the peer has asked for the traffic of several phase 2 tunnels in one Child SA, and gets that of one",
                "asked",
                "Have the peer ask for a Child SA for each pair of networks",
            ),
        };
        let sides = [
            ("local", &self.selectors.local, &narrowed.local),
            ("remote", &self.selectors.remote, &narrowed.remote),
        ];
        let less: Vec<String> = (sides.into_iter())
            .filter(|(_, agreed, policy)| !covered(policy, agreed))
            .map(|(name, agreed, policy)| {
                format!("{name} {} ({word} {})", describe(agreed), describe(policy))
            })
            .collect();
        Some(format!("{cause}: {}. {cure}", less.join(", ")))
    }
}

/// The fate of packets of a Child SA that are still on their way when it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LatePackets {
    /// Its inbound half receives for a while.
    Received,
    Dropped,
}

/// Everything a new Child SA is made of.
pub(crate) struct Blueprint<'a> {
    pub tunnel: &'a Arc<ChildTunnel>,
    pub choice: ChildChoice,
    pub mode: Mode,
    pub selectors: Arc<TrafficSelectors>,
    /// The request of the peer, where this side has granted less.
    pub asked: Option<Arc<AskedFor>>,
    pub spi_in: Spi,
    pub spi_out: Spi,
    pub keys: ChildKeys,
    /// The side that asked for it.
    pub originator: Originator,
    /// The outbound half must wait until the peer has the SA.
    pub standby: bool,
    pub path: &'a Path,
    pub history: History,
    pub lowest_nonce: LowestNonce,
}

impl Blueprint<'_> {
    /// Installs both halves; on error nothing of it is left in the plane.
    pub fn install(self, cx: &mut Context<'_>) -> Result<ChildSa, PlaneError> {
        let suite = self
            .choice
            .suite()
            .expect("a chosen proposal has cipher and integrity that go together");
        let rule = cx.rules.of(&self.tunnel.name).ok_or_else(|| PlaneError::System {
            what: format!("setting up {}", self.tunnel.name),
            why: "the policy no longer has it".into(),
        })?;
        let is_quantum_safe = self.keys.is_quantum_safe || self.choice.is_quantum_safe();
        let lifetime = self.choice.lifetime;
        let hard_bytes = lifetime.bytes;
        let soft_bytes = lifetime.soft_bytes();
        let soft_bytes = soft_bytes.map(|s| cx.jitter_volume(s, hard_bytes.unwrap_or(s)));
        let limits = Limits { soft_bytes, hard_bytes };
        let ChildKeys { to_initiator, to_responder, .. } = self.keys;
        let (in_key, out_key) = self.originator.in_order(to_initiator, to_responder);
        let (inbound, outbound) = (cx.out.next_sa_id(), cx.out.next_sa_id());
        let path = self.path.of_plane(suite);
        // Before the first packet.
        let esn = self.choice.algorithms.esn;
        let (here, there) = (path.local.ip(), path.remote.ip());
        for (spi, way, key) in
            [(self.spi_in, (there, here), &in_key), (self.spi_out, (here, there), &out_key)]
        {
            // AH hides nothing that a key would reveal.
            if suite.is_ah() {
                break;
            }
            cx.out.log_keys(|| LoggedKeys::Esp(EspKeys::new(spi, suite, esn, way, key)));
        }
        cx.plane.add_inbound(InboundSa {
            id: inbound,
            rule,
            spi: self.spi_in,
            suite,
            key: in_key,
            esn,
            replay_window: cx.config.replay_window,
            mode: self.mode,
            path,
            selectors: Arc::clone(&self.selectors),
            limits,
        })?;
        let added = cx.plane.add_outbound(OutboundSa {
            id: outbound,
            rule,
            spi: self.spi_out,
            suite,
            key: out_key,
            esn,
            mode: self.mode,
            path,
            selectors: Arc::clone(&self.selectors),
            limits,
            standby: self.standby,
        });
        if let Err(error) = added {
            cx.plane.remove(inbound);
            return Err(error);
        }
        let rekey_at = cx.jittered(lifetime.soft(), lifetime.hard);
        Ok(ChildSa {
            tunnel: Arc::clone(self.tunnel),
            choice: self.choice,
            mode: self.mode,
            selectors: self.selectors,
            asked: self.asked,
            inbound,
            outbound,
            spi_in: self.spi_in,
            spi_out: self.spi_out,
            is_quantum_safe,
            state: ChildState::Established,
            standby: self.standby,
            originator: self.originator,
            lowest_nonce: self.lowest_nonce,
            rekey_at,
            expire_at: after(cx.now, lifetime.hard),
            rekey_failed: false,
            history: self.history,
        })
    }
}

impl ChildSa {
    /// Its two SAs are in the plane.
    pub fn installed(&self) -> Effects {
        [self.inbound, self.outbound]
            .map(|sa| Effect::SaInstalled(sa, self.spi_in))
            .into_iter()
            .collect()
    }

    /// The Child SA is no more. Its inbound half may still receive what is on its way.
    pub fn forgotten(&self) -> Effects {
        [self.inbound, self.outbound].map(Effect::SaForgotten).into_iter().collect()
    }

    /// When it has something to do, and what.
    pub fn deadline(&self) -> Deadline {
        let expiry = Deadline { at: self.expire_at, reason: "Child SA lifetime" };
        match self.state {
            ChildState::Established if self.rekey_at <= self.expire_at => {
                Deadline { at: self.rekey_at, reason: "Child SA rekey" }
            }
            _ => expiry,
        }
    }

    /// Until when its inbound half receives what is still on its way: not beyond its lifetime.
    pub fn lingers(&self, until: Instant) -> Instant {
        until.min(self.expire_at)
    }

    /// The suite that protects its packets.
    pub fn suite(&self) -> Suite {
        self.choice.suite().expect("what was chosen has cipher and integrity that go together")
    }

    /// The history its successor starts from.
    pub fn history_so_far(&self, cx: &mut Context<'_>) -> History {
        self.history_with(cx.plane.usage(self.inbound), cx.plane.usage(self.outbound))
    }

    /// The same once its SAs have done that, either way.
    pub fn history_with(&self, inbound: Option<Usage>, outbound: Option<Usage>) -> History {
        let mut history = self.history;
        add(&mut history.inbound, inbound);
        add(&mut history.outbound, outbound);
        history
    }

    /// Starts to send on it, if that has been waiting.
    pub fn promote(&mut self, cx: &mut Context<'_>) -> Result<(), PlaneError> {
        if std::mem::take(&mut self.standby) { cx.plane.promote(self.outbound) } else { Ok(()) }
    }

    /// Sends on it rather than on others of its phase 2 tunnel, of which the plane prefers the one made last. One that
    /// is not to send yet stays behind.
    pub fn go_first(&self, cx: &mut Context<'_>) -> Result<(), PlaneError> {
        if self.standby { Ok(()) } else { cx.plane.promote(self.outbound) }
    }

    /// The agreement with the peer, for events.
    pub fn negotiated(&self) -> Negotiated {
        let (mode, suite) = (self.mode, self.choice.algorithms);
        Negotiated::Child { mode, suite, inbound_spi: self.spi_in, outbound_spi: self.spi_out }
    }
}

fn add(total: &mut Usage, part: Option<Usage>) {
    let Some(part) = part else { return };
    total.packets += part.packets;
    total.bytes += part.bytes;
    total.refused += part.refused;
    total.last_used = part.last_used.or(total.last_used);
}
