//! `[[sa]]`: SAs that are keyed by hand, with the fields of `ip xfrm state`.

use super::filter::{Addresses, Ports, Protocol, addresses_of, whole};
use ::crypto::Suite;
use esp::plane::{Encapsulation, Path, Spi, TrafficSelectors};
use policy::{
    AddressRange, AhIntegrity, EspEncryption, Integrity, Mode, Protection, Secret, Selector,
};
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use settings::Named;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use vpn::manual::{ManualSa, SaDirection};
use xfrm::placement::{Choice, Wanted};

mod key;

use key::Key;
pub(crate) use key::read as read_key;

/// UDP port of ESP in UDP, on this side always.
pub(crate) const NATT_PORT: u16 = 4500;

/// An SA whose fields go together.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Written")]
pub struct Sa {
    sa: ManualSa,
    /// `None`: that of `[esp]`.
    replay_window: Option<u32>,
    /// A key of this SA stands in the file itself.
    has_key: bool,
    /// The files of its other keys.
    key_files: Vec<PathBuf>,
    /// Offload for this SA; `None`: the setting of the tunnel with its name, or the general one.
    offload: Option<Wanted>,
    /// The network card; empty: the card of the route to the peer.
    offload_device: Option<String>,
}

impl Sa {
    /// Its documentation in the file, line by line.
    pub const DOC: &[&str] = &[
        " SAs without IKE, whose keys never change: docs/operate/manual-sas.md. Each SA has one direction; the inbound",
        " and the outbound SA of the same traffic have the same name. If this file holds keys, its mode must be 0600.",
        " An example:",
        "   [[sa]]",
        "   name = \"lab\"",
        "   direction = \"out\"            # or \"in\"",
        "   source = \"192.0.2.1\"         # addresses of the ESP packets; the peer's for direction \"in\"",
        "   destination = \"192.0.2.2\"",
        "   spi = 0x1007",
        "   mode = \"transport\"           # or \"tunnel\"",
        "   aead = \"rfc4106(gcm(aes))\"   # or suite = \"AES-GCM-16-128\"; or encryption and integrity, each with its key",
        "   key = \"0x000102030405060708090a0b0c0d0e0f10111213\"   # with its salt; or { file = \"/etc/vpnd/sa.key\" }",
        "   esn = false                  # sequence numbers of 64 bits",
        "   replay_window = 32",
        "   reqid = 7                    # in the kernel; both SAs of a name have the same",
        "   offload = \"crypto\"           # as in [esp], for this SA alone; so is the next line",
        "   offload_device = \"eth2\"",
        "   encap = \"native\"             # or \"udp\", with remote_port = 4500",
        "   selector = { source = \"192.0.2.1\", destination = \"192.0.2.2\", protocol = \"tcp\", destination_port = 80 }",
    ];

    /// The SA that this section describes; `replay_window` is the value in `[esp]`.
    pub fn manual(&self, replay_window: u32) -> ManualSa {
        let replay_window = self.replay_window.unwrap_or(replay_window);
        ManualSa { replay_window, ..self.sa.clone() }
    }

    /// The name, which the SA of the other direction has, too.
    pub(crate) fn name(&self) -> &str {
        &self.sa.name
    }

    /// The files that its keys were read from.
    pub(crate) fn key_files(&self) -> &[PathBuf] {
        &self.key_files
    }

    /// Returns `true` if a key of this SA stands in the file itself.
    pub(crate) fn has_key(&self) -> bool {
        self.has_key
    }

    /// The port to which ESP in UDP goes.
    pub(crate) fn remote_port(&self) -> u16 {
        self.sa.path.remote.port()
    }

    /// The network card, if the section names one.
    pub(crate) fn offload_device(&self) -> Option<&str> {
        self.offload_device.as_deref()
    }

    /// Offload for this SA, if the section sets it; `of_name` is the setting of the tunnel with its name.
    pub(crate) fn offload(&self, of_name: &Choice) -> Option<((String, SaDirection), Choice)> {
        let choice = of_name.changed(self.offload, self.offload_device.as_deref())?;
        Some(((self.sa.name.clone(), self.sa.direction), choice))
    }
}

