//! The settings that the policy has for a tunnel.

use crate::in_force::InForce;
use control::protocol::{ChildPolicy, ResponderWindow, Tunnel, TunnelPolicy};
use policy::xml::Definitions;
use policy::{ChildTunnel, Credential, IkeTunnel, Lifetime, LifetimeBounds};
use std::time::Duration;

/// Adds the policy's settings to each tunnel and its children.
pub(crate) fn describe(tunnels: &mut [Tunnel], in_force: &InForce) {
    let definitions = in_force.definitions();
    for tunnel in tunnels {
        let Some(defined) = in_force.tunnel(&tunnel.name) else { continue };
        tunnel.policy = Some(tunnel_policy(defined, definitions));
        for child in &mut tunnel.children {
            let defined = in_force.child(&child.name);
            child.policy = defined.map(|defined| child_policy(defined, definitions));
        }
    }
}

fn tunnel_policy(tunnel: &IkeTunnel, definitions: &Definitions) -> TunnelPolicy {
    TunnelPolicy {
        protection: protection(definitions, &tunnel.name, "IKEProtection"),
        local_id_type: tunnel.local.identity.kind().to_owned(),
        remote_id_type: tunnel.remote.identity.kind().to_owned(),
        role: tunnel.role.to_string(),
        authentication: match tunnel.credential {
            Credential::PresharedKey(_) => "preshared_key",
            Credential::Signature(_) => "signature",
        }
        .to_owned(),
        lifetime_seconds: tunnel.lifetime.hard.as_secs(),
        lifetime_as_responder_seconds: Some(tunnel.lifetime.of(false).hard)
            .filter(|hard| *hard != tunnel.lifetime.hard)
            .map(|hard| hard.as_secs()),
        responder_window: window([&tunnel.lifetime]),
        overlap_percent: tunnel.lifetime.overlap_percent,
        auto_start: tunnel.auto_start,
    }
}

fn child_policy(child: &ChildTunnel, definitions: &Definitions) -> ChildPolicy {
    ChildPolicy {
        protection: protection(definitions, &child.name, "IPSecProtection"),
        role: child.role.to_string(),
        pfs: child.pfs.offer.iter().map(ToString::to_string).collect(),
        responder_window: window(child.proposals.iter().map(|proposal| &proposal.lifetime)),
        auto_start: child.auto_start,
        on_demand: child.on_demand,
    }
}

/// The window that the lifetimes of one protection have in common. One for volumes has no effect without a limit.
fn window<'l>(lifetimes: impl IntoIterator<Item = &'l Lifetime>) -> Option<ResponderWindow> {
    let lifetimes: Vec<&Lifetime> = lifetimes.into_iter().collect();
    let LifetimeBounds { age: [shortest, longest], bytes: [smallest, largest] } =
        lifetimes.first()?.as_responder;
    let limited = lifetimes.iter().any(|lifetime| lifetime.bytes.is_some());
    let window = ResponderWindow {
        min_seconds: (!shortest.is_zero()).then_some(shortest.as_secs()),
        max_seconds: (longest != Duration::MAX).then_some(longest.as_secs()),
        min_bytes: (limited && smallest > 0).then_some(smallest),
        max_bytes: (limited && largest != u64::MAX).then_some(largest),
    };
    (window != ResponderWindow::default()).then_some(window)
}

fn protection(definitions: &Definitions, tunnel: &str, element: &str) -> Option<String> {
    let definition = definitions.of(tunnel).find(|definition| definition.element == element);
    definition.map(|definition| definition.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_told_as_far_as_it_has_an_effect() {
        let sample = include_str!("../../../policy/fixtures/vendor_sample.xml");
        let limited = sample
            .replace("ESP_KeyRefreshKB=\"0\"", "ESP_KeyRefreshKB=\"100\"")
            .replace("UseLifeSize=\"No\"", "UseLifeSize=\"Yes\"");
        let window = |minutes: [u64; 2], kilobytes: [Option<u64>; 2]| ResponderWindow {
            min_seconds: Some(60 * minutes[0]),
            max_seconds: Some(60 * minutes[1]),
            min_bytes: kilobytes[0].map(|kb| kb * 1024),
            max_bytes: kilobytes[1].map(|kb| kb * 1024),
        };
        for (text, kilobytes) in [(sample, [None; 2]), (&*limited, [Some(1), Some(200)])] {
            let loaded = policy::xml::read("sample.xml", text).expect("the sample is valid");
            let tunnel = &loaded.policy.tunnels[0];
            let ike = tunnel_policy(tunnel, &loaded.definitions).responder_window;
            assert_eq!(ike, Some(window([1, 480], [None; 2])));
            let child = child_policy(&tunnel.children[0], &loaded.definitions).responder_window;
            assert_eq!(child, Some(window([1, 43_200], kilobytes)));
        }
        assert_eq!(super::window([&Lifetime::default()]), None);
    }
}
