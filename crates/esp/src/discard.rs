//! The one table of the reasons for which packets are dropped, and their counters.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Defines an enum of reasons, each with the name of its counter; the comment above one explains it to the operator.
///
/// The enum has `ALL`, `name`, the stable name of the counter, and `explanation`, one sentence.
#[macro_export]
macro_rules! discards {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $Discard:ident {
            $($(#[doc = $text:literal])+ $variant:ident = $name:literal,)*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        $visibility enum $Discard {
            $($(#[doc = $text])+ $variant,)*
        }

        impl $Discard {
            /// Every reason.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The stable name of the reason's counter.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// One sentence for the operator.
            pub fn explanation(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($text),+).trim_ascii(),)*
                }
            }
        }
    };
}

discards! {
    /// The reason why a packet was dropped. The reasons stand in the order of the packet path.
    #[derive(thiserror::Error)]
    #[error("{}", self.name())]
    #[non_exhaustive]
    pub enum Discard {
        /// Outbound: not a whole IPv4 or IPv6 packet, or not what its offload description says.
        OutboundMalformed = "outbound_malformed",
        /// Outbound: a rule of the filter says that it is to be dropped.
        FilterDiscard = "filter_discard",
        /// Outbound: a rule of the filter says that it goes unprotected, and yet it was sent to the tunnel device.
        FilterBypass = "filter_bypass",
        /// Outbound: no rule covers the packet.
        NoPolicy = "no_policy",
        /// Outbound: a rule covers the packet, but no SA serves it.
        NoSa = "no_sa",
        /// Outbound: no SA serves the rule, and no more packets can be kept until one does.
        HoldFull = "hold_full",
        /// Outbound: kept for an SA that came too late or not at all.
        HoldExpired = "hold_expired",
        /// Outbound: IPsec of the packet's address family, or of its tunnel's, is switched off (vpnctl family).
        OutboundFamilyOff = "outbound_family_off",
        /// Outbound: the SA has used up its sequence numbers or its volume.
        OutboundExhausted = "outbound_exhausted",
        /// This process has frozen its SAs, for another one to go on with them, and was given a packet all the same.
        Frozen = "frozen",
        /// Outbound: longer than the path to the peer carries; its sender was told so (RFC 4301 §8.2.1).
        TooBig = "too_big",
        /// Outbound: the same, but its sender was not told, because it may not be or others were told just before.
        TooBigUntold = "too_big_untold",
        /// Outbound: a fragment that transport mode cannot carry (RFC 4301 §7), of a packet that never was whole.
        TransportFragment = "transport_fragment",
        /// Outbound: transport mode, and the packet is not between the SA's own addresses, or has options that the
        /// outer header would lose.
        TransportHeader = "transport_header",
        /// Outbound: longer than an ESP packet can be.
        TooLong = "too_long",
        /// From the network: word of a path's MTU that shows no packet of an SA.
        MtuUnknown = "mtu_unknown",
        /// From the network: word of a path's MTU that is too small to be true, or comes too often.
        MtuRefused = "mtu_refused",
        /// Inbound: shorter than the shortest ESP packet.
        InboundTruncated = "inbound_truncated",
        /// Inbound: the headers up to and with AH are not whole, or of other lengths than the SA's algorithm makes, or
        /// the packet is a fragment (RFC 4302 §3.4).
        AhHeader = "ah_header",
        /// Inbound: no SA with that SPI.
        UnknownSpi = "unknown_spi",
        /// Inbound: the sequence number was received before.
        Replayed = "replayed",
        /// Inbound: the sequence number is below the anti-replay window.
        ReplayTooOld = "replay_too_old",
        /// Inbound: the integrity check failed.
        Forged = "forged",
        /// Inbound: the SA has used up its volume.
        InboundExhausted = "inbound_exhausted",
        /// Inbound: the padding is not that of RFC 4303 §2.4.
        Padding = "padding",
        /// Inbound: a dummy packet (RFC 4303 §2.6).
        Dummy = "dummy",
        /// Inbound: tunnel mode, and the next header is neither IPv4 nor IPv6.
        NextHeader = "next_header",
        /// Inbound: the inner packet is not a whole IPv4 or IPv6 packet.
        InboundMalformed = "inbound_malformed",
        /// Inbound: transport mode, and a fragment in it (RFC 4301 §7).
        InboundFragment = "inbound_fragment",
        /// Inbound: the outer header says congestion, and the inner transport does not understand it (RFC 6040 §4.2).
        Congestion = "congestion",
        /// Inbound: IPsec of the inner packet's address family, or of its tunnel's, is switched off (vpnctl family).
        InboundFamilyOff = "inbound_family_off",
        /// Inbound: the inner packet is not traffic of the SA (RFC 4301 §5.2).
        Selectors = "selectors",
    }
}

/// A counter for each [`Discard`].
#[derive(Debug)]
pub(crate) struct Counters([AtomicU64; Discard::ALL.len()]);

impl Counters {
    pub(crate) fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    /// Counts one packet, and hands the reason on.
    pub(crate) fn count(&self, discard: Discard) -> Discard {
        self.0[discard as usize].fetch_add(1, Ordering::Relaxed);
        discard
    }

    /// Counts packets that another process has dropped. Names that are not known here are left out.
    pub(crate) fn go_on(&self, counted: &BTreeMap<String, u64>) {
        for (discard, counter) in Discard::ALL.iter().zip(&self.0) {
            if let Some(packets) = counted.get(discard.name()) {
                counter.fetch_add(*packets, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn table(&self) -> BTreeMap<&'static str, u64> {
        Discard::ALL
            .iter()
            .map(|d| (d.name(), self.0[*d as usize].load(Ordering::Relaxed)))
            .collect()
    }
}
