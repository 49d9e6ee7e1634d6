//! The configuration of both sides of a scenario.

use super::certificates::{self, HOSTS, Key};
use super::pluto::{Files, NAME, Pluto, SECOND};
use crate::peer::{PATIENT, USERSPACE, World, gateway};
use std::fmt::Write;
use testkit::policies::{self, changed};

/// A tunnel, as both sides are told of it.
#[derive(Clone, Copy)]
pub struct Setup {
    /// Lines of `[ike]` in the configuration of `vpnd`.
    pub ike: &'static str,
    pub plane: &'static str,
    /// `ESP_Encryption` and `ESP_Authentication` of the policy.
    pub policy: [&'static str; 2],
    /// The same in `ipsec.conf`.
    pub esp: &'static str,
    pub transport: bool,
    pub udp: bool,
    pub v6: bool,
    pub esn: bool,
    /// A key exchange with each Child SA.
    pub pfs: bool,
    /// Certificates with such keys in place of a preshared key.
    pub certificates: Option<Key>,
    /// The preshared key that libreswan has.
    pub key: &'static str,
    /// The networks of libreswan's configuration, its own and the other one.
    pub networks: [&'static str; 2],
    /// A second Child SA for other networks, [`OTHER`], in the same IKE SA.
    pub second: bool,
    /// libreswan does not name the address of `vpnd`.
    pub any: bool,
    /// More lines of the connection; those with a name that is there already replace it.
    pub lines: &'static [&'static str],
}

/// Addresses in the networks of the second tunnel: that of `vpnd`, and libreswan's.
pub const OTHER: [&str; 2] = ["10.1.1.1", "10.2.1.1"];

pub const GCM_256: Setup = Setup {
    ike: PATIENT,
    plane: USERSPACE,
    policy: ["ESP_AES256_GCM_16", "NONE"],
    esp: "aes_gcm256",
    transport: false,
    udp: false,
    v6: false,
    esn: false,
    pfs: true,
    certificates: None,
    key: "tests-replace-this-key-before-use",
    networks: ["10.2.0.0/24", "10.1.0.0/24"],
    second: false,
    any: false,
    lines: &[],
};
pub const GCM_128: Setup =
    Setup { policy: ["ESP_AES128_GCM_16", "NONE"], esp: "aes_gcm128", ..GCM_256 };
pub const GMAC: Setup =
    Setup { policy: ["ESP_AES256_GMAC", "NONE"], esp: "null_auth_aes_gmac_256", ..GCM_256 };
pub const CHACHA: Setup =
    Setup { policy: ["ESP_CHACHA20_POLY1305", "NONE"], esp: "chacha20_poly1305", ..GCM_256 };
pub const CBC_256: Setup =
    Setup { policy: ["ESP_AES_CBC_256", "HMAC-SHA2-256"], esp: "aes256-sha2_256", ..GCM_256 };
pub const CBC_128: Setup =
    Setup { policy: ["ESP_AES_CBC_128", "HMAC-SHA"], esp: "aes128-sha1", ..GCM_256 };

impl Setup {
    /// policy.xml of `vpnd`.
    fn policy(&self) -> String {
        let mode = if self.transport { "Transport" } else { "Tunnel" };
        let esn = u8::from(self.esn);
        let [cipher, mac] = self.policy;
        let element = format!(
            "<IPSecESPProtocol ESP_Encryption=\"{cipher}\" ESP_Authentication=\"{mac}\" \
             ESP_EncapsulationMode=\"{mode}\" ESP_ExtendedSeqNum=\"{esn}\" ESP_KeyRefreshKB=\"0\" \
             ESP_KeyRefreshMinutes=\"60\"/>"
        );
        let mut text = policies::site_with(0, self.v6, self.transport, &element);
        if !self.pfs {
            let groups = "IPSec_InitiatorDHGroup=\"19\" IPSec_ResponderDHGroup=\"GROUP_19\"";
            let none = "IPSec_InitiatorDHGroup=\"0\" IPSec_ResponderDHGroup=\"0\"";
            text = changed(&text, groups, none);
        }
        if self.second {
            let (from, to) = ("  <IPSecTunnel ", "</IPSecTunnel>\n");
            let end = text.find(to).expect("the policy has one") + to.len();
            let first = &text[text.find(from).expect("the policy has one")..end];
            let second = changed(first, "site_lan", "site_dmz");
            let second = changed(&second, "10.1.0.", "10.1.1.");
            text.insert_str(end, &changed(&second, "10.2.0.", "10.2.1."));
        }
        match self.certificates {
            Some(key) => certificates::in_policy(&text, key),
            None => text,
        }
    }

