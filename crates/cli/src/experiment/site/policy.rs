//! The policies of both ends.

use super::WIRE;
use std::fmt::Write as _;
use std::net::Ipv4Addr;

/// What protects packets, in the policy's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cipher {
    /// For people, as in `AES-128-GCM`.
    pub name: &'static str,
    /// As in `ESP_AES128_GCM_16`.
    pub encryption: &'static str,
    /// As in `HMAC-SHA1`, or `NONE`.
    pub authentication: &'static str,
}

/// Tunnels with one suite, a pair of SAs for each of so many pairs of addresses.
#[derive(Clone, Copy, Debug)]
pub struct Net {
    /// Its number: the third octet of its addresses.
    pub number: u8,
    /// What protects its packets.
    pub cipher: Cipher,
    /// How many pairs.
    pub pairs: u8,
}

impl Net {
    /// Its addresses on the left (0) or right (1) host.
    pub fn addresses(&self, end: usize) -> Vec<Ipv4Addr> {
        let second = [50, 60][end];
        (1..=self.pairs).map(|pair| Ipv4Addr::new(10, second, self.number, pair)).collect()
    }
}

/// How the daemons prove who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Authentication {
    /// By a key both have.
    PresharedKey,
    /// By certificates with ECDSA keys on the curve P-256.
    EcdsaP256,
    /// By certificates with RSA keys of 2048 bits.
    Rsa2048,
}

impl Authentication {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::PresharedKey, Self::EcdsaP256, Self::Rsa2048];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::PresharedKey => "preshared key",
            Self::EcdsaP256 => "certificate, ECDSA P-256",
            Self::Rsa2048 => "certificate, RSA-2048",
        }
    }

    /// For names of tunnels and identities.
    pub fn label(self) -> &'static str {
        match self {
            Self::PresharedKey => "psk",
            Self::EcdsaP256 => "ecdsa",
            Self::Rsa2048 => "rsa",
        }
    }

    fn method(self) -> &'static str {
        match self {
            Self::PresharedKey => "Preshared_key",
            Self::EcdsaP256 => "ECDSA-256",
            Self::Rsa2048 => "RSA_signatures",
        }
    }
}

/// Tunnels of phase 1 that prove themselves alike, each with one of phase 2.
#[derive(Clone, Copy, Debug)]
pub struct Tunnels {
    /// How.
    pub authentication: Authentication,
    /// How many.
    pub number: u8,
}

impl Tunnels {
    /// The name of one.
    pub fn name(&self, n: u8) -> String {
        format!("{}{n}", self.authentication.label())
    }

    /// Its identity at the left (0) or right (1) end.
    pub fn identity(&self, n: u8, end: usize) -> String {
        format!("{}.{}.example", self.name(n), ["left", "right"][end])
    }
}

/// The key of all tunnels; whoever could use it is in the namespaces already.
const KEY: &str = "preshared-key-of-the-experiments";

const HEAD: &str = "<?xml version=\"1.0\"?>\n<AIX_VPN Version=\"2.1\">\n";

/// A policy for both ends with one tunnel of phase 1, and one of phase 2 for every pair of addresses of every net.
pub fn policies(nets: &[Net]) -> [String; 2] {
    [0, 1].map(|end| {
        let (here, there) = (WIRE[end], WIRE[1 - end]);
        let mut text = HEAD.to_owned() + &protection(Authentication::PresharedKey);
        let _ = writeln!(
            text,
            "<IKETunnel IKE_TunnelName=\"site\" IKE_ProtectionRef=\"psk\">\
             <IKELocalIdentity><IPV4_Address Value=\"{here}\"/></IKELocalIdentity>\
             <IKERemoteIdentity><IPV4_Address Value=\"{there}\"/></IKERemoteIdentity></IKETunnel>\n\
             <IKEPresharedKey Format=\"ASCII\" Value=\"{KEY}\"><IKEPresharedRemoteID>\
             <PK_IPV4_Address Value=\"{there}\"/></IKEPresharedRemoteID></IKEPresharedKey>"
        );
        for net in nets {
            let name = format!("n{}", net.number);
            text += &proposal(&name, net.cipher);
            let pairs = net.addresses(end).into_iter().zip(net.addresses(1 - end));
            for (pair, (local, remote)) in pairs.enumerate() {
                text += &child(&format!("{name}p{pair}"), "site", &name, [local, remote]);
            }
        }
        text + "</AIX_VPN>\n"
    })
}

