//! Gives the places in network cards that have become free to SAs that wait for them.

#![forbid(unsafe_code)]

use super::{Installed, Xfrm};
use crate::waiting::Room;
use esp::plane::{Notice, SaEntry, SaId};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The number of SAs that are moved into cards at a time: meanwhile key management waits.
const AT_ONCE: usize = 64;

impl Xfrm {
    /// An SA is gone, and with it what it had of a card.
    pub(super) fn leave_room(&mut self, removed: &SaEntry<Installed>) {
        let id = removed.id;
        self.waiting.remove(id);
        let Some(offload) = removed.form.offload else { return };
        let (card, rule, form) = (offload.device, removed.rule, &removed.form);
        let mut wanted = self.waiting.free(rule, (card, Room::of(form.inbound)));
        if form.inbound && !self.receives_at(card, id).contains(&form.path.local.ip()) {
            wanted |= self.waiting.free(rule, (card, Room::Address));
        }
        if wanted {
            self.tell_room();
        }
    }

    /// The addresses to which the SAs in a card receive, all but one.
    pub(super) fn receives_at(&self, card: u32, except: SaId) -> BTreeSet<IpAddr> {
        let others = self.ledger.sas().filter(|sa| sa.id != except).map(|sa| &sa.form);
        others
            .filter(|form| {
                form.inbound && form.offload.is_some_and(|offload| offload.device == card)
            })
            .map(|form| form.path.local.ip())
            .collect()
    }

    /// An address has come into a card: SAs that waited for it wait only for the place of an SA now.
    pub(super) fn address_came(&mut self, card: u32, address: IpAddr) {
        for (id, rule) in self.waiting.for_address(card) {
            let same = self.ledger.sa(id).is_some_and(|sa| sa.form.path.local.ip() == address);
            if same {
                let room = (card, Room::Inbound);
                self.waiting.add(id, rule, room);
                self.waiting.free(rule, room);
            }
        }
    }

    /// Not at once: of many SAs that go one after the other some wait for the others' places.
    fn tell_room(&mut self) {
        if !std::mem::replace(&mut self.room_is_told, true) {
            (self.notice)(Notice::Room);
        }
    }

    /// Puts SAs that wait into places that have become free: one for each.
    pub(super) fn fill_cards(&mut self) {
        self.room_is_told = false;
        let (mut entered, mut full) = (0, BTreeSet::new());
        for _ in 0..AT_ONCE {
            let Some(id) = self.waiting.next() else { break };
            match self.enter_card(id, &mut full) {
                Ok(moved) => entered += usize::from(moved),
                Err(error) => {
                    self.fault = Some(error.to_string());
                    tracing::error!(%error, "an SA is missing in the kernel; its traffic is blocked");
                    (self.notice)(Notice::HostChanged);
                }
            }
        }
        if entered > 0 {
            let waiting = self.waiting.len();
            tracing::info!(sas = entered, waiting, "into a network card that has room again");
        }
        if self.waiting.has_room() {
            self.tell_room();
        }
    }
}