    /// Addresses of `vpnd` and libreswan.
    pub fn outer(&self) -> [&'static str; 2] {
        policies::SITE_ADDRESSES[usize::from(self.v6)]
    }

    /// Addresses of what is protected.
    pub fn inner(&self) -> [&'static str; 2] {
        if self.transport { self.outer() } else { ["10.1.0.1", "10.2.0.1"] }
    }

    /// ipsec.conf of libreswan.
    fn configuration(&self) -> String {
        let [peer, own] = self.outer();
        let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
        let group = if self.pfs { ";dh19" } else { "" };
        let right = if self.any { "%any" } else { peer };
        let mut lines = vec![
            ("left", own.to_owned()),
            ("right", right.to_owned()),
            ("keyexchange", "ikev2".to_owned()),
            ("esn", yes(self.esn)),
            ("pfs", yes(self.pfs)),
            ("ike", "aes256-sha2_256;dh19".to_owned()),
            ("esp", format!("{}{group}", self.esp)),
            ("auto", "add".to_owned()),
        ];
        match self.certificates {
            Some(key) => lines.extend([
                ("authby", key.authby.to_owned()),
                ("leftcert", HOSTS[1].to_owned()),
                ("leftid", format!("@{}", HOSTS[1])),
                ("rightid", format!("@{}", HOSTS[0])),
                ("leftsendcert", "always".to_owned()),
            ]),
            None => lines.extend([("authby", "secret".to_owned()), ("rightid", peer.to_owned())]),
        }
        if self.transport {
            lines.push(("type", "transport".to_owned()));
        } else {
            let [own, other] = self.networks;
            lines.extend([("leftsubnet", own.to_owned()), ("rightsubnet", other.to_owned())]);
        }
        if self.udp {
            lines.push(("encapsulation", yes(true)));
        }
        let own = self.lines.iter().filter_map(|line| line.split_once('='));
        let own: Vec<(&str, String)> = own.map(|(name, value)| (name, value.to_owned())).collect();
        lines.retain(|(name, _)| own.iter().all(|(other, _)| other != name));
        lines.extend(own);
        let mut text = "config setup\n    uniqueids=yes\n".to_owned();
        let mut connection = |name: &str, lines: &[(&str, String)]| {
            let _ = writeln!(text, "\nconn {name}");
            for (name, value) in lines {
                let _ = writeln!(text, "    {name}={value}");
            }
        };
        connection(NAME, &lines);
        if self.second {
            lines.retain(|(name, _)| !name.ends_with("subnet"));
            let [other, own] =
                OTHER.map(|address| format!("{}0/24", &address[..address.len() - 1]));
            lines.extend([("leftsubnet", own), ("rightsubnet", other)]);
            connection(SECOND, &lines);
        }
        text
    }

    /// Starts both.
    pub fn world(&self) -> World<Pluto> {
        let inner = self.inner().map(|address| address.parse().expect("an address"));
        let vpnd = gateway(self.plane, &self.policy(), self.ike);
        let authority = self.certificates.map(certificates::make);
        if let Some(authority) = &authority {
            authority.give(&vpnd);
        }
        if self.second {
            vpnd.space.ip(&format!("address add {}/32 dev lo", OTHER[0]));
        }
        World::with(vpnd, self.plane, self.outer(), inner, ["site", "site_lan"], |space| {
            if self.second {
                space.ip(&format!("address add {}/32 dev lo", OTHER[1]));
            }
            if !self.transport {
                // Policies of the kernel take packets off whatever route they go.
                space.ip("route add 10.1.0.0/16 dev wire src 10.2.0.1");
            }
            let files = Files {
                configuration: &self.configuration(),
                secrets: &format!(": PSK \"{}\"\n", self.key),
                authority: authority.as_ref(),
            };
            Pluto::start(space, &files)
        })
    }
}
