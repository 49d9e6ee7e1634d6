//! Puts SAs where the operator wants them: into a network card, or where that is not possible, into the kernel alone.

#![forbid(unsafe_code)]

use super::Xfrm;
use crate::kernel_sa::give;
use crate::netlink::refusal;
use crate::offload::{Offload, offload_of};
use crate::placement::{Need, OffloadMode, Placed, Reason, Step, Steps};
use crate::spd::Template;
use crate::state::Form;
use crate::waiting::Room;
use esp::manual::SaDirection;
use esp::plane::{InboundSa, OutboundSa, PlaneError, Resynced, RuleId, SaId};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// Installs an SA with a choice of offload.
type Install<'a> = &'a mut dyn FnMut(&mut Xfrm, Option<Offload>) -> Result<(), PlaneError>;

/// The request to place an SA.
struct About {
    id: SaId,
    rule: RuleId,
    inbound: bool,
    spi: esp::plane::Spi,
    local: IpAddr,
    remote: IpAddr,
    need: Need,
}

impl Xfrm {
    pub(super) fn place_inbound(&mut self, sa: InboundSa) -> Result<(), PlaneError> {
        let about = About {
            id: sa.id,
            rule: sa.rule,
            inbound: true,
            spi: sa.spi,
            local: sa.path.local.ip(),
            remote: sa.path.remote.ip(),
            need: Need { suite: sa.suite, encapsulation: sa.path.encapsulation },
        };
        self.place(&about, &mut |plane, offload| {
            let (key, selectors) = (sa.key.clone(), Arc::clone(&sa.selectors));
            plane.install_inbound(InboundSa { key, selectors, ..sa }, offload)
        })
    }

    pub(super) fn place_outbound(&mut self, sa: OutboundSa) -> Result<(), PlaneError> {
        let about = About {
            id: sa.id,
            rule: sa.rule,
            inbound: false,
            spi: sa.spi,
            local: sa.path.local.ip(),
            remote: sa.path.remote.ip(),
            need: Need { suite: sa.suite, encapsulation: sa.path.encapsulation },
        };
        self.place(&about, &mut |plane, offload| {
            let (key, selectors) = (sa.key.clone(), Arc::clone(&sa.selectors));
            plane.install_outbound(OutboundSa { key, selectors, ..sa }, offload)
        })
    }

    /// Tries one place after the other, and reads back what came of it.
    fn place(&mut self, about: &About, install: Install<'_>) -> Result<(), PlaneError> {
        let tunnel = self.ledger.rule(about.rule).ok_or(PlaneError::NoSuchRule(about.rule))?;
        let tunnel = tunnel.rule.tunnel.clone();
        let steps = self.steps(&tunnel, about);
        let mut declined = Vec::new();
        let mut card = None;
        if let Some((passed, reason)) = steps.passed {
            card = passed.map(|card| card.name);
            declined.push((OffloadMode::Crypto, reason));
        }
        let (mut place, mut full) = (None, None);
        for step in steps.tries {
            card = Some(step.card.name.clone());
            match install(self, Some(Offload::of(&step))) {
                Ok(()) if self.in_force(about.id) == Some(Offload::of(&step)) => {
                    place = Some(step.place);
                    break;
                }
                Ok(()) => {
                    declined.push((step.place, Reason::Ignored));
                    if let Some(sa) = self.ledger.sa_mut(about.id) {
                        sa.form.offload = None;
                    }
                    place = Some(OffloadMode::Software);
                    break;
                }
                Err(error) => {
                    let why = self.why_not(error, about, &step)?;
                    full =
                        room_of(&why, about.inbound).map(|room| (step.card.index, room)).or(full);
                    declined.push((step.place, why));
                }
            }
        }
        let place = match place {
            Some(place) => place,
            None => {
                install(self, None)?;
                OffloadMode::Software
            }
        };
        if let (OffloadMode::Software, Some(table)) = (place, full) {
            self.waiting.add(about.id, about.rule, table);
        }
        self.tell_placed(about, tunnel, place, card, declined);
        Ok(())
    }

    fn steps(&self, tunnel: &str, about: &About) -> Steps {
        let direction = if about.inbound { SaDirection::In } else { SaDirection::Out };
        let by_hand = about.id.is_manual().then_some(direction);
        self.config.placement.steps(tunnel, by_hand, about.remote, &about.need)
    }

