//! Why a message of IKE does not reach the peer: what this host lacks, and what ICMP says.
//!
//! ICMP is not protected: it tells the operator something, and changes no SA (RFC 7296 §2.4).

use std::fmt;
use std::net::IpAddr;

/// Why this host could not send a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsent {
    /// The host lacks something that it takes to send it.
    Lack(Lack),
    /// Another reason, in the words of the system.
    Other(String),
}

/// Something that this host lacks to send to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum Lack {
    /// The source address.
    Address,
    /// A route.
    Route,
}

impl fmt::Display for Unsent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lack(Lack::Address) => f.write_str("this host does not have that address"),
            Self::Lack(Lack::Route) => f.write_str("this host has no route to the peer"),
            Self::Other(why) => f.write_str(why),
        }
    }
}

/// An ICMP message about a datagram of this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Unreachable {
    /// Its source: the peer or a router, if it is not forged.
    pub by: IpAddr,
    /// Its meaning.
    pub what: Obstacle,
}

/// The meaning of an ICMP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Obstacle {
    /// No process has the port.
    Port,
    /// The host does not answer the last router.
    Host,
    /// A router has no route.
    Network,
    /// A packet filter forbids it.
    Prohibited,
}

impl Obstacle {
    /// The meaning of an ICMP message by its type and code (RFC 792, RFC 1812 §5.2.7.1; RFC 4443 §3.1); `None`: it
    /// tells nothing about whether the peer can be reached.
    pub fn of_icmp(ipv6: bool, kind: u8, code: u8) -> Option<Self> {
        match (ipv6, kind, code) {
            (false, 3, 0 | 6 | 8 | 11) | (true, 1, 0 | 2) => Some(Self::Network),
            (false, 3, 1 | 7 | 12) | (true, 1, 3) => Some(Self::Host),
            (false, 3, 3) | (true, 1, 4) => Some(Self::Port),
            (false, 3, 9 | 10 | 13) | (true, 1, 1 | 5 | 6) => Some(Self::Prohibited),
            _ => None,
        }
    }
}

impl Unreachable {
    /// The sentence about a peer's port, without the doubt that [`UNPROTECTED`] words.
    pub fn about(self, peer: std::net::SocketAddr) -> String {
        let Self { by, what } = self;
        let (address, port) = (peer.ip(), peer.port());
        match what {
            Obstacle::Port => format!("{by} answers: nothing listens on UDP {port}"),
            Obstacle::Host => format!("{by} reports that the host {address} does not answer it"),
            Obstacle::Network => format!("{by} reports that it has no route to {address}"),
            Obstacle::Prohibited => {
                format!("{by} reports that a packet filter forbids UDP {port} to {address}")
            }
        }
    }
}

/// The doubt about what ICMP says.
pub const UNPROTECTED: &str = "ICMP is not protected: anybody on the way could have sent that";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_codes_of_both_families_have_one_meaning() {
        let of = |v6, kind, code| Obstacle::of_icmp(v6, kind, code);
        assert_eq!([of(false, 3, 3), of(true, 1, 4)], [Some(Obstacle::Port); 2]);
        assert_eq!([of(false, 3, 1), of(true, 1, 3)], [Some(Obstacle::Host); 2]);
        assert_eq!([of(false, 3, 0), of(true, 1, 0)], [Some(Obstacle::Network); 2]);
        assert_eq!([of(false, 3, 13), of(true, 1, 1)], [Some(Obstacle::Prohibited); 2]);
        // Too big, and time exceeded.
        assert_eq!([of(false, 3, 4), of(true, 2, 0), of(false, 11, 0)], [None; 3]);
    }
}
