//! The servers from which revocation lists may be fetched.
//!
//! A certificate says where the list of its issuer is. Without a limit, anyone who can have such a certificate issued
//! could make the gateway send requests to services that only the gateway and its networks reach.

use super::fetch::FetchError;
use host::{Prefix, Routes};
use policy::{AddressRange, Policy};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The limit: no address of this machine, of a network that it is attached to, or of a network that a tunnel protects,
/// unless the operator has named the host.
#[derive(Clone, Copy)]
pub(super) struct Reach<'a> {
    /// Names and addresses of hosts that may be asked wherever they are.
    pub hosts: &'a [String],
    /// The tunnels.
    pub policy: &'a Policy,
    /// Tells the networks of this machine.
    pub own: fn() -> io::Result<Vec<Prefix>>,
}

impl Reach<'_> {
    /// Checks an address of a host; the host is as in the URL, without brackets.
    ///
    /// # Errors
    /// If the host may not be asked at this address.
    pub fn check(&self, host: &str, address: IpAddr) -> Result<(), FetchError> {
        let address = address.to_canonical();
        if self.hosts.iter().any(|named| named.eq_ignore_ascii_case(host)) {
            return Ok(());
        }
        let own = (self.own)().map_err(|error| FetchError::Networks(error.to_string()))?;
        let problem = self.problem(address, &own).map(str::to_owned).or_else(|| {
            held_by(address).into_iter().find_map(|held| {
                Some(format!("leads to {held}, which {}", self.problem(held, &own)?))
            })
        });
        match problem {
            Some(problem) => Err(FetchError::Address { host: host.to_owned(), address, problem }),
            None => Ok(()),
        }
    }

    fn problem(&self, address: IpAddr, own: &[Prefix]) -> Option<&'static str> {
        if is_of_link(address) {
            Some("belongs to this machine or its link")
        } else if is_of_provider(address) {
            Some("belongs to the network of a provider")
        } else if protects(self.policy, address) {
            Some("is in a network that a tunnel protects")
        } else if own.iter().any(|network| network.contains(address)) {
            Some("is in a network that this machine is attached to")
        } else {
            None
        }
    }
}

/// Returns `true` for addresses that mean something only on this machine or its links.
fn is_of_link(address: IpAddr) -> bool {
    address.is_loopback()
        || address.is_unspecified()
        || address.is_multicast()
        || match address {
            // RFC 1122 §3.2.1.3: this host on this network.
            IpAddr::V4(a) => a.is_link_local() || a.is_broadcast() || a.octets()[0] == 0,
            // RFC 3879: site-local addresses are deprecated, and still work.
            IpAddr::V6(a) => a.is_unicast_link_local() || a.segments()[0] & 0xffc0 == 0xfec0,
        }
}

/// Networks that the provider of a machine's network has for itself. Clouds tell a machine its secrets at such
/// addresses, and no authority has a list there.
const OF_PROVIDERS: [(IpAddr, u8); 6] = [
    // RFC 6598: shared address space. Alibaba Cloud has 100.100.100.200.
    (IpAddr::V4(Ipv4Addr::new(100, 64, 0, 0)), 10),
    // RFC 6890: IETF protocol assignments. Oracle Cloud has had 192.0.0.192.
    (IpAddr::V4(Ipv4Addr::new(192, 0, 0, 0)), 24),
    // Azure.
    (IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)), 32),
    // RFC 1112 §4: reserved.
    (IpAddr::V4(Ipv4Addr::new(240, 0, 0, 0)), 4),
    // Amazon Web Services.
    (IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0)), 32),
    // Google Cloud.
    (IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0)), 32),
];

fn is_of_provider(address: IpAddr) -> bool {
    OF_PROVIDERS
        .iter()
        .any(|(network, length)| Prefix::holding(*network, *length).contains(address))
}

