//! Advice on a failure: what the operator can do about it.

use super::peer_settings;
use control::protocol::{Defined, Row};
use ike::failure::facts::{
    Addresses, Facts, Identities, Layer, Offers, Ppk, PpkLack, Proof, Silence, Traffic, Unsendable,
};
use ike::failure::{Failure, FailureKind};
use ike::product::Product;
use ike::unreachable::{Lack, Obstacle, Unreachable};
use policy::Identity;
use std::net::{IpAddr, SocketAddr};

/// The element with a preshared key.
const KEY: &str = "IKEPresharedKey";

/// The facts from which advice is derived.
pub(super) struct Advice<'a> {
    pub defined: &'a [Defined],
    pub by_stranger: bool,
    /// The peer's daemon, if it is known.
    pub peer: Option<&'a Product>,
}

impl Advice<'_> {
    /// ` in IKEProtection "site_p1" (policy.xml:14)`, or nothing where that is not known.
    fn place(&self, element: &str) -> String {
        let found = self.defined.iter().find(|d| d.element == element);
        found.map_or_else(
            || format!(" in {element}"),
            |d| format!(" in {element} {:?} ({}:{})", d.name, d.file, d.line),
        )
    }

    pub fn on(&self, failure: &Failure, comparison: &[Row]) -> Vec<String> {
        let mut cure = self.here(failure, comparison);
        cure.extend(peer_settings::advice(&failure.facts, self.peer));
        cure
    }

    /// Advice in the words of this side's policy.
    fn here(&self, failure: &Failure, comparison: &[Row]) -> Vec<String> {
        match &*failure.facts {
            Facts::Silence(silence) => self.on_silence(silence),
            Facts::Offers(offers) => self.on_offers(offers, comparison),
            Facts::Identities(identities) => self.on_identities(identities),
            Facts::Proof(proof) if proof.certificate => vec![
                "see vpnctl certs on both sides: is this side's certificate valid, and its authority known to the peer?".to_owned(),
                format!(
                    "is {} among the names of the certificate, and is it whom the peer expects? Its log says what it did not accept, or that it has no certificate itself",
                    proof.local
                ),
            ],
            Facts::Proof(proof) => self.on_key(proof),
            Facts::Ppk(ppk) => self.on_ppk(ppk),
            Facts::Unsendable(unsendable) => self.on_unsendable(unsendable),
            Facts::Unprovable(_) => vec![
                "vpnctl certs lists the certificates of this side; after a change of the files: vpnctl reload".to_owned(),
            ],
            Facts::FamilyOff(off) => vec![
                format!("to switch it on: vpnctl family {} on", off.family.name()),
                "its traffic is blocked meanwhile; to see both families: vpnctl family".to_owned(),
            ],
            Facts::Unsigned(unsigned) => vec![unsigned.cure.clone()],
            Facts::Traffic(traffic) => self.on_traffic(traffic),
            Facts::Shadowed(claim) => vec![
                format!(
                    "give the peer traffic of its own: IPSecRemoteIdentity{} must not lie within that of {}",
                    self.place("IPSecTunnel"),
                    claim.shadowing_rule.child
                ),
                format!(
                    "if both peers have the same network, let the kernel tell their packets apart: in vpnd.toml, give \
                     [tunnel.\"{}\"] and [tunnel.\"{}\"] dataplane = \"xfrm\" and an if_id or a mark of its own \
                     (docs/planes.md)",
                    claim.wanted.child, claim.shadowing_rule.child
                ),
                "gateways in transport mode look alike behind one NAT: use tunnel mode there, with a network of its own for each".to_owned(),
                format!(
                    "if {0} is an exception to {1}, write {0} before {1} in the policy, then: vpnctl reload",
                    claim.wanted.child, claim.shadowing_rule.child
                ),
            ],
            Facts::Modes(_) => vec![format!(
                "set ESP_EncapsulationMode{} to the peer's mode, or the peer's to this one",
                self.place("IPSecProposal")
            )],
            Facts::Addresses(Addresses { local, remote, .. }) => vec![
                format!(
                    "if {remote} is the peer: give IKERemoteIdentity{} this address (vpn:Address=\"{remote}\" where the \
                     peer's identity is another address), or leave it open for a peer without a fixed one",
                    self.place("IKETunnel")
                ),
                format!("and {local} as the address of IKELocalIdentity"),
                format!("otherwise {remote} is a stranger, and nothing needs to be done"),
            ],
            _ => on_kind(failure.kind),
        }
    }

    fn on_key(&self, proof: &Proof) -> Vec<String> {
        let known = self.defined.iter().any(|d| d.element == KEY);
        let place = match (known, self.defined.first()) {
            (false, Some(other)) => format!(" of {KEY} in {}", other.file),
            _ => self.place(KEY).replacen(" in ", " of ", 1),
        };
        let ppk = proof.ppk.as_deref().map(compare_ppk);
        // The likeliest first: a peer never says which of the two it is, but its log does.
        vec![
            format!(
                "make the Value{place} the same as the peer's for {}; blanks and Format count",
                proof.local.qualified()
            ),
            format!(
                "if the keys are the same, compare the identities: this side is {}, the peer must be {}; which of the two it is, only the side that refuses knows",
                proof.local.qualified(),
                proof.remote.qualified()
            ),
        ]
        .into_iter()
        .chain(ppk)
        .collect()
    }

    fn on_ppk(&self, ppk: &Ppk) -> Vec<String> {
        let place = self.place("IKETunnel");
        let first = ppk.known.first().map_or("NAME", String::as_str);
        let here = format!(
            "put the peer's key into /etc/vpnd/ppk/{}, or where [certificates] of vpnd.toml says, then: vpnctl reload",
            ppk.asked.as_deref().unwrap_or(first)
        );
        let optional = format!("to go on without it meanwhile, append NONE to vpn:PPK{place}");
        match ppk.lack {
            PpkLack::Key => vec![here, optional],
            PpkLack::Unknown => vec![
                format!(
                    "append {} to vpn:PPK{place}, or have the peer use a name that stands there",
                    ppk.asked.as_deref().unwrap_or("the peer's name")
                ),
                here,
            ],
            PpkLack::Differs => vec![compare_ppk(ppk.asked.as_deref().unwrap_or(first))],
            PpkLack::Unannounced | PpkLack::Unnamed | PpkLack::Unused | PpkLack::Unshared => {
                vec![format!("give the peer the key of {first}, by the same name"), optional]
            }
        }
    }

    fn on_unsendable(&self, unsendable: &Unsendable) -> Vec<String> {
        let Unsendable { lack, local, remote } = unsendable;
        match lack {
            Lack::Address => vec![
                format!("add {local} to an interface: ip address add {local}/PREFIX dev DEVICE"),
                format!(
                    "or set IKELocalIdentity{} to an address that this host has (ip address)",
                    self.place("IKETunnel")
                ),
                format!(
                    "if a NAT gives this host {local}, keep it as the identity, and add the host's own address: \
                     <{} Value=\"{local}\" vpn:Address=\"…\">",
                    Identity::from(*local).kind()
                ),
            ],
            Lack::Route => vec![
                format!("see where packets to {remote} would go: ip route get {remote}"),
                format!(
                    "bring up the interface that leads there, or add a route: ip route add {remote} via GATEWAY"
                ),
            ],
        }
    }

    fn on_silence(&self, silence: &Silence) -> Vec<String> {
        let Silence { local, remote, was_up, request, unsent, icmp, heard, .. } = silence;
        let mut cure = Vec::new();
        if unsent.is_some() {
            return vec![format!(
                "see whether this host has {local} (ip address), a route to {} (ip route get {}), and no packet filter that forbids it",
                remote.ip(),
                remote.ip()
            )];
        }
        if let Some(heard) = heard {
            return vec![on_answer(&heard.answer, remote.ip())];
        }
        cure.extend(icmp.map(|icmp| on_icmp(icmp, *remote)));
        if icmp.is_some_and(|icmp| icmp.what == Obstacle::Port) {
            return cure;
        }
        if *was_up {
            cure.push(format!(
                "the peer has answered before: see whether {} still runs and can be reached (ping {})",
                remote.ip(),
                remote.ip()
            ));
        } else {
            cure.push(format!(
                "see whether {} runs an IKEv2 daemon, and can be reached",
                remote.ip()
            ));
        }
        cure.push(format!(
            "let UDP 500, UDP 4500 and ESP (IP protocol 50) pass every firewall between {local} and {}",
            remote.ip()
        ));
        if !*was_up {
            cure.push(format!(
                "see whether the peer's policy has a tunnel with {local}: many daemons do not answer others"
            ));
        }
        if request == "IKE_AUTH" {
            cure.push(
                "the peer has answered the first message: see its log for what it makes of this side's proof".to_owned(),
            );
        }
        cure
    }

    fn on_offers(&self, offers: &Offers, comparison: &[Row]) -> Vec<String> {
        // The algorithms of one protocol do not fit the other: none of their rows has a cure.
        let protocol = comparison.iter().find(|row| row.item == "protocol");
        if let Some(Row { here, there: Some(there), differs: true, .. }) = protocol {
            let place = self.place("IPSecProposal");
            return vec![format!(
                "protect with {there} as the peer does (IPSec{there}Protocol{place}), or have the peer protect with {here}"
            )];
        }
        let is_ah =
            offers.ours.first().is_some_and(|o| o.transforms.iter().any(|t| t.kind == "protocol"));
        let place = |item: &str| match (offers.layer, item) {
            (Layer::Ike, "encryption") => Some(("IKE_Encryption", "IKEProtection")),
            (Layer::Ike, "integrity") => Some(("IKE_Hash", "IKEProtection")),
            (Layer::Ike, "PRF") => Some(("IKE_PRF", "IKEProtection")),
            (Layer::Ike, "group") => Some(("IKE_DHGroup", "IKEProtection")),
            (Layer::Child, "encryption") => Some(("ESP_Encryption", "IPSecProposal")),
            (Layer::Child, "integrity") if is_ah => Some(("AH_Authentication", "IPSecProposal")),
            (Layer::Child, "integrity") => Some(("ESP_Authentication", "IPSecProposal")),
            (Layer::Child, "sequence numbers") if is_ah => {
                Some(("AH_ExtendedSeqNum", "IPSecProposal"))
            }
            (Layer::Child, "sequence numbers") => Some(("ESP_ExtendedSeqNum", "IPSecProposal")),
            (Layer::Child, "group") => {
                Some(("IPSec_InitiatorDHGroup and IPSec_ResponderDHGroup", "IPSecProtection"))
            }
            _ => None,
        };
        // A cipher of the IKE SA that protects integrity itself needs no IKE_Hash: its own row says all.
        let by_cipher = |row: &Row| {
            let is_integrity = offers.layer == Layer::Ike && row.item == "integrity";
            is_integrity && row.there.as_deref() == Some("none")
        };
        let mut cure: Vec<String> = comparison
            .iter()
            .filter(|row| row.differs && !by_cipher(row))
            .filter_map(|row| {
                let ((attribute, element), there) = (place(&row.item)?, row.there.as_ref()?);
                let place = self.place(element);
                let write = in_policy(attribute, there);
                Some(match (there.as_str(), row.here.as_str()) {
                    ("none", here) if row.item == "group" => format!(
                        "set {attribute}{place} to 0 for no key exchange, or the peer's to {here}"
                    ),
                    (there, "none") if row.item == "group" => format!(
                        "set {attribute}{place} to the peer's {there}{write}, or have the peer want none"
                    ),
                    (there, here) => format!(
                        "set {attribute}{place} to the peer's {there}{write}, or the peer's to {here}"
                    ),
                })
            })
            .collect();
        let unsaid = offers.theirs.is_none() && offers.wanted_group.is_none();
        if unsaid && offers.renewal && offers.layer == Layer::Child {
            let exchange = match comparison.iter().find(|row| row.item == "group") {
                Some(row) => format!(
                    "the peer may refuse a key exchange of the Child SA's own, or want another one than {}: set \
                     IPSec_InitiatorDHGroup and IPSec_ResponderDHGroup{} to its group, or to 0",
                    row.here,
                    self.place("IPSecProtection")
                ),
                None => format!(
                    "the peer may want a key exchange of the Child SA's own (PFS): set \
                     IPSec_InitiatorDHGroup and IPSec_ResponderDHGroup{} to its group",
                    self.place("IPSecProtection")
                ),
            };
            cure.push(exchange);
            cure.push(format!(
                "if the peer's policy has changed, compare{}, too; its log says what it wants",
                self.place("IPSecProposal").replacen(" in", "", 1)
            ));
        } else if unsaid {
            cure.push(format!(
                "compare{} with the peer's policy; a peer does not say what it would accept, but its log does (vpnctl why, if it runs vpnd)",
                match offers.layer {
                    Layer::Ike => self.place("IKEProtection"),
                    Layer::Child => self.place("IPSecProposal"),
                }
                .replacen(" in", "", 1)
            ));
            match offers.layer {
                // It has agreed to an IKE SA before.
                Layer::Ike if offers.renewal => {}
                Layer::Ike => cure.push(
                    "a peer also answers so if its policy has no tunnel between these addresses".to_owned(),
                ),
                Layer::Child => cure.push(
                    "a peer also answers so if it wants another mode (ESP_EncapsulationMode) or another key exchange \
                     (IPSec_InitiatorDHGroup), or if its kernel does not take the keys: its log says so"
                        .to_owned(),
                ),
            }
        }
        cure
    }

    fn on_identities(&self, identities: &Identities) -> Vec<String> {
        let Identities { peer, address, own_address, asked, known } = identities;
        let mut expected: Vec<String> = known.iter().map(|p| p.remote.qualified()).collect();
        expected.dedup();
        let mut cure = vec![format!(
            "set IKERemoteIdentity{} to the peer's {} (write {}), or the peer's own identity to {}",
            self.place("IKETunnel"),
            peer.qualified(),
            element_at(peer, *address),
            expected.join(" or ")
        )];
        let unknown = asked.as_ref().filter(|a| known.iter().all(|p| !p.local.matches(a)));
        if let Some(asked) = unknown {
            cure.push(format!(
                "set IKELocalIdentity{} to {} (write {}), or the identity that the peer expects to this side's",
                self.place("IKETunnel"),
                asked.qualified(),
                element_at(asked, *own_address)
            ));
        }
        if self.by_stranger {
            cure.push(
                "if that is not the peer, it is a stranger, and nothing needs to be done"
                    .to_owned(),
            );
        }
        cure
    }

    fn on_traffic(&self, traffic: &Traffic) -> Vec<String> {
        if traffic.renewal {
            return vec![
                "the Child SA that is up carries the packets meanwhile: vpnd asks for its successor in other ways".to_owned(),
                format!(
                    "write the same traffic in both policies: libreswan refuses this if its own is wider than IPSecLocalIdentity and IPSecRemoteIdentity{}",
                    self.place("IPSecTunnel")
                ),
            ];
        }
        let mut cure = vec![format!(
            "IPSecLocalIdentity{} must be the peer's remote traffic, and IPSecRemoteIdentity its local traffic",
            self.place("IPSecTunnel")
        )];
        if traffic.theirs.is_none() {
            cure.push(
                "a peer does not say what it would protect, but its log does (vpnctl why, if it runs vpnd)".to_owned(),
            );
        }
        cure
    }
}

