//! The configuration of both sides in a scenario.

use policy::{EspEncryption, Group, IkeEncryption, Integrity, KeyBits, Prf};
use std::net::IpAddr;
use testkit::policies;

/// The algorithms of the IKE SA on one side.
#[derive(Clone, Copy, Debug)]
pub struct IkeAlgorithms {
    pub encryption: IkeEncryption,
    /// Of an AEAD: none.
    pub integrity: Option<Integrity>,
    pub prf: Prf,
    pub group: Group,
}

/// The algorithms of the IKE SA on both sides.
#[derive(Clone, Copy, Debug)]
pub struct Ike {
    pub policy: IkeAlgorithms,
    pub iked: IkeAlgorithms,
}

/// The algorithms of the Child SA on both sides: a cipher, and an integrity algorithm.
#[derive(Clone, Copy, Debug)]
pub struct Esp {
    pub policy: (EspEncryption, Integrity),
    pub iked: (EspEncryption, Integrity),
}

impl Ike {
    /// The same on both sides, with an integrity algorithm or an AEAD.
    pub const fn of(
        encryption: IkeEncryption,
        integrity: Option<Integrity>,
        prf: Prf,
        group: Group,
    ) -> Self {
        let algorithms = IkeAlgorithms { encryption, integrity, prf, group };
        Self { policy: algorithms, iked: algorithms }
    }
}

impl Esp {
    /// The same on both sides.
    pub const fn of(encryption: EspEncryption, integrity: Integrity) -> Self {
        Self { policy: (encryption, integrity), iked: (encryption, integrity) }
    }
}

/// A word of iked.conf.
fn word(of: Option<&'static str>) -> &'static str {
    of.expect("OpenIKED has a word for the algorithms of a scenario")
}

/// How both sides prove who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    PresharedKey,
    /// `IKE_AuthenticationMethod` of the policy.
    Certificates(&'static str),
}

/// The side that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    ByVpnd,
    ByIked,
}

/// One tunnel.
#[derive(Clone, Debug)]
pub struct Setup {
    pub ike: Ike,
    pub esp: Esp,
    /// The group of rekeys.
    pub pfs: Group,
    pub proof: Proof,
    pub begun: Begun,
    pub transport: bool,
    pub udp: bool,
    pub v6: bool,
    /// The preshared key that iked has.
    pub key: &'static str,
    /// The networks of a tunnel in iked.conf, its own and the other one.
    pub networks: [&'static str; 2],
    /// Seconds after which iked renews the IKE SA and the Child SA; 0: it does not.
    pub lifetimes: [u32; 2],
}

pub const AES_CBC: Ike = Ike::of(
    IkeEncryption::AesCbc(KeyBits::B256),
    Some(Integrity::HmacSha2_256_128),
    Prf::HmacSha2_256,
    Group::Ecp256,
);

pub const CBC_256: Esp = Esp::of(EspEncryption::AesCbc(KeyBits::B256), Integrity::HmacSha2_512_256);

impl Default for Setup {
    fn default() -> Self {
        Self {
            ike: AES_CBC,
            esp: CBC_256,
            pfs: Group::Ecp256,
            proof: Proof::PresharedKey,
            begun: Begun::ByVpnd,
            transport: false,
            udp: false,
            v6: false,
            key: "tests-replace-this-key-before-use",
            networks: ["10.2.0.0/24", "10.1.0.0/24"],
            lifetimes: [0, 0],
        }
    }
}

impl Setup {
    /// policy.xml of `vpnd`.
    pub fn policy(&self) -> String {
        let mode = if self.transport { "Transport" } else { "Tunnel" };
        let (cipher, mac) = self.esp.policy;
        let (cipher, mac) = (cipher.row().xml_esp[0], mac.row().xml_esp[0]);
        let element = format!(
            "<IPSecESPProtocol ESP_Encryption=\"{cipher}\" ESP_Authentication=\"{mac}\" \
             ESP_EncapsulationMode=\"{mode}\" ESP_ExtendedSeqNum=\"0\" ESP_KeyRefreshKB=\"0\" \
             ESP_KeyRefreshMinutes=\"60\"/>"
        );
        let mut text = policies::site_with(0, self.v6, self.transport, &element);
        let IkeAlgorithms { encryption, integrity, prf, group } = self.ike.policy;
        let (cipher, prf) = (encryption.row().xml_ike[0], prf.row().xml[0]);
        let hash = integrity.map_or_else(String::new, |integrity| {
            format!("<IKETransform IKE_Hash=\"{}\"/>", integrity.row().xml_ike[0])
        });
        let group = group.row().number;
        let method = match self.proof {
            Proof::PresharedKey => "Preshared_key",
            Proof::Certificates(method) => method,
        };
        let pfs = self.pfs.row().number;
        for (from, to) in [
            ("IKE_Encryption=\"AES-CBC-256\"", format!("IKE_Encryption=\"{cipher}\"")),
            ("<IKETransform IKE_Hash=\"HMAC_SHA2_256\"/>", hash),
            ("IKE_PRF=\"PRF_HMAC_SHA2_256\"", format!("IKE_PRF=\"{prf}\"")),
            ("IKE_DHGroup=\"19\"", format!("IKE_DHGroup=\"{group}\"")),
            ("\"Preshared_key\"", format!("\"{method}\"")),
            ("IPSec_InitiatorDHGroup=\"19\"", format!("IPSec_InitiatorDHGroup=\"{pfs}\"")),
            ("IPSec_ResponderDHGroup=\"GROUP_19\"", format!("IPSec_ResponderDHGroup=\"{pfs}\"")),
        ] {
            text = policies::changed(&text, from, &to);
        }
        text
    }

