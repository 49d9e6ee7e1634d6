//! Network cards: by name, or by the way that packets take.

#![forbid(unsafe_code)]

use super::drivers;
use super::features::{EspFeatures, Features};
use host::Routes;
use policy::AddressRange;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, io};

/// A network device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// The kernel's number.
    pub index: u32,
    /// As in `eth4`.
    pub name: String,
    /// Its `esp-hw-offload` is switched on; `None`: it has none.
    pub esp: Option<bool>,
    /// The name of its driver; `None` if the kernel does not tell.
    pub driver: Option<String>,
    /// It fills in the checksums of packets that it encrypts (`esp-tx-csum-hw-offload`).
    pub checksum: bool,
    /// For how many addresses to which SAs receive it has room; `None`: unknown.
    pub addresses: Option<usize>,
}

/// The source of knowledge about the host's cards: the kernel, or a twin in memory.
pub trait Cards: Send {
    /// The one of that name.
    fn named(&mut self, name: &str) -> Option<Card>;
    /// The one by which packets to that address leave.
    fn towards(&mut self, remote: IpAddr) -> Option<Card>;
    /// Takes nothing for known any more.
    fn look_again(&mut self) {}
    /// Returns `true` if a route leads packets with that mark to an address.
    fn lead_to(&mut self, address: IpAddr, mark: u32) -> bool;
    /// The first address of this host in a range.
    fn own_within(&mut self, range: &AddressRange) -> Option<IpAddr>;
}

/// The time for which an answer is reused: thousands of SAs may come at once, and tunnels to one network.
const FRESH: Duration = Duration::from_secs(1);

/// Asks the kernel. It belongs to the network namespace of the thread that opened it, whoever uses it later.
pub struct KernelCards {
    routes: Routes,
    kernel: EspFeatures,
    answers: Option<(Instant, Answers)>,
}

/// The kernel's answers.
#[derive(Default)]
struct Answers {
    /// Of devices by name.
    features: Option<BTreeMap<String, Features>>,
    /// Index and name of the device towards a peer.
    egress: BTreeMap<IpAddr, Option<(u32, String)>>,
    /// The kernel's answers whether a route leads packets with a mark to an address.
    leading: BTreeMap<(IpAddr, u32), bool>,
    /// This host's addresses.
    own: Option<Vec<IpAddr>>,
}

impl KernelCards {
    /// Opens it in the calling thread's network namespace.
    ///
    /// # Errors
    /// Where the kernel gives no netlink socket.
    pub fn open() -> io::Result<Self> {
        let (routes, kernel) = (Routes::open()?, EspFeatures::open()?);
        Ok(Self { routes, kernel, answers: None })
    }

    /// Whom to ask, and what is known without.
    fn ask(&mut self) -> (&mut Routes, &EspFeatures, &mut Answers) {
        let fresh = self.answers.take().filter(|(at, _)| at.elapsed() < FRESH);
        let (_, answers) =
            self.answers.insert(fresh.unwrap_or_else(|| (Instant::now(), Answers::default())));
        (&mut self.routes, &self.kernel, answers)
    }

    fn card(&mut self, index: u32, name: String) -> Card {
        let (_, kernel, answers) = self.ask();
        let features = answers.features.get_or_insert_with(|| {
            let found = kernel.list().inspect_err(|error| {
                tracing::warn!(%error, "what network cards offer cannot be found out");
            });
            found.unwrap_or_default()
        });
        let known = features.get(&name);
        let [esp, checksum] = ["esp-hw-offload", "esp-tx-csum-hw-offload"]
            .map(|feature| known.and_then(|features| features.get(feature)).copied());
        let checksum = checksum == Some(true);
        let driver = driver(&name);
        let addresses = driver.as_deref().and_then(drivers::addresses);
        Card { index, name, esp, driver, checksum, addresses }
    }
}

fn driver(device: &str) -> Option<String> {
    let link = Path::new("/sys/class/net").join(device).join("device/driver");
    let target = fs::read_link(link).ok()?;
    target.file_name()?.to_str().map(str::to_owned)
}

impl Cards for KernelCards {
    fn named(&mut self, name: &str) -> Option<Card> {
        let index = self.routes.index(name).ok()??;
        Some(self.card(index, name.to_owned()))
    }

    fn towards(&mut self, remote: IpAddr) -> Option<Card> {
        let (routes, _, answers) = self.ask();
        let egress = answers.egress.entry(remote);
        let (index, name) =
            egress.or_insert_with(|| routes.egress(remote).ok().flatten()).clone()?;
        Some(self.card(index, name))
    }

    fn look_again(&mut self) {
        self.answers = None;
    }

    fn lead_to(&mut self, address: IpAddr, mark: u32) -> bool {
        let (routes, _, answers) = self.ask();
        let leads = answers.leading.entry((address, mark));
        *leads.or_insert_with(|| routes.lead_to(address, mark))
    }

    fn own_within(&mut self, range: &AddressRange) -> Option<IpAddr> {
        let (routes, _, answers) = self.ask();
        let own = answers.own.get_or_insert_with(|| routes.own().unwrap_or_default());
        own.iter().copied().find(|address| range.contains(*address))
    }
}
