//! The configuration of both sides in a scenario.

use super::charon::NAME;
use std::net::IpAddr;
use testkit::policies;

/// The protocol and the algorithms of the Child SA, in the words of both sides.
#[derive(Clone, Copy, Debug)]
pub struct Protection {
    /// Whether it is AH.
    pub ah: bool,
    /// `ESP_Encryption` and `ESP_Authentication`, or `AH_Authentication` alone.
    pub policy: [&'static str; 2],
    /// The same for strongSwan.
    pub charon: &'static str,
    /// How strongSwan lists it.
    pub listed: &'static str,
}

/// One tunnel.
#[derive(Clone, Debug)]
pub struct Setup {
    pub protection: Protection,
    pub transport: bool,
    /// Whether the gateways have IPv6 addresses.
    pub v6: bool,
    pub udp: bool,
    pub esn: bool,
}

impl Setup {
    /// policy.xml of `vpnd`.
    pub fn policy(&self) -> String {
        let mode = if self.transport { "Transport" } else { "Tunnel" };
        let esn = u8::from(self.esn);
        let [cipher, mac] = self.protection.policy;
        let (name, kind, algorithms) = if self.protection.ah {
            ("IPSecAHProtocol", "AH", format!("AH_Authentication=\"{cipher}\""))
        } else {
            let both = format!("ESP_Encryption=\"{cipher}\" ESP_Authentication=\"{mac}\"");
            ("IPSecESPProtocol", "ESP", both)
        };
        let element = format!(
            "<{name} {algorithms} {kind}_EncapsulationMode=\"{mode}\" {kind}_ExtendedSeqNum=\"{esn}\" \
             {kind}_KeyRefreshKB=\"0\" {kind}_KeyRefreshMinutes=\"60\"/>"
        );
        policies::site_with(0, self.v6, self.transport, &element)
    }

    /// Addresses of `vpnd` and strongSwan.
    pub fn outer(&self) -> [&'static str; 2] {
        policies::SITE_ADDRESSES[usize::from(self.v6)]
    }

    /// Addresses of what is protected.
    pub fn inner(&self) -> [IpAddr; 2] {
        let text = if self.transport { self.outer() } else { ["10.1.0.1", "10.2.0.1"] };
        text.map(|address| address.parse().expect("an address"))
    }

    /// swanctl.conf of strongSwan.
    pub fn connections(&self) -> String {
        let kind = if self.protection.ah { "ah" } else { "esp" };
        let esn = if self.esn { "esn" } else { "noesn" };
        let proposal = format!("{kind}_proposals = {}-ecp256-{esn}", self.protection.charon);
        let networks = match self.transport {
            true => "mode = transport",
            false => "local_ts = 10.2.0.0/24\n        remote_ts = 10.1.0.0/24",
        };
        let encap = if self.udp { "encap = yes" } else { "" };
        let key = "tests-replace-this-key-before-use";
        connections(self.outer(), key, encap, "aes256-sha256-ecp256", &[&proposal, networks])
    }
}

/// swanctl.conf for the vendor's sample policy.
pub fn vendor() -> String {
    let lines =
        ["mode = transport", "esp_proposals = aes256gcm16-noesn, aes256gcm16-modp1024-noesn"];
    connections(policies::VENDOR_ADDRESSES, "12345", "", "aes256-sha1-prfsha1-ecp384", &lines)
}

/// swanctl.conf of the second of two hosts; `lines` are those of the child.
fn connections(
    [peer, own]: [&str; 2],
    key: &str,
    line: &str,
    proposals: &str,
    lines: &[&str],
) -> String {
    let lines = lines.join("\n        ");
    format!(
        "connections {{
  {NAME} {{
    version = 2
    local_addrs = {own}
    remote_addrs = {peer}
    proposals = {proposals}
    mobike = no
    {line}
    local {{
      auth = psk
      id = {own}
    }}
    remote {{
      auth = psk
      id = {peer}
    }}
    children {{
      {NAME} {{
        {lines}
      }}
    }}
  }}
}}
secrets {{
  ike-1 {{
    secret = \"{key}\"
  }}
}}
"
    )
}