impl Tunnels {
    /// Policies for both ends with all these tunnels. They are told apart by their identities.
    pub fn policies(all: &[Self]) -> [String; 2] {
        [0, 1].map(|end| {
            let (here, there) = (WIRE[end], WIRE[1 - end]);
            let gcm = Cipher { name: "", encryption: "ESP_AES128_GCM_16", authentication: "NONE" };
            let mut text = HEAD.to_owned() + &proposal("esp", gcm);
            for (kind, tunnels) in (0_u8..).zip(all) {
                text += &protection(tunnels.authentication);
                for n in 0..tunnels.number {
                    let (local, remote) = (tunnels.identity(n, end), tunnels.identity(n, 1 - end));
                    let name = tunnels.name(n);
                    let _ = writeln!(
                        text,
                        "<IKETunnel IKE_TunnelName=\"{name}\" IKE_ProtectionRef=\"{}\"><IKELocalIdentity>\
                         <FQDN Value=\"{local}\"><IPV4_Address Value=\"{here}\"/></FQDN></IKELocalIdentity>\
                         <IKERemoteIdentity><FQDN Value=\"{remote}\"><IPV4_Address Value=\"{there}\"/></FQDN>\
                         </IKERemoteIdentity></IKETunnel>",
                        tunnels.authentication.label(),
                    );
                    if tunnels.authentication == Authentication::PresharedKey {
                        let _ = writeln!(
                            text,
                            "<IKEPresharedKey Format=\"ASCII\" Value=\"{KEY}\"><IKEPresharedRemoteID>\
                             <PK_FQDN Value=\"{remote}\"/></IKEPresharedRemoteID></IKEPresharedKey>"
                        );
                    }
                    let behind = |end: usize| Ipv4Addr::new(10, [50, 60][end], 100 + kind, n + 1);
                    text += &child(&format!("{name}c"), &name, "esp", [behind(end), behind(1 - end)]);
                }
            }
            text + "</AIX_VPN>\n"
        })
    }
}

fn protection(authentication: Authentication) -> String {
    format!(
        "<IKEProtection IKE_ProtectionName=\"{}\" IKE_Role=\"Both\" IKE_Version=\"2\">\n\
         <IKETransform IKE_Encryption=\"AES-GCM-16-128\"/>\n\
         <IKETransform IKE_PRF=\"PRF_HMAC_SHA2_256\"/>\n\
         <IKETransform IKE_DHGroup=\"31\"/>\n\
         <IKETransform IKE_AuthenticationMethod=\"{}\"/>\n\
         <IKETransform IKE_KeyRefreshMinutes=\"480\"/>\n\
         </IKEProtection>\n",
        authentication.label(),
        authentication.method(),
    )
}

/// A proposal and a protection of the same name.
fn proposal(name: &str, cipher: Cipher) -> String {
    let Cipher { encryption, authentication, .. } = cipher;
    format!(
        "<IPSecProposal IPSec_ProposalName=\"{name}\"><IPSecESPProtocol ESP_Encryption=\"{encryption}\" \
         ESP_Authentication=\"{authentication}\" ESP_EncapsulationMode=\"Tunnel\" ESP_ExtendedSeqNum=\"0\" \
         ESP_KeyRefreshMinutes=\"480\"/></IPSecProposal>\n\
         <IPSecProtection IPSec_ProtectionName=\"{name}\" IPSec_ProposalRefs=\"{name}\" IPSec_Role=\"Both\" \
         IPSec_InitiatorDHGroup=\"0\" IPSec_ResponderDHGroup=\"NO_PFS\"/>\n"
    )
}

fn child(name: &str, tunnel: &str, protection: &str, addresses: [Ipv4Addr; 2]) -> String {
    let side = |side: &str, address: Ipv4Addr| {
        format!(
            "<IPSec{side}Identity Protocol=\"0\" Port=\"0\" EndPort=\"65535\"><IPV4_Address_Range \
             From_IPAddr=\"{address}\" To_IPAddr=\"{address}\"/></IPSec{side}Identity>"
        )
    };
    let [local, remote] = addresses;
    format!(
        "<IPSecTunnel IPSec_TunnelName=\"{name}\" IKE_TunnelName=\"{tunnel}\" IPSec_ProtectionRef=\"{protection}\">{}{}\
         </IPSecTunnel>\n",
        side("Local", local),
        side("Remote", remote),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const GCM: Cipher =
        Cipher { name: "AES-128-GCM", encryption: "ESP_AES128_GCM_16", authentication: "NONE" };

    fn read(text: &str) -> ::policy::Policy {
        ::policy::xml::read("policy.xml", text).expect("no errors").policy
    }

    #[test]
    fn a_pair_of_addresses_has_a_tunnel_of_its_own() {
        let nets =
            [Net { number: 1, cipher: GCM, pairs: 3 }, Net { number: 2, cipher: GCM, pairs: 1 }];
        for policy in policies(&nets) {
            let policy = read(&policy);
            assert_eq!(policy.tunnels.len(), 1);
            assert_eq!(policy.tunnels[0].children.len(), 4);
        }
        assert_eq!(nets[0].addresses(1)[2], Ipv4Addr::new(10, 60, 1, 3));
    }

    #[test]
    fn tunnels_of_every_kind_are_in_one_policy() {
        let all = Authentication::ALL.map(|authentication| Tunnels { authentication, number: 32 });
        for policy in Tunnels::policies(&all) {
            assert_eq!(read(&policy).tunnels.len(), 96);
        }
    }
}
