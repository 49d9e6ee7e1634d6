//! Child SAs that are refused whatever the peer offers.

use std::fmt;
use std::net::IpAddr;

/// A phase 2 tunnel with AH only, if its packets have to travel in UDP.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct AhAndNat {
    /// The phase 2 tunnel.
    pub child: String,
    /// The address of this side.
    pub local: IpAddr,
    /// The peer's address.
    pub remote: IpAddr,
}

impl fmt::Display for AhAndNat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { child, local, remote } = self;
        write!(
            f,
            "{child} is protected with AH only, and between {local} and {remote} is a NAT, or one side has ESP in UDP \
             without one: AH covers the addresses"
        )
    }
}

/// Traffic that a peer asks for, of more addresses than a generic policy gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct TooMuch {
    /// On this side: the first selector and the number of the others.
    pub local: String,
    /// On the peer's side.
    pub remote: String,
}

impl fmt::Display for TooMuch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { local, remote } = self;
        write!(
            f,
            "the peer asks for {local} (ours) to {remote} (its own); a generic policy gives it no more addresses than a /8 \
             of IPv4 and a /32 of IPv6 have, counted over all of its requests"
        )
    }
}
