//! The facts of a failure as values, such as the offers of both sides, so that a reader can put them side by side.
//!
//! The text of each is one line that names no program, no setting and no element of a policy: the crate `diagnosis` tells
//! the cures in those words.

mod certificate;
mod ppk;
mod refused;

pub use certificate::{NotWithSha2, UnknownRevocation};
pub use ppk::{Ppk, PpkLack};
pub use refused::{AhAndNat, TooMuch};

use crate::negotiation::description::offers;
use crate::unreachable::{Lack, UNPROTECTED, Unreachable};
use crate::wire::payload::Proposal;
use esp::families::Family;
use policy::{ChildTunnel, Identity, IkeTunnel, Mode, Selector};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// The facts of a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Facts {
    /// Facts that are known in words only.
    Words(String),
    /// The peer did not answer.
    Silence(Silence),
    /// This host cannot send to the peer.
    Unsendable(Unsendable),
    /// IPsec of an address family is switched off.
    FamilyOff(FamilyOff),
    /// This side has no certificate with which it can prove who it is: the reason.
    Unprovable(String),
    /// A private key outside of this process did not sign.
    Unsigned(Unsigned),
    /// Algorithms.
    Offers(Offers),
    /// The identities of both sides.
    Identities(Identities),
    /// A proof that was not accepted.
    Proof(Proof),
    /// A postquantum preshared key that one side lacks.
    Ppk(Ppk),
    /// Traffic.
    Traffic(Traffic),
    /// Traffic that belongs to another peer.
    Shadowed(Shadowed),
    /// Transport or tunnel mode.
    Modes(Modes),
    /// Addresses between which there is no tunnel.
    Addresses(Addresses),
    /// A NAT in the way of AH.
    AhAndNat(AhAndNat),
    /// More traffic than a peer is given.
    TooMuch(TooMuch),
    /// A certificate of which nothing says whether it is revoked.
    UnknownRevocation(UnknownRevocation),
    /// A signature that is with none of SHA-2.
    NotWithSha2(NotWithSha2),
}

/// A request that was not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Silence {
    /// The message that was sent.
    pub request: String,
    /// The number of times that it was sent.
    pub sent: u32,
    /// The address it was sent from.
    pub local: IpAddr,
    /// The address it was sent to.
    pub remote: SocketAddr,
    /// The tunnel was up before.
    pub was_up: bool,
    /// The reason for which this host could not send it the last time.
    pub unsent: Option<String>,
    /// The last ICMP message about it. Anybody on the way could have sent that.
    pub icmp: Option<Unreachable>,
    /// Answers that led nowhere. Anybody on the way could have sent them.
    pub heard: Option<Heard>,
}

/// An answer that led nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Heard {
    /// The types of its Notify payloads.
    pub answer: String,
    /// The number of such answers in a row.
    pub times: u32,
}

impl fmt::Display for Heard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { answer, times } = self;
        let often = if *times == 1 { "once".to_owned() } else { format!("{times} times") };
        write!(
            f,
            "answered {often} with {answer}, which led nowhere (no answer to IKE_SA_INIT is protected: anybody on the way \
             could have sent that)"
        )
    }
}

/// A host that cannot send to the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Unsendable {
    /// Its deficiency.
    pub lack: Lack,
    /// The address of this side.
    pub local: IpAddr,
    /// The peer's address.
    pub remote: IpAddr,
}

/// An address family that is switched off, although a tunnel needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct FamilyOff {
    /// The family.
    pub family: Family,
    /// All traffic of the tunnel is of the family; otherwise the tunnel runs between addresses of the family.
    pub of_traffic: bool,
}

/// A private key, as in a token, that did not sign for this side.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Unsigned {
    /// Where the key is configured, and its place.
    pub key: String,
    /// The cause.
    pub cause: String,
    /// The remedy.
    pub cure: String,
}

/// The kind of SA that an offer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum Layer {
    /// An IKE SA.
    Ike,
    /// A Child SA.
    Child,
}

