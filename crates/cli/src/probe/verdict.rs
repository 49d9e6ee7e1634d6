//! The meaning of answers and losses.

use control::protocol::{Child, FindingInfo};
use serde::Serialize;
use std::time::Duration;

/// The smallest `outer_mtu` that `vpnd.toml` takes.
const LEAST_OUTER: u64 = 576;

/// The results of a probe.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Measured {
    /// Packets of the first size.
    pub sent: u32,
    /// The answers to them.
    pub received: u32,
    /// How long they took; `null`: none came.
    pub round_trip_ms: Option<RoundTrip>,
    /// Octets of the longest packet that was tried; `null`: none was.
    #[serde(rename = "tried")]
    pub asked: Option<usize>,
    /// Octets of the longest packet that was answered.
    #[serde(rename = "path_mtu")]
    pub largest: Option<usize>,
    /// A packet was refused as too long.
    #[serde(rename = "too_big_told")]
    pub told: bool,
    /// Octets of the longest packet that the tunnel takes, and of the longest on the way to the peer, as the daemon
    /// knows them after the probe.
    pub inner_mtu: Option<u64>,
    /// See above.
    pub outer_mtu: Option<u64>,
    /// A router has told the daemon of the latter.
    pub outer_mtu_learned: bool,
    /// Octets that the tunnel adds to a packet.
    #[serde(skip)]
    pub(crate) overhead: Option<u64>,
}

/// Times in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RoundTrip {
    /// The shortest.
    pub least: f64,
    /// The mean.
    pub mean: f64,
    /// The longest.
    pub most: f64,
}

impl Measured {
    /// The packets of the first size.
    pub(super) fn new(sent: u32, trips: &[Duration]) -> Self {
        let times = trips.iter().map(|trip| trip.as_secs_f64() * 1000.0);
        let round_trip_ms = (!trips.is_empty()).then(|| RoundTrip {
            least: times.clone().fold(f64::INFINITY, f64::min),
            mean: times.clone().sum::<f64>() / trips.len() as f64,
            most: times.fold(0.0, f64::max),
        });
        let received = u32::try_from(trips.len()).unwrap_or(u32::MAX);
        Self { sent, received, round_trip_ms, ..Self::default() }
    }

    /// Takes note of the daemon's view before the probe and after it.
    pub(super) fn know(&mut self, before: &Child, after: Option<&Child>) {
        let before = before.child_sa.as_ref();
        let mtus = before.and_then(|sa| sa.path_mtu.zip(sa.inner_mtu));
        self.overhead = mtus.map(|(outer, inner)| outer.saturating_sub(inner));
        let Some(sa) = after.and_then(|child| child.child_sa.as_ref()).or(before) else { return };
        (self.inner_mtu, self.outer_mtu) = (sa.inner_mtu, sa.path_mtu);
        self.outer_mtu_learned = sa.path_mtu_learned;
    }

    /// The problem, if there is one.
    pub(super) fn judge(&self, child: &str) -> Option<FindingInfo> {
        if self.received == 0 {
            return Some(FindingInfo {
                kind: "no_answer".to_owned(),
                certain: false,
                message: format!(
                    "none of {} echo requests through {child} was answered",
                    self.sent
                ),
                cure: vec![
                    format!("see vpnctl why {child} here and on the peer"),
                    "the host may not answer echo requests: try another one with --to".to_owned(),
                ],
            });
        }
        if let (Some(asked), Some(largest)) = (self.asked, self.largest)
            && largest < asked
            && !self.told
            && !self.outer_mtu_learned
        {
            return self.black_hole(asked, largest);
        }
        let lost = self.sent.saturating_sub(self.received);
        if lost == 0 {
            return None;
        }
        Some(FindingInfo {
            kind: "loss".to_owned(),
            certain: false,
            message: format!("{lost} of {} small packets were lost", self.sent),
            cure: vec!["see vpnctl counters on both sides; if nothing is counted there, the networks between lose packets".to_owned()],
        })
    }

