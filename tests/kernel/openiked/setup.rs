//! The configuration of both sides in a scenario.

use std::net::IpAddr;
use testkit::policies;

/// The algorithms of the IKE SA, in the words of both sides.
#[derive(Clone, Copy, Debug)]
pub struct Ike {
    /// `IKE_Encryption`, `IKE_Hash` (empty: none), `IKE_PRF`, `IKE_DHGroup` of the policy.
    pub policy: [&'static str; 4],
    /// `enc`, `auth` (empty: none), `prf` and `group` of iked.conf.
    pub iked: [&'static str; 4],
}

/// The algorithms of the Child SA, in the words of both sides.
#[derive(Clone, Copy, Debug)]
pub struct Esp {
    /// `ESP_Encryption` and `ESP_Authentication` of the policy.
    pub policy: [&'static str; 2],
    /// `enc` and `auth` (empty: none) of iked.conf.
    pub iked: [&'static str; 2],
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
    /// The group of rekeys; empty: none.
    pub pfs: [&'static str; 2],
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

pub const AES_CBC: Ike = Ike {
    policy: ["AES-CBC-256", "HMAC_SHA2_256", "PRF_HMAC_SHA2_256", "19"],
    iked: ["aes-256", "hmac-sha2-256", "hmac-sha2-256", "ecp256"],
};

pub const CBC_256: Esp =
    Esp { policy: ["ESP_AES_CBC_256", "HMAC-SHA2-512"], iked: ["aes-256", "hmac-sha2-512"] };

impl Default for Setup {
    fn default() -> Self {
        Self {
            ike: AES_CBC,
            esp: CBC_256,
            pfs: ["19", "ecp256"],
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
        let [cipher, mac] = self.esp.policy;
        let element = format!(
            "<IPSecESPProtocol ESP_Encryption=\"{cipher}\" ESP_Authentication=\"{mac}\" \
             ESP_EncapsulationMode=\"{mode}\" ESP_ExtendedSeqNum=\"0\" ESP_KeyRefreshKB=\"0\" \
             ESP_KeyRefreshMinutes=\"60\"/>"
        );
        let mut text = policies::site_with(0, self.v6, self.transport, &element);
        let [cipher, hash, prf, group] = self.ike.policy;
        let hash = match hash {
            "" => String::new(),
            hash => format!("<IKETransform IKE_Hash=\"{hash}\"/>"),
        };
        let method = match self.proof {
            Proof::PresharedKey => "Preshared_key",
            Proof::Certificates(method) => method,
        };
        let [pfs, _] = self.pfs;
        let pfs = if pfs.is_empty() { "0" } else { pfs };
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
        let named = |word: &str, value: &str| match value {
            "" => String::new(),
            value => format!("{word} {value} "),
        };
        let [cipher, auth, prf, group] = self.ike.iked;
        let ike = format!("enc {cipher} {}prf {prf} group {group}", named("auth", auth));
        let [cipher, auth] = self.esp.iked;
        let child =
            format!("enc {cipher} {}{}noesn", named("auth", auth), named("group", self.pfs[1]));
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