/// An SA as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    direction: Direction,
    source: IpAddr,
    destination: IpAddr,
    #[serde(deserialize_with = "spi")]
    spi: u32,
    #[serde(default)]
    mode: WrittenMode,
    #[serde(default)]
    encap: WrittenEncap,
    remote_port: Option<u16>,
    suite: Option<String>,
    aead: Option<String>,
    key: Option<Key>,
    encryption: Option<String>,
    encryption_key: Option<Key>,
    integrity: Option<String>,
    integrity_key: Option<Key>,
    #[serde(default)]
    esn: bool,
    replay_window: Option<u32>,
    reqid: Option<u32>,
    offload: Option<Named<Wanted>>,
    offload_device: Option<String>,
    selector: Option<WrittenSelector>,
    #[serde(default)]
    insecure_shared_key: bool,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Direction {
    In,
    Out,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WrittenMode {
    #[default]
    Transport,
    Tunnel,
}

#[derive(Default, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WrittenEncap {
    #[default]
    Native,
    Udp,
}

/// The traffic, from source to destination.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct WrittenSelector {
    #[serde(deserialize_with = "of_network")]
    source: Addresses,
    #[serde(deserialize_with = "of_network")]
    destination: Addresses,
    protocol: Protocol,
    source_port: Ports,
    destination_port: Ports,
}

/// Addresses as `ip xfrm` takes them: of `14.0.0.52/24`, the prefix counts.
fn of_network<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Addresses, D::Error> {
    let text = String::deserialize(deserializer)?;
    let network = || {
        let (address, length) = text.split_once('/')?;
        AddressRange::subnet(address.parse().ok()?, length.parse().ok()?)
    };
    match network() {
        Some(range) => Ok(Addresses(Some(range))),
        None => addresses_of(&text),
    }
}

impl TryFrom<Written> for Sa {
    type Error = String;

    fn try_from(mut written: Written) -> Result<Self, String> {
        let keys = [&written.key, &written.encryption_key, &written.integrity_key];
        let keys = || keys.into_iter().flatten().map(Key::file);
        let has_key = keys().any(|file| file.is_none());
        let key_files = keys().flatten().map(PathBuf::from).collect();
        let (suite, key) = written.take_cipher()?;
        if written.source.is_ipv4() != written.destination.is_ipv4() {
            return Err("source and destination are of two families".to_owned());
        }
        if written.spi == 0 {
            return Err(
                "spi = 0 is no SPI; write 1 to 0xffffffff, 256 and above by RFC 4303".into()
            );
        }
        if written.replay_window.is_some_and(|window| window > 65_536) {
            return Err("replay_window must be between 0 and 65536".to_owned());
        }
        let encapsulation = match (suite.is_ah(), &written.encap) {
            (true, WrittenEncap::Udp) => {
                return Err("AH covers the addresses and never goes in UDP; use ESP".to_owned());
            }
            (true, WrittenEncap::Native) => Encapsulation::Ah,
            (false, WrittenEncap::Native) => Encapsulation::Native,
            (false, WrittenEncap::Udp) => Encapsulation::Udp,
        };
        if written.remote_port.is_some() && encapsulation != Encapsulation::Udp {
            return Err("remote_port is the peer's port of ESP in UDP; add encap = \"udp\"".into());
        }
        let mode = match written.mode {
            WrittenMode::Transport => Mode::Transport,
            WrittenMode::Tunnel => Mode::Tunnel,
        };
        let (source, destination) = written.take_traffic(mode)?;
        let (direction, here, there, local, remote) = match written.direction {
            Direction::Out => {
                (SaDirection::Out, written.source, written.destination, source, destination)
            }
            Direction::In => {
                (SaDirection::In, written.destination, written.source, destination, source)
            }
        };
        let sa = ManualSa {
            name: written.name,
            direction,
            spi: Spi(written.spi),
            suite,
            key,
            shared_key: written.insecure_shared_key,
            mode,
            path: Path {
                local: SocketAddr::new(here, NATT_PORT),
                remote: SocketAddr::new(there, written.remote_port.unwrap_or(NATT_PORT)),
                encapsulation,
            },
            selectors: TrafficSelectors { local: vec![local], remote: vec![remote] },
            replay_window: 0,
            esn: written.esn,
            reqid: written.reqid,
        };
        let Written { replay_window, offload, offload_device, .. } = written;
        let offload = offload.map(|Named(wanted)| wanted);
        Ok(Self { sa, replay_window, has_key, key_files, offload, offload_device })
    }
}

