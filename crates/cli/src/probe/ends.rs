//! The two ends of a probe: an address of this host in the local traffic, and one in the remote traffic.

use control::protocol::Child;
use policy::AddressRange;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Most destinations that are tried.
const DESTINATIONS: usize = 3;

/// No packet of this host belongs to a tunnel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoEnds {
    /// It is down.
    #[error("{0} is not up; to bring it up: vpnctl activate {0}")]
    Down(String),
    /// It carries other protocols.
    #[error(
        "{0} carries no ICMP: its traffic is {1} to {2}; probe it with a program of that protocol"
    )]
    Protocol(String, String, String),
    /// This host has no address in the local traffic.
    #[error(
        "this host has no address within {local}, the local traffic of {child}, so that it cannot send through the tunnel; on a \
         host there, type: ping -M do -s {size} {to} (and smaller sizes, until one is answered)"
    )]
    NoSource {
        /// The phase 2 tunnel.
        child: String,
        /// Its local traffic.
        local: String,
        /// A destination.
        to: IpAddr,
        /// Octets of data in the longest packet that fits.
        size: u64,
    },
    /// The given source is not this host's, or not of the tunnel.
    #[error("{0} is no address of this host within {1}, the local traffic of {2}")]
    BadSource(IpAddr, String, String),
    /// The given destination is not of the tunnel.
    #[error("{0} does not lie within {1}, the remote traffic of {2}")]
    BadDestination(IpAddr, String, String),
}

/// The ends of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ends {
    pub from: IpAddr,
    /// At least one.
    pub to: Vec<IpAddr>,
}

impl Ends {
    /// Chooses the ends that are not given.
    pub(super) fn of(
        child: &Child,
        from: Option<IpAddr>,
        to: Option<IpAddr>,
        own: &[IpAddr],
    ) -> Result<Self, NoEnds> {
        if child.child_sa.is_none() {
            return Err(NoEnds::Down(child.name.clone()));
        }
        let (local_text, remote_text) = (child.local.join(", "), child.remote.join(", "));
        let [local, remote] = [&child.local, &child.remote].map(|side| with_echoes(side));
        if local.is_empty() || remote.is_empty() {
            return Err(NoEnds::Protocol(child.name.clone(), local_text, remote_text));
        }
        let candidates: Vec<IpAddr> = match to {
            Some(to) if within(&remote, to) => vec![to],
            Some(to) => return Err(NoEnds::BadDestination(to, remote_text, child.name.clone())),
            None => {
                let known = remote.iter().flat_map(likely);
                known.filter(|to| !own.contains(to)).collect()
            }
        };
        if let Some(from) = from.filter(|from| !own.contains(from) || !within(&local, *from)) {
            return Err(NoEnds::BadSource(from, local_text, child.name.clone()));
        }
        let sources = own.iter().copied().filter(|own| within(&local, *own) && !own.is_loopback());
        let sources: Vec<IpAddr> = from.map_or_else(|| sources.collect(), |from| vec![from]);
        let pair = sources.iter().find_map(|from| {
            let to = candidates.iter().copied().filter(|to| to.is_ipv4() == from.is_ipv4());
            let to: Vec<IpAddr> = to.take(DESTINATIONS).collect();
            (!to.is_empty()).then_some(Self { from: *from, to })
        });
        pair.ok_or_else(|| {
            let to = candidates.first().copied().unwrap_or(remote[0].start());
            let headers = if to.is_ipv4() { 28 } else { 48 };
            let inner = child.child_sa.as_ref().and_then(|sa| sa.inner_mtu).unwrap_or(1400);
            let size = inner.saturating_sub(headers);
            NoEnds::NoSource { child: child.name.clone(), local: local_text, to, size }
        })
    }
}

fn within(side: &[AddressRange], address: IpAddr) -> bool {
    side.iter().any(|range| range.contains(address))
}

/// The ranges of selectors that have room for echo requests.
fn with_echoes(selectors: &[String]) -> Vec<AddressRange> {
    selectors.iter().filter_map(|selector| range(selector)).collect()
}

