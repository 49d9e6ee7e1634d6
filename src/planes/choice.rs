//! The choice of a plane for each tunnel, and its result.

#![forbid(unsafe_code)]

use super::Unrouted;
use super::guard::GuardedTraffic;
use esp::filter::Filter;
use esp::manual::SaDirection;
use esp::plane::RuleId;
use policy::Bindings;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use xfrm::Binding;
use xfrm::placement::{self, Placement, Wanted};

/// The plane that is to protect packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// In the kernel where it can, else in this process.
    Auto,
    /// In this process.
    #[default]
    Userspace,
    /// In the kernel.
    Xfrm,
}

/// No plane of that name.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("no data plane {0:?}; there are \"auto\", \"userspace\" and \"xfrm\"")]
pub struct NoSuchChoice(pub String);

policy::readable_debug!(NoSuchChoice);

impl FromStr for Choice {
    type Err = NoSuchChoice;

    fn from_str(name: &str) -> Result<Self, NoSuchChoice> {
        let all = [Self::Auto, Self::Userspace, Self::Xfrm];
        let found = all.into_iter().find(|choice| choice.to_string() == name);
        found.ok_or_else(|| NoSuchChoice(name.to_owned()))
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Userspace => "userspace",
            Self::Xfrm => "xfrm",
        })
    }
}

/// The plane that protects each tunnel's packets, and the offload to network cards.
#[derive(Clone, Debug, Default)]
pub struct PlaneSettings {
    /// The plane of all tunnels but those below.
    pub choice: Choice,
    /// Tunnels with settings of their own, by the name of the phase 2 tunnel.
    pub tunnels: BTreeMap<String, Tunnel>,
    /// Offload of tunnels in the kernel to network cards.
    pub offload: OffloadSettings,
}

/// Offload of tunnels in the kernel to network cards.
#[derive(Clone, Debug, Default)]
pub struct OffloadSettings {
    /// For all tunnels but those below.
    pub choice: placement::Choice,
    /// Tunnels with settings of their own, by the name of the phase 2 tunnel.
    pub tunnels: BTreeMap<String, placement::Choice>,
    /// SAs keyed by hand with settings of their own.
    pub manual: BTreeMap<(String, SaDirection), placement::Choice>,
}

/// The guard against cleartext.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardSettings {
    /// Whether nftables drops packets that arrive in the clear although a tunnel should have protected them
    /// (RFC 4301 §5.2). Default: yes.
    pub inbound: bool,
    /// The file in which the definition of the guard in force is kept:
    /// [`guard::Definition::last`](crate::guard::Definition::last) reads it, also after a reboot. It has no keys.
    /// Default: none.
    pub file: Option<PathBuf>,
    /// Whether a start fails if the guard cannot be put in force. Default: no; only a warning is logged, and routes and
    /// policies alone keep the traffic from leaving in the clear.
    pub required: bool,
}

impl Default for GuardSettings {
    fn default() -> Self {
        Self { inbound: true, file: None, required: false }
    }
}

/// All that both planes together are started with.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The plane of each tunnel.
    pub settings: PlaneSettings,
    /// The guard against cleartext.
    pub guard: GuardSettings,
    /// The filter for traffic that belongs to no tunnel.
    pub filter: Arc<Filter>,
    /// The findings of both planes; a clone shows them.
    pub report: Report,
    /// The settings of network cards for tunnels in the kernel; a clone shows the SAs in the cards.
    pub placement: Placement,
    /// Other programs have changed the kernel's plane since it was put right last.
    pub disturbed: Arc<AtomicBool>,
}

/// The choice for one tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tunnel {
    /// Its plane, where it is not that of all.
    pub choice: Option<Choice>,
    /// The mark or interface that its packets must have in the kernel.
    pub binding: Binding,
}

impl PlaneSettings {
    /// The marks and interfaces by which phase 2 tunnels with equal traffic are told apart. Userspace looks at neither:
    /// a tunnel that may be there takes packets with any.
    pub fn bindings(&self) -> Bindings {
        let taken = |tunnel: &Tunnel| match tunnel.choice.unwrap_or(self.choice) {
            Choice::Xfrm => tunnel.binding,
            // It never comes to userspace.
            Choice::Auto if tunnel.binding != Binding::default() => tunnel.binding,
            Choice::Auto | Choice::Userspace => Binding::ANY,
        };
        let named = self.tunnels.iter().map(|(name, tunnel)| (name.clone(), taken(tunnel)));
        named.collect::<Bindings>().with_others(taken(&Tunnel::default()))
    }

    /// Where a phase 2 tunnel's packets are protected.
    pub fn choice_of(&self, tunnel: &str) -> Choice {
        self.tunnels.get(tunnel).and_then(|t| t.choice).unwrap_or(self.choice)
    }
}

impl OffloadSettings {
    /// The offload of a phase 2 tunnel.
    pub fn choice_of(&self, tunnel: &str) -> &placement::Choice {
        self.tunnels.get(tunnel).unwrap_or(&self.choice)
    }
}

impl Config {
    /// Both planes with these settings.
    pub fn new(settings: PlaneSettings, guard: GuardSettings, filter: Arc<Filter>) -> Self {
        let OffloadSettings { choice, tunnels, manual } = settings.offload.clone();
        let placement = Placement::with_manual(choice, tunnels, manual);
        Self { settings, guard, filter, placement, ..Self::default() }
    }

    /// The plane that is to protect a tunnel's packets.
    pub fn choice_of(&self, tunnel: &str) -> Choice {
        self.settings.choice_of(tunnel)
    }