    fn tell_placed(
        &mut self,
        about: &About,
        tunnel: String,
        place: OffloadMode,
        card: Option<String>,
        declined: Vec<(OffloadMode, Reason)>,
    ) {
        for (wanted, reason) in &declined {
            // Of thousands that find no room, one line says it; the rest is counted.
            if self.told.insert((*wanted, reason.name(), card.clone())) {
                let device = card.as_deref().unwrap_or("-");
                let (wanted, place) = (wanted.name(), place.name());
                let text = format!("no {wanted} offload: {reason}; {place} instead");
                // Without the feature or a route there was no offload to expect.
                match reason {
                    Reason::NoFeature | Reason::NoRoute => tracing::info!(tunnel, device, "{text}"),
                    _ => tracing::warn!(tunnel, device, "{text} (vpnctl offload counts them)"),
                }
            }
        }
        let (inbound, spi) = (about.inbound, about.spi);
        let address = inbound.then_some(about.local);
        let placed = Placed { tunnel, inbound, spi, address, place, card, declined };
        self.config.placement.note(about.id, placed);
    }

    /// The offload of an SA, as the kernel reports it.
    fn in_force(&mut self, sa: SaId) -> Option<Offload> {
        offload_of(&self.read_back(sa)?)
    }

    /// Makes an SA again in the kernel, with its sequence numbers; `change` is what is different then.
    pub(super) fn remake(
        &mut self,
        id: SaId,
        change: &mut dyn FnMut(&mut Form),
    ) -> Result<(), PlaneError> {
        self.remake_behind(id, 0, change)
    }

    /// As [`Self::remake`]; `skipped` sequence numbers more count as used, or as received.
    pub(super) fn remake_behind(
        &mut self,
        id: SaId,
        skipped: u64,
        change: &mut dyn FnMut(&mut Form),
    ) -> Result<(), PlaneError> {
        let sa = self.ledger.sa(id).ok_or(PlaneError::NoSuchSa(id))?;
        let (name, binding) = (sa.form.name(), sa.form.binding);
        if self.has_expired(id) {
            return Ok(());
        }
        self.count_in_card(id);
        self.known.remove(&name);
        // The kernel tells how far the SA has come: until there packets pass, and its successor goes on behind. Packets
        // in between are dropped, so none takes a number there.
        let ended = self.delete(&name, &binding).map_err(|error| {
            self.known.insert(name, id);
            refusal(format!("replacing SA {:08x}", name.spi), &error)
        })?;
        let sa = self.ledger.sa_mut(id).ok_or(PlaneError::NoSuchSa(id))?;
        if let Some(state) = &ended {
            sa.count(state, &self.config.crypto);
        }
        let mut replay = sa.succeed(ended.as_ref());
        if skipped > 0 {
            replay = sa.skip(skipped);
        }
        change(&mut sa.form);
        self.known.insert(sa.form.name(), id);
        let made = give(&mut *self.kernel, (&sa.form, &sa.key), &replay, "replacing it");
        if made.is_err() {
            // It is nowhere, and its traffic dropped, until it is put back.
            self.config.placement.forget(id);
        }
        made.and_then(|()| self.fit_policies(id))
    }

    /// Has policies fit an SA as it is now.
    pub(super) fn fit_policies(&mut self, id: SaId) -> Result<(), PlaneError> {
        let Some(sa) = self.ledger.sa(id) else { return Ok(()) };
        let (form, rule) = (&sa.form, sa.rule);
        if !form.inbound {
            return self.serve(id);
        }
        let (offload, ends) = (form.offload.filter(|offload| offload.packet), form.ends());
        if let Some(ruled) = self.ledger.rule_mut(rule)
            && let Some((_, template)) = ruled.receiving.iter_mut().find(|(sa, _)| *sa == id)
        {
            let ends = template.ends.map(|_| ends);
            *template = Template { offload, ends, ..*template };
        }
        self.guard(rule)
    }

    /// Puts back what is missing in the kernel, takes SAs out of cards that have gone, and puts those into cards again
    /// that are wanted there and found no room.
    pub(super) fn resync_all(&mut self) -> Result<Resynced, PlaneError> {
        let outcome = self.reconcile();
        self.fault = outcome.as_ref().err().map(ToString::to_string);
        outcome
    }