impl Written {
    /// The suite, and its keys one behind the other.
    fn take_cipher(&mut self) -> Result<(Suite, Secret), String> {
        let key = self.key.take().map(Key::into_secret);
        let encryption_key = self.encryption_key.take().map(Key::into_secret);
        let integrity_key = self.integrity_key.take().map(Key::into_secret);
        let Self { suite, aead, encryption, integrity, .. } = &self;
        let (suite, key) = match (suite, aead, encryption, integrity) {
            (Some(name), None, None, None) => {
                let key = key.ok_or("a suite needs its key")?;
                (name.parse::<Suite>().map_err(|error| error.to_string())?, key)
            }
            (None, Some(name), None, None) => {
                let key = key.ok_or("an aead needs its key")?;
                (aead_of(name, key.len())?, key)
            }
            (None, None, encryption, Some(integrity)) => {
                let integrity = integrity_of(integrity)?;
                let own = integrity_key.ok_or("integrity needs its integrity_key")?;
                return with_mac(encryption.as_deref(), encryption_key, integrity, &own);
            }
            _ => {
                return Err("name its algorithms in one of these ways: suite and key, as \"vpnctl list\" writes \
                     them; aead and key; or encryption, encryption_key, integrity and integrity_key, as ip xfrm has \
                     them"
                    .to_owned());
            }
        };
        if encryption_key.is_some() || integrity_key.is_some() {
            return Err("encryption_key and integrity_key go with encryption and integrity".into());
        }
        if key.len() != suite.key_material_len() {
            let (needs, got) = (suite.key_material_len(), key.len());
            return Err(format!("{suite} takes {needs} octets of key with its salt, not {got}"));
        }
        Ok((suite, key))
    }

    /// The traffic covered, from source to destination. Without selectors this is the traffic between the SA's own
    /// addresses.
    fn take_traffic(&mut self, mode: Mode) -> Result<(Selector, Selector), String> {
        let selector = match self.selector.take() {
            Some(selector) => selector,
            None if mode == Mode::Transport => WrittenSelector::default(),
            None => return Err("tunnel mode needs a selector: which traffic it carries".to_owned()),
        };
        let WrittenSelector { source, destination, protocol, source_port, destination_port } =
            selector;
        let has_ports = matches!(protocol.0, 6 | 17 | 33 | 132 | 136);
        if !has_ports && [&source_port, &destination_port].iter().any(|p| !p.is_any()) {
            let text = "ports need a protocol that has them: tcp, udp, sctp, dccp or udplite";
            return Err(text.to_owned());
        }
        let family = [source.0, destination.0].into_iter().flatten().next();
        let default = |own: IpAddr| match (mode, family) {
            (Mode::Transport, _) => AddressRange::from(own),
            (Mode::Tunnel, Some(other)) => whole(other.start().is_ipv4()),
            (Mode::Tunnel, None) => whole(own.is_ipv4()),
        };
        let addresses = source.0.unwrap_or_else(|| default(self.source));
        let others = destination.0.unwrap_or_else(|| default(self.destination));
        if addresses.start().is_ipv4() != others.start().is_ipv4() {
            return Err("the selector's source and destination are of two families".to_owned());
        }
        if mode == Mode::Transport
            && !(addresses.contains(self.source) && others.contains(self.destination))
        {
            return Err("in transport mode an SA carries what its own source and destination send each other: the \
                 selector has to hold them"
                .to_owned());
        }
        let side =
            |addresses, ports: Ports| Selector { protocol: protocol.0, addresses, ports: ports.0 };
        Ok((side(addresses, source_port), side(others, destination_port)))
    }
}

/// By the kernel's name; the length of the key with its salt says how many bits.
fn aead_of(name: &str, octets: usize) -> Result<Suite, String> {
    let row = |encryption: EspEncryption| encryption.row();
    let named = named(name, |encryption| encryption.is_aead())
        .map_err(|names| format!("no aead {name:?}; there are {names}"))?;
    let fits = named.iter().find(|e| row(**e).key_len + row(**e).salt_len == octets);
    // Where there is one length only, the message about the suite names it.
    let only = named.first().filter(|_| named.len() == 1);
    let encryption = fits.or(only).ok_or_else(|| {
        let lengths = named.iter().map(|e| row(*e).key_len + row(*e).salt_len);
        format!("{name} takes {} octets of key with its salt, not {octets}", one_of(lengths))
    })?;
    Suite::of(Protection::aead(*encryption)).ok_or_else(|| format!("no suite has {name}"))
}

