//! The policies of both ends.

use super::WIRE;
use ::policy::xml::elements::{self, ike_transform};
use ::policy::xml::{Node, write};
use ::policy::{Endpoint, EspEncryption, Identity, KeyBits, Protection, Role, Selector};
use std::net::{IpAddr, Ipv4Addr};

/// The protection of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cipher {
    /// For people, as in `AES-128-GCM`.
    pub name: &'static str,
    /// The algorithms.
    pub protection: Protection,
}

impl Cipher {
    /// AES-GCM with 128 bits.
    pub const AES_128_GCM: Self = Self {
        name: "AES-128-GCM",
        protection: Protection::aead(EspEncryption::AesGcm16(KeyBits::B128)),
    };
}

/// The mode of the SAs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Tunnel mode, between addresses behind the hosts; one IKE SA for all.
    Tunnel,
    /// Transport mode, between addresses of the hosts on the wire; an IKE SA for each pair.
    Transport,
}

impl From<Mode> for ::policy::Mode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Tunnel => Self::Tunnel,
            Mode::Transport => Self::Transport,
        }
    }
}

/// Tunnels with one suite, a pair of SAs for each of so many pairs of addresses.
#[derive(Clone, Copy, Debug)]
pub struct Net {
    /// Its number, from 1: a part of its addresses.
    pub number: u8,
    /// The cipher of its SAs.
    pub cipher: Cipher,
    /// And how.
    pub mode: Mode,
    /// The number of pairs.
    pub pairs: u8,
}

impl Net {
    /// Its addresses on the left (0) or right (1) host.
    pub fn addresses(&self, end: usize) -> Vec<Ipv4Addr> {
        let address = |pair| match self.mode {
            Mode::Tunnel => Ipv4Addr::new(10, [50, 60][end], self.number, pair),
            // Above the addresses of the wire itself, and in its network: the left host's, then the right one's.
            Mode::Transport => {
                let offset = (self.number - 1) * self.pairs + pair - 1;
                let [a, b, c, _] = WIRE[end].octets();
                Ipv4Addr::new(a, b, c, [32, 144][end] + offset)
            }
        };
        (1..=self.pairs).map(address).collect()
    }
}

/// The authentication of the daemons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Authentication {
    /// By a key both have.
    PresharedKey,
    /// By certificates with ECDSA keys on the curve P-256.
    EcdsaP256,
    /// By certificates with RSA keys of 2048 bits.
    Rsa2048,
    /// The same, with the private keys in a PKCS#11 token.
    RsaToken,
}

impl Authentication {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::PresharedKey, Self::EcdsaP256, Self::Rsa2048, Self::RsaToken];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::PresharedKey => "preshared key",
            Self::EcdsaP256 => "certificate, ECDSA P-256",
            Self::Rsa2048 => "certificate, RSA-2048",
            Self::RsaToken => "certificate, RSA-2048 in a token",
        }
    }

    /// For names of tunnels and identities.
    pub fn label(self) -> &'static str {
        match self {
            Self::PresharedKey => "psk",
            Self::EcdsaP256 => "ecdsa",
            Self::Rsa2048 => "rsa",
            Self::RsaToken => "token",
        }
    }

    fn method(self) -> &'static str {
        match self {
            Self::PresharedKey => "Preshared_key",
            Self::EcdsaP256 => "ECDSA-256",
            Self::Rsa2048 | Self::RsaToken => "RSA_signatures",
        }
    }
}

/// Tunnels of phase 1 that prove themselves alike, each with one of phase 2.
#[derive(Clone, Copy, Debug)]
pub struct Tunnels {
    /// The authentication.
    pub authentication: Authentication,
    /// The number of tunnels.
    pub number: u8,
}

impl Tunnels {
    /// The name of one.
    pub fn name(&self, n: u8) -> String {
        format!("{}{n}", self.authentication.label())
    }

    /// The address behind the left (0) or right (1) host that it protects.
    pub fn behind(&self, n: u8, end: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, [50, 60][end], 100 + self.authentication as u8, n + 1)
    }

    /// Its identity at the left (0) or right (1) end.
    pub fn identity(&self, n: u8, end: usize) -> String {
        format!("{}.{}.example", self.name(n), ["left", "right"][end])
    }
}

/// The key of all tunnels; anybody who could use it is in the namespaces already.
const KEY: &str = "preshared-key-of-the-experiments";

