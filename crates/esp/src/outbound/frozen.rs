//! An SA that sends, as a value with which another process goes on.

#![forbid(unsafe_code)]

use super::{Outbound, highest};
use crate::plane::{Limits, OutboundSa, Path, PlaneError, RuleId, SaId, Spi, TrafficSelectors};
use crypto::{KeyedSa, Suite};
use policy::{Mode, Secret};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// An SA that sends, at the moment at which it was frozen. Times are since the epoch of the datapath.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrozenOutbound {
    /// Its name.
    pub id: SaId,
    /// The rule whose traffic it carries; `None` if the rule is gone, and the SA is about to go.
    pub rule: Option<RuleId>,
    /// Its SPI.
    pub spi: Spi,
    /// Its cipher.
    pub suite: Suite,
    /// Its key.
    pub key: Secret,
    /// Extended sequence numbers.
    pub esn: bool,
    /// Transport or tunnel mode.
    pub mode: Mode,
    /// The path of its packets.
    pub path: Path,
    /// The traffic that it carries.
    pub selectors: Arc<TrafficSelectors>,
    /// The volume at which it is to be rekeyed, and at which it stops.
    pub limits: Limits,
    /// The last sequence number that a packet has, or may have.
    pub used: u64,
    /// The last sequence number that it may use for now.
    pub allowed: u64,
    /// Packets protected.
    pub packets: u64,
    /// Octets of inner packets.
    pub bytes: u64,
    /// The time of the last packet; meaningful if there was one.
    pub last_used: Duration,
    /// Packets refused.
    pub refused: u64,
    /// Key management was told that the SA has reached its soft limit, and its hard one.
    pub told: [bool; 2],
}

impl FrozenOutbound {
    /// The SA as key management would describe it, in standby; `rule` is any where it has none.
    pub(crate) fn sa(&self) -> OutboundSa {
        OutboundSa {
            id: self.id,
            rule: self.rule.unwrap_or(RuleId(0)),
            spi: self.spi,
            suite: self.suite,
            key: self.key.clone(),
            esn: self.esn,
            mode: self.mode,
            path: self.path,
            selectors: Arc::clone(&self.selectors),
            limits: self.limits,
            standby: true,
        }
    }
}

impl Outbound {
    /// Gives no sequence number until it is [thawed](Self::thaw).
    pub(crate) fn freeze(&self) {
        self.sequence.freeze();
    }

    /// Gives sequence numbers again.
    pub(crate) fn thaw(&self) {
        self.sequence.thaw();
    }

    /// The SA, which serves `rule`, as a value. It is frozen.
    pub(crate) fn frozen(&self, rule: Option<RuleId>) -> FrozenOutbound {
        FrozenOutbound {
            id: self.id,
            rule,
            spi: self.spi,
            suite: self.suite,
            key: self.cipher.key().clone(),
            esn: self.esn,
            mode: self.mode,
            path: self.path(),
            selectors: Arc::clone(&self.selectors),
            limits: self.limits,
            used: self.sequence.used(),
            allowed: self.allowed.load(Relaxed),
            packets: self.packets(),
            bytes: self.bytes.load(Relaxed),
            last_used: Duration::from_nanos(self.last_used.load(Relaxed)),
            refused: self.refused.load(Relaxed),
            told: [self.told_soft.load(Relaxed), self.told_hard.load(Relaxed)],
        }
    }

    /// Goes on where another process has frozen the SA. It has protected nothing yet, and is frozen.
    ///
    /// # Errors
    /// If no SA can have used these sequence numbers.
    pub(crate) fn go_on(&self, frozen: &FrozenOutbound) -> Result<(), PlaneError> {
        let FrozenOutbound { used, allowed, packets, bytes, last_used, refused, told, .. } = frozen;
        let begun = used.checked_sub(*packets).filter(|_| *used <= highest(self.esn));
        let begun = begun.ok_or_else(|| PlaneError::System {
            what: format!("going on with outbound SPI {}", self.spi),
            why: format!("no SA has used {used} sequence numbers for {packets} packets"),
        })?;
        self.sequence.go_on(begun, *used);
        self.allow(*allowed);
        self.bytes.store(*bytes, Relaxed);
        self.last_used.store(last_used.as_nanos() as u64, Relaxed);
        self.refused.store(*refused, Relaxed);
        self.told_soft.store(told[0], Relaxed);
        self.told_hard.store(told[1], Relaxed);
        // Work of the process before.
        self.cipher.attribute(self.amount());
        Ok(())
    }
}
