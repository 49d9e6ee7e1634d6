//! The place where the packets of an SA are protected: in a network card (packet offload), with the card doing the
//! cryptography (crypto offload), or in the kernel's software.
//!
//! [`Placement`] keeps the operator's choice and its results. [`steps()`] decides, as a pure function, which offloads
//! to try, and why the others are not tried. The plane goes through these steps, reads back what is in force (the
//! kernel accepts crypto offload for a card without it and uses software), and notes the result.

#![forbid(unsafe_code)]

mod cards;
mod drivers;
mod features;
mod report;
mod steps;

pub use cards::{Card, Cards, KernelCards};
pub use drivers::suites;
pub use features::{EspFeatures, Features};
pub use report::{CardReport, Fallback, Placed, Report};
pub use steps::{Need, Step, Steps, steps};

use crypto::Suite;
use esp::manual::SaDirection;
use esp::plane::SaId;
use policy::AddressRange;
use report::Ledger;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The offload of an SA, the most first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OffloadMode {
    /// The card does everything: it knows SA and policy.
    Packet,
    /// The card does the cryptography, the kernel the rest.
    Crypto,
    /// The kernel does everything.
    Software,
}

/// The offload that the operator wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// As much as the card does.
    Auto,
    /// Packet offload, or none.
    Packet,
    /// Crypto offload, or none.
    Crypto,
    /// None.
    #[default]
    Off,
}

/// The wanted offload, and its card.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// The wanted offload.
    pub wanted: Wanted,
    /// Name of the card; `None`: the one by which packets to the peer leave.
    pub device: Option<String>,
}

/// The reason why an SA has less offload than wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No route leads to the peer.
    NoRoute,
    /// No card of that name.
    NoCard(String),
    /// The card has no `esp-hw-offload`.
    NoFeature,
    /// It has, but it is switched off.
    FeatureOff,
    /// No card knows what the SA does.
    Unsupported(&'static str),
    /// The driver of the card does not know its suite, but these.
    Unknown(String, &'static [Suite]),
    /// There is no room for one more SA (ENOSPC).
    Full,
    /// There is no room for one more address to which SAs receive, beside so many (ENOSPC).
    AddressesFull(usize),
    /// The kernel said yes and does it in software.
    Ignored,
    /// The kernel or its driver said no, in its words.
    Refused(String),
    /// The card has gone, with the SA in it.
    Gone,
}

impl OffloadMode {
    /// `packet`, `crypto` or `software`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Packet => "packet",
            Self::Crypto => "crypto",
            Self::Software => "software",
        }
    }
}

impl Wanted {
    /// The name in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Packet => "packet",
            Self::Crypto => "crypto",
            Self::Off => "off",
        }
    }
}

impl Choice {
    /// The same with other words on it, where there are any; without a name the device is found by the route.
    pub fn changed(&self, wanted: Option<Wanted>, device: Option<&str>) -> Option<Self> {
        let asked = wanted.is_some() || device.is_some();
        let wanted = wanted.unwrap_or(self.wanted);
        let device = match device {
            Some(name) => (!name.is_empty()).then(|| name.to_owned()),
            None => self.device.clone(),
        };
        asked.then_some(Self { wanted, device })
    }
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Auto, Self::Packet, Self::Crypto, Self::Off];
        let known = all.into_iter().find(|wanted| wanted.name() == text);
        known.ok_or_else(|| format!("no offload {text:?}; use auto, packet, crypto or off"))
    }
}