/// The offers of both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Offers {
    /// The kind of SA that they are for.
    pub layer: Layer,
    /// Ours.
    pub ours: Vec<Offer>,
    /// The peer's; `None` where it refused ours without a word about its own.
    pub theirs: Option<Vec<Offer>>,
    /// This side also accepts an offer without a key exchange.
    pub group_optional: bool,
    /// The one key exchange the peer asks for.
    pub wanted_group: Option<String>,
    /// They are for an SA in place of one that is up, and has algorithms of this side's offers.
    pub renewal: bool,
}

impl Offers {
    /// Offers of ours that were refused without a word about the peer's.
    pub(crate) fn of(layer: Layer, ours: &[Proposal]) -> Self {
        let ours = offers(ours);
        let (theirs, wanted_group) = (None, None);
        Self { layer, ours, theirs, group_optional: false, wanted_group, renewal: false }
    }

    /// Beside those of the peer.
    pub(crate) fn beside(self, theirs: &[Proposal]) -> Self {
        Self { theirs: Some(offers(theirs)), ..self }
    }
}

/// One proposal: alternatives for each kind of transform.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Offer {
    /// In the order of the proposal.
    pub transforms: Vec<Alternatives>,
}

/// The alternatives for one kind of transform.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Alternatives {
    /// The kind of transform.
    pub kind: &'static str,
    /// In order of preference.
    pub names: Vec<String>,
}

/// The peer's identity, and those that the policy names.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Identities {
    /// The peer's own identity.
    pub peer: Identity,
    /// The address of the peer.
    pub address: Option<IpAddr>,
    /// The address of this side.
    pub own_address: Option<IpAddr>,
    /// The identity that the peer expects of this side, where it said so.
    pub asked: Option<Identity>,
    /// The tunnels that it could have meant.
    pub known: Vec<Parties>,
}

/// The two identities of a tunnel of the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Parties {
    /// The phase 1 tunnel.
    pub tunnel: String,
    /// This side's.
    pub local: Identity,
    /// The peer's.
    pub remote: Identity,
}

impl Parties {
    pub(crate) fn of(tunnel: &IkeTunnel) -> Self {
        Self {
            tunnel: tunnel.name.clone(),
            local: tunnel.local.identity.clone(),
            remote: tunnel.remote.identity.clone(),
        }
    }
}

/// A proof that was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Proof {
    /// This side did not accept the peer's proof. Otherwise the peer did not accept ours.
    pub by_us: bool,
    /// This side proves its identity by a certificate; otherwise by a preshared key.
    pub certificate: bool,
    /// This side's identity.
    pub local: Identity,
    /// The peer's.
    pub remote: Identity,
    /// The postquantum preshared key that was used, too: both sides must have the same octets by this name.
    pub ppk: Option<String>,
}

impl Proof {
    /// The proof that one side did not accept, of the identities of this tunnel.
    pub(crate) fn of(tunnel: &IkeTunnel, by_us: bool) -> Self {
        let [local, remote] = [&tunnel.local, &tunnel.remote].map(|end| end.identity.clone());
        let certificate = !matches!(tunnel.credential, policy::Credential::PresharedKey(_));
        Self { by_us, certificate, local, remote, ppk: None }
    }
}

/// The traffic that each side wants protected.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Traffic {
    /// By phase 2 tunnel.
    pub ours: Vec<Wanted>,
    /// The peer's, as seen from here; `None` where it refused ours without a word about its own.
    pub theirs: Option<Wanted>,
    /// It was asked for in place of a Child SA that is up with traffic that both sides had agreed on.
    pub renewal: bool,
}

/// Traffic that is to be protected.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Wanted {
    /// The phase 2 tunnel; empty for the peer's.
    pub child: String,
    /// On this side.
    pub local: Vec<Selector>,
    /// On the peer's side.
    pub remote: Vec<Selector>,
}

impl Wanted {
    fn pair(&self) -> String {
        format!("{} to {}", listed(&self.local), listed(&self.remote))
    }

    pub(crate) fn by(tunnel: &ChildTunnel) -> Self {
        Self {
            child: tunnel.name.clone(),
            local: tunnel.local.clone(),
            remote: tunnel.remote.clone(),
        }
    }
}