    fn black_hole(&self, asked: usize, largest: usize) -> Option<FindingInfo> {
        let longer = match self.inner_mtu {
            Some(_) => format!("the tunnel takes up to {asked}"),
            None => "this host sends longer ones".to_owned(),
        };
        let message = format!(
            "packets of more than {largest} octets vanish, although {longer}, and no router says so: a network between the \
             gateways carries less than they think (an MTU black hole)"
        );
        let outer = self.overhead.map(|overhead| largest as u64 + overhead);
        let icmp = "or let routers on the way send ICMP \"fragmentation needed\" (ICMPv6 \"packet too big\") to both gateways";
        let lower = match outer.filter(|outer| *outer >= LEAST_OUTER) {
            Some(outer) => format!(
                "outer_mtu = {outer} in [esp] of vpnd.toml on both gateways, and restart vpnd there"
            ),
            None => {
                "a lower outer_mtu in [esp] of vpnd.toml on both gateways, and restart vpnd there"
                    .to_owned()
            }
        };
        let df = "or df = \"clear\" in the same section: routers then fragment the packets of the tunnel";
        // The settings are those of the plane that knows what fits.
        let cure = match self.inner_mtu {
            Some(_) => vec![lower, df.to_owned(), icmp.to_owned()],
            None => vec![
                format!(
                    "on both gateways: ip route change NETWORK via ROUTER mtu {largest}, with the network of the other side (the \
                     kernel protects the packets of this tunnel, and outer_mtu has no effect there)"
                ),
                icmp.to_owned(),
            ],
        };
        Some(FindingInfo { kind: "mtu_black_hole".to_owned(), certain: true, message, cure })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(received: u32, largest: usize) -> Measured {
        let trips = vec![Duration::from_millis(2); received as usize];
        Measured {
            asked: Some(1438),
            largest: Some(largest),
            overhead: Some(62),
            inner_mtu: Some(1438),
            ..Measured::new(4, &trips)
        }
    }

    #[test]
    fn all_is_well() {
        assert_eq!(measured(4, 1438).judge("lan"), None);
        let trip = measured(2, 1438).round_trip_ms.expect("answers came");
        assert_eq!((trip.least, trip.mean, trip.most), (2.0, 2.0, 2.0));
    }

    #[test]
    fn large_packets_that_vanish_are_a_black_hole() {
        let found = measured(4, 1338).judge("lan").expect("a finding");
        assert_eq!((found.kind.as_str(), found.certain), ("mtu_black_hole", true));
        assert!(found.message.contains("more than 1338 octets"), "{}", found.message);
        assert!(found.cure[0].starts_with("outer_mtu = 1400 in [esp]"), "{:?}", found.cure);
        // Too little for a value that the configuration takes.
        let found = measured(4, 300).judge("lan").expect("a finding");
        assert!(found.cure[0].starts_with("a lower outer_mtu"), "{:?}", found.cure);
        // The kernel plane does not tell what fits, and has no such setting.
        let by_kernel = Measured { inner_mtu: None, overhead: None, ..measured(4, 1338) };
        let found = by_kernel.judge("lan").expect("a finding");
        assert!(found.cure[0].contains("NETWORK via ROUTER mtu 1338"), "{:?}", found.cure);
    }

    #[test]
    fn a_path_of_which_a_router_has_told_is_none() {
        for more in [
            Measured { told: true, ..measured(4, 1338) },
            Measured { outer_mtu_learned: true, ..measured(4, 1338) },
        ] {
            assert_eq!(more.judge("lan"), None);
        }
    }

    #[test]
    fn silence_and_loss_are_told() {
        let silent = Measured::new(4, &[]).judge("lan").expect("a finding");
        assert_eq!(silent.kind, "no_answer");
        assert!(silent.cure[0].contains("vpnctl why lan"));
        let lossy = measured(3, 1438).judge("lan").expect("a finding");
        assert_eq!(lossy.message, "1 of 4 small packets were lost");
    }
}
