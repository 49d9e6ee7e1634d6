//! Two gateways and a router between them. The left one has a network card that offloads, and a second way past it; its
//! addresses are no device's, so that they outlive the card.

use crate::card;
use std::net::IpAddr;
use testkit::gateway::{Gateway, PATIENT};
use testkit::space::{Space, Watch};
use testkit::traffic::Stream;
use testkit::until;

/// The gateways run.
pub struct World {
    pub left: Gateway,
    pub right: Gateway,
    router: Space,
}

impl World {
    /// With these policies, and this wanted of the card.
    pub fn new(policies: &[String; 2], offload: &str) -> Self {
        let kernel = "dataplane = \"xfrm\"\nencap = \"never\"\n";
        let of_left = format!("{kernel}offload = \"{offload}\"\n");
        let left = Gateway::new("left", &policies[0], PATIENT, &of_left);
        let right = Gateway::new("right", &policies[1], PATIENT, kernel);
        let router = Space::new("router");
        router.set("ipv4/ip_forward", "1");
        card::connect((&left.space, &["198.51.100.1/30"]), (&router, &["198.51.100.2/30"]));
        Space::connect(
            (&left.space, "spare", &["198.51.100.5/30"]),
            (&router, "spare", &["198.51.100.6/30"]),
        );
        Space::connect(
            (&router, "right", &["198.51.100.9/30"]),
            (&right.space, "wire", &["198.51.100.10/30"]),
        );
        for (space, number) in [(&left.space, 1), (&right.space, 2)] {
            space.ip(&format!("address add 192.0.2.{number}/32 dev lo"));
            space.ip(&format!("address add 10.{number}.0.1/32 dev lo"));
            space.ip(&format!("address add 10.{number}.1.1/32 dev lo"));
        }
        for (via, metric) in [("198.51.100.2", 10), ("198.51.100.6", 20)] {
            left.space.ip(&format!("route add 192.0.2.2 via {via} src 192.0.2.1 metric {metric}"));
            left.space.ip(&format!("route add 10.2.0.0/16 via {via} metric {metric}"));
            for net in [0, 1] {
                left.space.ip(&format!(
                    "route add 10.2.{net}.0/24 via {via} src 10.1.{net}.1 metric {metric}"
                ));
            }
        }
        for (via, metric) in [("198.51.100.1", 10), ("198.51.100.5", 20)] {
            router.ip(&format!("route add 192.0.2.1 via {via} metric {metric}"));
        }
        router.ip("route add 192.0.2.2 via 198.51.100.10");
        right.space.ip("route add 192.0.2.1 via 198.51.100.9 src 192.0.2.2");
        right.space.ip("route add 10.1.0.0/16 via 198.51.100.9");
        // Every address of the network is this host's.
        right.space.ip("route add local 10.2.0.0/16 dev lo");
        for net in [0, 1] {
            right.space.ip(&format!("route add 10.1.{net}.0/24 via 198.51.100.9 src 10.2.{net}.1"));
        }
        let mut world = Self { left, right, router };
        world.left.start();
        world.right.start();
        world
    }

    pub fn up(&self) {
        assert_eq!(self.left.ctl_ok(&["activate"]), "site: up\n");
    }

    /// A host behind the left gateway, in the network of the first tunnel.
    pub fn host(&self) -> Space {
        let host = Space::new("host");
        Space::connect(
            (&host, "wire", &["10.1.0.9/24"]),
            (&self.left.space, "lan", &["10.1.0.254/24"]),
        );
        host.ip("route add default via 10.1.0.254");
        self.left.space.set("ipv4/ip_forward", "1");
        host
    }

    /// Checks that packets pass through both tunnels.
    pub fn passes(&self) {
        for there in ["10.2.0.1", "10.2.1.1"] {
            self.left.space.pings("", 5, there).expect("echoes");
        }
    }

    /// Watches both ways between the left gateway and the router.
    pub fn watch(&self) -> [Watch; 2] {
        ["wire", "spare"].map(|device| self.router.watch(device))
    }

    /// A connection through the first tunnel.
    pub fn stream(&self) -> Stream {
        let ends = [(&self.left.space.0, [10, 1, 0, 1]), (&self.right.space.0, [10, 2, 0, 1])];
        let [from, to] = ends.map(|(space, address)| (space, IpAddr::from(address)));
        let stream = Stream::start(from, to, 0).expect("a connection");
        self.goes_on(&stream);
        stream
    }

    pub fn goes_on(&self, stream: &Stream) {
        let enough = stream.received() + 200_000;
        let more = || (stream.received() > enough).then_some(());
        until("octets", more, || {
            format!("{}\n{}", self.status(), self.left.space.ip("-s xfrm state"))
        });
    }

    /// How many SAs are done by the card entirely, in their cryptography, and by the kernel alone.
    pub fn places(&self) -> [usize; 3] {
        let offload = self.left.json(&["offload", "--json"]);
        let sas = offload["sas"].as_array().unwrap_or_else(|| panic!("{offload}"));
        ["packet", "crypto", "software"]
            .map(|place| sas.iter().filter(|sa| sa["place"] == place).count())
    }

    pub fn await_places(&self, places: [usize; 3]) {
        until(&format!("{places:?}"), || (self.places() == places).then_some(()), || self.status());
    }

    pub fn status(&self) -> String {
        self.left.ctl_ok(&["status"]) + &self.left.ctl_ok(&["offload", "--sas"])
    }

    /// Checks that the left gateway has dropped no packet.
    pub fn nothing_refused(&self) {
        assert_eq!(self.left.discards(), [], "{}", self.status());
    }

    pub fn stop(mut self) {
        self.left.stop();
        self.right.stop();
        assert_eq!(self.left.space.ip("xfrm state"), "");
        assert!(!self.left.space.ip("xfrm policy").contains("priority 19"));
        assert_eq!(self.left.space.sh("nft list tables"), "");
    }
}

/// Holds what a command printed against lines that it must have, each with its words in this order.
pub fn says(text: &str, lines: &[&str]) {
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        let fits = |line: &str| line.split_whitespace().collect::<Vec<_>>() == words;
        assert!(text.lines().any(fits), "no line {line:?} in\n{text}");
    }
}
