//! The problems that a value can have: a sentence for each, and a sentence with the fix.

use crate::wording::quoted;
use crate::{EspEncryption, Identity, IkeEncryption, Lifetime, MAX_ADDITIONAL, Ppk};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Most proposals for an IKE SA, and most for a Child SA. A peer of this implementation reads no more than these from
/// one message.
pub const MAX_PROPOSALS: usize = 64;

/// Most algorithms in all proposals for an IKE SA together. They travel in IKE_SA_INIT, which cannot be fragmented; a
/// responder of this implementation ignores one above 10,000 octets.
pub const MAX_IKE_ALGORITHMS: usize = 700;

/// The reason why a value cannot be used. Its `Display` states the problem, [`Problem::help`] the fix.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// A name is empty or has control characters.
    BadName(String),
    /// Two phase 1 tunnels, or two phase 2 tunnels, have this name.
    NameTaken(String),
    /// A list that needs an entry has none; the name of an entry.
    Missing(&'static str),
    /// An entry stands twice in a list.
    Repeated(String),
    /// More proposals than [`MAX_PROPOSALS`].
    TooManyProposals(usize),
    /// More algorithms than [`MAX_IKE_ALGORITHMS`].
    TooManyAlgorithms(usize),
    /// More additional key exchanges than [`MAX_ADDITIONAL`].
    TooManyKeyExchanges(usize),
    /// More names of postquantum preshared keys than [`Ppk::MOST`](crate::Ppk::MOST).
    TooManyPpks(usize),
    /// A text that cannot be the name of a postquantum preshared key.
    NotAPpkId(String),
    /// AEAD and other ciphers in one proposal.
    MixedCiphers,
    /// An IKE proposal of AEAD ciphers has integrity algorithms.
    IkeIntegrityUnused(IkeEncryption),
    /// An IKE proposal of ciphers that are not AEAD has no integrity algorithm.
    IkeIntegrityMissing(IkeEncryption),
    /// ESP with an AEAD cipher has an integrity algorithm.
    EspIntegrityUnused(EspEncryption),
    /// ESP with a cipher that is not AEAD has no integrity algorithm.
    EspIntegrityMissing(EspEncryption),
    /// This build lacks the cipher.
    NotBuilt(EspEncryption),
    /// The preshared key has no octets.
    EmptyKey,
    /// No host can have this address.
    NoHost(IpAddr),
    /// A link-local address, which is one host's only together with an interface.
    OfLink(Ipv6Addr),
    /// An IPv4 address within an IPv6 address.
    Mapped(Ipv4Addr),
    /// The text of an identity has no octets, more than 255, or control characters.
    NotAnIdentity(String),
    /// A key ID has no octets or more than 255; the number.
    KeyIdLength(usize),
    /// An initiator needs the address of the side with this identity.
    NoAddress(Identity),
    /// Both sides have this address.
    SameAddress(IpAddr),
    /// Both sides have this identity.
    SameIdentity(Identity),
    /// IPv4 on one side, IPv6 on the other.
    FamiliesDiffer(String, String),
    /// The local and the remote traffic have these different protocols.
    ProtocolsDiffer(u8, u8),
    /// A selector for some ports names a protocol without ports.
    NoPorts(u8),
    /// Transport mode with traffic other than that between the two gateways: the traffic, and the gateway's address if
    /// the policy names it.
    NotTheGateway(String, Option<IpAddr>),
    /// As responder a tunnel accepts neither a group nor the absence of one.
    AcceptsNothing,
    /// A lifetime is shorter than [`Lifetime::SHORTEST`].
    TooShort(Duration),
    /// A volume is smaller than [`Lifetime::SMALLEST`].
    TooSmall(u64),
    /// The overlap is not 1 to 50 percent.
    Overlap(u8),
    /// A lower bound is above the upper one, or the upper one is less than any lifetime may be.
    Bounds,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadName(name) => write!(f, "{} is not a name", quoted(name)),
            Self::NameTaken(name) => write!(f, "another tunnel is named {} as well", quoted(name)),
            Self::Missing(what) => write!(f, "there is no {what}"),
            Self::Repeated(what) => write!(f, "{what} is listed twice"),
            Self::TooManyProposals(count) => {
                write!(f, "{count} proposals, more than {MAX_PROPOSALS}")
            }
            Self::TooManyAlgorithms(count) => write!(
                f,
                "{count} algorithms in all proposals, more than the {MAX_IKE_ALGORITHMS} that fit into IKE_SA_INIT"
            ),
            Self::TooManyKeyExchanges(count) => {
                write!(f, "{count} additional key exchanges, more than {MAX_ADDITIONAL}")
            }
            Self::TooManyPpks(count) => {
                write!(f, "{count} PPKs, more than {}", Ppk::MOST)
            }
            Self::NotAPpkId(id) => write!(f, "{} is not the name of a PPK", quoted(id)),
            Self::MixedCiphers => f.write_str("AEAD ciphers and others are in one proposal"),
            Self::IkeIntegrityUnused(cipher) => {
                write!(f, "{cipher} protects integrity itself")
            }
            Self::EspIntegrityUnused(cipher) => {
                write!(f, "{cipher} protects integrity itself")
            }
            Self::IkeIntegrityMissing(cipher) => {
                write!(f, "{cipher} without an integrity algorithm is not secure")
            }
            Self::EspIntegrityMissing(cipher) => {
                write!(f, "{cipher} without an integrity algorithm is not secure")
            }
            Self::NotBuilt(cipher) => write!(f, "this build has no {cipher}"),
            Self::EmptyKey => f.write_str("the preshared key is empty"),
            Self::NoHost(address) => write!(f, "{address} is no host's address"),
            Self::OfLink(address) => write!(
                f,
                "{address} is a link-local address: each interface may have a host with it, and a policy names none"
            ),
            Self::Mapped(address) => write!(f, "::ffff:{address} is the IPv4 address {address}"),
            Self::NotAnIdentity(name) => write!(f, "{} is not an identity", quoted(name)),
            Self::KeyIdLength(len) => write!(f, "the key ID has {len} octets"),
            Self::NoAddress(_) => f.write_str("an initiator needs an address for each side"),
            Self::SameAddress(address) => write!(f, "both sides have the address {address}"),
            Self::SameIdentity(identity) => {
                write!(f, "both sides have the identity {identity}")
            }
            Self::FamiliesDiffer(one, other) => {
                write!(f, "{one} and {other} are of different families")
            }
            Self::ProtocolsDiffer(local, remote) => {
                write!(f, "protocol {remote} here, but {local} in the local selectors")
            }
            Self::NoPorts(protocol) => write!(f, "protocol {protocol} has no ports to select"),
            Self::NotTheGateway(range, Some(address)) => {
                write!(f, "in transport mode the traffic is that of {address}, not of {range}")
            }
            Self::NotTheGateway(range, None) => {
                write!(f, "in transport mode the traffic is that of one address, not of {range}")
            }
            Self::AcceptsNothing => f.write_str("the responder accepts no rekey"),
            Self::TooShort(time) => {
                write!(f, "{time:?} is shorter than {:?}", Lifetime::SHORTEST)
            }
            Self::TooSmall(bytes) => {
                write!(f, "{bytes} octets are fewer than {}", Lifetime::SMALLEST)
            }
            Self::Overlap(percent) => write!(f, "{percent} percent is not 1 to 50"),
            Self::Bounds => f.write_str("no lifetime is within these bounds"),
        }
    }
}

