//! Two networks whose gateways have a router between them that carries less than the gateways think.

use crate::networks;
use std::net::IpAddr;
use testkit::gateway::{Gateway, PATIENT};
use testkit::space::Space;
use testkit::traffic::Stream;
use testkit::until;

/// Octets of the longest packet that the router forwards.
pub const NARROW: u64 = 1400;

/// A change of the policy's ESP into another protocol.
pub type Protocol = fn(String) -> String;

/// No change.
pub const ESP: Protocol = |policy| policy;

/// Host, gateway, router, gateway, host.
pub struct Row {
    /// The hosts at both ends.
    pub hosts: [Space; 2],
    /// Their gateways.
    pub gateways: [Gateway; 2],
    /// The router between the gateways.
    pub router: Space,
}

impl Row {
    /// The gateways do not run yet. `outer`: IP version between them; `esp`: lines of that section of their configurations.
    pub fn new(outer: u8, esp: &str, protocol: Protocol) -> Self {
        let gateway = |name, end| {
            let policy = protocol(networks::policy(end, outer == 6));
            Gateway::new(name, &policy, &format!("{PATIENT}\n"), esp)
        };
        let gateways = [gateway("left", 0), gateway("right", 1)];
        let hosts = networks::hosts([&gateways[0].space, &gateways[1].space]);
        let router = Space::new("router");
        networks::forward(&router);
        for (end, gateway) in gateways.iter().enumerate() {
            let device = ["left", "right"][end];
            let (own, own6) = (networks::OUTER[0][end], networks::OUTER[1][end]);
            let (other, other6) = (networks::OUTER[0][1 - end], networks::OUTER[1][1 - end]);
            let (via, via6) = (format!("198.51.100.{}", end + 1), format!("fd0f::{}", end + 1));
            Space::connect(
                (&gateway.space, "wire", &[&format!("{own}/32"), &format!("{own6}/128")]),
                (&router, device, &[&format!("{via}/32"), &format!("{via6}/128")]),
            );
            router.ip(&format!("route add {own} dev {device} mtu {NARROW}"));
            router.ip(&format!("-6 route add {own6} dev {device} mtu {NARROW}"));
            gateway.space.ip(&format!("route add {via} dev wire"));
            gateway.space.ip(&format!("-6 route add {via6} dev wire"));
            gateway.space.ip(&format!("route add {other} via {via}"));
            gateway.space.ip(&format!("-6 route add {other6} via {via6}"));
        }
        Self { hosts, gateways, router }
    }

    /// Starts both gateways, and has the left one bring the tunnel up.
    pub fn start(&mut self) {
        self.gateways.iter_mut().for_each(Gateway::start);
        assert_eq!(self.gateways[0].ctl_ok(&["activate"]), "site: up\n");
    }

    /// Some megabytes from one host to the other, every octet right.
    pub fn stream(&self, from: usize, addresses: [&str; 2]) {
        let ends = [from, 1 - from]
            .map(|end| (&self.hosts[end].0, addresses[end].parse::<IpAddr>().expect("an address")));
        let stream = Stream::start(ends[0], ends[1], 0).expect("a connection");
        let enough = || (stream.received() > 2_000_000).then_some(());
        let state = || {
            let discards = self.gateways.each_ref().map(|gateway| gateway.discards());
            format!("{} arrived; {discards:?}", stream.received())
        };
        until("two megabytes", enough, state);
        stream.finish().expect("every octet is right");
    }

    /// One echo request of `len` octets with these options of `ping`: whether it is answered, and what `ping` prints.
    pub fn ping(&self, options: &str, len: u64, to: &str) -> (bool, String) {
        let headers = if to.contains(':') { 48 } else { 28 };
        self.hosts[0].try_sh(&format!("ping -c 1 -W 120 {options} -s {} {to}", len - headers))
    }

    /// Stops both gateways.
    pub fn stop(mut self) {
        self.gateways.iter_mut().for_each(Gateway::stop);
    }
}
