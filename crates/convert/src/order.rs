//! The order of tunnels: narrow traffic before wide traffic.
//!
//! strongSwan gives the more specific policy the higher priority. `vpnd` takes the first tunnel that covers a packet,
//! so a wide tunnel must not stand before a narrow one.

use super::finding::{Loss, Report};
use super::source::Location;
use policy::shadow::{Shadowed, Traffic, shadowed};
use policy::{Binding, Bindings, ChildTunnel, IkeTunnel, Policy};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Puts tunnels before those that cover all their traffic and more. Others keep their order. `bindings`: the marks and
/// interfaces of the phase 2 tunnels.
pub(super) fn narrow_first(tunnels: Vec<IkeTunnel>, bindings: &Bindings) -> Vec<IkeTunnel> {
    let mut ordered: Vec<IkeTunnel> = Vec::with_capacity(tunnels.len());
    for mut tunnel in tunnels {
        tunnel.children =
            inserted(tunnel.children, |wide, narrow| is_wider(wide, narrow, bindings));
        let place = ordered
            .iter()
            .position(|earlier| {
                has_wider(&earlier.children, &tunnel.children, bindings)
                    && !has_wider(&tunnel.children, &earlier.children, bindings)
            })
            .unwrap_or(ordered.len());
        ordered.insert(place, tunnel);
    }
    ordered
}

/// Returns `true` if one of `wide` hides one of `narrow`.
fn has_wider(wide: &[Arc<ChildTunnel>], narrow: &[Arc<ChildTunnel>], bindings: &Bindings) -> bool {
    wide.iter().any(|wide| narrow.iter().any(|narrow| is_wider(wide, narrow, bindings)))
}

/// Each value before the first one that is wider.
fn inserted<T>(values: Vec<T>, is_wider: impl Fn(&T, &T) -> bool) -> Vec<T> {
    let mut ordered: Vec<T> = Vec::with_capacity(values.len());
    for value in values {
        let place = ordered.iter().position(|other| is_wider(other, &value));
        ordered.insert(place.unwrap_or(ordered.len()), value);
    }
    ordered
}

/// Returns `true` if one phase 2 tunnel has all the traffic of another and more, or the same with more marks. The order
/// of tunnels that no packet can choose between does not matter.
fn is_wider(wide: &ChildTunnel, narrow: &ChildTunnel, bindings: &Bindings) -> bool {
    let [of_wide, of_narrow] = [wide, narrow].map(|child| bindings.of(&child.name));
    let [wide, narrow] = [wide, narrow].map(|child| Traffic::of(child, Binding::default()));
    let by_selectors = wide.covers(&narrow);
    match narrow.covers(&wide) {
        false => by_selectors && of_wide.meets(of_narrow),
        true => by_selectors && of_wide.includes(of_narrow) && !of_narrow.includes(of_wide),
    }
}

/// Reports tunnels that are never used all the same. `places`: where each phase 2 tunnel stands in the file.
pub(super) fn report_shadowed(
    policy: &Policy,
    bindings: &Bindings,
    places: &BTreeMap<String, Location>,
    report: &mut Report,
) {
    let children: Vec<&Arc<ChildTunnel>> =
        policy.tunnels.iter().flat_map(|tunnel| &tunnel.children).collect();
    for Shadowed { child, by } in shadowed(policy, bindings) {
        let (child, earlier) = (&children[child].name, &children[by].name);
        let Some((place, other)) = places.get(child).zip(places.get(earlier)) else { continue };
        let message = format!("covered by {earlier}, line {}", other.line);
        let help = format!(
            "a packet takes the first tunnel that covers it, and none takes {child}: remove one of them"
        );
        report.add(Loss::NeverUsed, place, message, help);
    }
}