/// ` (write ESP_AES256_GCM_16)` where the policy spells algorithms otherwise than they are shown.
fn in_policy(attribute: &str, shown: &str) -> String {
    let attribute = attribute.split(' ').next().unwrap_or(attribute);
    let words: Option<Vec<String>> =
        shown.split(" or ").map(|name| policy::xml::word_for(attribute, name)).collect();
    match words.map(|words| words.join(" or ")) {
        Some(words) if words != shown => format!(" (write {words})"),
        _ => String::new(),
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

fn compare_ppk(id: &str) -> String {
    format!("compare the octets of the PPK {id} on both sides; here its file is /etc/vpnd/ppk/{id}")
}

/// Advice about failures of which only the kind is known.
fn on_kind(kind: FailureKind) -> Vec<String> {
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
    cure.iter().map(|c| (*c).to_owned()).collect()
}

/// Advice about a peer that answers IKE_SA_INIT and does not go on.
fn on_answer(answer: &str, peer: IpAddr) -> String {
    let has = |notify: &str| answer.split(", ").any(|kind| kind == notify);
    match () {
        () if has("REDIRECT") => format!(
            "{peer} sends this side to another gateway (RFC 5685), which vpnd does not follow: name that gateway in \
             IKERemoteIdentity, or switch the redirection off at the peer"
        ),
        () if has("COOKIE") => format!(
            "{peer} asks for a cookie each time, and accepts none: see whether a NAT or a load balancer on the way changes \
             the source address or the gateway from one message to the next"
        ),
        () if has("INVALID_KE_PAYLOAD") => format!(
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