/// The ciphers of this build that the kernel calls by a name.
///
/// # Errors
/// The names that there are.
fn named(
    name: &str,
    is_wanted: impl Fn(EspEncryption) -> bool,
) -> Result<Vec<EspEncryption>, String> {
    let wanted =
        || EspEncryption::ALL.into_iter().filter(|e| policy::is_built(*e) && is_wanted(*e));
    let named: Vec<_> = wanted().filter(|e| e.row().kernel.contains(&name)).collect();
    if !named.is_empty() {
        return Ok(named);
    }
    let mut names: Vec<&str> = wanted().filter_map(|e| e.row().kernel.last().copied()).collect();
    names.dedup();
    let last = names.pop().unwrap_or_default();
    Err(format!("{} and {last}", names.join(", ")))
}

/// Lengths of keys, the shortest first.
fn one_of(lengths: impl Iterator<Item = usize>) -> String {
    let mut lengths: Vec<usize> = lengths.collect();
    lengths.sort_unstable();
    let mut lengths: Vec<String> = lengths.iter().map(ToString::to_string).collect();
    let last = lengths.pop().unwrap_or_default();
    if lengths.is_empty() { last } else { format!("{} or {last}", lengths.join(", ")) }
}

/// By the kernel's name, each with the length that RFCs cut its output to.
fn integrity_of(name: &str) -> Result<Integrity, String> {
    let named = Integrity::ALL.into_iter().find(|integrity| integrity.row().kernel == name);
    named.ok_or_else(|| {
        format!(
            "no integrity {name:?}; there are hmac(sha256), hmac(sha384), hmac(sha512), hmac(sha1), hmac(md5), xcbc(aes) \
             and cmac(aes)"
        )
    })
}

/// AH where there is no encryption at all, as `ip xfrm` has `auth` alone with `proto ah`.
fn with_mac(
    encryption: Option<&str>,
    encryption_key: Option<Secret>,
    integrity: Integrity,
    own: &Secret,
) -> Result<(Suite, Secret), String> {
    let key = encryption_key.unwrap_or_else(|| Secret::new(Vec::new()));
    let protection = match encryption {
        None => Protection::Ah(AhIntegrity::Mac(integrity)),
        Some(name) => {
            let named = named(name, |encryption| !encryption.is_aead())
                .map_err(|names| format!("no encryption {name:?}; there are {names}"))?;
            let encryption = named.iter().find(|e| e.row().key_len == key.len());
            let without_key = named.first().filter(|e| e.row().key_len == 0);
            let encryption = encryption.or(without_key).ok_or_else(|| {
                let lengths = one_of(named.iter().map(|e| e.row().key_len));
                format!("{name} takes {lengths} octets of encryption_key, not {}", key.len())
            })?;
            Protection::encrypt_and_mac(*encryption, integrity)
        }
    };
    let suite = Suite::of(protection).ok_or("no suite has these algorithms")?;
    let takes = ::crypto::integrity_key_len(integrity);
    if own.len() != takes {
        return Err(format!(
            "{integrity} takes {takes} octets of integrity_key, not {}",
            own.len()
        ));
    }
    if key.len() + takes != suite.key_material_len() {
        return Err("without encryption there is no encryption_key".to_owned());
    }
    // In one piece from the beginning: a growing buffer leaves copies behind.
    let mut all = Vec::with_capacity(suite.key_material_len());
    all.extend_from_slice(key.expose());
    all.extend_from_slice(own.expose());
    Ok((suite, Secret::new(all)))
}

fn spi<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    struct Number;
    impl Visitor<'_> for Number {
        type Value = u32;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an SPI; write 0x1007 or \"0x1007\"")
        }

        fn visit_i64<E: de::Error>(self, number: i64) -> Result<u32, E> {
            u32::try_from(number).map_err(|_| E::custom("an SPI has 32 bits"))
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<u32, E> {
            let hexadecimal = text.strip_prefix("0x").map(|digits| u32::from_str_radix(digits, 16));
            let number = hexadecimal.unwrap_or_else(|| text.parse());
            number.map_err(|_| E::custom("no SPI; write 0x1007 or \"0x1007\""))
        }
    }
    deserializer.deserialize_any(Number)
}

#[cfg(test)]
mod tests;
