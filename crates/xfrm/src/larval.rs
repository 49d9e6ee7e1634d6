//! Packets that wait for an SA. The kernel asks for an SA once and notes that by a larval one; until that is gone, half
//! a minute later, no other packet asks. Here it goes after a second, as rules ask once a second in userspace.

#![forbid(unsafe_code)]

use super::netlink::{Kernel, Refused, wipe};
use super::ownership::templates;
use super::spd::PolicyDirection;
use super::state::{binding_in, name_of};
use netlink_packet_xfrm::monitor::AcquireMessage;
use netlink_packet_xfrm::state::AllocSpiMessage;
use netlink_packet_xfrm::{UserSaInfo, UserSpiInfo, XfrmMessage};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

const AFTER: Duration = Duration::from_secs(1);

/// The kernel's notes, the oldest first.
#[derive(Default)]
pub(super) struct Larvae(VecDeque<(Instant, AllocSpiMessage)>);

impl Larvae {
    pub(super) fn add(&mut self, message: &AcquireMessage, now: Instant) {
        let acquire = &message.acquire;
        if acquire.policy.direction != PolicyDirection::Out.number() {
            return;
        }
        let Some(template) = templates(&message.nlas).next() else { return };
        let info = UserSaInfo {
            id: acquire.id,
            saddr: acquire.saddr,
            seq: acquire.seq,
            reqid: template.reqid,
            family: template.family,
            mode: template.mode,
            ..UserSaInfo::default()
        };
        let nlas = binding_in(&message.nlas);
        // Any SPI that RFC 4303 §2.1 allows: only what has one can be deleted.
        let spi_info = UserSpiInfo { info, min: 256, max: u32::MAX };
        self.0.push_back((now + AFTER, AllocSpiMessage { spi_info, nlas }));
    }

    /// The time at which the next one expires.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.front().map(|(at, _)| *at)
    }

    /// Removes those that are old enough; all of them without `now`.
    pub(super) fn remove(&mut self, now: Option<Instant>, kernel: &mut dyn Kernel) {
        while let Some((at, _)) = self.0.front()
            && now.is_none_or(|now| *at <= now)
            && let Some((_, larva)) = self.0.pop_front()
        {
            // Where there is none any more, an SA has come, and this one is of no use.
            if let Err(error) = remove(larva, kernel) {
                tracing::debug!(%error, "a packet's request for an SA");
            }
        }
    }
}

fn remove(larva: AllocSpiMessage, kernel: &mut dyn Kernel) -> Result<(), Refused> {
    let bound = larva.nlas.clone();
    let mut named = kernel.ask(XfrmMessage::AllocSpi(larva))?;
    wipe(&mut named);
    let XfrmMessage::AddSa(state) = named else { return Ok(()) };
    kernel.order(XfrmMessage::DeleteSa(name_of(&state.user_sa_info, &bound)))
}
