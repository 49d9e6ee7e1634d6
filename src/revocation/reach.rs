//! The servers from which revocation lists may be fetched.
//!
//! A certificate says where the list of its issuer is. Without a limit, anyone who can have such a certificate issued
//! could make the gateway send requests to services that only the gateway and its networks reach.

use super::fetch::FetchError;
use host::{Prefix, Routes};
use policy::{AddressRange, Policy};
use std::io;
use std::net::IpAddr;

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
        let problem = if is_of_link(address) {
            "belongs to this machine or its link"
        } else if protects(self.policy, address) {
            "is in a network that a tunnel protects"
        } else if own.iter().any(|network| network.contains(address)) {
            "is in a network that this machine is attached to"
        } else {
            return Ok(());
        };
        Err(FetchError::Address { host: host.to_owned(), address, problem })
    }
}

/// Returns `true` for addresses that mean something only on this machine or its links.
fn is_of_link(address: IpAddr) -> bool {
    address.is_loopback()
        || address.is_unspecified()
        || address.is_multicast()
        || match address {
            IpAddr::V4(a) => a.is_link_local() || a.is_broadcast(),
            IpAddr::V6(a) => a.is_unicast_link_local(),
        }
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
            assert_eq!((host.as_str(), problem), ("a.example", expected), "{address}");
            assert_eq!(reach.check("lists.EXAMPLE", address), Ok(()));
        }
        for address in ["10.2.0.10", "10.3.0.1", "192.0.3.1", "2001:db8::1"] {
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
