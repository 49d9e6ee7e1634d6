//! Advice on a failure: what the operator can do about it.

mod algorithms;

use super::{Background, peer_settings};
use crate::cure::{Cure, Step};
use crate::explanation::Row;
use ike::failure::facts::{
    Addresses, Facts, Identities, Ppk, PpkLack, Proof, Silence, Traffic, Unsendable,
};
use ike::failure::{Failure, FailureKind};
use ike::unreachable::{Lack, Obstacle, Unreachable};
use policy::{Identity, Mode};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// The element with a preshared key.
const KEY: &str = "IKEPresharedKey";

/// The element of the policy that gets another value.
#[derive(Clone, Copy)]
struct Target {
    element: &'static str,
    attributes: &'static [&'static str],
}

impl Target {
    const fn new(element: &'static str, attributes: &'static [&'static str]) -> Self {
        Self { element, attributes }
    }

    /// `IPSec_InitiatorDHGroup and IPSec_ResponderDHGroup`
    fn words(self) -> String {
        self.attributes.join(" and ")
    }
}

const MODE: Target = Target::new("IPSecProposal", &["ESP_EncapsulationMode"]);
const LOCAL_IDENTITY: Target = Target::new("IKETunnel", &["IKELocalIdentity"]);
const REMOTE_IDENTITY: Target = Target::new("IKETunnel", &["IKERemoteIdentity"]);

/// The cures for a failure, the likeliest first.
pub(super) fn on(failure: &Failure, background: Background<'_>, comparison: &[Row]) -> Vec<Cure> {
    let mut cures = background.here(failure, comparison);
    cures.extend(peer_settings::advice(&failure.facts, background.product).map(Cure::from));
    cures
}

impl Background<'_> {
    /// ` in IKEProtection "site_p1" (policy.xml:14)`, or nothing where that is not known.
    fn place(&self, element: &str) -> String {
        let found = self.elements.iter().find(|e| e.kind == element);
        found.map_or_else(
            || format!(" in {element}"),
            |e| format!(" in {element} {:?} ({}:{})", e.name, e.file, e.line),
        )
    }

    /// A change of the policy: `set IKE_Hash in IKEProtection "site_p1" (policy.xml:14) to …`. `value` is that of the
    /// policy, `to` tells the rest of the sentence.
    fn set(&self, target: Target, value: Option<String>, to: impl fmt::Display) -> Cure {
        let place = self.place(target.element);
        self.setting(target, value, format!("set {}{place} to {to}", target.words()))
    }

    /// A change of the policy, in a sentence of its own.
    fn setting(&self, target: Target, value: Option<String>, text: String) -> Cure {
        let found = self.elements.iter().find(|e| e.kind == target.element);
        let step = Step::Set {
            element: target.element.to_owned(),
            name: found.map(|e| e.name.clone()),
            attributes: target.attributes.iter().map(|a| (*a).to_owned()).collect(),
            value,
        };
        Cure { text, step }
    }