impl Problem {
    /// The fix.
    pub fn help(&self) -> &'static str {
        match self {
            Self::BadName(_) => "give it a name without control characters",
            Self::NameTaken(_) => "rename one of the two",
            Self::Missing(_) => "add at least one",
            Self::Repeated(_) => "remove one of the two",
            Self::TooManyProposals(_)
            | Self::TooManyAlgorithms(_)
            | Self::TooManyPpks(_)
            | Self::TooManyKeyExchanges(_) => "remove those that the peer does not need",
            Self::NotAPpkId(_) => {
                "use 1 to 64 letters, digits and . _ @ + = -, a letter or digit first; NONE stands last"
            }
            Self::MixedCiphers => "write two proposals (RFC 7296 §3.3)",
            Self::IkeIntegrityUnused(_) => "leave the list of integrity algorithms empty",
            Self::EspIntegrityUnused(_) => "set `integrity` to `None`",
            Self::IkeIntegrityMissing(_) | Self::EspIntegrityMissing(_) => {
                "add one, such as HMAC-SHA2-256-128, or use AES-GCM"
            }
            Self::NotBuilt(_) => "use AES-GCM, or build with the feature `legacy`",
            Self::EmptyKey => "make one with: openssl rand -hex 32",
            Self::NoHost(_) => {
                "for a peer whose address is not known, use no address and the role responder"
            }
            Self::OfLink(_) => {
                "use a global or unique-local address of that host, such as 2001:db8::1 or fd00::1"
            }
            Self::Mapped(_) => "use the IPv4 address",
            Self::NotAnIdentity(_) => {
                "use 1 to 255 octets without control characters, such as gate.example.net"
            }
            Self::KeyIdLength(_) => "use 1 to 255 octets",
            Self::NoAddress(_) => "set the address, or use the role responder",
            Self::SameAddress(_) => "set the peer's address as the remote one",
            Self::SameIdentity(_) => "set the peer's identity as the remote one",
            Self::FamiliesDiffer(..) => "use IPv4 on both sides, or IPv6",
            Self::ProtocolsDiffer(..) => "select the same protocol on both sides",
            Self::NoPorts(_) => "select TCP or UDP, or every port",
            Self::NotTheGateway(..) => "select the gateway's own address, or use tunnel mode",
            Self::AcceptsNothing => "accept a group, or set `accept_none`",
            Self::TooShort(_) => "use a longer time; `Duration::MAX` means no limit",
            Self::TooSmall(_) => "use a larger volume; `None` means no limit",
            Self::Overlap(_) => "use 10 percent",
            Self::Bounds => "put the smaller bound first; `LifetimeBounds::NONE` bounds nothing",
        }
    }
}