/// Reads a selector as it is displayed; `None` if it carries no echo requests.
fn range(selector: &str) -> Option<AddressRange> {
    let addresses = match selector.split_once('[') {
        Some((addresses, "icmp]" | "icmpv6]")) => addresses,
        Some(_) => return None,
        None => selector,
    };
    if let Some((first, last)) = addresses.split_once('-') {
        return AddressRange::new(first.parse().ok()?, last.parse().ok()?);
    }
    match addresses.split_once('/') {
        Some((address, length)) => {
            AddressRange::subnet(address.parse().ok()?, length.parse().ok()?)
        }
        None => addresses.parse::<IpAddr>().ok().map(AddressRange::from),
    }
}

/// Addresses of a range that are likely to have hosts: gateways often have the first or the last of a network.
fn likely(range: &AddressRange) -> Vec<IpAddr> {
    if range.start() == range.end() {
        return vec![range.start()];
    }
    let (second, last) = match (range.start(), range.end()) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (
            Ipv4Addr::from_bits(a.to_bits() | 1).into(),
            Ipv4Addr::from_bits(b.to_bits() & !1).into(),
        ),
        (IpAddr::V6(a), IpAddr::V6(b)) => (
            Ipv6Addr::from_bits(a.to_bits() | 1).into(),
            Ipv6Addr::from_bits(b.to_bits() & !1).into(),
        ),
        _ => (range.start(), range.end()),
    };
    let mut found = vec![second, last];
    found.retain(|address| range.contains(*address));
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn child(local: &[&str], remote: &[&str]) -> Child {
        let text = |side: &[&str]| side.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        serde_json::from_value(serde_json::json!({
            "name": "lan", "state": "established", "mode": "tunnel",
            "local": text(local), "remote": text(remote),
            "child_sa": {
                "suite": "AES-GCM-16-256", "esn": true, "encapsulation": "udp", "inbound_spi": "1",
                "outbound_spi": "2", "packets_in": 0, "packets_out": 0, "bytes_in": 0, "bytes_out": 0,
                "refused": 0, "inner_mtu": 1438, "path_mtu": 1500, "established_seconds": 1, "rekeys": 0,
                "rekey_in_seconds": null, "expires_in_seconds": null
            },
            "last_failure": null
        }))
        .expect("a child as it travels")
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn ends_are_chosen() {
        let lan = child(&["10.1.0.0/24", "fd01::/64"], &["10.2.0.0/24", "fd02::/64"]);
        let own = ["127.0.0.1", "192.0.2.1", "10.1.0.1", "fd01::1"].map(address);
        let ends = Ends::of(&lan, None, None, &own).expect("two ends");
        assert_eq!(ends.from, own[2]);
        assert_eq!(ends.to, ["10.2.0.1", "10.2.0.254"].map(address));
        let to = Some(address("fd02::7"));
        let ends = Ends::of(&lan, None, to, &own).expect("two ends");
        assert_eq!((ends.from, ends.to), (own[3], vec![address("fd02::7")]));
        let host = child(&["192.0.2.1"], &["192.0.2.2[icmp]"]);
        let ends = Ends::of(&host, None, None, &own).expect("two ends");
        assert_eq!((ends.from, ends.to), (own[1], vec![address("192.0.2.2")]));
    }

    #[test]
    fn an_end_that_is_missing_or_unusable_is_told() {
        let lan = child(&["10.1.0.0/24"], &["10.2.0.0/24"]);
        let own = [address("192.0.2.1")];
        let error = Ends::of(&lan, None, None, &own).expect_err("no address there").to_string();
        assert!(error.contains("no address within 10.1.0.0/24"), "{error}");
        assert!(error.contains("ping -M do -s 1410 10.2.0.1"), "{error}");
        let outside = Some(address("10.3.0.1"));
        assert!(matches!(Ends::of(&lan, None, outside, &own), Err(NoEnds::BadDestination(..))));
        assert!(matches!(Ends::of(&lan, Some(own[0]), None, &own), Err(NoEnds::BadSource(..))));
        let web = child(&["10.1.0.0/24[tcp/443]"], &["10.2.0.0/24"]);
        assert!(matches!(Ends::of(&web, None, None, &own), Err(NoEnds::Protocol(..))));
        let down = Child { child_sa: None, ..lan };
        let error = Ends::of(&down, None, None, &own).expect_err("it is down").to_string();
        assert_eq!(error, "lan is not up; to bring it up: vpnctl activate lan");
    }
}