    /// Cures in the words of this side's policy.
    fn here(&self, failure: &Failure, comparison: &[Row]) -> Vec<Cure> {
        match &*failure.facts {
            Facts::Silence(silence) => self.on_silence(silence),
            Facts::Offers(offers) => self.on_offers(offers, comparison),
            Facts::Identities(identities) => self.on_identities(identities),
            Facts::Proof(proof) if proof.certificate => vec![
                "see vpnctl certs on both sides: is this side's certificate valid, and its authority known to the peer?".into(),
                format!(
                    "is {} among the names of the certificate, and is it whom the peer expects? Its log says what it did not accept, or that it has no certificate itself",
                    proof.local
                )
                .into(),
            ],
            Facts::Proof(proof) => self.on_key(proof),
            Facts::Ppk(ppk) => self.on_ppk(ppk),
            Facts::Unsendable(unsendable) => self.on_unsendable(unsendable),
            Facts::Unprovable(_) => vec![
                "vpnctl certs lists the certificates of this side; after a change of the files: vpnctl reload".into(),
            ],
            Facts::FamilyOff(off) => vec![
                Cure::run("to switch it on", format!("vpnctl family {} on", off.family.name())),
                "its traffic is blocked meanwhile; to see both families: vpnctl family".into(),
            ],
            Facts::Unsigned(unsigned) => vec![unsigned.cure.as_str().into()],
            Facts::Traffic(traffic) => self.on_traffic(traffic),
            Facts::Shadowed(claim) => vec![
                format!(
                    "give the peer traffic of its own: IPSecRemoteIdentity{} must not lie within that of {}",
                    self.place("IPSecTunnel"),
                    claim.shadowing_rule.child
                )
                .into(),
                format!(
                    "if both peers have the same network, let the kernel tell their packets apart: in vpnd.toml, give \
                     [tunnel.\"{}\"] and [tunnel.\"{}\"] dataplane = \"xfrm\" and an if_id or a mark of its own \
                     (docs/operate/planes.md)",
                    claim.wanted.child, claim.shadowing_rule.child
                )
                .into(),
                "gateways in transport mode look alike behind one NAT: use tunnel mode there, with a network of its own for each".into(),
                format!(
                    "if {0} is an exception to {1}, write {0} before {1} in the policy, then: vpnctl reload",
                    claim.wanted.child, claim.shadowing_rule.child
                )
                .into(),
            ],
            Facts::Modes(modes) => {
                let value = match modes.theirs {
                    Mode::Tunnel => "Tunnel",
                    Mode::Transport => "Transport",
                };
                let to = "the peer's mode, or the peer's to this one";
                vec![self.set(MODE, Some(value.to_owned()), to)]
            }
            Facts::Addresses(Addresses { local, remote, .. }) => vec![
                format!(
                    "if {remote} is the peer: give IKERemoteIdentity{} this address (vpn:Address=\"{remote}\" where the \
                     peer's identity is another address), or leave it open for a peer without a fixed one",
                    self.place("IKETunnel")
                )
                .into(),
                format!("and {local} as the address of IKELocalIdentity").into(),
                format!("otherwise {remote} is a stranger, and nothing needs to be done").into(),
            ],
            _ => on_kind(failure.kind),
        }
    }

    fn on_key(&self, proof: &Proof) -> Vec<Cure> {
        let known = self.elements.iter().any(|e| e.kind == KEY);
        let place = match (known, self.elements.first()) {
            (false, Some(other)) => format!(" of {KEY} in {}", other.file),
            _ => self.place(KEY).replacen(" in ", " of ", 1),
        };
        let ppk = proof.ppk.as_deref().map(compare_ppk);
        // The likeliest first: a peer never says which of the two it is, but its log does.
        let mut cures: Vec<Cure> = vec![
            format!(
                "make the Value{place} the same as the peer's for {}; blanks and Format count",
                proof.local.qualified()
            )
            .into(),
            format!(
                "if the keys are the same, compare the identities: this side is {}, the peer must be {}; which of the two it is, only the side that refuses knows",
                proof.local.qualified(),
                proof.remote.qualified()
            )
            .into(),
        ];
        cures.extend(ppk);
        cures
    }

    fn on_ppk(&self, ppk: &Ppk) -> Vec<Cure> {
        let place = self.place("IKETunnel");
        let first = ppk.known.first().map_or("NAME", String::as_str);
        let here = format!(
            "put the peer's key into /etc/vpnd/ppk/{}, or where [certificates] of vpnd.toml says, then: vpnctl reload",
            ppk.asked.as_deref().unwrap_or(first)
        );
        let optional = format!("to go on without it meanwhile, append NONE to vpn:PPK{place}");
        match ppk.lack {
            PpkLack::Key => vec![here.into(), optional.into()],
            PpkLack::Unknown => vec![
                format!(
                    "append {} to vpn:PPK{place}, or have the peer use a name that stands there",
                    ppk.asked.as_deref().unwrap_or("the peer's name")
                )
                .into(),
                here.into(),
            ],
            PpkLack::Differs => vec![compare_ppk(ppk.asked.as_deref().unwrap_or(first))],
            PpkLack::Unannounced | PpkLack::Unnamed | PpkLack::Unused | PpkLack::Unshared => {
                vec![
                    format!("give the peer the key of {first}, by the same name").into(),
                    optional.into(),
                ]
            }
        }
    }

