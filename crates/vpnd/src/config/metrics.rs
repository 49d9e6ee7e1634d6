//! `[metrics]`.

use metrics::Address;
use settings::{optional, read_optional};

settings::section! {
    /// `[metrics]`: the endpoint for monitoring systems and browsers.
    pub struct Metrics = "metrics" {
        /// The place where monitoring systems and browsers read how vpnd is, over HTTP (docs/operate/metrics.md): an
        /// address and a port, as in "127.0.0.1:9400", or the path of a Unix socket, which gets mode 0600. Empty: vpnd
        /// does not listen. Everybody who reaches the address can read the names of the tunnels and their traffic:
        /// choose the address of a network for administrators only.
        #[serde(deserialize_with = "read_optional")]
        pub listen: Option<Address> = None, written optional;
        /// Names by which clients may call this host, as in ["gate.example.net"]. Addresses and "localhost" need not stand here. vpnd
        /// refuses requests to other names, because a page in a browser could send them.
        pub hosts: Vec<String> = Vec::new();
        /// Whether browsers get a page at / of the same place: tunnels with their rates, explanations, events, certificates and drops. It
        /// changes nothing. It also tells what "vpnctl why" tells, such as the proposals of peers and the lines of the policy file.
        pub page: bool = true;
        /// Number of tunnels (of phase 1 and phase 2 together) with metrics of their own. Others are in the sums only.
        pub tunnels: usize = 2000, range 0..=1_000_000;
    }
}
