//! The context that a session works in: the time, randomness, the policy, the data plane, and the engine's outputs.

use crate::config::Config;
use crate::contacts::Contacts;
use crate::crypto::rng::Rng;
use crate::deadlines::after;
use crate::discard::Discard;
use crate::effect::Effects;
use crate::outputs::Outputs;
use crate::policy_index::PolicyIndex;
use crate::proof::trust::Trust;
use crate::resumption::Resumption;
use crate::rules::Rules;
use crate::wire::header::IkeSpi;
use esp::plane::{DataPlane, EarlyPackets, Spi};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Everything but the session itself.
pub(crate) struct Context<'a> {
    pub now: Instant,
    pub config: &'a Config,
    /// The host's addresses at which a peer may reach it.
    pub addresses: &'a [IpAddr],
    pub policy: &'a PolicyIndex,
    pub rules: &'a mut Rules,
    pub trust: &'a Arc<Trust>,
    pub plane: &'a mut dyn DataPlane,
    pub rng: &'a mut Rng,
    pub spis: &'a mut Spis,
    pub contacts: &'a Contacts,
    pub resumption: &'a mut Resumption,
    pub out: &'a mut Outputs,
}

impl Context<'_> {
    /// Counts a datagram that is ignored. It has no effects.
    pub fn discard(&mut self, reason: Discard) -> Effects {
        self.out.discard(reason);
        Effects::none()
    }

    /// An SPI that is offered to this peer for a Child SA. The peer may send on it before its answer has been worked
    /// on.
    pub fn offer_spi(&mut self, peer: IpAddr) -> Spi {
        let spi = self.spis.allocate(self.rng);
        self.plane.early_packets().expect_sa(spi, peer);
        spi
    }

    /// Nothing receives with this SPI any more, or nothing came of its offer.
    pub fn release_spi(&mut self, spi: Spi) {
        self.spis.release(spi);
        self.plane.early_packets().expect_no_sa(spi);
    }

    /// A new SPI for an IKE SA of ours; the engine delivers to it from the end of this call.
    pub fn new_ike_spi(&mut self) -> IkeSpi {
        loop {
            let spi = IkeSpi(self.rng.u64());
            if spi != IkeSpi(0) {
                return spi;
            }
        }
    }

    /// `soft` from now, earlier by a random part of what it leaves of `hard` (at least a twentieth and at most a
    /// quarter of `soft`), so that two peers with the same lifetimes do not rekey at the same moment (RFC 7296 §2.8).
    pub fn jittered(&mut self, soft: Duration, hard: Duration) -> Instant {
        let [soft, hard] =
            [soft, hard].map(|age| u64::try_from(age.as_micros()).unwrap_or(u64::MAX));
        after(self.now, Duration::from_micros(self.jitter_volume(soft, hard)))
    }

    /// The same of octets: peers that hold each other to the same volume see it at the same moment.
    pub fn jitter_volume(&mut self, soft: u64, hard: u64) -> u64 {
        let spread = hard.saturating_sub(soft).max(soft / 20).min(soft / 4);
        soft - self.rng.below(spread)
    }
}

/// Inbound SPIs of ESP in use. Outbound SPIs are the choice of the peers, and two of them may be equal.
#[derive(Debug, Default)]
pub(crate) struct Spis(BTreeSet<Spi>);

impl Spis {
    pub fn of(spis: BTreeSet<Spi>) -> Self {
        Self(spis)
    }

    pub fn iter(&self) -> impl Iterator<Item = Spi> {
        self.0.iter().copied()
    }

    /// An SPI that no SA of this side has.
    pub fn allocate(&mut self, rng: &mut Rng) -> Spi {
        loop {
            // RFC 4303 §2.1: up to 255 reserved. Above 2^24 they are easy to tell from a non-ESP marker.
            let spi = Spi(u32::try_from(rng.below(0xff00_0000)).unwrap_or(0) + 0x0100_0000);
            if self.0.insert(spi) {
                return spi;
            }
        }
    }

    pub fn release(&mut self, spi: Spi) {
        self.0.remove(&spi);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }
}
