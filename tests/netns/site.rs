//! The two gateways of the sample policies, each with a host of its network on its loopback device.

use std::net::{Ipv4Addr, UdpSocket};
use testkit::gateway::{Gateway, PATIENT};
use testkit::{PATIENCE, datagram, policies};

pub const LEFT_INNER: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
pub const RIGHT_INNER: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 1);

/// Both gateways, connected but without daemons.
pub fn two() -> [Gateway; 2] {
    two_with(PATIENT)
}

/// The same with other lines in the section `[ike]` of their configuration.
pub fn two_with(ike: &str) -> [Gateway; 2] {
    let [left, right] = Gateway::pair(&policies::site(), [1, 2], ike);
    left.space.ip("address add 10.1.0.1/32 dev lo");
    right.space.ip("address add 10.2.0.1/32 dev lo");
    [left, right]
}

/// A socket of the host behind the left gateway, connected to one of the host behind the right.
pub fn hosts(left: &Gateway, right: &Gateway) -> (UdpSocket, UdpSocket) {
    let from = left.space.run(|| UdpSocket::bind((LEFT_INNER, 0))).expect("an address");
    let to = right.space.run(|| UdpSocket::bind((RIGHT_INNER, 0))).expect("an address");
    to.set_read_timeout(Some(PATIENCE)).expect("a socket takes it");
    from.connect(to.local_addr().expect("bound")).expect("a route");
    (from, to)
}

/// A datagram goes from the left host to the right one.
pub fn passes(hosts: &(UdpSocket, UdpSocket), text: &[u8]) {
    let mut packet = [0; 64];
    hosts.0.send(text).expect("the tunnel is up");
    let length = datagram(&hosts.1, &mut packet);
    assert_eq!(&packet[..length], text);
}
