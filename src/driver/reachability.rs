//! Why messages do not reach peers: the errors of sending, ICMP messages, and this host's missing address or route.

use super::Driver;
use super::addresses::WatchedHost;
use esp::plane::DataPlane;
use host::IcmpError;
use ike::Transmit;
use ike::failure::facts::Unsendable;
use ike::unreachable::{Lack, Obstacle, Unreachable, Unsent};
use std::io;

impl<P: DataPlane> Driver<P> {
    /// Why a datagram could not be sent. The system's error alone does not tell: it may be about another datagram.
    pub(super) fn cause(&mut self, transmit: &Transmit, error: &io::Error) -> Unsent {
        let other = Unsent::Other(error.to_string());
        let Some(WatchedHost { host, .. }) = &mut self.host else { return other };
        if error.kind() == io::ErrorKind::WouldBlock {
            return other;
        }
        let (local, remote) = (transmit.local.ip(), transmit.remote.ip());
        match host.addresses() {
            Ok(addresses) if !addresses.contains(&local) => Unsent::Lack(Lack::Address),
            Ok(_) if host.source_for(remote).is_none() => Unsent::Lack(Lack::Route),
            _ => other,
        }
    }

    /// Tells the engine of ICMP messages about its datagrams.
    pub(super) fn hear_icmp(&mut self) {
        for report in self.sockets.take_reports() {
            self.hear(report);
        }
    }

    pub(super) fn hear(&mut self, report: IcmpError) {
        let IcmpError { remote, by, ipv6, kind, code, quoted } = report;
        if let Some(what) = Obstacle::of_icmp(ipv6, kind, code) {
            self.engine.handle_unreachable(remote, &quoted, Unreachable { by, what });
        }
    }

    /// The tunnels that are down and cannot come up, because this host lacks an address or a route.
    pub(super) fn lacking(&mut self) -> Vec<(String, Unsendable)> {
        let Some(WatchedHost { host, .. }) = &mut self.host else { return Vec::new() };
        match host.addresses() {
            Ok(addresses) => self.engine.lacking(&addresses, &mut |peer| host.source_for(peer)),
            Err(error) => {
                tracing::debug!(%error, "cannot list this host's addresses");
                Vec::new()
            }
        }
    }
}