impl Reason {
    /// A stable name, to count by.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NoRoute => "no_route",
            Self::NoCard(_) => "no_card",
            Self::NoFeature => "no_feature",
            Self::FeatureOff => "feature_off",
            Self::Unsupported(_) | Self::Unknown(..) => "unsupported",
            Self::Full => "full",
            Self::AddressesFull(_) => "addresses_full",
            Self::Ignored => "ignored",
            Self::Refused(_) => "refused",
            Self::Gone => "gone",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRoute => f.write_str("no route leads to the peer"),
            Self::NoCard(name) => write!(f, "there is no device {name}"),
            Self::NoFeature => f.write_str("the device has no esp-hw-offload"),
            Self::FeatureOff => {
                f.write_str("esp-hw-offload is switched off (ethtool -K DEVICE esp-hw-offload on)")
            }
            Self::Unsupported(what) => f.write_str(what),
            Self::Unknown(driver, suites) => {
                let suites: Vec<String> = suites.iter().map(ToString::to_string).collect();
                let suites = suites.join(" and ");
                write!(
                    f,
                    "cards of the driver {driver} do only {suites}: put it first in the policy's proposals"
                )
            }
            Self::Full => f.write_str("the device has no room for another SA"),
            Self::AddressesFull(most) => write!(
                f,
                "the device has no room for another receive address: it has {most}, each of which several SAs share"
            ),
            Self::Ignored => f.write_str(
                "the driver does not know such an SA: the kernel does it itself; most cards do AES-GCM-16-128, which \
                 is to stand first in the policy's proposals then",
            ),
            Self::Refused(words) => f.write_str(words),
            Self::Gone => f.write_str("the device has gone"),
        }
    }
}

/// The wanted offload of each tunnel, and the results. Clones share them.
#[derive(Clone, Default)]
pub struct Placement(Arc<Shared>);

#[derive(Default)]
struct Shared {
    choice: Choice,
    /// Of single tunnels, by name.
    others: BTreeMap<String, Choice>,
    /// Of SAs that are keyed by hand, by name and direction.
    by_hand: Mutex<BTreeMap<(String, SaDirection), Choice>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    cards: Option<Box<dyn Cards>>,
    ledger: Ledger,
}

impl fmt::Debug for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Placement({:?}, {:?})", self.0.choice, self.0.others)
    }
}

impl Placement {
    /// The choice for all tunnels except these, which are named.
    pub fn new(choice: Choice, others: BTreeMap<String, Choice>) -> Self {
        Self::with_manual(choice, others, BTreeMap::new())
    }

    /// The same, with the choices for single SAs that are keyed by hand, by name and direction.
    pub fn with_manual(
        choice: Choice,
        others: BTreeMap<String, Choice>,
        by_hand: BTreeMap<(String, SaDirection), Choice>,
    ) -> Self {
        let by_hand = Mutex::new(by_hand);
        Self(Arc::new(Shared { choice, others, by_hand, state: Mutex::default() }))
    }

    /// Has it ask others about cards than the kernel.
    pub fn ask(&self, cards: Box<dyn Cards>) {
        self.lock().cards = Some(cards);
    }

    /// Has it ask the kernel, of the calling thread's network namespace, unless somebody else is to be asked.
    pub(crate) fn ask_kernel(&self) {
        let mut state = self.lock();
        if state.cards.is_none() {
            match KernelCards::open() {
                Ok(cards) => state.cards = Some(Box::new(cards)),
                Err(error) => tracing::warn!(%error, "network cards cannot be asked about"),
            }
        }
    }

    /// The choice for a tunnel.
    pub fn choice(&self, tunnel: &str) -> &Choice {
        self.0.others.get(tunnel).unwrap_or(&self.0.choice)
    }

    /// The choice for an SA that is keyed by hand.
    pub fn choice_by_hand(&self, name: &str, direction: SaDirection) -> Choice {
        let own = self.by_hand().get(&(name.to_owned(), direction)).cloned();
        own.unwrap_or_else(|| self.choice(name).clone())
    }

    /// Sets what is wanted for SAs that are keyed by hand and installed from now on; `None`: as for the tunnel of that
    /// name.
    pub fn set_by_hand(&self, name: &str, direction: SaDirection, choice: Option<Choice>) {
        let key = (name.to_owned(), direction);
        match choice {
            Some(choice) => _ = self.by_hand().insert(key, choice),
            None => _ = self.by_hand().remove(&key),
        }
    }