    fn on_unsendable(&self, unsendable: &Unsendable) -> Vec<Cure> {
        let Unsendable { lack, local, remote } = unsendable;
        match lack {
            Lack::Address => vec![
                Cure::run(
                    format!("add {local} to an interface"),
                    format!("ip address add {local}/PREFIX dev DEVICE"),
                ),
                self.setting(
                    LOCAL_IDENTITY,
                    None,
                    format!(
                        "or set IKELocalIdentity{} to an address that this host has (ip address)",
                        self.place("IKETunnel")
                    ),
                ),
                format!(
                    "if a NAT gives this host {local}, keep it as the identity, and add the host's own address: \
                     <{} Value=\"{local}\" vpn:Address=\"…\">",
                    Identity::from(*local).kind()
                )
                .into(),
            ],
            Lack::Route => vec![
                Cure::run(
                    format!("see where packets to {remote} would go"),
                    format!("ip route get {remote}"),
                ),
                Cure::run(
                    "bring up the interface that leads there, or add a route",
                    format!("ip route add {remote} via GATEWAY"),
                ),
            ],
        }
    }

    fn on_silence(&self, silence: &Silence) -> Vec<Cure> {
        let Silence { local, remote, was_up, request, unsent, icmp, heard, .. } = silence;
        let mut cure: Vec<Cure> = Vec::new();
        // Nothing has left this host, so neither the peer nor the way to it is the cause.
        if unsent.is_some() {
            return vec![
                format!(
                    "see whether this host has {local} (ip address), a route to {} (ip route get {}), and no packet filter that forbids it",
                    remote.ip(),
                    remote.ip()
                )
                .into(),
            ];
        }
        // The peer answers: it runs, and can be reached.
        if let Some(heard) = heard {
            return vec![on_answer(&heard.answer, remote.ip()).into()];
        }
        cure.extend(icmp.map(|icmp| Cure::from(on_icmp(icmp, *remote))));
        if icmp.is_some_and(|icmp| icmp.what == Obstacle::Port) {
            return cure;
        }
        if *was_up {
            cure.push(format!(
                "the peer has answered before: see whether {} still runs and can be reached (ping {})",
                remote.ip(),
                remote.ip()
            ).into());
        } else {
            cure.push(
                format!("see whether {} runs an IKEv2 daemon, and can be reached", remote.ip())
                    .into(),
            );
        }
        cure.push(format!(
            "let UDP 500, UDP 4500 and ESP (IP protocol 50) pass every firewall between {local} and {}",
            remote.ip()
        ).into());
        if !*was_up {
            cure.push(format!(
                "see whether the peer's policy has a tunnel with {local}: many daemons do not answer others"
            ).into());
        }
        if request == "IKE_AUTH" {
            cure.push(
                "the peer has answered the first message: see its log for what it makes of this side's proof".into(),
            );
        }
        cure
    }

    fn on_identities(&self, identities: &Identities) -> Vec<Cure> {
        let Identities { peer, address, own_address, asked, known } = identities;
        let mut expected: Vec<String> = known.iter().map(|p| p.remote.qualified()).collect();
        expected.dedup();
        let write = element_at(peer, *address);
        let to = format!(
            "the peer's {} (write {write}), or the peer's own identity to {}",
            peer.qualified(),
            expected.join(" or ")
        );
        let mut cure = vec![self.set(REMOTE_IDENTITY, Some(write), to)];
        let unknown = asked.as_ref().filter(|a| known.iter().all(|p| !p.local.matches(a)));
        if let Some(asked) = unknown {
            let write = element_at(asked, *own_address);
            let to = format!(
                "{} (write {write}), or the identity that the peer expects to this side's",
                asked.qualified()
            );
            cure.push(self.set(LOCAL_IDENTITY, Some(write), to));
        }
        if self.by_stranger {
            cure.push(
                "if that is not the peer, it is a stranger, and nothing needs to be done".into(),
            );
        }
        cure
    }