    /// Addresses of `vpnd` and iked.
    pub fn outer(&self) -> [&'static str; 2] {
        policies::SITE_ADDRESSES[usize::from(self.v6)]
    }

    /// Addresses of what is protected.
    pub fn inner(&self) -> [IpAddr; 2] {
        let text = if self.transport { self.outer() } else { ["10.1.0.1", "10.2.0.1"] };
        text.map(|address| address.parse().expect("an address"))
    }

    /// iked.conf of iked.
    pub fn configuration(&self) -> String {
        let [peer, own] = self.outer();
        let IkeAlgorithms { encryption, integrity, prf, group } = self.ike.iked;
        let auth = integrity.map_or_else(String::new, |integrity| {
            format!("auth {} ", word(integrity.row().openiked))
        });
        let (cipher, prf) = (word(encryption.row().openiked), word(prf.row().openiked));
        let ike = format!("enc {cipher} {auth}prf {prf} group {}", word(group.row().openiked));
        let (cipher, auth) = self.esp.iked;
        let (cipher, auth) = (word(cipher.row().openiked), word(auth.row().openiked));
        let child =
            format!("enc {cipher} auth {auth} group {} noesn", word(self.pfs.row().openiked));
        let mode = if self.begun == Begun::ByIked { "active" } else { "passive" };
        let kind = if self.transport { "transport" } else { "tunnel" };
        let natt = if self.udp { "natt" } else { "" };
        let [from, to] = match self.transport {
            true => [own, peer],
            false => self.networks,
        };
        let proof = match self.proof {
            Proof::PresharedKey => format!("psk \"{}\"", self.key),
            Proof::Certificates(_) => String::new(),
        };
        let life = match self.lifetimes {
            [0, 0] => String::new(),
            [ike, child] => format!("ikelifetime {ike} lifetime {child}"),
        };
        format!(
            "set enforcesingleikesa
ikev2 \"net\" {mode} {kind} {natt} esp from {from} to {to} local {own} peer {peer} \
ikesa {ike} childsa {child} srcid {own} dstid {peer} {life} {proof}
"
        )
    }
}