    fn reconcile(&mut self) -> Result<Resynced, PlaneError> {
        let mut done = Resynced::default();
        self.config.placement.look_again();
        let offloaded: Vec<(SaId, Offload)> = self.offloaded().collect();
        let there = self.states()?;
        let mut outcome = Ok(());
        for (id, offload) in offloaded {
            let name = self.ledger.sa(id).map(|sa| sa.form.name());
            let found = name.and_then(|name| there.get(&name));
            if found == Some(&Some(offload)) {
                continue;
            }
            if found.is_none() && self.is_back_in_card(id, offload) {
                done.sas += 1;
            } else {
                done.moved += 1;
                outcome = outcome.and(self.leave_card(id));
            }
        }
        // Before SAs, what keeps traffic from leaking.
        let policies = self.restore_policies();
        let states = self.restore_sas();
        done.sas += *states.as_ref().unwrap_or(&0);
        done.policies = *policies.as_ref().unwrap_or(&0);
        let software: Vec<SaId> = (self.ledger.sas())
            .filter(|sa| sa.form.offload.is_none() && !self.has_expired(sa.id))
            .map(|sa| sa.id)
            .collect();
        let mut full = BTreeSet::new();
        for id in software {
            done.moved += usize::from(self.enter_card(id, &mut full)?);
        }
        outcome.and(policies).and(states).map(|_| done)
    }

    /// Puts an SA that others have removed back into its card. Whether it is there then.
    fn is_back_in_card(&mut self, id: SaId, offload: Offload) -> bool {
        self.config.placement.is_there(id, offload.device)
            && self.restore_sa(id).is_ok()
            && self.in_force(id) == Some(offload)
    }

    /// Returns `true` if a card has lost its SAs. One of its SAs is checked for all.
    pub(super) fn cards_have_lost(&mut self) -> bool {
        let mut seen = BTreeSet::new();
        let one_of_each: Vec<(SaId, Offload)> =
            self.offloaded().filter(|(_, offload)| seen.insert(offload.device)).collect();
        one_of_each.into_iter().any(|(id, offload)| self.in_force(id) != Some(offload))
    }

    /// The SAs that a card should have.
    fn offloaded(&self) -> impl Iterator<Item = (SaId, Offload)> {
        let all = self.ledger.sas().filter_map(|sa| Some((sa.id, sa.form.offload?)));
        all.filter(|(id, _)| !self.has_expired(*id))
    }

    /// Takes an SA out of a card that has refused its policy; another SA's error is the caller's.
    pub(super) fn leave_card_for(&mut self, id: SaId, error: PlaneError) -> Result<(), PlaneError> {
        let offloaded = self.ledger.sa(id).is_some_and(|sa| sa.form.offload.is_some());
        if !offloaded {
            return Err(error);
        }
        let Some((about, tunnel)) = self.about(id) else { return Err(error) };
        let card = self.config.placement.placed(id).and_then(|was| was.card);
        let declined = vec![(OffloadMode::Packet, reason(error)?)];
        let steps = self.steps(&tunnel, &about);
        let crypto =
            steps.tries.iter().find(|step| step.place == OffloadMode::Crypto).map(Offload::of);
        let made = self.remake(id, &mut |form| form.offload = crypto);
        let place = if crypto.is_some() && made.is_ok() && self.in_force(id) == crypto {
            OffloadMode::Crypto
        } else {
            self.remake(id, &mut |form| form.offload = None)?;
            OffloadMode::Software
        };
        self.tell_placed(&about, tunnel, place, card, declined);
        Ok(())
    }

    fn leave_card(&mut self, id: SaId) -> Result<(), PlaneError> {
        if let Err(error) = self.remake(id, &mut |form| form.offload = None) {
            // The card's SA is lost, and there is no other.
            self.config.placement.forget(id);
            return Err(error);
        }
        let Some((about, tunnel)) = self.about(id) else { return Ok(()) };
        let was = self.config.placement.placed(id);
        let (place, card) = was.map_or((OffloadMode::Crypto, None), |was| (was.place, was.card));
        let declined = vec![(place, Reason::Gone)];
        self.tell_placed(&about, tunnel, OffloadMode::Software, card, declined);
        Ok(())
    }

    /// Notes where an SA is that was nowhere.
    pub(super) fn tell_found(&mut self, id: SaId) {
        if self.config.placement.placed(id).is_some() {
            return;
        }
        let Some((about, tunnel)) = self.about(id) else { return };
        let place = match self.ledger.sa(id).and_then(|sa| sa.form.offload) {
            Some(offload) if offload.packet => OffloadMode::Packet,
            Some(_) => OffloadMode::Crypto,
            None => OffloadMode::Software,
        };
        self.tell_placed(&about, tunnel, place, None, Vec::new());
    }

