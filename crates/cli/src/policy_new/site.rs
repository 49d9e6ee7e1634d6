//! Two gateways and the tunnel between them.

use super::key::Key;
use clap::ValueEnum;
use policy::{
    AddressRange, DistinguishedName, EspEncryption, Group, IkeEncryption, IkeProposal, Integrity,
    KeyBits, Prf, Protection,
};
use std::net::IpAddr;
use std::str::FromStr;

/// Everything that the policies of both ends say. Arrays hold the left end first.
#[derive(Clone, Debug)]
pub struct Site {
    /// Name of the tunnel.
    pub name: String,
    /// The gateways' addresses.
    pub addresses: [IpAddr; 2],
    /// The gateways' identities.
    pub identities: [Identity; 2],
    /// The networks; none: the gateways themselves.
    pub traffic: Vec<Pair>,
    /// The preshared key; `None`: certificates.
    pub key: Option<Key>,
    /// A certificate counts only if a current revocation list does not name it.
    pub use_crl: bool,
    /// Algorithms.
    pub suite: Suite,
    /// Transport mode.
    pub transport: bool,
    /// The first packet starts the tunnel.
    pub on_demand: bool,
    /// The end that starts the tunnel with its daemon.
    pub auto_start: AutoStart,
}

/// The end that starts a tunnel with its daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum AutoStart {
    /// The end --local
    #[default]
    Left,
    /// The end --remote
    Right,
    /// Both ends
    Both,
    /// No end: vpnctl activate starts it
    None,
}

/// Algorithms of both phases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Suite {
    /// ESP: AES-GCM with 256 bits; IKE: AES-CBC with 256 bits, SHA-256, ECP-256
    #[default]
    Aes256Gcm,
    /// ESP: AES-GCM with 128 bits; IKE: AES-CBC with 128 bits, SHA-256, ECP-256
    Aes128Gcm,
    /// ESP and IKE: ChaCha20-Poly1305, for machines without AES instructions; SHA-256, Curve25519
    Chacha20Poly1305,
    /// ESP: AES-CBC with 256 bits and HMAC-SHA-256, for peers without AES-GCM; IKE as aes256-gcm
    Aes256Cbc,
    /// ESP: AES-GCM with 256 bits; IKE: AES-CBC with 256 bits, SHA-384, ECP-384
    Aes256GcmP384,
}

/// The algorithms of a suite.
pub struct Algorithms {
    /// The cipher of the IKE SA.
    encryption: IkeEncryption,
    /// `None` for a cipher that protects integrity itself.
    integrity: Option<Integrity>,
    prf: Prf,
    /// The group of both phases.
    pub group: Group,
    /// The algorithms of the Child SA.
    pub child: Protection,
}

impl Algorithms {
    /// Those of the IKE SA as an offer.
    pub fn ike(&self) -> IkeProposal {
        IkeProposal {
            encryption: vec![self.encryption],
            integrity: self.integrity.into_iter().collect(),
            prf: vec![self.prf],
            groups: vec![self.group],
            additional: Vec::new(),
        }
    }
}

impl Suite {
    /// Its algorithms.
    pub fn algorithms(self) -> Algorithms {
        let usual = Algorithms {
            encryption: IkeEncryption::AesCbc(KeyBits::B256),
            integrity: Some(Integrity::HmacSha2_256_128),
            prf: Prf::HmacSha2_256,
            group: Group::Ecp256,
            child: Protection::aead(EspEncryption::AesGcm16(KeyBits::B256)),
        };
        match self {
            Self::Aes256Gcm => usual,
            Self::Aes128Gcm => Algorithms {
                encryption: IkeEncryption::AesCbc(KeyBits::B128),
                child: Protection::aead(EspEncryption::AesGcm16(KeyBits::B128)),
                ..usual
            },
            Self::Chacha20Poly1305 => Algorithms {
                encryption: IkeEncryption::ChaCha20Poly1305,
                integrity: None,
                group: Group::Curve25519,
                child: Protection::aead(EspEncryption::ChaCha20Poly1305),
                ..usual
            },
            Self::Aes256Cbc => Algorithms {
                child: Protection::Esp {
                    encryption: EspEncryption::AesCbc(KeyBits::B256),
                    integrity: Some(Integrity::HmacSha2_256_128),
                },
                ..usual
            },
            Self::Aes256GcmP384 => Algorithms {
                integrity: Some(Integrity::HmacSha2_384_192),
                prf: Prf::HmacSha2_384,
                group: Group::Ecp384,
                ..usual
            },
        }
    }
}

