//! An SA that receives, as a value with which another process goes on.

#![forbid(unsafe_code)]

use super::Inbound;
use crate::discard::Discard;
use crate::plane::{InboundSa, Limits, Path, PlaneError, RuleId, SaId, Spi, TrafficSelectors};
use crate::replay::{Received, Window};
use crate::sequence::Sequence;
use crypto::{KeyedSa, Suite};
use policy::{Mode, Secret};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// An SA that receives, at the moment at which it was frozen. Times are since the epoch of the datapath.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrozenInbound {
    /// Its name.
    pub id: SaId,
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
    /// The traffic that its packets may carry.
    pub selectors: Arc<TrafficSelectors>,
    /// The volume at which it is to be rekeyed, and at which it stops.
    pub limits: Limits,
    /// The sequence numbers that it has received.
    pub received: Received,
    /// Packets accepted.
    pub packets: u64,
    /// Octets of inner packets.
    pub bytes: u64,
    /// The time of the last packet; meaningful if there was one.
    pub last_used: Duration,
    /// Packets refused.
    pub refused: u64,
    /// The peer's last address, if it differs from the path.
    pub moved: Option<SocketAddr>,
    /// The time of the next possible report of a move.
    pub next_move: Duration,
    /// Key management was told that the SA has reached its soft limit, and its hard one.
    pub told: [bool; 2],
}

impl FrozenInbound {
    /// The SA as key management would describe it. The datapath does not ask for the rule of an SA that receives.
    pub(crate) fn sa(&self) -> InboundSa {
        InboundSa {
            id: self.id,
            rule: RuleId(0),
            spi: self.spi,
            suite: self.suite,
            key: self.key.clone(),
            esn: self.esn,
            replay_window: self.received.size,
            mode: self.mode,
            path: self.path,
            selectors: Arc::clone(&self.selectors),
            limits: self.limits,
        }
    }
}

impl Inbound {
    /// Takes no packet until it is [thawed](Self::thaw).
    pub(crate) fn freeze(&self) {
        self.state().refuses.get_or_insert(Discard::Frozen);
    }

    /// Takes packets again.
    pub(crate) fn thaw(&self) {
        self.state().refuses.take_if(|discard| *discard == Discard::Frozen);
    }

    /// The SA as a value. It is frozen.
    pub(crate) fn frozen(&self) -> FrozenInbound {
        let state = self.state();
        FrozenInbound {
            id: self.id,
            spi: self.spi,
            suite: self.suite,
            key: self.cipher.key().clone(),
            esn: self.esn,
            mode: self.mode,
            path: state.path,
            selectors: Arc::clone(&self.selectors),
            limits: self.limits,
            received: state.window.received(),
            packets: state.packets,
            bytes: state.bytes,
            last_used: state.last_used,
            refused: self.refused.load(Relaxed),
            moved: state.moved,
            next_move: state.next_move,
            told: [state.told_soft, state.told_hard],
        }
    }

    /// Goes on where another process has frozen the SA. It has received nothing yet, and is frozen.
    ///
    /// # Errors
    /// If no SA can have received these sequence numbers.
    pub(crate) fn go_on(&self, frozen: &FrozenInbound) -> Result<(), PlaneError> {
        let highest = if self.esn { Sequence::HIGHEST } else { u64::from(u32::MAX) };
        let window = Window::of(&frozen.received).filter(|_| frozen.received.top <= highest);
        let window = window.ok_or_else(|| PlaneError::System {
            what: format!("going on with inbound SPI {}", self.spi),
            why: "its sequence numbers are none that an SA can have received".into(),
        })?;
        {
            let mut state = self.state();
            state.window = window;
            state.packets = frozen.packets;
            state.bytes = frozen.bytes;
            state.last_used = frozen.last_used;
            state.moved = frozen.moved;
            state.next_move = frozen.next_move;
            [state.told_soft, state.told_hard] = frozen.told;
        }
        self.refused.store(frozen.refused, Relaxed);
        // Work of the process before.
        self.cipher.attribute(self.amount());
        Ok(())
    }
}
