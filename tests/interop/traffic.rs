//! Traffic between two hosts, of which none may be lost: pings, TCP, and numbered datagrams that are echoed.

use crate::world;
use std::net::IpAddr;
use testkit::Namespace;
use testkit::eventually;
use testkit::traffic::{self, Echoes, Pings};

/// A host: its namespace and its address.
pub type Endpoint<'a> = (&'a Namespace, IpAddr);

/// Pings a host; every ping must be answered.
pub fn ping(from: Endpoint<'_>, to: IpAddr, count: u32) {
    ping_with(from, to, count, 56);
}

/// Pings a host with so many octets.
pub fn ping_with((namespace, from): Endpoint<'_>, to: IpAddr, count: u32, octets: u32) {
    let [from, to, octets] = [from.to_string(), to.to_string(), octets.to_string()];
    for _ in 0..count {
        // One at a time: after a first answer, ping waits for the others no longer than two round trips.
        let arguments = ["-n", "-W", "120", "-c", "1", "-s", &octets, "-I", &from, &to];
        let printed = world::run(namespace, "ping", &arguments);
        let printed = printed.unwrap_or_else(|error| panic!("{error}"));
        assert!(printed.contains(" 0% packet loss"), "{printed}");
    }
}

/// Whether a host answers within a second.
pub fn answers((namespace, from): Endpoint<'_>, to: IpAddr) -> bool {
    let (from, to) = (from.to_string(), to.to_string());
    world::run(namespace, "ping", &["-n", "-W", "1", "-c", "1", "-I", &from, &to]).is_ok()
}

/// Sends that many octets over TCP there and back.
pub fn exchange(client: Endpoint<'_>, server: Endpoint<'_>, octets: u32) {
    // Knuth's multiplicative hash: no shift by a packet goes unnoticed.
    let octets: Vec<u8> =
        (0..octets).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let done = traffic::exchange(client, server, &octets);
    done.unwrap_or_else(|error| panic!("TCP from {} to {}: {error}", client.1, server.1));
}

/// A datagram a millisecond, echoed at the far end.
pub struct Flow(Pings);

impl Flow {
    /// Starts to send from one host to another.
    pub fn start(left: Endpoint<'_>, right: Endpoint<'_>) -> Self {
        Self(Pings::start(left, right).expect("sockets and a route"))
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