    fn by_hand(&self) -> MutexGuard<'_, BTreeMap<(String, SaDirection), Choice>> {
        self.0.by_hand.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The offloads to try for an SA of a tunnel, with the peer at this address; `by_hand` if it is keyed by hand.
    pub fn steps(
        &self,
        tunnel: &str,
        by_hand: Option<SaDirection>,
        remote: IpAddr,
        need: &Need,
    ) -> Steps {
        let choice = match by_hand {
            Some(direction) => self.choice_by_hand(tunnel, direction),
            None => self.choice(tunnel).clone(),
        };
        if choice.wanted == Wanted::Off {
            return Steps::default();
        }
        let mut state = self.lock();
        let cards = state.cards.as_mut();
        let card = match &choice.device {
            Some(name) => {
                cards.and_then(|c| c.named(name)).ok_or_else(|| Reason::NoCard(name.clone()))
            }
            None => cards.and_then(|c| c.towards(remote)).ok_or(Reason::NoRoute),
        };
        steps(choice.wanted, card, need)
    }

    /// Has cards and the ways to peers be asked for again: something about the host may have changed.
    pub fn look_again(&self) {
        self.lock().cards.iter_mut().for_each(|cards| cards.look_again());
    }

    /// Returns `true` if a route leads packets with that mark to an address, also if this cannot be asked.
    pub fn routes_lead_to(&self, address: IpAddr, mark: u32) -> bool {
        self.lock().cards.as_mut().is_none_or(|cards| cards.lead_to(address, mark))
    }

    /// The name of the device by which packets to a peer leave.
    pub fn device_towards(&self, peer: IpAddr) -> Option<String> {
        Some(self.lock().cards.as_mut()?.towards(peer)?.name)
    }

    /// The first address of this host in a range.
    pub fn own_within(&self, range: &AddressRange) -> Option<IpAddr> {
        self.lock().cards.as_mut()?.own_within(range)
    }

    /// Notes where an SA is.
    pub fn note(&self, sa: SaId, placed: Placed) {
        self.lock().ledger.note(sa, placed);
    }

    /// The offload of an SA.
    pub fn placed(&self, sa: SaId) -> Option<Placed> {
        self.lock().ledger.placed(sa).cloned()
    }

    /// The offload of every SA.
    pub fn sas(&self) -> Vec<Placed> {
        self.sas_of(|_| true)
    }

    /// The offload of the SAs of the tunnels for whose names `of` returns `true`.
    pub fn sas_of(&self, of: impl Fn(&str) -> bool) -> Vec<Placed> {
        self.lock().ledger.sas().filter(|sa| of(&sa.tunnel)).cloned().collect()
    }

    /// Returns `true` if the card that an SA was put into is there, as the device of this number, and offloads.
    pub(crate) fn is_there(&self, sa: SaId, device: u32) -> bool {
        let mut state = self.lock();
        let State { cards, ledger } = &mut *state;
        let name = ledger.placed(sa).and_then(|placed| placed.card.as_deref());
        let card = name.and_then(|name| cards.as_mut()?.named(name));
        card.is_some_and(|card| card.index == device && card.esp == Some(true))
    }

    /// An SA is gone.
    pub fn forget(&self, sa: SaId) {
        self.lock().ledger.forget(sa);
    }

    /// Every card that is wanted or used, what it does, and what it did not do and why.
    pub fn report(&self) -> Report {
        let mut state = self.lock();
        let mut names: Vec<String> = state.ledger.cards().map(str::to_owned).collect();
        let choices = self.0.others.values().chain([&self.0.choice]);
        names.extend(choices.filter_map(|choice| choice.device.clone()));
        names.extend(self.by_hand().values().filter_map(|choice| choice.device.clone()));
        names.sort();
        names.dedup();
        let State { cards, ledger } = &mut *state;
        let present = names.into_iter().map(|name| {
            let card = cards.as_mut().and_then(|cards| cards.named(&name));
            (name, card)
        });
        ledger.report(present.collect())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
