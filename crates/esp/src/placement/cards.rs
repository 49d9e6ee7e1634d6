//! Network cards: by name, or by the way that packets take.

#![forbid(unsafe_code)]

use super::features::{EspFeatures, Features};
use crate::userspace::Routes;
use policy::AddressRange;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// A network device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// The kernel's number.
    pub index: u32,
    /// As in `eth4`.
    pub name: String,
    /// Whether its `esp-hw-offload` is switched on; `None`: it has none.
    pub esp: Option<bool>,
    /// Whether it fills in the checksums of what it encrypts (`esp-tx-csum-hw-offload`).
    pub checksum: bool,
}

/// Who knows the host's cards: the kernel, or a twin in memory.
pub trait Cards: Send {
    /// The one of that name.
    fn named(&mut self, name: &str) -> Option<Card>;
    /// The one by which packets to that address leave.
    fn towards(&mut self, remote: IpAddr) -> Option<Card>;
    /// Takes nothing for known any more.
    fn look_again(&mut self) {}
    /// Whether a route leads packets with that mark to an address.
    fn lead_to(&mut self, address: IpAddr, mark: u32) -> bool;
    /// The first address of this host in a range.
    fn own_within(&mut self, range: &AddressRange) -> Option<IpAddr>;
}

/// How long features, and the way to a peer, are taken for what they were: thousands of SAs may come at once.
const FRESH: Duration = Duration::from_secs(1);

/// Index and name of the device towards each peer.
type Ways = BTreeMap<IpAddr, Option<(u32, String)>>;

/// Asks the kernel. It belongs to the network namespace of the thread that opened it, whoever uses it later.
pub struct KernelCards {
    routes: Routes,
    kernel: EspFeatures,
    /// By name.
    features: Option<(Instant, BTreeMap<String, Features>)>,
    ways: Option<(Instant, Ways)>,
}

impl KernelCards {
    /// Opens it in the calling thread's network namespace.
    ///
    /// # Errors
    /// Where the kernel gives no netlink socket.
    pub fn open() -> io::Result<Self> {
        let (routes, kernel) = (Routes::open()?, EspFeatures::open()?);
        Ok(Self { routes, kernel, features: None, ways: None })
    }

    fn card(&mut self, index: u32, name: String) -> Card {
        let fresh = self.features.as_ref().is_some_and(|(at, _)| at.elapsed() < FRESH);
        if !fresh {
            let found = self.kernel.list().inspect_err(|error| {
                tracing::warn!(%error, "what network cards offer cannot be found out");
            });
            self.features = Some((Instant::now(), found.unwrap_or_default()));
        }
        let known = self.features.as_ref().and_then(|(_, features)| features.get(&name));
        let active = |feature| known.and_then(|features| features.get(feature)).copied();
        let esp = active("esp-hw-offload");
        Card { index, name, esp, checksum: active("esp-tx-csum-hw-offload") == Some(true) }
    }
}

impl Cards for KernelCards {
    fn named(&mut self, name: &str) -> Option<Card> {
        let index = self.routes.index(name).ok()??;
        Some(self.card(index, name.to_owned()))
    }

    fn towards(&mut self, remote: IpAddr) -> Option<Card> {
        if self.ways.as_ref().is_none_or(|(at, _)| at.elapsed() >= FRESH) {
            self.ways = Some((Instant::now(), BTreeMap::new()));
        }
        let (_, ways) = self.ways.as_mut()?;
        let way = ways.entry(remote).or_insert_with(|| self.routes.egress(remote).ok().flatten());
        let way = way.clone();
        let (index, name) = way?;
        Some(self.card(index, name))
    }

    fn look_again(&mut self) {
        (self.features, self.ways) = (None, None);
    }

    fn lead_to(&mut self, address: IpAddr, mark: u32) -> bool {
        self.routes.lead_to(address, mark)
    }

    fn own_within(&mut self, range: &AddressRange) -> Option<IpAddr> {
        self.routes.own_within(range).ok()?
    }
}