/// The overlap of the lifetimes of both SAs at a rekey, in percent.
const OVERLAP: u8 = 10;
/// The lifetime of all SAs, in minutes: longer than a measurement.
const MINUTES: u64 = 480;

/// A policy for both ends, with a tunnel of phase 2 for every pair of addresses of every net.
pub fn policies(nets: &[Net]) -> [String; 2] {
    [0, 1].map(|end| {
        let mut nodes = vec![protection(Authentication::PresharedKey)];
        if nets.iter().any(|net| net.mode == Mode::Tunnel) {
            nodes.extend(tunnel("site", [WIRE[end], WIRE[1 - end]]));
        }
        for net in nets {
            let name = format!("n{}", net.number);
            nodes.extend(proposal(&name, net.cipher, net.mode));
            let pairs = net.addresses(end).into_iter().zip(net.addresses(1 - end));
            for (pair, (local, remote)) in pairs.enumerate() {
                let pair = format!("{name}p{pair}");
                let of = match net.mode {
                    Mode::Tunnel => "site".to_owned(),
                    Mode::Transport => {
                        let of = format!("{pair}ike");
                        nodes.extend(tunnel(&of, [local, remote]));
                        of
                    }
                };
                nodes.push(child(&pair, &of, &name, [local, remote]));
            }
        }
        write(&nodes).to_string()
    })
}

/// The addresses of the second wire of three hosts in a row: of the one in the middle, and of the right one.
pub const SECOND_WIRE: [Ipv4Addr; 2] =
    [Ipv4Addr::new(198, 51, 100, 10), Ipv4Addr::new(198, 51, 100, 20)];

/// Policies for three hosts in a row: the left one, the one in the middle, which has a tunnel to either other, and the
/// right one. The pairs of the net are of the outer two.
pub fn relayed(net: &Net) -> [String; 3] {
    let [left, right] = [0, 1].map(|end| net.addresses(end));
    let [west, east] = SECOND_WIRE;
    let tunnels = [
        vec![carrier("site", WIRE, [&left, &right])],
        vec![
            carrier("left", [WIRE[1], WIRE[0]], [&right, &left]),
            carrier("right", SECOND_WIRE, [&left, &right]),
        ],
        vec![carrier("site", [east, west], [&right, &left])],
    ];
    tunnels.map(|tunnels| {
        let mut nodes = vec![protection(Authentication::PresharedKey)];
        nodes.extend(proposal("esp", net.cipher, net.mode));
        nodes.extend(tunnels.into_iter().flatten());
        write(&nodes).to_string()
    })
}

/// A tunnel between two addresses of a wire, for traffic from here to there.
fn carrier(name: &str, wire: [Ipv4Addr; 2], [here, there]: [&[Ipv4Addr]; 2]) -> Vec<Node> {
    let pairs = here.iter().zip(there).enumerate();
    let children = pairs.map(|(pair, (local, remote))| {
        child(&format!("{name}p{pair}"), name, "esp", [*local, *remote])
    });
    tunnel(name, wire).into_iter().chain(children).collect()
}

/// A tunnel of phase 1 between two addresses, and its key.
fn tunnel(name: &str, addresses: [Ipv4Addr; 2]) -> [Node; 2] {
    let sides = addresses.map(|address| Endpoint::from(IpAddr::from(address)));
    phase_1(name, Authentication::PresharedKey, &sides)
}

/// A tunnel of phase 1 between two sides, and the key for the other one.
fn phase_1(name: &str, authentication: Authentication, sides: &[Endpoint; 2]) -> [Node; 2] {
    let [here, there] = sides;
    [
        elements::ike_tunnel(name, authentication.label(), false, [here, there]),
        elements::preshared_key("ASCII", KEY, &there.identity),
    ]
}

impl Tunnels {
    /// Policies for both ends with all these tunnels. They are told apart by their identities.
    pub fn policies(all: &[Self]) -> [String; 2] {
        [0, 1].map(|end| {
            let mut nodes = proposal("esp", Cipher::AES_128_GCM, Mode::Tunnel).to_vec();
            for tunnels in all {
                nodes.push(protection(tunnels.authentication));
                for n in 0..tunnels.number {
                    let name = tunnels.name(n);
                    let sides = [end, 1 - end].map(|end| {
                        let identity = Identity::Fqdn(tunnels.identity(n, end));
                        Endpoint::at(WIRE[end].into(), identity)
                    });
                    let [tunnel, key] = phase_1(&name, tunnels.authentication, &sides);
                    nodes.push(tunnel);
                    if tunnels.authentication == Authentication::PresharedKey {
                        nodes.push(key);
                    }
                    let addresses = [end, 1 - end].map(|end| tunnels.behind(n, end));
                    nodes.push(child(&format!("{name}c"), &name, "esp", addresses));
                }
            }
            write(&nodes).to_string()
        })
    }
}

