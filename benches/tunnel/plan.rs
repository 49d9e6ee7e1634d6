//! The measures of each VPN, chosen so that three rounds of everything end within a quarter of an hour.

use crate::measure::Measure;
use benchkit::{Placement, Wire};

/// How much is measured of a VPN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Everything.
    Whole,
    /// The measures that tell another setting of a VPN from its usual one.
    Variant,
    /// A stream of TCP.
    Stream,
    /// Traffic to very many addresses.
    Addresses,
}

/// The measures over this wire, in this placement.
pub fn measures(part: Part, wire: Wire, placement: Placement) -> &'static [Measure] {
    use Measure::{Both, Ping, PingLoaded, Spread, Tcp1, Tcp4, Udp64, Udp512, Udp1400};
    match (wire, placement, part) {
        (Wire::SuperPackets, Placement::Scheduler, Part::Whole) => {
            &[Tcp1, Tcp4, Both, Udp64, Udp512, Udp1400, Ping, PingLoaded]
        }
        (Wire::SuperPackets, Placement::Scheduler, Part::Variant) => &[Tcp1, Udp64, Ping],
        (Wire::SuperPackets, Placement::Scheduler, Part::Addresses) => &[Tcp1, Spread],
        (_, _, Part::Addresses) => &[],
        (Wire::Packets, Placement::Scheduler, Part::Whole) => &[Tcp1, Udp64],
        (Wire::Packets, _, Part::Variant | Part::Stream) => &[],
        (_, _, Part::Whole | Part::Variant | Part::Stream) => &[Tcp1],
    }
}
