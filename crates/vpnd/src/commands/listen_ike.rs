//! `--listen-ike`: where the peers of an ordinary user's gateway can begin.

use clap::Args;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// The option of `vpnd proxy` and `vpnd exec`.
#[derive(Clone, Debug, Default, Args)]
pub struct ListenIke {
    /// Address of this host at which peers can begin; none: only this side begins
    /// [default: those that the policy gives to this side, as far as UDP port 4500 is free there]
    #[arg(long, value_name = "ADDRESS|none")]
    listen_ike: Vec<Place>,
}

/// A value of the option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Address(IpAddr),
    Nowhere,
}

impl FromStr for Place {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "none" {
            return Ok(Self::Nowhere);
        }
        if text.parse::<SocketAddr>().is_ok() {
            return Err("peers begin on UDP port 4500, and on port 500; leave the port out");
        }
        let address = text.parse().map(Self::Address);
        address.map_err(|_| "it has to be an address of this host, or none")
    }
}

/// Addresses beside `none`.
#[derive(Debug, thiserror::Error)]
#[error(
    "--listen-ike none lets no peer begin, and --listen-ike {0} lets peers begin; leave one of the two out"
)]
pub struct Contradiction(IpAddr);

impl ListenIke {
    /// The addresses at which peers can begin, or `None` if the policy is to choose them.
    ///
    /// # Errors
    /// If the options contradict each other.
    pub fn addresses(&self) -> Result<Option<Vec<IpAddr>>, Contradiction> {
        let addresses = self.listen_ike.iter().filter_map(|place| match place {
            Place::Address(address) => Some(*address),
            Place::Nowhere => None,
        });
        let addresses: Vec<IpAddr> = addresses.collect();
        match addresses.first() {
            Some(address) if addresses.len() < self.listen_ike.len() => {
                Err(Contradiction(*address))
            }
            _ => Ok((!self.listen_ike.is_empty()).then_some(addresses)),
        }
    }
}
