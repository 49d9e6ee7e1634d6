//! Traffic between two hosts, of which none may be lost: pings, TCP, and numbered datagrams that are echoed.

use std::net::IpAddr;
use testkit::Namespace;
use testkit::eventually;
use testkit::space::Space;
use testkit::traffic::{self, Echoes, Pings};

/// A host, and its address.
pub type Endpoint<'a> = (&'a Space, IpAddr);

/// Pings a host; every ping must be answered.
pub fn ping(from: Endpoint<'_>, to: IpAddr, count: u32) {
    ping_with(from, to, count, 56);
}

/// Pings a host with so many octets.
pub fn ping_with((space, from): Endpoint<'_>, to: IpAddr, count: u32, octets: u32) {
    let answered = space.echoes(&format!("-n -s {octets} -I {from}"), count, &to.to_string());
    answered.unwrap_or_else(|printed| panic!("{printed}"));
}

/// Whether a host answers within a second.
pub fn answers((space, from): Endpoint<'_>, to: IpAddr) -> bool {
    space.try_sh(&format!("ping -n -W 1 -c 1 -I {from} {to}")).0
}

/// Sends that many octets over TCP there and back.
pub fn exchange(client: Endpoint<'_>, server: Endpoint<'_>, octets: u32) {
    // Knuth's multiplicative hash: no shift by a packet goes unnoticed.
    let octets: Vec<u8> =
        (0..octets).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let done = traffic::exchange(inside(client), inside(server), &octets);
    done.unwrap_or_else(|error| panic!("TCP from {} to {}: {error}", client.1, server.1));
}

/// The host's namespace and address.
fn inside((space, address): Endpoint<'_>) -> (&Namespace, IpAddr) {
    (&space.0, address)
}

/// A datagram a millisecond, echoed at the far end.
pub struct Flow(Pings);

impl Flow {
    /// Starts to send from one host to another.
    pub fn start(left: Endpoint<'_>, right: Endpoint<'_>) -> Self {
        Self(Pings::start(inside(left), inside(right)).expect("sockets and a route"))
    }

    /// Datagrams sent so far, which is the number of the next.
    pub fn sent(&self) -> u64 {
        self.0.sent()
    }

    /// Waits until so many more datagrams have come back.
    pub fn pass(&self, more: u64) {
        let target = self.0.echoed() + more;
        eventually("datagrams are echoed", || (self.0.echoed() >= target).then_some(()));
    }

    /// Ends it and counts; nothing came twice, and all that came was as it was sent.
    pub fn finish(self) -> Echoes {
        let counts = self.0.finish().expect("every datagram is as it was sent");
        assert_eq!(counts.duplicates, 0, "datagrams came twice: {counts:?}");
        counts
    }
}