    /// The mark or interface that a tunnel's packets must have in the kernel.
    pub(super) fn binding(&self, tunnel: &str) -> Binding {
        self.settings.tunnels.get(tunnel).map(|tunnel| tunnel.binding).unwrap_or_default()
    }

    /// Returns `true` if userspace serves a tunnel when the kernel does not take it. It looks at neither mark nor
    /// interface, so that a tunnel with one would take packets of others there.
    pub(super) fn has_fallback(&self, tunnel: &str) -> bool {
        self.choice_of(tunnel) == Choice::Auto && !self.is_bound_auto(tunnel)
    }

    /// Returns `true` for a tunnel that would have a fallback without its mark or interface.
    pub(super) fn is_bound_auto(&self, tunnel: &str) -> bool {
        self.choice_of(tunnel) == Choice::Auto && self.binding(tunnel) != Binding::default()
    }

    /// The properties by which a tunnel is guarded; `None` if it cannot or need not be ([`guard`](super::guard)).
    pub(super) fn guarded(&self, tunnel: &str) -> Option<GuardedTraffic> {
        if self.choice_of(tunnel) == Choice::Userspace {
            return Some(GuardedTraffic::default());
        }
        let binding = self.binding(tunnel);
        // Also the choice of a tunnel with IKE, if no SA of this name is keyed by hand.
        let leaving = self.placement.choice_by_hand(tunnel, SaDirection::Out);
        let by_card = matches!(leaving.wanted, Wanted::Auto | Wanted::Packet);
        // An XFRM interface drops what has no policy.
        let possible = binding.if_id.is_none() && !(by_card && binding.mark.is_some());
        possible.then_some(GuardedTraffic { mark: binding.mark, by_card })
    }

    fn choices(&self) -> impl Iterator<Item = Choice> {
        let PlaneSettings { choice, tunnels, .. } = &self.settings;
        [*choice].into_iter().chain(tunnels.values().filter_map(|t| t.choice))
    }

    pub(super) fn wants_kernel(&self) -> bool {
        self.choices().any(|choice| choice != Choice::Userspace)
    }

    pub(super) fn insists_on_kernel(&self) -> bool {
        self.choices().any(|choice| choice == Choice::Xfrm)
    }

    pub(super) fn bindings(&self) -> Bindings {
        self.settings.bindings()
    }

    /// Returns the marks and interfaces of the tunnels that may be in the kernel, which compares packets with them.
    pub(super) fn kernel_bindings(&self) -> Bindings {
        let names =
            self.settings.tunnels.keys().filter(|name| self.choice_of(name) != Choice::Userspace);
        names.map(|name| (name.clone(), self.binding(name))).collect()
    }
}

/// The findings, shared between a plane and a program that reports them.
#[derive(Clone, Default)]
pub struct Report(Arc<Mutex<Reported>>);

#[derive(Default)]
struct Reported {
    found: Found,
    /// Those by which tunnels are told apart.
    bindings: Bindings,
}

/// The findings of both planes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// About the kernel.
    pub kernel: KernelUse,
    /// At least one tunnel is in userspace.
    pub userspace: bool,
    /// Tunnels that are in userspace because the kernel does not take them, and why.
    pub fallbacks: BTreeMap<String, String>,
    /// Tunnels in the kernel to whose remote network no route leads.
    pub unrouted: BTreeMap<RuleId, Unrouted>,
}

/// The use of the kernel's plane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KernelUse {
    /// Nobody wants that.
    #[default]
    NotWanted,
    /// It does.
    Used {
        /// Suites that it does not have.
        missing: Vec<String>,
    },
    /// It cannot, and why.
    Unusable(String),
}

impl Report {
    /// The present findings.
    pub fn found(&self) -> Found {
        self.lock().found.clone()
    }

    pub(super) fn kernel(&self, kernel: KernelUse) {
        self.lock().found.kernel = kernel;
    }

    pub(super) fn userspace(&self, used: bool) {
        self.lock().found.userspace = used;
    }

    /// Returns whether that is news.
    pub(super) fn fell_back(&self, tunnel: &str, why: &str) -> bool {
        let before = self.lock().found.fallbacks.insert(tunnel.to_owned(), why.to_owned());
        before.is_none_or(|before| before != why)
    }

    /// Takes the bindings by which tunnels are told apart.
    pub(super) fn bind(&self, bindings: Bindings) {
        self.lock().bindings = bindings;
    }

    /// The mark and the interface that packets of a tunnel must have: any, if it may be in userspace.
    pub(super) fn binding_of(&self, tunnel: &str) -> Binding {
        self.lock().bindings.of(tunnel)
    }

    /// The same of all tunnels.
    pub(crate) fn bindings(&self) -> Bindings {
        self.lock().bindings.clone()
    }

    /// Records the remote network of a rule that has no route, if there is one. Returns `true` if that is news.
    pub(super) fn routed(&self, rule: RuleId, unrouted: Option<Unrouted>) -> bool {
        let found = &mut self.lock().found;
        match unrouted {
            None => found.unrouted.remove(&rule).is_some(),
            Some(now) => found.unrouted.insert(rule, now.clone()) != Some(now),
        }
    }

    pub(super) fn lacks_route(&self, rule: RuleId) -> bool {
        self.lock().found.unrouted.contains_key(&rule)
    }

    pub(super) fn rename(&self, rule: RuleId, to: RuleId) {
        let found = &mut self.lock().found;
        let renamed = found.unrouted.remove(&rule);
        found.unrouted.extend(renamed.map(|unrouted| (to, unrouted)));
    }

    pub(super) fn forget(&self, tunnel: &str) {
        self.lock().found.fallbacks.remove(tunnel);
    }

    fn lock(&self) -> MutexGuard<'_, Reported> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lock().found.fmt(f)
    }
}
