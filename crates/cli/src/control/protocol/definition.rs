//! What the policy says of a tunnel, beside what is up of it.

use super::Tunnel;
use policy::xml::Places;
use policy::{ChildTunnel, Credential, Endpoint, Identity, IkeTunnel, Policy};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the policy says of a phase 1 tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelPolicy {
    /// Name of its IKEProtection; `null` where the policy comes from no file.
    pub protection: Option<String>,
    /// Kind of this side's identity, as the file has it: `IPV4_Address`, `FQDN`, ….
    pub local_id_type: String,
    /// Kind of the peer's.
    pub remote_id_type: String,
    /// `both`, `initiator` or `responder`.
    pub role: String,
    /// `preshared_key`, or `signature` of a certificate's key.
    pub authentication: String,
    /// Seconds that an IKE SA lives.
    pub lifetime_seconds: u64,
    /// Percent of it during which old and new keys coexist.
    pub overlap_percent: u8,
    /// Whether it starts with the daemon.
    pub auto_start: bool,
}

/// What the policy says of a phase 2 tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildPolicy {
    /// Name of its IPSecProtection; `null` where the policy comes from no file.
    pub protection: Option<String>,
    /// `both`, `initiator` or `responder`.
    pub role: String,
    /// Key exchanges offered for rekeys, in order of preference; empty: none.
    pub pfs: Vec<String>,
    /// Whether it starts with the daemon.
    pub auto_start: bool,
    /// Whether the first packet starts it.
    pub on_demand: bool,
}

/// Completes tunnels by what the policy says of them.
pub fn describe(tunnels: &mut [Tunnel], policy: &Policy, places: &Places) {
    let by_name: BTreeMap<&str, &IkeTunnel> =
        policy.tunnels.iter().map(|tunnel| (tunnel.name.as_str(), tunnel.as_ref())).collect();
    for tunnel in tunnels {
        let Some(defined) = by_name.get(tunnel.name.as_str()) else { continue };
        tunnel.policy = Some(TunnelPolicy::of(defined, places));
        for child in &mut tunnel.children {
            let definition = defined.children.iter().find(|defined| defined.name == child.name);
            child.policy = definition.map(|defined| ChildPolicy::of(defined, places));
        }
    }
}

impl TunnelPolicy {
    fn of(tunnel: &IkeTunnel, places: &Places) -> Self {
        Self {
            protection: protection(places, &tunnel.name, "IKEProtection"),
            local_id_type: id_type(&tunnel.local).to_owned(),
            remote_id_type: id_type(&tunnel.remote).to_owned(),
            role: tunnel.role.to_string(),
            authentication: match tunnel.credential {
                Credential::PresharedKey(_) => "preshared_key",
                _ => "signature",
            }
            .to_owned(),
            lifetime_seconds: tunnel.lifetime.hard.as_secs(),
            overlap_percent: tunnel.lifetime.overlap_percent,
            auto_start: tunnel.auto_start,
        }
    }
}

impl ChildPolicy {
    fn of(child: &ChildTunnel, places: &Places) -> Self {
        Self {
            protection: protection(places, &child.name, "IPSecProtection"),
            role: child.role.to_string(),
            pfs: child.pfs.offer.iter().map(ToString::to_string).collect(),
            auto_start: child.auto_start,
            on_demand: child.on_demand,
        }
    }
}

fn protection(places: &Places, tunnel: &str, element: &str) -> Option<String> {
    let definition = places.of(tunnel).iter().find(|definition| definition.element == element);
    definition.map(|definition| definition.name.clone())
}

fn id_type(endpoint: &Endpoint) -> &'static str {
    match endpoint.identity {
        Identity::Ipv4(_) => "IPV4_Address",
        Identity::Ipv6(_) => "IPV6_Address",
        Identity::Fqdn(_) => "FQDN",
        Identity::UserFqdn(_) => "User_FQDN",
        Identity::Dn(_) => "ASN1_DN",
        _ => "Key_ID",
    }
}