/// Traffic that a peer asks for and that the policy gives to another one first.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Shadowed {
    /// The part of its phase 2 tunnel that the peer may have.
    pub wanted: Wanted,
    /// The phase 2 tunnel that stands before it and covers all of that.
    pub shadowing_rule: Wanted,
    /// The peer of that tunnel.
    pub peer: String,
}

/// Modes that differ.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Modes {
    /// The phase 2 tunnel.
    pub child: String,
    /// Its mode.
    pub ours: Mode,
    /// The peer's.
    pub theirs: Mode,
}

/// Addresses between which there is no tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Addresses {
    /// This side's, as the peer knows it.
    pub local: IpAddr,
    /// The peer's.
    pub remote: IpAddr,
    /// Those of the policy: tunnel, this side's and the peer's address.
    pub known: Vec<(String, Option<IpAddr>, Option<IpAddr>)>,
}

/// The most of anything that is kept of what a peer has sent.
pub(crate) const KEPT: usize = 16;

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Words(words) => f.write_str(words),
            Self::Silence(silence) => silence.fmt(f),
            Self::Unsendable(unsendable) => unsendable.fmt(f),
            Self::FamilyOff(off) => off.fmt(f),
            Self::Unprovable(why) => write!(f, "we cannot prove who we are: {why}"),
            Self::Unsigned(Unsigned { key, cause, cure }) => {
                write!(f, "we cannot prove who we are: {key} did not sign: {cause}; {cure}")
            }
            Self::Offers(offers) => offers.fmt(f),
            Self::Identities(identities) => identities.fmt(f),
            Self::Proof(proof) => proof.fmt(f),
            Self::Ppk(ppk) => ppk.fmt(f),
            Self::Traffic(traffic) => traffic.fmt(f),
            Self::Shadowed(claim) => claim.fmt(f),
            Self::Modes(modes) => modes.fmt(f),
            Self::Addresses(addresses) => addresses.fmt(f),
            Self::AhAndNat(ah_and_nat) => ah_and_nat.fmt(f),
            Self::TooMuch(too_much) => too_much.fmt(f),
            Self::UnknownRevocation(unknown) => unknown.fmt(f),
            Self::NotWithSha2(signature) => signature.fmt(f),
        }
    }
}

impl fmt::Display for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { request, sent, remote, local, .. } = self;
        if let Some(why) = &self.unsent {
            return write!(f, "{request} to {remote} could not be sent from {local}: {why}");
        }
        if let Some(heard) = &self.heard {
            return write!(f, "{request} to {remote} was {heard}");
        }
        if let Some(icmp) = self.icmp {
            return write!(
                f,
                "{request} sent {sent} times to {remote}; {} ({UNPROTECTED})",
                icmp.about(*remote)
            );
        }
        write!(
            f,
            "{request} sent {sent} times to {remote}, no answer; is the peer up, is UDP {} open on the way, does its policy name {local}?",
            remote.port()
        )
    }
}

impl fmt::Display for Unsendable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lack, local, remote } = self;
        match lack {
            Lack::Address => {
                write!(f, "this host does not have {local}, the address of this side in the policy")
            }
            Lack::Route => write!(
                f,
                "this host has no route to {remote}; bring up the interface that leads there, or add a route"
            ),
        }
    }
}

impl fmt::Display for FamilyOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { family, of_traffic } = self;
        let part = if *of_traffic { "all of its traffic is" } else { "its addresses are" };
        write!(f, "IPsec of {family} is switched off, and {part} {family}")
    }
}

impl fmt::Display for Offers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ours = described(&self.ours);
        let none = if self.group_optional { " (or no key exchange)" } else { "" };
        match (&self.wanted_group, &self.theirs) {
            (Some(wanted), _) => {
                write!(f, "the peer wants the key exchange {wanted}; we offered {ours}")
            }
            (None, Some(theirs)) => {
                write!(f, "the peer offers {}; we accept {ours}{none}", described(theirs))
            }
            (None, None) => {
                let or = match self.layer {
                    Layer::Ike => "has no tunnel between these addresses",
                    Layer::Child => "is not in this mode",
                };
                write!(
                    f,
                    "the peer accepts none of our proposals, or {or}; we offered {ours}; compare with the peer's policy and log"
                )
            }
        }
    }
}

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<String> = self.transforms.iter().map(|t| t.names.join(" or ")).collect();
        write!(f, "[{}]", kinds.join(" | "))
    }
}