/// The IPv4 addresses to which a translator or a tunnel brings packets for an IPv6 address.
fn held_by(address: IpAddr) -> Vec<IpAddr> {
    let IpAddr::V6(v6) = address else { return Vec::new() };
    let octets = v6.octets();
    let last = v4_of(&octets, [12, 13, 14, 15]);
    let found = match v6.segments() {
        // RFC 4291 §2.5.5.1 (IPv4-compatible), RFC 2765 §2.1 (IPv4-translated).
        [0, 0, 0, 0, 0 | 0xffff, 0, ..] => vec![last],
        // RFC 6052 §2.1: NAT64.
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => vec![last],
        // RFC 8215: NAT64 with any of the formats of RFC 6052 §2.2.
        [0x64, 0xff9b, 1, ..] => {
            let places = [[6, 7, 9, 10], [7, 9, 10, 11], [9, 10, 11, 12]];
            Vec::from_iter(places.map(|places| v4_of(&octets, places)).into_iter().chain([last]))
        }
        // RFC 3056 §2: 6to4.
        [0x2002, ..] => vec![v4_of(&octets, [2, 3, 4, 5])],
        // RFC 4380 §4: Teredo, the server and the inverted address of the client.
        [0x2001, 0, ..] => vec![v4_of(&octets, [4, 5, 6, 7]), Ipv4Addr::from(!u32::from(last))],
        // RFC 5214 §6.1: ISATAP.
        [_, _, _, _, 0 | 0x200, 0x5efe, ..] => vec![last],
        _ => Vec::new(),
    };
    // Where an address has another format, these are octets without a meaning; nothing leads there.
    found.into_iter().filter(|v4| v4.octets()[0] != 0).map(IpAddr::V4).collect()
}

fn v4_of(octets: &[u8; 16], places: [usize; 4]) -> Ipv4Addr {
    Ipv4Addr::from(places.map(|place| octets[place]))
}

/// Returns `true` if a tunnel protects a network with this address. A tunnel for all addresses says nothing about a
/// single one.
fn protects(policy: &Policy, address: IpAddr) -> bool {
    let children = policy.tunnels.iter().flat_map(|tunnel| &tunnel.children);
    let mut ranges =
        children.flat_map(|child| child.local.iter().chain(&child.remote)).map(|s| s.addresses);
    ranges.any(|range| range.contains(address) && !is_everything(&range))
}

fn is_everything(range: &AddressRange) -> bool {
    AddressRange::subnet(range.start(), 0).as_ref() == Some(range)
}