fn protection(authentication: Authentication) -> Node {
    let minutes = MINUTES.to_string();
    let transforms = [
        ("IKE_Encryption", "AES-GCM-16-128"),
        ("IKE_PRF", "PRF_HMAC_SHA2_256"),
        ("IKE_DHGroup", "31"),
        ("IKE_AuthenticationMethod", authentication.method()),
        ("IKE_KeyRefreshMinutes", minutes.as_str()),
    ];
    let node = elements::ike_protection(authentication.label(), Role::Both, OVERLAP, false);
    transforms.map(|transform| ike_transform([transform])).into_iter().fold(node, Node::holding)
}

/// A proposal and a protection of the same name.
fn proposal(name: &str, cipher: Cipher, mode: Mode) -> [Node; 2] {
    let protocol = elements::Protocol {
        protection: cipher.protection,
        mode: mode.into(),
        esn: false,
        minutes: MINUTES,
        kilobytes: 0,
    };
    let protection = elements::IpsecProtection {
        name,
        proposals: name,
        role: Role::Both,
        overlap_percent: OVERLAP,
        by_volume: false,
        offered: "0",
        accepted: "NO_PFS",
    };
    [elements::ipsec_proposal(name, [protocol.into()]), protection.into()]
}

fn child(name: &str, carrier: &str, protection: &str, addresses: [Ipv4Addr; 2]) -> Node {
    let [local, remote] = addresses.map(|address| [Selector::all_of(IpAddr::from(address).into())]);
    Node::from(elements::IpsecTunnel {
        name,
        carrier,
        protection,
        auto_start: false,
        on_demand: false,
        local: &local,
        remote: &remote,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GCM: Cipher = Cipher::AES_128_GCM;

    fn read(text: &str) -> ::policy::Policy {
        ::policy::xml::read("policy.xml", text).expect("no errors").policy
    }

    #[test]
    fn a_pair_of_addresses_has_a_tunnel_of_its_own() {
        let net = |number, mode, pairs| Net { number, cipher: GCM, mode, pairs };
        let nets = [net(1, Mode::Tunnel, 3), net(2, Mode::Tunnel, 1)];
        for policy in policies(&nets) {
            let policy = read(&policy);
            assert_eq!(policy.tunnels.len(), 1);
            assert_eq!(policy.tunnels[0].children.len(), 4);
        }
        assert_eq!(nets[0].addresses(1)[2], Ipv4Addr::new(10, 60, 1, 3));
    }

    #[test]
    fn a_gateway_in_the_middle_has_a_tunnel_to_either_host() {
        let net = Net { number: 1, cipher: GCM, mode: Mode::Tunnel, pairs: 2 };
        let policies = relayed(&net).map(|text| read(&text));
        assert_eq!(policies.each_ref().map(|policy| policy.tunnels.len()), [1, 2, 1]);
        assert!(policies.iter().flat_map(|p| &p.tunnels).all(|t| t.children.len() == 2));
    }

    #[test]
    fn in_transport_mode_a_pair_has_an_ike_sa_of_its_own() {
        let nets = [1, 8].map(|n| Net { number: n, cipher: GCM, mode: Mode::Transport, pairs: 4 });
        for policy in policies(&nets) {
            let policy = read(&policy);
            assert_eq!(policy.tunnels.len(), 8);
            assert!(policy.tunnels.iter().all(|tunnel| tunnel.children.len() == 1));
        }
        assert_eq!(nets[0].addresses(0)[0], Ipv4Addr::new(192, 0, 2, 32));
        assert_eq!(nets[1].addresses(0)[3], Ipv4Addr::new(192, 0, 2, 63));
        assert_eq!(nets[1].addresses(1)[3], Ipv4Addr::new(192, 0, 2, 175));
    }

    #[test]
    fn tunnels_of_every_kind_are_in_one_policy() {
        let all = Authentication::ALL.map(|authentication| Tunnels { authentication, number: 32 });
        for policy in Tunnels::policies(&all) {
            assert_eq!(read(&policy).tunnels.len(), 128);
        }
    }
}