    fn on_traffic(&self, traffic: &Traffic) -> Vec<Cure> {
        if traffic.renewal {
            return vec![
                "the Child SA that is up carries the packets meanwhile: vpnd asks for its successor in other ways".into(),
                format!(
                    "write the same traffic in both policies: libreswan refuses this if its own is wider than IPSecLocalIdentity and IPSecRemoteIdentity{}",
                    self.place("IPSecTunnel")
                )
                .into(),
            ];
        }
        let mut cure: Vec<Cure> = vec![
            format!(
                "IPSecLocalIdentity{} must be the peer's remote traffic, and IPSecRemoteIdentity its local traffic",
                self.place("IPSecTunnel")
            )
            .into(),
        ];
        if traffic.theirs.is_none() {
            cure.push(
                "a peer does not say what it would protect, but its log does (vpnctl why, if it runs vpnd)".into(),
            );
        }
        cure
    }
}

/// The element of a side with this identity at this address, which a NAT may have changed.
fn element_at(identity: &Identity, address: Option<IpAddr>) -> String {
    match (identity.address(), address) {
        (Some(own), Some(address)) if own != address => {
            identity.element().replace('>', &format!(" vpn:Address=\"{address}\">"))
        }
        _ => identity.element(),
    }
}

fn compare_ppk(id: &str) -> Cure {
    format!("compare the octets of the PPK {id} on both sides; here its file is /etc/vpnd/ppk/{id}")
        .into()
}

/// Advice about failures of which only the kind is known.
fn on_kind(kind: FailureKind) -> Vec<Cure> {
    let cure: &[&str] = match kind {
        FailureKind::DataPlane => &[
            "the system has refused it: see the log of vpnd at that time, the memory left, and the limits of its service",
        ],
        FailureKind::ProtocolError => &[
            "see the log with vpnctl log debug at the next attempt; if the peer is no vpnd, see whether it is up to date",
        ],
        FailureKind::BadCertificate => &[
            "vpnctl certs on each side lists its certificates, authorities and revocation lists",
            "after a change of the files there: vpnctl reload on that side",
        ],
        FailureKind::Refused => &["see the log of the peer at that time: it knows the reason"],
        FailureKind::OtherVersion => &[
            "set the peer to IKEv2 (strongSwan: keyexchange=ikev2 or version = 2; libreswan: keyexchange=ikev2); vpnd has no IKEv1",
        ],
        FailureKind::NoAnswer => &["see the log of vpnd at that time"],
        _ => &[],
    };
    cure.iter().map(|c| (*c).into()).collect()
}

/// Advice about a peer that answers IKE_SA_INIT and does not go on.
fn on_answer(answer: &str, peer: IpAddr) -> String {
    let kinds: Vec<&str> = answer.split(", ").collect();
    match () {
        () if kinds.contains(&"REDIRECT") => format!(
            "{peer} sends this side to another gateway (RFC 5685), which vpnd does not follow: name that gateway in \
             IKERemoteIdentity, or switch the redirection off at the peer"
        ),
        () if kinds.contains(&"COOKIE") => format!(
            "{peer} asks for a cookie each time, and accepts none: see whether a NAT or a load balancer on the way changes \
             the source address or the gateway from one message to the next"
        ),
        () if kinds.contains(&"INVALID_KE_PAYLOAD") => format!(
            "{peer} asks for another key exchange each time: let both sides have one IKE_DHGroup in common, and see the log \
             of the peer"
        ),
        () => format!("see the log of {peer} at that time: it says what it expects"),
    }
}

fn on_icmp(icmp: Unreachable, peer: SocketAddr) -> String {
    let Unreachable { by, what } = icmp;
    let address = peer.ip();
    match what {
        Obstacle::Port => format!(
            "start the IKE daemon on {address}; if one runs there, see whether it listens on UDP {}",
            peer.port()
        ),
        Obstacle::Prohibited => format!("have the packet filter of {by} let UDP 500 and 4500 pass"),
        _ => {
            format!("see why {by} cannot reach {address}: is {address} up, is {by} the right way?")
        }
    }
}