impl Site {
    /// The address of an end as the other end reaches it: that of a NAT in front of it, where its identity is one.
    pub fn outer_address(&self, end: usize) -> IpAddr {
        match self.identities[end] {
            Identity::Address(address) => address,
            _ => self.addresses[end],
        }
    }

    /// Returns `true` if this end starts the tunnel with its daemon.
    pub fn auto_starts(&self, end: usize) -> bool {
        match self.auto_start {
            AutoStart::Left => end == 0,
            AutoStart::Right => end == 1,
            AutoStart::Both => true,
            AutoStart::None => false,
        }
    }

    /// A sentence about the start of the tunnel, seen from one end.
    pub fn starts(&self, end: usize) -> &'static str {
        match (self.auto_starts(end), self.on_demand) {
            (true, _) => "this end starts the tunnel with its daemon (AutoStart)",
            (false, true) => "the first packet starts the tunnel (OnDemand)",
            (false, false) if self.auto_start == AutoStart::None => {
                "this end starts the tunnel only on command (vpnctl activate)"
            }
            (false, false) => "this end waits for the other one to start the tunnel",
        }
    }

    /// The traffic of each phase 2 tunnel, with its name, seen from one end.
    pub fn tunnels(&self, end: usize) -> Vec<(String, [AddressRange; 2])> {
        let name = &self.name;
        if self.traffic.is_empty() {
            let [own, other] = [self.addresses[end], self.outer_address(1 - end)];
            return vec![(format!("{name}_hosts"), [own.into(), other.into()])];
        }
        let tunnels = (1_usize..).zip(&self.traffic).map(|(i, Pair(pair))| {
            // The number tells several pairs apart.
            let number = if self.traffic.len() == 1 { String::new() } else { i.to_string() };
            (format!("{name}_lan{number}"), [pair[end].0, pair[1 - end].0])
        });
        tunnels.collect()
    }

    /// Finds arguments that do not go together, and that the reader of policies could only explain in its own terms.
    pub fn check(&self) -> Result<(), String> {
        let [left, right] = self.addresses;
        if left.is_ipv4() != right.is_ipv4() {
            let why = "one is an IPv4 address and the other an IPv6 address; both need the same";
            return Err(format!("--local {left} and --remote {right}: {why}"));
        }
        let mut pairs = self.traffic.iter().enumerate();
        if let Some((_, pair)) = pairs.find(|(at, pair)| self.traffic[..*at].contains(pair)) {
            let [left, right] = pair.0.map(|network| network.0);
            return Err(format!("--protect {left}={right} is given twice; leave one out"));
        }
        if left == right {
            return Err(format!("--local and --remote are both {left}; name the other gateway"));
        }
        for (end, option) in ["--local", "--remote"].into_iter().enumerate() {
            let (own, outer) = (self.addresses[end], self.outer_address(end));
            if is_private(outer) && !is_private(own) {
                return Err(format!(
                    "{option}-id {outer} is a private address, and {option} {own} is not: an address as identity is that at \
                     which the other end reaches this one; give {option} the private address and {option}-id the public one, \
                     or give a name as identity"
                ));
            }
        }
        Ok(())
    }
}

