//! The settings that the policy has for a tunnel.

use control::protocol::{ChildPolicy, Tunnel, TunnelPolicy};
use policy::xml::Definitions;
use policy::{ChildTunnel, Credential, Endpoint, Identity, IkeTunnel, Policy};
use std::collections::BTreeMap;

/// Adds the policy's settings to each tunnel and its children.
pub fn describe(tunnels: &mut [Tunnel], policy: &Policy, definitions: &Definitions) {
    let by_name: BTreeMap<&str, &IkeTunnel> =
        policy.tunnels.iter().map(|tunnel| (tunnel.name.as_str(), tunnel.as_ref())).collect();
    for tunnel in tunnels {
        let Some(defined) = by_name.get(tunnel.name.as_str()) else { continue };
        tunnel.policy = Some(tunnel_policy(defined, definitions));
        for child in &mut tunnel.children {
            let definition = defined.children.iter().find(|defined| defined.name == child.name);
            child.policy = definition.map(|defined| child_policy(defined, definitions));
        }
    }
}

fn tunnel_policy(tunnel: &IkeTunnel, definitions: &Definitions) -> TunnelPolicy {
    TunnelPolicy {
        protection: protection(definitions, &tunnel.name, "IKEProtection"),
        local_id_type: id_type(&tunnel.local).to_owned(),
        remote_id_type: id_type(&tunnel.remote).to_owned(),
        role: tunnel.role.to_string(),
        authentication: match tunnel.credential {
            Credential::PresharedKey(_) => "preshared_key",
            _ => "signature",
        }
        .to_owned(),
        lifetime_seconds: tunnel.lifetime.hard.as_secs(),
        lifetime_as_responder_seconds: Some(tunnel.lifetime.of(false).hard)
            .filter(|hard| *hard != tunnel.lifetime.hard)
            .map(|hard| hard.as_secs()),
        overlap_percent: tunnel.lifetime.overlap_percent,
        auto_start: tunnel.auto_start,
    }
}

fn child_policy(child: &ChildTunnel, definitions: &Definitions) -> ChildPolicy {
    ChildPolicy {
        protection: protection(definitions, &child.name, "IPSecProtection"),
        role: child.role.to_string(),
        pfs: child.pfs.offer.iter().map(ToString::to_string).collect(),
        auto_start: child.auto_start,
        on_demand: child.on_demand,
    }
}

fn protection(definitions: &Definitions, tunnel: &str, element: &str) -> Option<String> {
    let definition = definitions.of(tunnel).iter().find(|definition| definition.element == element);
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
