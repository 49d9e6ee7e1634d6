//! Policies between two gateways that share a preshared key, with any number of tunnels: AES-128-GCM for IKE.

use std::fmt::Write;
use std::net::Ipv4Addr;

/// The name of the phase 1 tunnel of a [`Site`].
const SITE: &str = "site";

/// Two gateways, known by their addresses.
pub struct Site<'a> {
    /// The address of this gateway.
    pub here: Ipv4Addr,
    /// The address of the other gateway.
    pub there: Ipv4Addr,
    /// The algorithm of ESP, as a policy spells it.
    pub esp: &'a str,
}

impl Site<'_> {
    /// One phase 1 tunnel, with a phase 2 tunnel `net0`, `net1` and so on for each pair of ranges: that behind this
    /// gateway, and that behind the other one.
    pub fn policy(&self, ranges: impl IntoIterator<Item = [[Ipv4Addr; 2]; 2]>) -> String {
        let Self { here, there, esp } = self;
        let [local, remote] = [here, there].map(|at| format!("<IPV4_Address Value=\"{at}\"/>"));
        let mut text = head("31", esp);
        text += &preshared_key(
            "preshared-key-of-the-bench",
            &format!("<PK_IPV4_Address Value=\"{there}\"/>"),
        );
        text += &phase_1(SITE, &local, &remote);
        for (number, ranges) in ranges.into_iter().enumerate() {
            text += &phase_2(&format!("net{number}"), SITE, ranges);
        }
        text + END
    }
}

/// The beginning of a policy, with the protections of both phases: a group of IKE and an algorithm of ESP.
pub fn head(group: &str, esp: &str) -> String {
    format!(
        r#"<?xml version="1.0"?>
<AIX_VPN Version="2.1">
<IKEProtection IKE_ProtectionName="p1" IKE_Role="Both" IKE_Version="2">
<IKETransform IKE_Encryption="AES-GCM-16-128"/>
<IKETransform IKE_PRF="PRF_HMAC_SHA2_256"/>
<IKETransform IKE_DHGroup="{group}"/>
<IKETransform IKE_AuthenticationMethod="Preshared_key"/>
<IKETransform IKE_KeyRefreshMinutes="480"/>
</IKEProtection>
<IPSecProposal IPSec_ProposalName="esp">
<IPSecESPProtocol ESP_Encryption="{esp}" ESP_Authentication="NONE" ESP_EncapsulationMode="Tunnel"
 ESP_ExtendedSeqNum="0" ESP_KeyRefreshMinutes="480"/>
</IPSecProposal>
<IPSecProtection IPSec_ProtectionName="p2" IPSec_ProposalRefs="esp" IPSec_Role="Both"
 IPSec_InitiatorDHGroup="0" IPSec_ResponderDHGroup="NO_PFS"/>
"#
    )
}

/// The end of a policy.
pub const END: &str = "</AIX_VPN>\n";

/// The key for a peer, which an element `PK_...` identifies.
pub fn preshared_key(key: &str, peer: &str) -> String {
    format!(
        "<IKEPresharedKey Format=\"ASCII\" Value=\"{key}\"><IKEPresharedRemoteID>{peer}</IKEPresharedRemoteID>\
         </IKEPresharedKey>\n"
    )
}

/// A phase 1 tunnel between two identities.
pub fn phase_1(name: &str, local: &str, remote: &str) -> String {
    format!(
        "<IKETunnel IKE_TunnelName=\"{name}\" IKE_ProtectionRef=\"p1\"><IKELocalIdentity>{local}</IKELocalIdentity>\
         <IKERemoteIdentity>{remote}</IKERemoteIdentity></IKETunnel>\n"
    )
}

/// A phase 2 tunnel between a local and a remote range of addresses.
pub fn phase_2(name: &str, phase_1: &str, ranges: [[Ipv4Addr; 2]; 2]) -> String {
    let mut text = format!(
        "<IPSecTunnel IPSec_TunnelName=\"{name}\" IKE_TunnelName=\"{phase_1}\" IPSec_ProtectionRef=\"p2\">"
    );
    for (side, [first, last]) in ["Local", "Remote"].into_iter().zip(ranges) {
        let _ = write!(
            text,
            "<IPSec{side}Identity Protocol=\"0\" Port=\"0\" EndPort=\"65535\"><IPV4_Address_Range \
             From_IPAddr=\"{first}\" To_IPAddr=\"{last}\"/></IPSec{side}Identity>"
        );
    }
    text + "</IPSecTunnel>\n"
}