/// Returns `true` for an address that is reached inside one network only (RFC 1918, RFC 4193).
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_private(),
        IpAddr::V6(address) => address.is_unique_local(),
    }
}

/// An identity as the command line has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// An address.
    Address(IpAddr),
    /// A domain name.
    Domain(String),
    /// `user@domain`.
    User(String),
    /// A subject.
    Subject(DistinguishedName),
}

impl Identity {
    /// The identity of an end without another one.
    pub fn of(address: IpAddr) -> Self {
        Self::Address(address)
    }

    /// The identity as a policy has it.
    pub fn in_policy(&self) -> policy::Identity {
        match self {
            Self::Address(address) => (*address).into(),
            Self::Domain(name) => policy::Identity::Fqdn(name.clone()),
            Self::User(name) => policy::Identity::UserFqdn(name.clone()),
            Self::Subject(name) => policy::Identity::Dn(name.clone()),
        }
    }

    /// The command that makes a certificate with this identity.
    pub fn to_issue(&self, side: &str) -> String {
        match self {
            Self::Address(address) => format!("vpnctl pki issue {side} --ip {address}"),
            Self::Domain(name) => format!("vpnctl pki issue {side} --dns {name}"),
            Self::User(name) => format!("vpnctl pki issue {side} --email {name}"),
            Self::Subject(name) => match name.to_string().strip_prefix("CN=") {
                Some(common) if !common.contains(['=', ',', '+', '\\', ' ']) => {
                    format!("vpnctl pki issue {common}")
                }
                _ => format!("# the certificate of the {side} end needs the subject {name}"),
            },
        }
    }
}

impl FromStr for Identity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        if text.contains('=') {
            let name = text.parse::<DistinguishedName>();
            return name.map(Self::Subject).map_err(|error| error.to_string());
        }
        let is_allowed = text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'@'));
        if text.is_empty() || !is_allowed {
            let why = "an identity is a domain name, user@domain, an address, or a subject such as /C=NL/CN=left";
            return Err(why.to_owned());
        }
        let text = text.to_owned();
        Ok(if text.contains('@') { Self::User(text) } else { Self::Domain(text) })
    }
}

/// A network: a prefix, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(pub AddressRange);

/// A network behind each gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair(pub [Network; 2]);

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((address, length)) = text.split_once('/') else {
            let address: IpAddr = text.parse().map_err(|_| no_network(text))?;
            return Ok(Self(AddressRange::from(address)));
        };
        let address: IpAddr = address.parse().map_err(|_| no_network(text))?;
        let length: u32 = length.parse().map_err(|_| no_network(text))?;
        let range = AddressRange::subnet(address, length).ok_or_else(|| no_network(text))?;
        if range.start() != address {
            return Err(format!(
                "{text} is an address within a network; the network is {}/{length}",
                range.start()
            ));
        }
        Ok(Self(range))
    }
}

fn no_network(text: &str) -> String {
    format!("{text:?} is no network; write it like 10.1.0.0/24 or 2001:db8:1::/48")
}

impl FromStr for Pair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let example = "write the network behind the left gateway and the one behind the right: \
                       10.1.0.0/24=10.2.0.0/24";
        let (left, right) = text.split_once('=').ok_or_else(|| example.to_owned())?;
        let (left, right): (Network, Network) = (left.parse()?, right.parse()?);
        if left.0.start().is_ipv4() != right.0.start().is_ipv4() {
            return Err(format!(
                "{text}: one network is IPv4 and the other IPv6; both need the same"
            ));
        }
        Ok(Self([left, right]))
    }
}

/// Reads a name that is also part of a file's name.
pub(crate) fn plain_name(text: &str) -> Result<String, String> {
    let begins = text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    let is_allowed =
        text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    if begins && text.len() <= 63 && is_allowed {
        return Ok(text.to_owned());
    }
    Err("a name begins with a letter or digit, and has at most 63 letters, digits and the signs - _ .".to_owned())
}
