//! The configuration of both sides in a scenario: an AIX_VPN policy for `vpnd`, a swanctl.conf for strongSwan.

use crate::authority::{self, Naming, Plan, Revocation};
use crate::token;
use convert::source::{Disk, File};
use convert::{Format, Options, convert};
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The side behind an address translator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nat {
    /// Nobody.
    None,
    /// This implementation.
    Vpnd,
    /// strongSwan.
    Charon,
}

/// Whether there is a second pair of networks, 10.3.0.0/24 behind `vpnd` and 10.4.0.0/24 behind strongSwan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Second {
    /// No.
    None,
    /// Yes, and they have a Child SA of their own.
    Child,
    /// Yes, and the one Child SA is for them, too.
    Networks,
}

/// One tunnel, seen from both sides.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Attributes of `IKETransform` elements, one each.
    pub ike: &'static [(&'static str, &'static str)],
    /// The same in strongSwan's words.
    pub charon_ike: &'static str,
    /// `ESP_Encryption`, `ESP_Authentication`, `ESP_ExtendedSeqNum` of each alternative.
    pub esp: &'static [(&'static str, &'static str, &'static str)],
    /// The same in strongSwan's words, with the group of a rekey.
    pub charon_esp: &'static str,
    /// Group of a rekey, `0` for none; `vpnd` offers and accepts only this.
    pub pfs: &'static str,
    /// Additional key exchanges of both phases in the policy's words; empty: none.
    pub additional: &'static str,
    /// `vpn:PPK` in the policy; empty: none.
    pub ppk: &'static str,
    /// Postquantum preshared keys of `vpnd` and strongSwan by the name [`PPK`]; empty: it has none.
    pub ppks: [&'static str; 2],
    /// Identities are domain names rather than addresses.
    pub names: bool,
    /// Both prove themselves by certificates rather than by a preshared key, and are named as those say.
    pub certificates: Option<Plan>,
    /// The value of `IKE_AuthenticationMethod` then.
    pub signatures: &'static str,
    /// Lines of `[certificates]` in vpnd.toml.
    pub vpnd_certificates: &'static str,
    /// The identity strongSwan takes in place of the one the policy names.
    pub charon_identity: Option<&'static str>,
    /// A second pair of networks.
    pub second: Second,
    /// The protected networks have IPv6 addresses.
    pub inner_v6: bool,
    /// The gateways have IPv6 addresses.
    pub outer_v6: bool,
    /// Preshared keys of `vpnd` and strongSwan.
    pub keys: [&'static str; 2],
    /// First and last address of the network behind `vpnd`, and of that behind strongSwan, in the policy.
    pub networks: [[&'static str; 2]; 2],
    /// The same in strongSwan's words.
    pub charon_networks: [&'static str; 2],
    /// Lines of `[ike]` in vpnd.toml.
    pub vpnd_ike: &'static str,
    /// First retransmission of `vpnd`, and how many there are.
    pub retransmit: (&'static str, u32),
    /// A packet without an SA starts the tunnel, and waits for it.
    pub on_demand: bool,
    /// strongSwan is the newest one rather than the one that this machine has.
    pub newest: bool,
    /// Lines of `charon { }` in strongswan.conf.
    pub charon: &'static str,
    /// Lines of the connection in swanctl.conf.
    pub charon_connection: &'static str,
    /// Lines of its child.
    pub charon_child: &'static str,
    /// The side behind a NAT.
    pub nat: Nat,
    /// The policy of `vpnd` is what `vpnctl policy convert --peer` makes of strongSwan's configuration.
    pub converted: bool,
    /// A second `vpnd` is behind the same NAT, with a tunnel of its own to strongSwan.
    pub fellow: bool,
    /// This is its configuration.
    pub is_fellow: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            ike: &[
                ("IKE_Encryption", "AES-CBC-256"),
                ("IKE_Hash", "HMAC_SHA2_256"),
                ("IKE_PRF", "PRF_HMAC_SHA2_256"),
                ("IKE_DHGroup", "31"),
            ],
            charon_ike: "aes256-sha256-x25519",
            esp: &[("ESP_AES256_GCM_16", "NONE", "0")],
            charon_esp: "aes256gcm16-x25519",
            pfs: "31",
            additional: "",
            ppk: "",
            ppks: [""; 2],
            names: false,
            certificates: None,
            signatures: "RSA_signatures",
            vpnd_certificates: "",
            charon_identity: None,
            second: Second::None,
            inner_v6: false,
            outer_v6: false,
            keys: ["8c1f0e5d-interop-preshared-key"; 2],
            networks: [["10.1.0.0", "10.1.0.255"], ["10.2.0.0", "10.2.0.255"]],
            charon_networks: ["10.1.0.0/24", "10.2.0.0/24"],
            vpnd_ike: "",
            retransmit: ("500ms", 8),
            on_demand: false,
            newest: false,
            charon: "",
            charon_connection: "",
            charon_child: "",
            nat: Nat::None,
            converted: false,
            fellow: false,
            is_fellow: false,
        }
    }
}

/// Names of the tunnels in the policy.
pub const IKE_TUNNEL: &str = "site";
pub const CHILD_TUNNEL: &str = "lan";
pub const SECOND_TUNNEL: &str = "lab";
/// Name of the postquantum preshared key.
pub const PPK: &str = "site-ppk";
/// Name of the connection and of its child in swanctl.conf.
pub const CONNECTION: &str = "net";
/// Name of the second child there.
pub const SECOND_CHILD: &str = "second";

impl Setup {
    /// With IPv6 networks.
    pub fn with_inner_v6(self) -> Self {
        Self {
            inner_v6: true,
            networks: [["fd01::", "fd01::ffff"], ["fd02::", "fd02::ffff"]],
            charon_networks: ["fd01::/112", "fd02::/112"],
            ..self
        }
    }

    /// The configuration of the second `vpnd` behind the same NAT.
    pub fn of_fellow(&self) -> Self {
        let networks = [FELLOW_NETWORK, self.networks[1]];
        Self { networks, is_fellow: true, ..self.clone() }
    }

    /// Own addresses of `vpnd` and strongSwan.
    pub fn outer(&self) -> [IpAddr; 2] {
        match (self.outer_v6, self.nat) {
            (true, _) => {
                [1, 2].map(|host| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host).into())
            }
            (false, Nat::None) => [1, 2].map(|host| Ipv4Addr::new(192, 0, 2, host).into()),
            (false, Nat::Vpnd) => {
                [[172, 16, u8::from(self.is_fellow), 2].into(), [192, 0, 2, 2].into()]
            }
            (false, Nat::Charon) => [[192, 0, 2, 1].into(), [172, 16, 0, 2].into()],
        }
    }

    /// The addresses under which the other side sees `vpnd` and strongSwan.
    pub fn seen(&self) -> [IpAddr; 2] {
        match self.nat {
            Nat::None => self.outer(),
            Nat::Vpnd | Nat::Charon => [1, 2].map(|host| Ipv4Addr::new(192, 0, 2, host).into()),
        }
    }

    /// A host of each of the second networks.
    pub fn second_inner(&self) -> [IpAddr; 2] {
        [3, 4].map(|net| Ipv4Addr::new(10, net, 0, 1).into())
    }

    /// A host of each protected network.
    pub fn inner(&self) -> [IpAddr; 2] {
        match self.inner_v6 {
            false if self.is_fellow => [5, 2].map(|net| Ipv4Addr::new(10, net, 0, 1).into()),
            true => [0xfd01, 0xfd02].map(|net| Ipv6Addr::new(net, 0, 0, 0, 0, 0, 0, 1).into()),
            false => [1, 2].map(|net| Ipv4Addr::new(10, net, 0, 1).into()),
        }
    }

    fn vpnd_identity(&self, side: usize) -> String {
        // An address of its own, an address seen of the other.
        let address = if side == 0 { self.outer()[0] } else { self.seen()[1] };
        let element = if address.is_ipv4() { "IPV4_Address" } else { "IPV6_Address" };
        let address = format!("<{element} Value=\"{address}\"/>");
        if self.naming() == Some(Naming::Subject) {
            let subject = authority::slash_form(NAMES[side]);
            format!("<ASN1_DN Value=\"{subject}\">{address}</ASN1_DN>")
        } else if self.names || self.certificates.is_some() {
            let name = if self.is_fellow && side == 0 { FELLOW } else { NAMES[side] };
            format!("<FQDN Value=\"{name}\">{address}</FQDN>")
        } else {
            address
        }
    }

    /// policy.xml of `vpnd`.
    pub fn policy(&self) -> String {
        if self.converted {
            return self.converted_policy();
        }
        let mut text = String::from(
            "<?xml version=\"1.0\"?>\n<AIX_VPN Version=\"2.1\" xmlns:vpn=\"urn:vpnd:policy\">\n",
        );
        let mut line = |line: String| {
            writeln!(text, "{line}").expect("a string takes everything");
        };
        let use_crl = match self.certificates.map(|plan| plan.revocation) {
            None | Some(Revocation::Unused) => "No",
            Some(_) => "Yes",
        };
        line(format!(
            "<IKEProtection IKE_ProtectionName=\"p1\" IKE_Role=\"Both\" IKE_Version=\"2\" \
             IKE_Flags_UseCRL=\"{use_crl}\">"
        ));
        for (name, value) in self.ike {
            line(format!("<IKETransform {name}=\"{value}\"/>"));
        }
        let additional = match self.additional {
            "" => String::new(),
            some => format!(" vpn:AdditionalKE=\"{some}\""),
        };
        if !additional.is_empty() {
            line(format!("    <IKETransform{additional}/>"));
        }
        let method = if self.certificates.is_some() { self.signatures } else { "Preshared_key" };
        line(format!("<IKETransform IKE_AuthenticationMethod=\"{method}\"/></IKEProtection>"));
        let [local, remote] = [0, 1].map(|side| self.vpnd_identity(side));
        let ppk = match self.ppk {
            "" => String::new(),
            some => format!(" vpn:PPK=\"{some}\""),
        };
        line(format!("<IKETunnel IKE_TunnelName=\"{IKE_TUNNEL}\" IKE_ProtectionRef=\"p1\"{ppk}>"));
        line(format!("<IKELocalIdentity>{local}</IKELocalIdentity>"));
        line(format!("<IKERemoteIdentity>{remote}</IKERemoteIdentity></IKETunnel>"));
        let named = if self.names {
            format!("<PK_FQDN Value=\"{}\"/>", NAMES[1])
        } else {
            format!("<PK_{}", &remote[1..])
        };
        if self.certificates.is_none() {
            line(format!("<IKEPresharedKey Format=\"ASCII\" Value=\"{}\">", self.keys[0]));
            line(format!("<IKEPresharedRemoteID>{named}</IKEPresharedRemoteID></IKEPresharedKey>"));
        }
        line("<IPSecProposal IPSec_ProposalName=\"esp\">".into());
        for (cipher, hash, esn) in self.esp {
            line(format!(
                "<IPSecESPProtocol ESP_Encryption=\"{cipher}\" ESP_Authentication=\"{hash}\" \
                 ESP_EncapsulationMode=\"Tunnel\" ESP_ExtendedSeqNum=\"{esn}\" ESP_KeyRefreshMinutes=\"60\"/>"
            ));
        }
        line("</IPSecProposal>".into());
        line(format!(
            "<IPSecProtection IPSec_ProtectionName=\"p2\" IPSec_ProposalRefs=\"esp\" IPSec_Role=\"Both\" \
             IPSec_InitiatorDHGroup=\"{0}\" IPSec_ResponderDHGroup=\"{0}\"{additional}/>",
            self.pfs
        ));
        let second = [["10.3.0.0", "10.3.0.255"], ["10.4.0.0", "10.4.0.255"]];
        let tunnels = [(CHILD_TUNNEL, self.networks), (SECOND_TUNNEL, second)];
        for (name, networks) in
            tunnels.into_iter().take(if self.second == Second::Child { 2 } else { 1 })
        {
            line(format!(
                "<IPSecTunnel IPSec_TunnelName=\"{name}\" IKE_TunnelName=\"{IKE_TUNNEL}\" \
                 IPSec_ProtectionRef=\"p2\" IPSec_Flags_OnDemand=\"{}\">",
                if self.on_demand { "Yes" } else { "No" }
            ));
            for (side, [from, to]) in ["Local", "Remote"].iter().zip(networks) {
                let family = if self.inner_v6 { "IPV6" } else { "IPV4" };
                line(format!(
                    "<IPSec{side}Identity Protocol=\"0\" Port=\"0\" EndPort=\"65535\">\
                     <{family}_Address_Range From_IPAddr=\"{from}\" To_IPAddr=\"{to}\"/></IPSec{side}Identity>"
                ));
            }
            line("</IPSecTunnel>".into());
        }
        line("</AIX_VPN>".into());
        text
    }

    /// The policy that strongSwan's configuration implies for the other end.
    fn converted_policy(&self) -> String {
        let file = File { name: "swanctl.conf".into(), text: self.swanctl().into() };
        let options = Options { peer: true, ..Options::default() };
        let converted = convert(Format::Swanctl, file, None, &mut Disk::default(), &options);
        let converted = converted.expect("strongSwan reads it, too");
        assert_eq!(converted.findings, [], "nothing is lost");
        converted.xml.to_string()
    }

    /// Names of the connection and its child in swanctl.conf.
    pub fn charon_names(&self) -> [&'static str; 2] {
        if self.converted { [IKE_TUNNEL, CHILD_TUNNEL] } else { [CONNECTION; 2] }
    }

    /// swanctl.conf of strongSwan.
    pub fn swanctl(&self) -> String {
        let own = self.outer()[1];
        let [peer, seen] = self.seen();
        let [theirs, ours] = match self.naming() {
            Some(Naming::Subject) => {
                NAMES.map(|name| format!("\"{}\"", authority::comma_form(name)))
            }
            Some(Naming::DomainName) => NAMES.map(String::from),
            None if self.names => NAMES.map(String::from),
            None => self.charon_identities(),
        };
        let (method, certificate) = match self.certificates {
            Some(_) => ("pubkey", "certs = right.pem"),
            None => ("psk", ""),
        };
        let ours = self.charon_identity.unwrap_or(&ours);
        let [remote_ts, local_ts] = self.charon_networks;
        let second = if self.second == Second::Child {
            format!(
                "{SECOND_CHILD} {{
        local_ts = 10.4.0.0/24
        remote_ts = 10.3.0.0/24
        esp_proposals = {}
      }}",
                self.charon_esp
            )
        } else {
            String::new()
        };
        let Self { charon_ike, charon_esp, charon_connection, charon_child, keys, .. } = self;
        let ppk = match self.ppks[1] {
            "" => String::new(),
            some => format!("ppk-1 {{\n    id = {PPK}\n    secret = {some}\n  }}"),
        };
        let token = if self.has_token() { token::secret() } else { String::new() };
        let fellow = if self.fellow {
            format!(
                "fellow {{
    version = 2
    local_addrs = {own}
    remote_addrs = {peer}
    proposals = {charon_ike}
    local {{
      auth = psk
      id = {ours}
    }}
    remote {{
      auth = psk
      id = {FELLOW}
    }}
    children {{
      fellow {{
        local_ts = {local_ts}
        remote_ts = 10.5.0.0/24
        esp_proposals = {charon_esp}
      }}
    }}
  }}"
            )
        } else {
            String::new()
        };
        assert!(self.nat == Nat::Charon || own == seen, "only a NAT makes a difference");
        let [connection, child] = self.charon_names();
        format!(
            "connections {{
  {connection} {{
    version = 2
    local_addrs = {own}
    remote_addrs = {peer}
    proposals = {charon_ike}
    {charon_connection}
    local {{
      auth = {method}
      {certificate}
      id = {ours}
    }}
    remote {{
      auth = {method}
      id = {theirs}
    }}
    children {{
      {child} {{
        local_ts = {local_ts}
        remote_ts = {remote_ts}
        esp_proposals = {charon_esp}
        {charon_child}
      }}
      {second}
    }}
  }}
  {fellow}
}}
secrets {{
  ike-1 {{
    secret = \"{}\"
  }}
  {ppk}
  {token}
}}
",
            keys[1]
        )
    }

    /// Whether the private keys are in a token.
    pub fn has_token(&self) -> bool {
        self.certificates.is_some_and(|plan| plan.token)
    }

    /// How certificates name the sides, if there are any.
    fn naming(&self) -> Option<Naming> {
        self.certificates.map(|plan| plan.naming)
    }

    /// Identities of `vpnd` and strongSwan where they are addresses: those of the policy.
    fn charon_identities(&self) -> [String; 2] {
        [self.outer()[0].to_string(), self.seen()[1].to_string()]
    }
}

const NAMES: [&str; 2] = authority::HOSTS;

/// The name of the second `vpnd`, and the network behind it.
const FELLOW: &str = "fellow.example";
const FELLOW_NETWORK: [&str; 2] = ["10.5.0.0", "10.5.0.255"];