    /// Returns `true` if a card has taken an SA that was in software. An SA is not moved to a card that has just had no
    /// room for another SA of its direction.
    pub(super) fn enter_card(
        &mut self,
        id: SaId,
        full: &mut BTreeSet<(u32, Room)>,
    ) -> Result<bool, PlaneError> {
        let Some((about, tunnel)) = self.about(id) else { return Ok(false) };
        let steps = self.steps(&tunnel, &about);
        if steps.tries.is_empty() && self.waiting.has(id) {
            // Room there will never be.
            self.waiting.remove(id);
            let was = self.config.placement.placed(id);
            let wanted = was.as_ref().and_then(|was| was.declined.first());
            let declined =
                vec![(wanted.map_or(OffloadMode::Crypto, |wanted| wanted.0), Reason::Gone)];
            let card = was.and_then(|was| was.card);
            self.tell_placed(&about, tunnel, OffloadMode::Software, card, declined);
            return Ok(false);
        }
        for step in steps.tries {
            let card = step.card.index;
            let lacks_address = about.inbound
                && full.contains(&(card, Room::Address))
                && !self.receives_at(card, id).contains(&about.local);
            if lacks_address || full.contains(&(card, Room::of(about.inbound))) {
                return Ok(false);
            }
            let (offload, card) = (Offload::of(&step), Some(step.card.name.clone()));
            let made = self.remake(id, &mut |form| form.offload = Some(offload));
            if made.is_ok() && self.in_force(id) == Some(offload) {
                self.waiting.remove(id);
                self.tell_placed(&about, tunnel, step.place, card, Vec::new());
                if about.inbound {
                    self.address_came(step.card.index, about.local);
                }
                return Ok(true);
            }
            let why = match made {
                Ok(()) => Reason::Ignored,
                Err(error) => self.why_not(error, &about, &step)?,
            };
            // As it was.
            self.remake(id, &mut |form| form.offload = None)?;
            self.tell_found(id);
            match room_of(&why, about.inbound).map(|room| (step.card.index, room)) {
                Some(table) => {
                    full.insert(table);
                    self.waiting.add(id, about.rule, table);
                }
                None => self.waiting.remove(id),
            }
        }
        Ok(false)
    }

    /// The reason why a card did not take an SA. A card without room says so in one way, whichever of its tables is full:
    /// it is that of the addresses if the card has as many as its driver can, and not this one.
    fn why_not(&self, error: PlaneError, about: &About, step: &Step) -> Result<Reason, PlaneError> {
        let why = reason(error)?;
        let Some(most) = step.card.addresses.filter(|_| why == Reason::Full && about.inbound)
        else {
            return Ok(why);
        };
        let there = self.receives_at(step.card.index, about.id);
        let is_full = there.len() >= most && !there.contains(&about.local);
        Ok(if is_full { Reason::AddressesFull(most) } else { why })
    }

    fn about(&self, id: SaId) -> Option<(About, String)> {
        let sa = self.ledger.sa(id)?;
        let tunnel = self.ledger.rule(sa.rule)?.rule.tunnel.clone();
        let form = &sa.form;
        let about = About {
            id,
            rule: sa.rule,
            inbound: form.inbound,
            spi: form.spi,
            local: form.path.local.ip(),
            remote: form.path.remote.ip(),
            need: Need { suite: form.suite, encapsulation: form.path.encapsulation },
        };
        Some((about, tunnel))
    }
}

impl Offload {
    fn of(step: &Step) -> Self {
        Self { device: step.card.index, packet: step.place == OffloadMode::Packet }
    }
}

/// The table of a card that is full.
fn room_of(reason: &Reason, inbound: bool) -> Option<Room> {
    match reason {
        Reason::Full => Some(Room::of(inbound)),
        Reason::AddressesFull(_) => Some(Room::Address),
        _ => None,
    }
}

/// The reason why a card did not take an SA; other errors have nothing to do with cards.
fn reason(error: PlaneError) -> Result<Reason, PlaneError> {
    match error {
        PlaneError::Full { .. } => Ok(Reason::Full),
        PlaneError::System { why, .. } => Ok(Reason::Refused(why)),
        other => Err(other),
    }
}