/// Offers in words: `[AES-GCM-16-256 | PRF-HMAC-SHA1 | ECP-384]`, separated by "or".
pub fn described(offers: &[Offer]) -> String {
    let words: Vec<String> = offers.iter().map(ToString::to_string).collect();
    if words.is_empty() { "nothing".into() } else { words.join(" or ") }
}

impl fmt::Display for Identities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Identities of different types can have the same value.
        write!(f, "the peer says it is {}", self.peer.qualified())?;
        if let Some(asked) = &self.asked {
            write!(f, " and asks for {}", asked.qualified())?;
        }
        let known: Vec<String> = (self.known.iter())
            .map(|p| {
                let (local, remote) = (p.local.qualified(), p.remote.qualified());
                format!("{} (we are {local}, the peer is {remote})", p.tunnel)
            })
            .collect();
        write!(f, "; the policy has {}", known.join(", "))
    }
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { by_us, certificate, local, remote, ppk } = self;
        match (by_us, certificate) {
            (true, _) => {
                write!(f, "{remote} does not have the preshared key that the policy has for it")
            }
            (false, false) => write!(
                f,
                "the peer does not accept our proof; compare preshared keys and identities on both sides (we are {}, the peer should be {})",
                local.qualified(),
                remote.qualified()
            ),
            (false, true) => write!(
                f,
                "the peer does not accept our certificate, or has none itself; its log says why: does it trust our authority, is our certificate still valid, does its policy expect {local} here and name itself {remote}?"
            ),
        }?;
        ppk.as_ref().map_or(Ok(()), |id| write!(f, "; or the octets of the PPK {id} differ"))
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.theirs {
            None if self.renewal => {
                let ours: Vec<String> = self.ours.iter().map(Wanted::pair).collect();
                write!(
                    f,
                    "the peer does not renew the Child SA of {}, although it has agreed to that traffic before",
                    ours.join("; ")
                )
            }
            None => {
                let ours: Vec<String> = self.ours.iter().map(Wanted::pair).collect();
                write!(
                    f,
                    "the peer protects none of the traffic we asked for: {}; selectors must mirror each other",
                    ours.join("; ")
                )
            }
            Some(theirs) => {
                let ours: Vec<String> =
                    self.ours.iter().map(|w| format!("{}: {}", w.child, w.pair())).collect();
                write!(
                    f,
                    "the peer wants {} (ours) to {} (its own); the policy has {}",
                    listed(&theirs.local),
                    listed(&theirs.remote),
                    if ours.is_empty() { "no phase 2 tunnel".into() } else { ours.join("; ") }
                )
            }
        }
    }
}

impl fmt::Display for Shadowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { wanted, shadowing_rule, peer } = self;
        write!(
            f,
            "{} would get {} to {}, but {} of the peer {peer} stands before it in the policy with {} to {}: no packet would ever go this way; give each peer traffic of its own, behind a NAT in tunnel mode",
            wanted.child,
            listed(&wanted.local),
            listed(&wanted.remote),
            shadowing_rule.child,
            listed(&shadowing_rule.local),
            listed(&shadowing_rule.remote)
        )
    }
}

fn listed(selectors: &[Selector]) -> String {
    crate::negotiation::selectors::describe(selectors)
}

impl fmt::Display for Modes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { child, ours, theirs } = self;
        write!(f, "{child} is in {ours} mode, the peer wants {theirs} mode")
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<String> = (self.known.iter())
            .map(|(name, local, remote)| {
                let [local, remote] = [local, remote]
                    .map(|address| address.map_or_else(|| "any".into(), |a| a.to_string()));
                format!("{name}: {local} to {remote}")
            })
            .collect();
        write!(
            f,
            "{} asks {} for an IKE SA, but no tunnel of the policy has these two addresses and may answer; it has {}",
            self.remote,
            self.local,
            if known.is_empty() { "none".into() } else { known.join(", ") }
        )
    }
}