/// The networks of this machine, in the network namespace of this thread, which also connects.
pub(super) fn own_networks() -> io::Result<Vec<Prefix>> {
    Routes::open()?.networks()
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::{ChildTunnel, Credential, Endpoint, Identity, IkeTunnel, Secret};
    use std::sync::Arc;

    fn range(start: [u8; 4], end: [u8; 4]) -> AddressRange {
        AddressRange::new(start.into(), end.into()).expect("a range")
    }

    /// The policy of a tunnel from 10.1.0.0/16 to a range.
    fn to(remote: AddressRange) -> Policy {
        let [here, there] = ["left", "right"]
            .map(|name| Endpoint { identity: Identity::Fqdn(name.into()), address: None });
        let key = Credential::PresharedKey(Secret::new(b"a key of sixteen".to_vec()));
        let child = ChildTunnel::new("net", range([10, 1, 0, 0], [10, 1, 255, 255]), remote);
        let tunnel = IkeTunnel::new("site", here, there, key).with_child(child);
        Policy { tunnels: vec![Arc::new(tunnel)] }
    }

    fn attached() -> io::Result<Vec<Prefix>> {
        Ok(vec![Prefix::holding([192, 0, 2, 1].into(), 24)])
    }

    #[test]
    fn own_networks_and_those_of_tunnels_are_asked_only_at_hosts_that_the_operator_names() {
        let hosts = ["Lists.example".to_owned()];
        let policy = to(range([10, 2, 0, 1], [10, 2, 0, 9]));
        let reach = Reach { hosts: &hosts, policy: &policy, own: attached };
        let of_link = "belongs to this machine or its link";
        let of_tunnel = "is in a network that a tunnel protects";
        let of_host = "is in a network that this machine is attached to";
        let of_provider = "belongs to the network of a provider";
        for (address, expected) in [
            ("127.0.0.1", of_link),
            ("::1", of_link),
            ("::ffff:127.0.0.1", of_link),
            ("0.0.0.0", of_link),
            ("::", of_link),
            ("169.254.169.254", of_link),
            ("fe80::1", of_link),
            ("224.0.0.1", of_link),
            ("ff02::1", of_link),
            ("0.1.2.3", of_link),
            ("fec0::1", of_link),
            ("100.100.100.200", of_provider),
            ("100.64.0.1", of_provider),
            ("168.63.129.16", of_provider),
            ("192.0.0.192", of_provider),
            ("240.0.0.1", of_provider),
            ("fd00:ec2::254", of_provider),
            ("fd20:ce::254", of_provider),
            ("255.255.255.255", of_link),
            ("10.1.2.3", of_tunnel),
            ("::ffff:10.1.2.3", of_tunnel),
            ("10.2.0.9", of_tunnel),
            ("192.0.2.1", of_host),
            ("192.0.2.200", of_host),
        ] {
            let address: IpAddr = address.parse().expect("an address");
            let Err(FetchError::Address { host, problem, .. }) = reach.check("a.example", address)
            else {
                panic!("{address} is asked");
            };
            assert_eq!((host.as_str(), problem.as_str()), ("a.example", expected), "{address}");
            assert_eq!(reach.check("lists.EXAMPLE", address), Ok(()));
        }
        for (address, held, problem) in [
            ("64:ff9b::7f00:1", "127.0.0.1", of_link),
            ("64:ff9b::a9fe:a9fe", "169.254.169.254", of_link),
            ("64:ff9b::a01:203", "10.1.2.3", of_tunnel),
            ("64:ff9b:1::192.0.2.7", "192.0.2.7", of_host),
            ("64:ff9b:1:a9fe:a9:fe00::", "169.254.169.254", of_link),
            ("64:ff9b:1:a9:fe:a9fe::", "169.254.169.254", of_link),
            ("64:ff9b:1:0:a9:fea9:fe00:0", "169.254.169.254", of_link),
            ("2002:7f00:1::1", "127.0.0.1", of_link),
            ("2002:a02:9:1::1", "10.2.0.9", of_tunnel),
            ("2001:0:a9fe:a9fe::1", "169.254.169.254", of_link),
            ("2001:0:cb00:7101:0:0:80ff:fffe", "127.0.0.1", of_link),
            ("::169.254.169.254", "169.254.169.254", of_link),
            ("::ffff:0:10.1.2.3", "10.1.2.3", of_tunnel),
            ("2001:db8::5efe:192.0.2.7", "192.0.2.7", of_host),
            ("2001:db8::200:5efe:100.100.100.200", "100.100.100.200", of_provider),
        ] {
            let address: IpAddr = address.parse().expect("an address");
            let Err(FetchError::Address { problem: told, .. }) = reach.check("a.example", address)
            else {
                panic!("{address} is asked");
            };
            assert_eq!(told, format!("leads to {held}, which {problem}"), "{address}");
            assert_eq!(reach.check("lists.EXAMPLE", address), Ok(()));
        }
        let of_internet = [
            "100.128.0.1",
            "64:ff9b::203.0.113.1",
            "64:ff9b:1::203.0.113.1",
            "2002:cb00:7101::1",
            "2001:0:cb00:7101:0:0:34ff:8efe",
        ];
        let others = ["10.2.0.10", "10.3.0.1", "192.0.3.1", "2001:db8::1"];
        for address in others.into_iter().chain(of_internet) {
            assert_eq!(reach.check("a.example", address.parse().expect("an address")), Ok(()));
        }
    }

    #[test]
    fn a_tunnel_for_all_addresses_leaves_the_servers_of_the_internet() {
        let policy = to(range([0; 4], [255; 4]));
        let reach = Reach { hosts: &[], policy: &policy, own: attached };
        assert_eq!(reach.check("a.example", [203, 0, 113, 1].into()), Ok(()));
        assert!(reach.check("a.example", [10, 1, 0, 1].into()).is_err());
    }

    #[test]
    fn without_knowing_the_own_networks_nothing_is_asked() {
        let own = || Err(io::ErrorKind::PermissionDenied.into());
        let reach = Reach { hosts: &[], policy: &Policy::default(), own };
        let error = reach.check("a.example", [203, 0, 113, 1].into());
        assert!(matches!(error, Err(FetchError::Networks(_))), "{error:?}");
    }
}
