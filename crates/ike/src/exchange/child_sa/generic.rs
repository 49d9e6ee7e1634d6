//! Child SAs for traffic that the peer alone names, where a tunnel has a generic child policy.
//!
//! Each becomes a phase 2 tunnel of its own, which this side only answers. Its rule stands behind those of the policy,
//! so that it draws nothing that belongs to them, and goes with its last Child SA. A peer gets nothing that a rule of
//! another peer has a part of, be it of the policy or asked for, and there are bounds to the addresses that it may
//! name.

use super::claimed;
use super::matching::{Asker, Match, as_seen};
use crate::context::Context;
use crate::failure::facts::{Modes, TooMuch};
use crate::negotiation::selectors::{covered, describe, known};
use crate::rejection::Rejection;
use crate::wire::payload::TrafficSelector;
use esp::plane::{Preparation, Rule, TrafficSelectors};
use policy::{
    AddressRange, AllowedTraffic, ChildTunnel, GenericChild, IkeTunnel, Mode, Role, Selector,
};
use std::net::IpAddr;
use std::sync::Arc;

/// The phase 2 tunnel that a request asks for; `None` where the generic policy, if there is one, does not allow it.
pub(super) fn matching(
    asker: Asker<'_>,
    cx: &Context<'_>,
    transport: bool,
    tsi: &[TrafficSelector],
    tsr: &[TrafficSelector],
) -> Option<Result<Match, Rejection>> {
    let Asker { tunnel, path } = asker;
    let generic = tunnel.generic.as_ref()?;
    let seen = transport && generic.mode == Mode::Transport && (path.nat_local || path.nat_remote);
    let (here, there) = (path.local.ip(), path.remote.ip());
    let (seen_i, seen_r);
    let (tsi, tsr) = if seen {
        seen_i = as_seen(tsi, there, path.nat_remote);
        seen_r = as_seen(tsr, here, path.nat_local);
        (seen_i.as_slice(), seen_r.as_slice())
    } else {
        (tsi, tsr)
    };
    let selectors = TrafficSelectors {
        local: allowed(generic, &generic.local, tsr, here),
        remote: allowed(generic, &generic.remote, tsi, there),
    };
    if selectors.local.is_empty() || selectors.remote.is_empty() {
        return None;
    }
    if generic.mode == Mode::Transport && !transport {
        let (child, ours) = (generic.name.clone(), generic.mode);
        return Some(Err(Rejection::mode_mismatch(Modes { child, ours, theirs: Mode::Tunnel })));
    }
    let (local, remote) = (describe(&selectors.local), describe(&selectors.remote));
    let child = ChildTunnel {
        name: format!("{}:{local}={remote}", tunnel.name),
        role: Role::Responder,
        mode: generic.mode,
        local: selectors.local.clone(),
        remote: selectors.remote.clone(),
        proposals: generic.proposals.clone(),
        pfs: generic.pfs.clone(),
        auto_start: false,
        on_demand: false,
    };
    let tunnel = match cx.rules.child(&child.name) {
        None => match admit(tunnel, cx, &child) {
            Ok(()) => Arc::new(child),
            Err(rejection) => return Some(Err(rejection)),
        },
        Some(same) if **same == child => Arc::clone(same),
        // The policy has given this name to something else.
        Some(_) => return None,
    };
    Some(Ok(Match { tunnel, selectors: selectors.into(), seen, asked: None }))
}

/// Refuses a new phase 2 tunnel that is too large, or has traffic of another peer.
fn admit(tunnel: &IkeTunnel, cx: &Context<'_>, child: &ChildTunnel) -> Result<(), Rejection> {
    if !cx.rules.has_room_for(tunnel, child) {
        let [local, remote] =
            [&child.local, &child.remote].map(|selectors| match selectors.as_slice() {
                [first] => first.to_string(),
                [first, ..] => format!("{first} and {} more", selectors.len() - 1),
                [] => String::new(),
            });
        return Err(Rejection::too_much_traffic(TooMuch { local, remote }));
    }
    match cx.rules.overlapping_rule(&tunnel.remote.identity, child) {
        Some(other) => Err(claimed(child, &child.local, &child.remote, other)),
        None => Ok(()),
    }
}

/// The part of one side's traffic that may be asked for. Transport mode is for the two gateways themselves.
fn allowed(
    generic: &GenericChild,
    kinds: &AllowedTraffic,
    asked: &[TrafficSelector],
    host: IpAddr,
) -> Vec<Selector> {
    let mut granted: Vec<Selector> = known(asked);
    granted.retain(|selector| {
        let addresses = &selector.addresses;
        kinds.allows(addresses)
            && (generic.mode == Mode::Tunnel || *addresses == AddressRange::from(host))
    });
    granted.sort_unstable();
    granted.dedup();
    let all = granted.clone();
    granted.retain(|s| all.iter().all(|o| o == s || !covered(&[*s], &[*o])));
    granted
}

/// Makes the rule of a phase 2 tunnel that the policy does not have, and has the plane prepare for it. Returns `true`
/// once the plane is prepared.
pub(super) fn prepare(asker: Asker<'_>, cx: &mut Context<'_>, child: &Arc<ChildTunnel>) -> bool {
    match missing(asker.tunnel, cx, child) {
        Some(rule) => cx.plane.preparation().prepare(&rule),
        None => true,
    }
}

/// Adds the rule of a phase 2 tunnel that the policy does not have.
pub(super) fn add_rule(
    tunnel: &IkeTunnel,
    cx: &mut Context<'_>,
    child: &Arc<ChildTunnel>,
) -> Result<(), Rejection> {
    let Some(rule) = missing(tunnel, cx, child) else { return Ok(()) };
    cx.plane.add_rule(rule).map_err(|error| Rejection::plane(&error))?;
    cx.rules.note_placed(&child.name);
    Ok(())
}

/// The rule of a phase 2 tunnel, if the plane is still to get it.
fn missing(tunnel: &IkeTunnel, cx: &mut Context<'_>, child: &Arc<ChildTunnel>) -> Option<Rule> {
    if tunnel.generic.is_none() || cx.rules.is_placed(&child.name) {
        return None;
    }
    let id = cx.rules.of(&child.name).unwrap_or_else(|| cx.rules.add_asked_for(tunnel, child));
    let selectors = TrafficSelectors { local: child.local.clone(), remote: child.remote.clone() };
    Some(Rule { id, tunnel: child.name.clone(), selectors, trap: false })
}
